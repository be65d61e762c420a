"""The configuration of one end of a RoCE queue pair, and its counters."""

from dataclasses import dataclass, field
from typing import Final

from testbed.host.roce.dcqcn import CNP_INTERVAL_NS, DcqcnProfile
from testbed.mrc import DscpClasses, Event

ACK_TIMEOUT_NS: Final = 4_096 << 6
"""Local ACK timeout in real time: 4.096 us x 2^t with t = 6, 262 us. Ours to choose: it is MRC's
own example of a timeout. NICs are commonly set to t = 14 and more (67 ms), which is longer than any
run here; a longer timeout makes RoCE look worse."""

RETRY_COUNT: Final = 7
"""Timeouts in a row before the queue pair fails: the most that three bits hold (IBTA)."""

ACK_PACKETS: Final = 8
"""Packets from one requested acknowledgement to the next; one is requested at the
end of a message. Ours; as often as MRC's SACKs."""


@dataclass(frozen=True, slots=True)
class RoceConfig:
    """The parameters of a queue pair. Both ends agree on `mtu` and the first PSNs.

    Addresses are the inner IPv6 addresses, 16 bytes each. `ev` is the path of all packets
    until `RoceQp.reroute`. `mtu` is in payload bytes, times are as they run, dilated.

    Raises:
        ValueError: a value is out of its range.
    """

    qpn: int
    peer_qpn: int
    local_address: bytes
    peer_address: bytes
    ev: int
    plane: int
    base_rtt_ns: int
    dcqcn: DcqcnProfile
    mtu: int = 4096
    first_psn: int = 0
    peer_first_psn: int = 0
    ack_timeout_ns: int = ACK_TIMEOUT_NS
    retry_count: int = RETRY_COUNT
    ack_packets: int = ACK_PACKETS
    cnp_interval_ns: int | None = CNP_INTERVAL_NS
    """Least time between CNPs of a receiver; None: it sends none."""
    burst: float = 1 / 8
    """How far a sender that could not run in time may catch up, in base RTTs."""
    dscp: DscpClasses = field(default_factory=DscpClasses)

    def __post_init__(self) -> None:
        """Refuse values that do not fit the wire or cannot work."""
        for name, value in (
            ("qpn", self.qpn),
            ("peer_qpn", self.peer_qpn),
            ("first_psn", self.first_psn),
            ("peer_first_psn", self.peer_first_psn),
        ):
            if not 0 <= value < 1 << 24:
                raise ValueError(f"{name} must fit 24 bits, not {value}")
        if not len(self.local_address) == len(self.peer_address) == 16:  # noqa: PLR2004 - IPv6
            raise ValueError("an IPv6 address has 16 bytes")
        if min(self.mtu, self.ack_timeout_ns, self.ack_packets) < 1:
            raise ValueError("mtu, ack_timeout_ns and ack_packets must be at least 1")
        if min(self.retry_count, self.cnp_interval_ns or 0, self.burst) < 0:
            raise ValueError("retry_count, cnp_interval_ns and burst must not be negative")


@dataclass(slots=True)
class RoceCounters:
    """Counts since the queue pair was set up, in packets unless the name says bytes."""

    data_sent: int = 0
    retransmitted: int = 0
    naks_received: int = 0
    timeouts: int = 0
    cnps_received: int = 0
    data_received: int = 0
    bytes_placed: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    refused: int = 0
    naks_sent: int = 0
    cnps_sent: int = 0
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
    "out_of_order",
    "duplicates",
    "refused",
)
"""The counters of packets that were not acted on. Most are caused by go-back-N itself."""


@dataclass(slots=True)
class Shared:
    """What the two halves of a queue pair share; `ev` and `plane` are of its path at present."""

    config: RoceConfig
    ev: int
    plane: int
    counters: RoceCounters = field(default_factory=RoceCounters)
    events: list[Event] = field(default_factory=list)
