"""What became of every flow of a run, from what its hosts report."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.flows import fair_shares_bps, flows_of
from testbed.model.run_files.run import FlowRecord
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S


def flow_outcomes(
    scenario: Scenario, reports: Mapping[str, Mapping[str, Any]], duration_ns: int
) -> tuple[FlowRecord, ...]:
    """The outcome of every flow in a time, from the reports of `Traffic` by host."""
    sent = {part["flow"]: part for report in reports.values() for part in report["sent"]}
    received = {part["flow"]: part for report in reports.values() for part in report["received"]}
    leaving = Counter(src for src, _, _ in scenario.flows)
    shares_bps = fair_shares_bps(scenario)
    outcomes = []
    for flow in flows_of(scenario):
        src = flow.src.name
        into = received.get(flow.number)
        out = sent.get(flow.number) or _untold(into)
        control_bytes = reports[src]["control_bytes"] if src in reports else 0
        control_bps = control_bytes * 8 * NS_PER_S / duration_ns
        raw_bps = shares_bps[flow.number] - control_bps / leaving[src]
        unaccounted = out["bytes_sent"] if into is None else 0
        into = into or {"bytes_verified": 0, "bytes_corrupted": 0}
        arrived = into["bytes_verified"] + into["bytes_corrupted"]
        lost = out["bytes_sent"] - arrived - unaccounted
        known = {**out, **into, "flow": flow.number, "errors": tuple(out["errors"])}
        known["bytes_under_way"] = min(lost, out["bytes_under_way"])
        outcomes.append(
            FlowRecord(
                **known,
                src=src,
                dst=flow.dst.name,
                lane=flow.lane,
                transport=scenario.transport.kind,
                attainable_bps=raw_bps * PAYLOAD_MTU / scenario.topology.wire_bytes,
                bytes_lost=lost,
                bytes_unaccounted=unaccounted,
            )
        )
    return tuple(outcomes)


def _untold(into: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is known of a sender that was killed: what arrived of it."""
    arrived = 0 if into is None else into["bytes_verified"] + into["bytes_corrupted"]
    counts = ("bytes_completed", "bytes_under_way")
    packets = ("packets_sent", "packets_lost", "packets_retransmitted")
    return {"bytes_sent": arrived, **dict.fromkeys((*counts, *packets), 0), "errors": ()}


def host_counts(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a host reports beside its flows."""
    return {name: value for name, value in report.items() if name not in {"sent", "received"}}
