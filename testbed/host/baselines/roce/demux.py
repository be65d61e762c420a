"""The demultiplexer: it decodes arrivals and hands them to their queue pair."""

from collections import Counter
from typing import Final

from testbed.host.baselines.roce.config import REFUSALS
from testbed.host.baselines.roce.qp import RoceQp
from testbed.host.baselines.roce.wire import decode
from testbed.mrc import Arrival, Datagram, DecodeError, DecodeReason
from testbed.mrc.wire.packets import Buffer

_UNKNOWN_QP: Final = "unknown_qp"
_REASONS: Final = (*(reason.name.lower() for reason in DecodeReason), _UNKNOWN_QP, *REFUSALS)


class Demux:
    """The queue pairs of one endpoint, looked up by QPN; like `mrc.Demux`."""

    def __init__(self) -> None:
        """Begin without queue pairs."""
        self._by_qpn: dict[int, RoceQp] = {}
        self._dropped: Counter[str] = Counter(dict.fromkeys(_REASONS, 0))

    def add(self, qp: RoceQp) -> None:
        """Add a queue pair.

        Raises:
            ValueError: its number is taken.
        """
        if qp.config.qpn in self._by_qpn:
            raise ValueError(f"there is a queue pair {qp.config.qpn} already")
        self._by_qpn[qp.config.qpn] = qp

    def receive(self, data: Buffer, arrival: Arrival) -> None:
        """Take in a packet, from the IPv6 header on, whatever it is; keeps no view of `data`."""
        try:
            packet = decode(data)
        except DecodeError as error:
            self._dropped[error.reason.name.lower()] += 1
            return
        qp = self._by_qpn.get(packet.qpn)
        if qp is None:
            self._dropped[_UNKNOWN_QP] += 1
        else:
            qp.receive(packet, arrival)

    def receive_undamaged(self, datagram: Datagram, arrival: Arrival) -> None:
        """Process a packet that arrived undamaged; it is checked nevertheless."""
        self.receive(memoryview(datagram.join()), arrival)

    def refused(self) -> dict[str, int]:
        """Return how many packets were not acted on, by reason: here and by the queue pairs."""
        counts = self._dropped.copy()
        for qp in self._by_qpn.values():
            counts.update(qp.counters.refusals())
        return dict(counts)
