"""The EVs of a queue pair and the parameters of its engine (MRC paper, section 2; values: ours)."""

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EvEntry:
    """One EV: its plane, its path (EVs with equal `path_key` share it), its first role."""

    ev: int
    plane: int
    path_key: Hashable
    active: bool


@dataclass(frozen=True, slots=True)
class EvProfile:
    """The EVs of a queue pair and the parameters of its EV engine. Intervals are in smoothed RTTs.

    A condemned EV returns after `probe_successes` answers in a row, doubled (to at most
    `max_probe_successes`) for each time that it was condemned within `forgiveness` of its return.
    An EV on a grey path returns after `grey_probe_successes`: a path that loses 3 / 48 of the round
    trips, 3% each way, answers 48 probes in a row with a probability of 5% (the rule of three).
    A condemned EV is probed every `probe_interval` (in minimum RTTs), a backup every
    `backup_probe_interval`; an answer counts if it arrives within `probe_timeout`, and where the
    RTT varies within the smoothed RTT and two variations. A loss condemns no EV if fewer than
    `ev_min_active` EVs (a name of the OCP MRC API) would then carry data, or if more than
    `max_condemned_share` of the EVs would be condemned within one RTT.

    Raises:
        ValueError: no active EV, an EV twice, or a number out of its range.
    """

    entries: tuple[EvEntry, ...]
    probe_successes: int = 3
    grey_probe_successes: int = 48
    max_probe_successes: int = 24
    forgiveness: float = 64.0
    probe_interval: float = 1.0
    backup_probe_interval: float = 8.0
    probe_timeout: float = 1.5
    ev_min_active: int = 1
    adaptive: bool = True
    """If false, packets are sprayed blindly: nothing learnt about a path changes its use."""
    max_condemned_share: float = 0.5
    compared: bool = False
    """If true, a loss condemns an EV only if the others lose less (`comparison.py`)."""
    reshuffle_rounds: int = 64
    """The rounds of a plane after which the order of its EVs is drawn anew; 0: never."""

    def __post_init__(self) -> None:
        """Refuse a profile that cannot work."""
        if not any(entry.active for entry in self.entries):
            raise ValueError("an EV profile needs at least one active EV")
        if len({entry.ev for entry in self.entries}) != len(self.entries):
            raise ValueError("the profile has an EV twice")
        if min(self.probe_interval, self.backup_probe_interval, self.probe_timeout) <= 0:
            raise ValueError("probe intervals and the probe timeout must be positive")
        if self.max_probe_successes < 1 or self.forgiveness <= 0:
            raise ValueError("max_probe_successes and the forgiveness of probes must be positive")
        if min(self.probe_successes, self.grey_probe_successes) < 1 or self.ev_min_active < 0:
            raise ValueError("probe_successes must be at least 1, ev_min_active at least 0")
        if not 0 < self.max_condemned_share <= 1:
            raise ValueError("max_condemned_share must lie in (0, 1]")
