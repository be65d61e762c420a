"""Which EVs a queue pair has, and how they are treated (MRC paper, section 2; numbers: ours)."""

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EvEntry:
    """One EV: its plane, the path it takes (EVs with equal `path_key` share it), its first role."""

    ev: int
    plane: int
    path_key: Hashable
    active: bool


@dataclass(frozen=True, slots=True)
class EvProfile:
    """The EVs of a queue pair and how they are treated. Intervals are in smoothed RTTs.

    A condemned EV returns after `probe_successes` answers in a row, doubled (to at most
    `max_probe_successes`) for each time that it was condemned within `forgiveness` of its return.
    One on a grey path returns after `grey_probe_successes`: 48 answers in a row leave a path that
    loses 3 / 48 of the round trips, 3% each way, one chance in twenty (the rule of three).
    A condemned EV is probed every `probe_interval`, a backup every `backup_probe_interval`; an
    answer counts if it comes within `probe_timeout`. A loss condemns no EV where fewer than
    `ev_min_active` (a name of the OCP MRC API) would carry data without it, nor more than
    `max_condemned_share` of them within one RTT.

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
    """Without it packets are sprayed blindly: nothing that is learnt of a path changes its use."""
    max_condemned_share: float = 0.5

    def __post_init__(self) -> None:
        """Refuse a profile that cannot work."""
        if not any(entry.active for entry in self.entries):
            raise ValueError("an EV profile needs at least one active EV")
        if len({entry.ev for entry in self.entries}) != len(self.entries):
            raise ValueError("an EV stands twice in the profile")
        if min(self.probe_interval, self.backup_probe_interval, self.probe_timeout) <= 0:
            raise ValueError("probe intervals and the probe timeout must be positive")
        if self.max_probe_successes < 1 or self.forgiveness <= 0:
            raise ValueError("max_probe_successes and the forgiveness of probes must be positive")
        if min(self.probe_successes, self.grey_probe_successes) < 1 or self.ev_min_active < 0:
            raise ValueError("probe_successes must be at least 1, ev_min_active at least 0")
        if not 0 < self.max_condemned_share <= 1:
            raise ValueError("max_condemned_share must lie in (0, 1]")
