"""What the answers to an operator's commands say of EVs and ports."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EvRow:
    """An EV of a queue pair.

    Attributes:
        ev: its value.
        path: its path, such as `p2/t1_3`.
        port: the number of its port, which is its plane.
        state: its state.
        active: whether it is in the active set.
        losses: packets lost on it since it was last good.
        condemnations: how often it has been taken out of use.
        denied_by: who denies it.
        changed_rtts_ago: how long ago its state changed, in base RTTs; None if it never did.
        reason: why its state changed last.
    """

    ev: int
    path: str
    port: int
    state: str
    active: bool
    losses: int
    condemnations: int
    denied_by: list[str]
    changed_rtts_ago: float | None
    reason: str
