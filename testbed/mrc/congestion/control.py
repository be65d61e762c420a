"""Congestion control: what a controller is told and decides, and bytes in flight against a window.

NSCC (`nscc_incast.py`, `nscc_uec.py`), the fixed window, which never changes, and a class of the
user's own (docs/algorithms.md) implement the interface of controllers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple, Protocol

from testbed.mrc.config import QpConfig
from testbed.mrc.constants import NS_PER_S, RCVD_BYTES_UNIT, EvMark, NackReason
from testbed.mrc.transmission import Transmission
from testbed.mrc.wire.control import Sack
from testbed.mrc.wire.datagram import new
from testbed.mrc.wire.kinds import nominal_size


class SackReport(NamedTuple):
    """What a SACK or a transport ACK says. Sizes in bytes, times in ns.

    Attributes:
        acked: bytes that have newly arrived; 0 if none.
        rtt_ns: the round trip that it measured; None if it measured none.
        repeated: whether that round trip is of a packet that was sent a second time. Such packets
            have priority in the fabric and overtake the queues.
        ecn: whether it reports an ECN mark.
        penalty: by how many 128ths the receiver asks to shrink the window (`rcv_cwnd_pen`); None if
            it says nothing about that.
        restore: whether the receiver asks for the window from before the penalty (`restore_cwnd`).
        flight: bytes in flight now.
        now_ns: the time.
    """

    acked: int
    rtt_ns: int | None
    repeated: bool
    ecn: bool
    penalty: int | None
    restore: bool
    flight: int
    now_ns: int


class LossReport(NamedTuple):
    """A packet that did not get through and is sent again. Sizes in bytes, times in ns.

    Attributes:
        lost: its size.
        reason: of a NACK: its reason, such as `TRIMMED`, `TRIMMED_LASTHOP` or `NO_PKT_BUFFER`. Of a
            loss: `overtaken`, `late`, `silent EV` or `timeout`.
        trimmed: whether a NACK says that a switch cut off its payload, because a queue was full.
        rtt_ns: the round trip to the receiver that refused it; None if none was measured.
        flight: bytes in flight now, without this packet.
        now_ns: the time.
    """

    lost: int
    reason: str
    trimmed: bool
    rtt_ns: int | None
    flight: int
    now_ns: int


class CongestionController(Protocol):
    """Decides how much may be in flight, of one queue pair or of several to one destination.

    Sizes are payload bytes, except for UEC's NSCC, which counts whole inner packets.
    """

    @property
    def window(self) -> float:
        """Bytes that may be in flight; read when the controller is made and after each report."""

    def on_sack(self, sack: SackReport) -> None:
        """Process a SACK or a transport ACK."""

    def on_nack(self, nack: LossReport) -> None:
        """Process a NACK: a packet was trimmed, or the receiver refused it."""

    def on_loss(self, loss: LossReport) -> None:
        """Process a loss declaration: a packet was overtaken, or timed out."""


# --------------------------------------------------------------------------------------------------
# The scaling of NSCC's parameters to a network, as uet-htsim and Ultra Ethernet have it.


BITS: Final = 8
"""Bits of a byte."""

_REFERENCE_BDP: Final = 150_000
"""Bytes: 100 Gbit/s x 12 us, the network that NSCC's constants are scaled from."""

_REFERENCE_RTT_NS: Final = 12_000


@dataclass(frozen=True, slots=True)
class Scaling:
    """What NSCC's parameters derive from.

    Attributes:
        bdp: the bandwidth-delay product of all ports of the host, in bytes.
        target_ns: the target delay.
        bdp_ratio: `bdp` over that of the reference network.
        target_ratio: the target delay over the reference network's round trip, as the clock runs.
    """

    bdp: float
    target_ns: int
    bdp_ratio: float
    target_ratio: float


