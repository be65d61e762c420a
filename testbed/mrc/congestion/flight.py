"""What one queue pair has in flight, and what it reports to its congestion control."""

from typing import Final

from testbed.mrc.config import QpConfig
from testbed.mrc.congestion.control import CongestionControl, LossCause, Report
from testbed.mrc.constants import RCVD_BYTES_UNIT, EvMark
from testbed.mrc.recovery.transmission import Transmission
from testbed.mrc.wire.control import Sack
from testbed.mrc.wire.datagram import new
from testbed.mrc.wire.sizes import nominal_size

_COUNTER_BITS: Final = 24
_HALF: Final = 1 << (_COUNTER_BITS - 1)


class Flight:
    """Counts the packets of one queue pair for a controller that others may share.

    Attributes:
        payload: payload bytes in flight.
    """

    def __init__(self, control: CongestionControl, config: QpConfig) -> None:
        """Begin with nothing in flight."""
        self._control = control
        self._timestamps = config.timestamps
        self._mtu = config.mtu
        self._full = self._size(config.mtu)
        self._rcvd_units = 0
        self._nominal = 0  # sent, less lost, less received: signed
        self.payload = 0

    @property
    def window(self) -> int:
        """Bytes that may be in flight."""
        return self._control.window

    def has_room(self, payload: int, *, probing: bool) -> bool:
        """Whether a packet may be sent now: one always, more only unless the path is `probing`."""
        if self.payload == 0:
            return True
        nominal = self._full if payload == self._mtu else self._size(payload)
        return not probing and self._control.has_room(payload, nominal)

    def _size(self, payload: int, *, immediate: bool = False) -> int:
        return nominal_size(payload, immediate=immediate, timestamp=self._timestamps)

    def _nominal_of(self, sent: Transmission) -> int:
        message = sent.message
        last = sent.offset + sent.length == message.length
        return self._size(sent.length, immediate=last and message.immediate is not None)

    def sent(self, transmission: Transmission) -> None:
        """Count a packet that is being sent."""
        if self.payload == 0 and self._nominal:
            # all has arrived, though a SACK that counted it was lost, or counted it late
            self._control.on_withdrawn(0, self._nominal)
            self._nominal = 0
        length = transmission.length
        whole = length == self._mtu and transmission.message.immediate is None
        nominal = self._full if whole else self._nominal_of(transmission)
        self.payload += length
        self._nominal += nominal
        self._control.on_sent(length, nominal)

    def delivered(self, payload: int) -> None:
        """Count packets with this much payload that have been acknowledged."""
        self.payload -= payload
        self._control.on_delivered(payload)

    def lost(self, transmission: Transmission, cause: LossCause, now_ns: int) -> None:
        """Count a packet that is lost, trimmed or refused."""
        refused_once = cause is LossCause.REFUSED and not transmission.repeated
        rtt_ns = transmission.wire_rtt_ns(now_ns) if refused_once else None
        nominal = self._nominal_of(transmission)
        self.payload -= transmission.length
        self._nominal -= nominal
        self._control.on_lost(cause, transmission.length, nominal, rtt_ns, now_ns)

    def withdrawn(self, transmission: Transmission) -> None:
        """Count a packet that is sent again without having been lost."""
        nominal = self._nominal_of(transmission)
        self.payload -= transmission.length
        self._nominal -= nominal
        self._control.on_withdrawn(transmission.length, nominal)

    def close(self) -> None:
        """Withdraw all: the queue pair has failed or is reset."""
        self._control.on_withdrawn(self.payload, self._nominal)
        self.payload = self._nominal = 0

    def report(
        self,
        sack: Sack | None,
        acked: int | None,
        measured: Transmission | None,
        now_ns: int,
        *,
        newest: bool,
    ) -> None:
        """Report a SACK, or (None) a transport ACK.

        Args:
            sack: the SACK.
            acked: the payload bytes that it newly acknowledges; None if nothing.
            measured: the transmission that triggered it, if that is sure.
            now_ns: the time.
            newest: whether no newer SACK has overtaken it.
        """
        rtt_ns: int | None = None
        repeated = False
        if measured is not None and not measured.ambiguous:
            rtt_ns, repeated = measured.wire_rtt_ns(now_ns), measured.repeated
        received = 0
        penalty: int | None = None
        restore = ecn = False
        if sack is not None:
            ecn = sack.mark is EvMark.SKIP_ONCE
            if sack.cc_type == 0:
                received = self._received(sack.rcvd_bytes)
                if newest:
                    penalty, restore = sack.rcv_cwnd_pen, sack.restore_cwnd
        self._control.on_report(
            new(Report, (acked, received, rtt_ns, repeated, ecn, penalty, restore, now_ns))
        )

    def _received(self, units: int) -> int:
        """Return by how much `rcvd_bytes` has grown; nothing for one that is older."""
        growth = (units - self._rcvd_units) & ((1 << _COUNTER_BITS) - 1)
        if growth >= _HALF:
            return 0
        self._rcvd_units = units
        size = growth * RCVD_BYTES_UNIT
        self._nominal -= size
        return size
