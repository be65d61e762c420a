"""One transmission of a data packet: shared by requester, loss detection and NIC, and its datagram.

The packer encodes transmissions as datagrams, and finds the one that a SACK or NACK answers.
"""

from testbed.mrc.config import QpConfig
from testbed.mrc.constants import ECT0
from testbed.mrc.entropy import Ev
from testbed.mrc.events import RoundTrip
from testbed.mrc.message import Message
from testbed.mrc.wire.codec import encode_write
from testbed.mrc.wire.control import Nack, Sack
from testbed.mrc.wire.datagram import Datagram, Departure, new
from testbed.mrc.wire.kinds import MSN_MASK, PSN_MASK, Opcode


class Transmission(Departure):
    """One transmission of one data packet.

    `order` counts the transmissions of the queue pair; `previous` is the one that this one repeats,
    until it is repeated itself; `repeated` says that it is a retransmission;
    `done` says that it is no longer in flight: acknowledged or declared lost; `suspected` says
    that a later packet of the same EV was delivered.

    The I/O layer reports with `set_port_wait` how long the packet waits for the NIC's port. The
    round trip of congestion control excludes this wait: NICs take their timestamps on the wire, and
    Swift (Kumar et al., SIGCOMM 2020, section 3) does not count a delay at the sender as delay of
    the fabric. Loss detection and timeouts count from `sent_ns` and include it.
    """

    __slots__ = (
        "done",
        "ev",
        "length",
        "message",
        "offset",
        "order",
        "previous",
        "repeated",
        "sent_ns",
        "seq",
        "suspected",
    )

    def __init__(
        self,
        seq: int,
        message: Message,
        offset: int,
        length: int,
        ev: Ev,
        order: int,
        sent_ns: int,
        previous: "Transmission | None",
    ) -> None:
        self.seq = seq
        self.message = message
        self.offset = offset
        self.length = length
        self.ev = ev
        self.order = order
        self.sent_ns = sent_ns
        self.previous = previous
        self.repeated = previous is not None
        self.done = False
        self.suspected = False
        self.port_wait_ns = 0

    def wire_rtt_ns(self, now_ns: int) -> int:
        """Return its round trip, if it is answered now, without the wait for the NIC's port."""
        return now_ns - self.sent_ns - self.port_wait_ns

    def round_trip(self, now_ns: int) -> RoundTrip:
        """Return what observers learn of its round trip, if it is answered now."""
        return RoundTrip(self.ev.value, self.ev.plane, now_ns - self.sent_ns, now_ns)

    @property
    def ambiguous(self) -> bool:
        """Whether the packet has been sent more than twice: an answer may be to any of them."""
        return self.previous is not None and self.previous.repeated


class Packer:
    """Encodes the transmissions of one requester, and finds the one that an answer belongs to.

    Transmissions of a PSN are told apart by their timestamps. Where there are none, the EV and the
    echo of BTH.rtx in a SACK tell them apart.
    """

    def __init__(self, config: QpConfig) -> None:
        self._config = config
        self._shift = config.timestamp_shift
        self._used = config.timestamps
        self._first_class = config.dscp.trimmable
        self._repeated_class = config.dscp.trimmable_retx
        self._udp_port = config.wire.udp_port
        self._own_unit = config.own_unit
        self._sealed = config.wire.sealed

    def pack(self, transmission: Transmission, *, ack_request: bool) -> Datagram:
        """Return the WRITE packet of a transmission; its payload is a view of the message's."""
        config = self._config
        message = transmission.message
        offset, length, seq = transmission.offset, transmission.length, transmission.seq
        end = offset + length
        immediate: int | None = None
        if end == message.length:
            immediate = message.immediate
            if immediate is None:
                opcode = Opcode.WRITE_ONLY if offset == 0 else Opcode.WRITE_LAST
            elif offset == 0:
                opcode = Opcode.WRITE_ONLY_IMMEDIATE
            else:
                opcode = Opcode.WRITE_LAST_IMMEDIATE
        else:
            opcode = Opcode.WRITE_FIRST if offset == 0 else Opcode.WRITE_MIDDLE
        repeated = transmission.repeated
        dscp = self._repeated_class if repeated else self._first_class
        payload = message.payload[offset:end]
        ev = transmission.ev.value
        header, trailer = encode_write(
            config.local_address,
            config.peer_address,
            ev,
            config.peer_qpn,
            seq & PSN_MASK,
            opcode,
            ack_request,
            repeated,
            0 if message.immediate is None else message.immediates & MSN_MASK,
            message.number & MSN_MASK,
            transmission.sent_ns >> self._shift & 0xFFFF if self._used else None,
            message.va + offset,
            message.rkey,
            message.length,
            payload,
            dscp,
            immediate,
            self._own_unit,
            self._udp_port,
            self._sealed,
        )
        fields = (ev, dscp, header, payload, trailer, seq, repeated, ECT0, transmission)
        return new(Datagram, fields)

    def _of(self, transmission: Transmission) -> int:
        return transmission.sent_ns >> self._shift & 0xFFFF

    def answers(self, sack: Sack, transmission: Transmission) -> bool:
        """Whether a SACK, triggered by the PSN of this transmission, was triggered by it."""
        return (
            transmission.repeated is sack.retransmitted
            and transmission.ev.value == sack.reflected_ev
            and (not self._used or sack.cc_type != 0 or self._of(transmission) == sack.tx_timestamp)
        )

    def refuses(self, nack: Nack, transmission: Transmission, *, too_early: bool) -> bool:
        """Whether a NACK of the PSN of this transmission is about it.

        `too_early` says that this is too soon for an answer, where there are no timestamps.
        """
        same = self._of(transmission) == nack.tx_timestamp if self._used else not too_early
        return same and transmission.ev.value == nack.reflected_ev
