"""The counters of a queue pair, and which of them count refused packets."""

from dataclasses import dataclass
from typing import Final


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
