"""The unacknowledged packets of a requester, and which of them are to be sent again."""

from heapq import heappop, heappush

from testbed.mrc.ev.ev import Ev
from testbed.mrc.events import RoundTrip
from testbed.mrc.message import Message

# --------------------------------------------------------------------------------------------------
# One transmission of a data packet, shared by requester, loss detection and NIC.


class Transmission:
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
        "port_wait_ns",
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

    def set_port_wait(self, wait_ns: int) -> None:
        """Record how long after `sent_ns` the NIC's port begins to send the packet."""
        self.port_wait_ns = wait_ns

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


class Scoreboard:
    """The packets of one queue pair, by sequence number (the term is RFC 6675's).

    Attributes:
        next_seq: the sequence number of the next new packet.
        oldest_seq: the oldest unacknowledged packet: all before it are acknowledged.
        unacked: the latest transmission of each unacknowledged packet; `done` is set where it is to
            be sent again.
    """

    def __init__(self, first_seq: int) -> None:
        """Begin with nothing sent."""
        self.next_seq = first_seq
        self.oldest_seq = first_seq
        self.unacked: dict[int, Transmission] = {}
        self._sacked = 0  # bit i: oldest_seq + i is acknowledged
        self._to_repeat: list[int] = []

    def acknowledged(self, cack: int, start: int, bitmap: int) -> list[Transmission]:
        """Mark as arrived: all up to `cack`, and `start + i` where bit i is set.

        Returns the transmissions that are newly acknowledged.
        """
        acked: list[Transmission] = []
        unacked = self.unacked
        advance = cack + 1 - self.oldest_seq
        if advance > 0:
            for seq in range(self.oldest_seq, cack + 1):
                transmission = unacked.pop(seq, None)
                if transmission is not None:
                    acked.append(transmission)
            self.oldest_seq = cack + 1
            self._sacked >>= advance
        if bitmap:
            oldest = self.oldest_seq
            shift = start - oldest
            reported = bitmap << shift if shift >= 0 else bitmap >> -shift
            fresh = reported & ~self._sacked & ((1 << (self.next_seq - oldest)) - 1)
            self._sacked |= fresh
            while fresh:
                lowest = fresh & -fresh
                fresh ^= lowest
                transmission = unacked.pop(oldest + lowest.bit_length() - 1, None)
                if transmission is not None:
                    acked.append(transmission)
        return acked

    def repeat(self, transmission: Transmission) -> None:
        """Note that the packet of a transmission, marked done, is to be sent again."""
        heappush(self._to_repeat, transmission.seq)

    def go_back(self, seq: int) -> list[Transmission]:
        """Note that all in flight after `seq` are to be sent again too, and return them."""
        repeated: list[Transmission] = []
        for behind in self.unacked.values():
            if behind.seq > seq and not behind.done:
                behind.done = True
                repeated.append(behind)
                self.repeat(behind)
        return repeated

    def to_repeat(self) -> Transmission | None:
        """Return the oldest that is to be sent again, and has not been acknowledged since."""
        waiting = self._to_repeat
        while waiting:
            transmission = self.unacked.get(waiting[0])
            if transmission is not None and transmission.done:
                return transmission
            heappop(waiting)
        return None

    def clear(self) -> None:
        """Forget what was sent."""
        self.unacked.clear()
        self._to_repeat.clear()
