"""The unacknowledged packets of a requester, and which of them are to be sent again."""

from heapq import heappop, heappush

from testbed.mrc.transmission import Transmission


class Scoreboard:
    """The packets of one queue pair, by sequence number (the term is RFC 6675's).

    Attributes:
        next_seq: the sequence number of the next new packet.
        oldest_seq: the oldest unacknowledged packet: all before it are acknowledged.
        unacked: the latest transmission of each unacknowledged packet; `done` is set where it is to
            be sent again.
    """

    def __init__(self, first_seq: int) -> None:
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
        self.unacked.clear()
        self._to_repeat.clear()
