"""Events for observers, collected with `QueuePair.events()`. Times in ns."""

from dataclasses import dataclass
from typing import NamedTuple

from testbed.mrc.ev.states import EvState


@dataclass(frozen=True, slots=True)
class EvChanged:
    """An EV changed its state or role; `active`: whether it is in the active set afterwards."""

    ev: int
    plane: int
    old: EvState
    new: EvState
    reason: str
    active: bool
    time_ns: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The transmission of packet `seq` on `ev` at `sent_ns` is declared lost."""

    seq: int
    ev: int
    plane: int
    sent_ns: int
    reason: str
    time_ns: int


@dataclass(frozen=True, slots=True)
class Spurious:
    """A transmission that had been declared lost arrived after all."""

    seq: int
    ev: int
    plane: int
    sent_ns: int
    time_ns: int


class Placed(NamedTuple):
    """A data packet arrived: `size` payload bytes were placed, 0 for a duplicate."""

    seq: int
    ev: int
    size: int
    retransmitted: bool
    time_ns: int


class RoundTrip(NamedTuple):
    """A round trip on an EV was measured.

    `rtt_ns` is the time from handing a data packet to the I/O layer until the SACK that it
    triggered is processed. Retransmissions and packets that had been declared lost measure nothing.
    """

    ev: int
    plane: int
    rtt_ns: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class MessageDelivered:
    """Message number `message` and all messages before it are in the responder's memory."""

    message: int
    va: int
    rkey: int
    length: int
    time_ns: int


class QpSample(NamedTuple):
    """The state of a queue pair's requester.

    Attributes:
        window: the congestion window in bytes.
        flight: payload bytes in flight.
        smoothed_ns: the smoothed RTT.
    """

    window: int
    flight: int
    smoothed_ns: int


Event = EvChanged | Lost | Spurious | Placed | RoundTrip | MessageDelivered