def scaling(base_rtt_ns: int, rate_bps: float, dilation: float, *, trimming: bool) -> Scaling:
    """The scaling for a host.

    Args:
        base_rtt_ns: the base RTT of the longest path.
        rate_bps: the rate of all ports together.
        dilation: how many times slower than real the clock runs.
        trimming: whether the fabric trims.
    """
    bdp = rate_bps * base_rtt_ns / BITS / NS_PER_S
    target_ns = base_rtt_ns * 3 // 4 if trimming else base_rtt_ns
    return Scaling(bdp, target_ns, bdp / _REFERENCE_BDP, target_ns / (_REFERENCE_RTT_NS * dilation))


# --------------------------------------------------------------------------------------------------
# Round-trip time of one queue pair, over all of its paths.


_SMOOTHED_SHIFT: Final = 3
_VARIATION_SHIFT: Final = 2
"""RFC 6298's alpha of 1/8 and beta of 1/4."""


class RttEstimator:
    """Smoothed RTT and variation (RFC 6298), and the minimum; starts from the base RTT. All ns."""

    def __init__(self, base_ns: int) -> None:
        if base_ns <= 0:
            raise ValueError(f"base RTT must be positive, not {base_ns} ns")
        self.base_ns = base_ns
        self.smoothed_ns = base_ns
        self.variation_ns = base_ns >> 2
        self.minimum_ns = base_ns
        self.sampled_ns = -1
        """When the last sample was measured."""

    def sample(self, rtt_ns: int, now_ns: int) -> None:
        """Add a measured round trip."""
        self.sampled_ns = now_ns
        deviation = abs(rtt_ns - self.smoothed_ns)
        self.variation_ns += (deviation - self.variation_ns) >> _VARIATION_SHIFT
        self.smoothed_ns += (rtt_ns - self.smoothed_ns) >> _SMOOTHED_SHIFT
        self.minimum_ns = min(self.minimum_ns, rtt_ns)

    @property
    def timeout_ns(self) -> int:
        """How long to wait for an answer: RFC 6298's RTO, at least two smoothed RTTs."""
        return self.smoothed_ns + max(self.smoothed_ns, 4 * self.variation_ns)


