"""One transmission of a data packet, shared by requester, loss detection and NIC."""

from testbed.mrc.entropy import Ev
from testbed.mrc.events import RoundTrip
from testbed.mrc.message import Message
from testbed.mrc.wire.datagram import Departure


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
