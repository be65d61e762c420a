"""Losses declared in error: transmissions that arrive after all."""

from typing import Final

from testbed.mrc.counters import Counters
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.events import Event, Spurious
from testbed.mrc.recovery.loss import LossDetector
from testbed.mrc.recovery.transmission import Transmission

_MAX_REMEMBERED: Final = 1024
"""The number of the latest losses that are remembered. Ours."""


class SpuriousLosses:
    """Remembers the latest transmissions declared lost, and retracts those that arrive after all.

    Of each sequence number the latest loss is remembered.
    """

    def __init__(
        self, detector: LossDetector, engine: EvEngine, events: list[Event], counters: Counters
    ) -> None:
        self._detector = detector
        self._engine = engine
        self._events = events
        self._counters = counters
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

    def retract(self, transmission: Transmission, now_ns: int) -> None:
        """Count a transmission that has arrived as lost spuriously, if it is remembered.

        Its EV gets its trust back, and the reorder window may grow.
        """
        seq, ev = transmission.seq, transmission.ev
        if self._lost.get(seq) is not transmission:
            return
        del self._lost[seq]
        self._counters.spurious += 1
        self._detector.report_late(transmission, now_ns)
        self._events.append(Spurious(seq, ev.value, ev.plane, transmission.sent_ns, now_ns))
        self._engine.retract_loss(ev.value, now_ns)