class Window:
    """Counts the payload in flight, of all queue pairs that share a controller.

    `payload` is the size of a packet's payload, `nominal` that of the inner packet, in bytes.

    Attributes:
        controller: what decides about the window.
        flight: bytes in flight.
        window: bytes that may be in flight.
        shared: whether several queue pairs send into it: what one receives may let another send.
    """

    def __init__(self, make: Callable[[], CongestionController]) -> None:
        """Begin with nothing in flight.

        Args:
            make: makes the controller, now and when a queue pair is reset.
        """
        self._make: Final = make
        self.shared = False
        self._begin()

    def _begin(self) -> None:
        self.flight = 0
        self.controller = self._make()
        self.window = int(self.controller.window)

    def share(self) -> None:
        """Let another queue pair send into it, too."""
        self.shared = True

    def reset(self) -> None:
        """Begin again, as a queue pair is reset, unless others have packets in flight."""
        if self.flight <= 0:
            self._begin()

    def has_room(self, payload: int, nominal: int) -> bool:  # noqa: ARG002 - payload counts here
        """Whether a packet of this size may be sent now."""
        return self.flight + payload <= self.window

    def count_sent(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        self.flight += payload

    def count_delivered(self, payload: int) -> None:
        """Count packets that have been acknowledged as in flight no longer."""
        self.flight -= payload

    def count_withdrawn(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        """Count packets that a queue pair no longer waits for, whether they arrived or not.

        `nominal` may be negative: more than was sent has been reported as received.
        """
        self.flight -= payload

    def count_lost(self, payload: int, nominal: int) -> int:  # noqa: ARG002
        """Count a packet as in flight no longer; return the size to report to the controller."""
        self.flight -= payload
        return payload

    def count_received(self, acked: int, received: int) -> int:  # noqa: ARG002
        """Count what a SACK reports; return the arrived bytes to report to the controller.

        Args:
            acked: payload that it newly acknowledges; it has been counted as delivered.
            received: what the responder has newly counted in `rcvd_bytes`, in nominal sizes.
        """
        return acked

    # Reports to the controller

    def on_sack(self, sack: SackReport) -> None:
        self.controller.on_sack(sack)
        self.window = int(self.controller.window)

    def on_nack(self, nack: LossReport) -> None:
        self.controller.on_nack(nack)
        self.window = int(self.controller.window)

    def on_loss(self, loss: LossReport) -> None:
        self.controller.on_loss(loss)
        self.window = int(self.controller.window)


class ReceiverWindow(Window):
    """Counts what is in flight by what the responder has counted, as UEC does (rule 2 of NSCC).

    All sizes are nominal. `flight` is signed: SACKs may report more than was sent.
    """

    def has_room(self, payload: int, nominal: int) -> bool:  # noqa: ARG002 - nominal sizes count
        """Whether a packet of this size may be sent now."""
        return self.flight + nominal <= self.window

    def count_sent(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        self.flight += nominal

    def count_delivered(self, payload: int) -> None:
        """Do nothing: the responder's counter says what has arrived."""

    def count_withdrawn(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        """Count packets that a queue pair no longer waits for."""
        self.flight -= nominal

    def count_lost(self, payload: int, nominal: int) -> int:  # noqa: ARG002
        """Count a packet as in flight no longer; return its nominal size."""
        self.flight -= nominal
        return nominal

    def count_received(self, acked: int, received: int) -> int:  # noqa: ARG002
        """Count what the responder has newly counted, and return it."""
        self.flight -= received
        return received


class FixedWindow:
    """A window that never changes, for fabrics of known load and for tests."""

    def __init__(self, window: int) -> None:
        """Take the window, in bytes.

        Raises:
            ValueError: it is not positive.
        """
        if window <= 0:
            raise ValueError(f"the congestion window must be positive, not {window} bytes")
        self.window: Final = window

    def on_sack(self, sack: SackReport) -> None:
        """Do nothing."""

    def on_nack(self, nack: LossReport) -> None:
        """Do nothing."""

    def on_loss(self, loss: LossReport) -> None:
        """Do nothing."""


# --------------------------------------------------------------------------------------------------
# What one queue pair has in flight, and what it reports to its window.
#
# A window below one packet cannot bound what is in flight, so it spaces the packets: the next one
# is sent a base RTT times packet / window after the last (Swift, Kumar et al., SIGCOMM 2020,
# section 3.5). The time varies by half at random, as a thousand senders are trimmed at the same
# moment and must not come back at the same moment.


_LEAST_SHARE: Final = 1024
"""A window below 1/1024 of a packet counts as that. Ours."""

_COUNTER_BITS: Final = 24
_HALF: Final = 1 << (_COUNTER_BITS - 1)

TRIMS: Final = (NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP)


class Flight:
    """Counts the packets of one queue pair for a window that others may share.

    Attributes:
        payload: payload bytes in flight.
        paced_ns: when the next packet may be sent, by a window below one packet; else 0.
    """

    def __init__(self, window: Window, config: QpConfig) -> None:
        self._seed = config.seed
        self._rng: Random | None = None  # few queue pairs need one
        self._base_ns = config.base_rtt_ns
        self._sent_ns = 0
        self.paced_ns = 0
        self._window = window
        self._timestamps = config.timestamps
        self._mtu = config.mtu
        self._full = self._size(config.mtu)
        self._rcvd_units = 0
        self._nominal = 0  # sent, less lost, less received: signed
        self.payload = 0

    @property
    def window(self) -> int:
        return self._window.window

    def has_room(self, payload: int, *, probing: bool) -> bool:
        """Whether a packet may be sent now.

        Always, if nothing is in flight; not if a packet is in flight and `probing`.
        """
        if self.payload == 0:
            return True
        nominal = self._full if payload == self._mtu else self._size(payload)
        return not probing and self._window.has_room(payload, nominal)

    def _size(self, payload: int, *, immediate: bool = False) -> int:
        return nominal_size(payload, immediate=immediate, timestamp=self._timestamps)

    def _nominal_of(self, sent: Transmission) -> int:
        message = sent.message
        last = sent.offset + sent.length == message.length
        return self._size(sent.length, immediate=last and message.immediate is not None)

    def sent(self, transmission: Transmission) -> None:
        """Count a packet that is being sent."""
        if self.payload == 0 and self._nominal:
            # all packets have arrived, but the SACK that counted them was lost or came late
            self._window.count_withdrawn(0, self._nominal)
            self._nominal = 0
        length = transmission.length
        whole = length == self._mtu and transmission.message.immediate is None
        nominal = self._full if whole else self._nominal_of(transmission)
        self.payload += length
        self._nominal += nominal
        self._sent_ns = transmission.sent_ns
        self._window.count_sent(length, nominal)

    def delivered(self, payload: int) -> None:
        """Count packets with this much payload that have been acknowledged."""
        self.payload -= payload
        self._window.count_delivered(payload)

    def lost(self, transmission: Transmission, reason: str, now_ns: int) -> None:
        """Count and report a packet that is lost."""
        size = self._count_lost(transmission)
        fields = (size, reason, False, None, self._window.flight, now_ns)
        self._window.on_loss(new(LossReport, fields))
        self._pace()

    def nacked(self, transmission: Transmission, reason: NackReason, now_ns: int) -> None:
        """Count and report a packet that was trimmed or refused."""
        size = self._count_lost(transmission)
        trimmed = reason in TRIMS
        measures = not trimmed and not transmission.repeated
        rtt_ns = transmission.wire_rtt_ns(now_ns) if measures else None
        fields = (size, reason.name, trimmed, rtt_ns, self._window.flight, now_ns)
        self._window.on_nack(new(LossReport, fields))
        self._pace()

    def _pace(self) -> None:
        """Space the packets, if the window has less than one."""
        window = self._window.window
        if window >= self._mtu:
            self.paced_ns = 0
            return
        if self._rng is None:
            self._rng = Random(self._seed)  # noqa: S311 - repeatable, not secret
        window = max(window, self._mtu // _LEAST_SHARE, 1)
        self.paced_ns = self._sent_ns + int(
            self._base_ns * self._mtu / window * (0.5 + self._rng.random())
        )

    def _count_lost(self, transmission: Transmission) -> int:
        nominal = self._nominal_of(transmission)
        self.payload -= transmission.length
        self._nominal -= nominal
        return self._window.count_lost(transmission.length, nominal)

    def withdrawn(self, transmission: Transmission) -> None:
        """Count a packet that is sent again without having been lost."""
        nominal = self._nominal_of(transmission)
        self.payload -= transmission.length
        self._nominal -= nominal
        self._window.count_withdrawn(transmission.length, nominal)

    def close(self) -> None:
        """Withdraw all packets in flight: the queue pair has failed or is reset."""
        self._window.count_withdrawn(self.payload, self._nominal)
        self.payload = self._nominal = 0

    def report(
        self,
        sack: Sack | None,
        acked: int,
        measured: Transmission | None,
        now_ns: int,
        *,
        newest: bool,
    ) -> None:
        """Report a SACK, or (None) a transport ACK.

        Args:
            sack: the SACK.
            acked: the payload bytes that it newly acknowledges.
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
        window = self._window
        arrived = window.count_received(acked, received)
        fields = (arrived, rtt_ns, repeated, ecn, penalty, restore, window.flight, now_ns)
        window.on_sack(new(SackReport, fields))
        if self.paced_ns or window.window < self._mtu:
            self._pace()

    def _received(self, units: int) -> int:
        """Return by how much `rcvd_bytes` has grown; nothing for one that is older."""
        growth = (units - self._rcvd_units) & ((1 << _COUNTER_BITS) - 1)
        if growth >= _HALF:
            return 0
        self._rcvd_units = units
        size = growth * RCVD_BYTES_UNIT
        self._nominal -= size
        return size
