"""What became of every flow of a run, from what its hosts report."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.model.flows import fair_shares_bps, flows_of
from testbed.model.scenario import Scenario
from testbed.model.topology import PAYLOAD_MTU

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class FlowOutcome:
    """What became of one flow, in the fields of `run.json`.

    `attainable_bps` is the payload rate that the fabric allows it without faults: its share of the
    hosts' ports times payload over wire size, less its share of what its source sent to control
    the transport. `errors` are how messages failed, if any did.
    """

    flow: int
    src: str
    dst: str
    lane: int
    transport: str
    attainable_bps: float
    bytes_sent: int
    bytes_completed: int
    bytes_verified: int
    bytes_lost: int
    bytes_corrupted: int
    packets_sent: int
    packets_lost: int
    packets_retransmitted: int
    errors: tuple[str, ...]


def flow_outcomes(
    scenario: Scenario, reports: Mapping[str, Mapping[str, Any]]
) -> tuple[FlowOutcome, ...]:
    """The outcome of every flow, from the reports of `Traffic` by host."""
    sent = {part["flow"]: part for report in reports.values() for part in report["sent"]}
    received = {part["flow"]: part for report in reports.values() for part in report["received"]}
    leaving = Counter(src for src, _, _ in scenario.flows)
    shares_bps = fair_shares_bps(scenario)
    outcomes = []
    for flow in flows_of(scenario):
        out, into = sent[flow.number], received[flow.number]
        src = flow.src.name
        control_bps = reports[src]["control_bytes"] * 8 * _NS_PER_S / scenario.duration
        raw_bps = shares_bps[flow.number] - control_bps / leaving[src]
        outcomes.append(
            FlowOutcome(
                **{**out, **into, "errors": tuple(out["errors"])},
                src=src,
                dst=flow.dst.name,
                lane=flow.lane,
                transport=scenario.transport.kind,
                attainable_bps=raw_bps * PAYLOAD_MTU / scenario.topology.wire_bytes,
                bytes_lost=out["bytes_sent"] - into["bytes_verified"] - into["bytes_corrupted"],
            )
        )
    return tuple(outcomes)


def host_counts(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a host reports beside its flows."""
    return {name: value for name, value in report.items() if name not in {"sent", "received"}}
