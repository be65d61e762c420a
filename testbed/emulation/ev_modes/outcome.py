"""What a run of an EV mode showed, and whether it shows what it should."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class UsedEv:
    """An EV of the sender.

    Attributes:
        ev: its number, as its mode writes it.
        port: the plane whose port it leaves by.
        path: the path that a packet with it took, from the sender.
        back: the path of a packet with it from the receiver.
        sent: the packets that the sender sent with it.
        condemnations: how often the sender took it out of use for losses.
    """

    ev: int
    port: int
    path: str
    back: str
    sent: int
    condemnations: int


@dataclass(frozen=True, slots=True)
class PathRow:
    """A path in one direction.

    Attributes:
        sender: the host that sends.
        path: its name.
        sent: packets sent with the EVs that take it.
        counted: packets that the fabric's counters have for it.
    """

    sender: str
    path: str
    sent: int
    counted: int


@dataclass(frozen=True, slots=True)
class DeadPath:
    """The path that died, and what the sender did. Times are in base RTTs.

    Attributes:
        path: its name.
        evs: the EVs of the sender on it.
        swallowed: packets that it swallowed.
        left: from the path's death until the last of its EVs had left the active set; None: never.
        returned: from its return until the first of its EVs was active again; None: never.
        others_left: EVs of other paths that were condemned meanwhile.
    """

    path: str
    evs: int
    swallowed: int
    left: float | None
    returned: float | None
    others_left: int


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What was seen.

    Attributes:
        mode: how the fabric read the path of a packet.
        hashes_label: with ECMP, whether the hash took the flow label in.
        evs: the EVs.
        paths: the paths, in both directions.
        dead: the path that died.
        messages: the WRITEs that completed, every byte checked.
        message_bytes: the size of each.
        send_errors: packets that a host's kernel refused.
        base_rtt_s: the base RTT in seconds, as emulated.
    """

    mode: str
    hashes_label: bool
    evs: tuple[UsedEv, ...]
    paths: tuple[PathRow, ...]
    dead: DeadPath
    messages: int
    message_bytes: int
    send_errors: int
    base_rtt_s: float

    @property
    def wrong(self) -> tuple[str, ...]:
        """What should not have happened."""
        mistakes = [
            f"{row.sender}: {row.sent} packets had EVs of {row.path}, "
            f"the fabric counted {row.counted}"
            for row in self.paths
            if row.sent != row.counted
        ]
        if self.dead.left is None:
            mistakes.append(f"the dead path {self.dead.path} was still used at the end")
        if self.dead.returned is None:
            mistakes.append(f"{self.dead.path} was not used again after its return")
        if self.send_errors:
            mistakes.append(f"the kernel refused {self.send_errors} packets")
        return tuple(mistakes)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "wrong": list(self.wrong)}

    @classmethod
    def of(cls, data: dict[str, Any]) -> "TrialOutcome":
        """From the fields of `asdict`."""
        parts = {
            "evs": tuple(UsedEv(**row) for row in data["evs"]),
            "paths": tuple(PathRow(**row) for row in data["paths"]),
            "dead": DeadPath(**data["dead"]),
        }
        return cls(**{**data, **parts})
