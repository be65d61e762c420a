"""The transmissions declared lost: one that arrives after all was lost spuriously."""

from typing import Final

from testbed.mrc.recovery.transmission import Transmission

_MAX_REMEMBERED: Final = 1024
"""The number of the latest losses that are remembered. Ours."""


class LossMemory:
    """The latest transmissions declared lost, by sequence number; the latest one of each."""

    def __init__(self) -> None:
        self._lost: dict[int, Transmission] = {}

    def add(self, transmission: Transmission) -> None:
        """Remember a transmission; the oldest is forgotten if there are too many."""
        lost = self._lost
        lost.pop(transmission.seq, None)
        lost[transmission.seq] = transmission
        if len(lost) > _MAX_REMEMBERED:
            del lost[next(iter(lost))]

    def get(self, seq: int) -> Transmission | None:
        """Return the transmission of `seq` that was last declared lost."""
        return self._lost.get(seq)

    def remove(self, transmission: Transmission) -> bool:
        """Forget a transmission that was not lost; returns whether it was remembered."""
        if self._lost.get(transmission.seq) is not transmission:
            return False
        del self._lost[transmission.seq]
        return True
