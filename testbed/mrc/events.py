"""Events for observers, collected with `QueuePair.events()`. Times in ns."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from testbed.mrc.entropy import EvState


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


# --------------------------------------------------------------------------------------------------
# The counters of a queue pair, and which of them count refused packets.


@dataclass(slots=True)
class Counters:
    """Counts since the queue pair was set up, in packets unless the name says bytes.

    `unagreed` counts SACKs that advertise a window, which is ignored, and NACKs of trims, where the
    two ends had not agreed on them.

    `acks_missed`: last packets that were sent again to ask for a missing ACK. `trims_unanswered`:
    trimmed packets that were not answered by a NACK, as `trim_nack` is off. `no_receive`: WRITEs
    with immediate that found no posted receive. `excess_immediates`: those beyond the limit that
    this end had announced.
    """

    data_sent: int = 0
    retransmitted: int = 0
    lost: int = 0
    spurious: int = 0
    trimmed_nacks: int = 0
    tail_probes: int = 0
    timeouts: int = 0
    ev_probes: int = 0
    sacks_received: int = 0
    data_received: int = 0
    bytes_placed: int = 0
    duplicates: int = 0
    out_of_window: int = 0
    unknown_rkey: int = 0
    out_of_bounds: int = 0
    invalid_request: int = 0
    implausible: int = 0
    nak_of_completed: int = 0
    excess_immediates: int = 0
    no_receive: int = 0
    unagreed: int = 0
    trims_unanswered: int = 0
    sacks_sent: int = 0
    naks_sent: int = 0
    acks_missed: int = 0
    not_a_peer: int = 0
    misdirected: int = 0
    wrong_state: int = 0

    def refusals(self) -> dict[str, int]:
        """Return how many packets were not acted on, by reason."""
        return {reason: getattr(self, reason) for reason in REFUSALS}


REFUSALS: Final = (
    "not_a_peer",
    "misdirected",
    "wrong_state",
    "out_of_window",
    "duplicates",
    "unknown_rkey",
    "out_of_bounds",
    "invalid_request",
    "implausible",
    "nak_of_completed",
)
"""The counters of packets that were not acted on. The peer's retransmissions are duplicates too.

`misdirected` counts packets for another host, `implausible` acknowledgements of unsent packets.
"""
