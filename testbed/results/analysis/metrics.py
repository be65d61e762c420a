"""From the records of a run to its summary."""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from statistics import median
from types import SimpleNamespace

import numpy as np

from testbed.model.expect import Expect
from testbed.model.expect_checks import victim_of
from testbed.model.faults.record import FaultRecord
from testbed.model.run_files.run import FlowRecord
from testbed.model.summary import (
    FaultEffect,
    FaultSummary,
    FlowFault,
    Integrity,
    LossShare,
    Summary,
)
from testbed.model.summary.combine import Value, total
from testbed.model.summary.spread import spreads
from testbed.results.analysis.delivery import delivered_point, delivery, in_order
from testbed.results.analysis.ev_states import ev_spans
from testbed.results.analysis.expectations import evaluate
from testbed.results.analysis.fault_metrics import FaultMetrics, FlowTables, time_in_force
from testbed.results.analysis.flow_metrics import flow_summary, latencies_s, latency
from testbed.results.analysis.link_metrics import link_summaries
from testbed.results.analysis.localisation import localisation
from testbed.results.analysis.memory import process_memory
from testbed.results.analysis.operations import summarise_operations
from testbed.results.analysis.trust.contradictions import contradictions
from testbed.results.analysis.trust.verdict import judge
from testbed.results.capacity.attainable import attainable_rates
from testbed.results.records import ARRIVALS, EV_EVENTS, LOSSES, TRANSMISSIONS
from testbed.results.run_data import RunData


def flow_tables(data: RunData) -> tuple[FlowTables, ...]:
    """The records of every flow that carries data, prepared for metrics and figures."""
    rates = attainable_rates(data)
    end = data.end_s
    tables = []
    for flow in data.flows:
        arrivals = data.table(ARRIVALS, flow.flow)
        transmissions = data.table(TRANSMISSIONS, flow.flow)
        point = delivered_point(arrivals)
        tables.append(
            FlowTables(
                flow=flow,
                attainable=rates[flow.flow].attainable,
                ideal=rates[flow.flow].ideal,
                delivery=delivery(arrivals, point),
                in_order=in_order(transmissions, point),
                spans=ev_spans(data.table(EV_EVENTS, flow.flow), end),
                transmissions=transmissions,
                losses=data.table(LOSSES, flow.flow),
            )
        )
    return tuple(tables)


class RunMetrics:
    """Computes the metrics of `Summary` and of `Integrity`."""

    def __init__(self, data: RunData, run_fractions: Sequence[float]) -> None:
        """Take the run, and the share of the attainable rate that each flow reached."""
        self.duration_s = data.run.duration_s
        self.base_rtt_us = data.run.base_rtt_ns / 1e3
        self.base_rtt_real_us = self.base_rtt_us / data.topology.dilation
        self.qps_in_error = sum(bool(flow.errors) for flow in data.run.flows)
        # A single flow cannot be unfair to itself.
        several = len(run_fractions) > 1 and any(run_fractions)
        self.fairness = jain(run_fractions) if several else None


def jain(shares: Sequence[float]) -> float:
    """Jain's fairness index (DEC-TR-301, 1984): 1 where all shares are alike and one is not 0."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def integrity_of(flows: Sequence[FlowRecord], expect: Expect) -> Integrity:
    """What became of the payload of all flows.

    A message of a queue pair that failed is not lost unnoticed: its sender got an error. Where the
    scenario expects queue pairs to fail, payload of such messages that is not in place is
    unaccounted; payload of messages that were completed is lost in any case.
    """
    counts = {q.key: sum(getattr(flow, q.key) for flow in flows) for q in Integrity.quantities()}
    bound = expect.run.get("qps_in_error")
    if bound is not None and not bound.allows(0):
        failed = sum(
            min(flow.bytes_lost - flow.bytes_under_way, flow.bytes_sent - flow.bytes_completed)
            for flow in flows
            if flow.errors
        )
        counts["bytes_lost"] -= failed
        counts["bytes_unaccounted"] += failed
    return Integrity(**counts)


def summarise(data: RunData, tables: Sequence[FlowTables]) -> Summary:
    """Compute everything that `summary.json` holds."""
    message_s = [latencies_s(data, flow) for flow in tables]
    flows = tuple(
        flow_summary(data, flow, seconds) for flow, seconds in zip(tables, message_s, strict=True)
    )
    effects = [fault_effects(data, tables, fault) for fault in data.faults]
    integrity = integrity_of(data.run.flows, data.scenario.expect)
    contradicting = contradictions(data, tables, flows, list(chain.from_iterable(effects)))
    verdict = judge(data, flows, integrity, contradicting)
    scenario = data.scenario
    summary = Summary.measured(
        RunMetrics(data, [flow.reached for flow in flows if not flow.idle]),
        data.scale,
        scenario=scenario.name,
        description=scenario.description.strip(),
        run=data.directory.name,
        simulated=data.simulated,
        seed=scenario.seed,
        dilation=data.topology.dilation,
        verdict=verdict.state,
        reasons=verdict.reasons,
        integrity=integrity,
        flows=flows,
        messages=latency(data, np.concatenate([[], *message_s])),
        over_flows=spreads([(flow.name, flow) for flow in flows if not flow.idle]),
        faults=tuple(map(partial(fault_summary, data), data.faults, effects)),
        operations=summarise_operations(data),
        links=link_summaries(data),
        localisation=localisation(data),
        memory=process_memory(data),
    )
    expectations = evaluate(summary, scenario.expect, victim_of(scenario))
    return summary.model_copy(update={"expectations": expectations})


def fault_summary(
    data: RunData, fault: FaultRecord, effects: Sequence[FaultMetrics]
) -> FaultSummary:
    """What one fault did to each flow, the worst of it, and how it is distributed over flows."""
    flows = tuple(
        FlowFault.measured(
            effect,
            data.scale,
            flow=effect.flow.flow.flow,
            src=effect.flow.flow.src,
            dst=effect.flow.flow.dst,
            lane=effect.flow.flow.lane,
            affected=effect.affected,
        )
        for effect in effects
    )
    uncertainty_ns = fault.uncertainty_ns
    affected = [flow for flow in flows if flow.affected]
    if fault.kind == "kill":  # a killed sender notices nothing: its flows are left out
        affected = [flow for flow in affected if flow.src not in fault.places] or affected
    paths = [
        seconds
        for effect, flow in zip(effects, flows, strict=True)
        for seconds in effect.ev_detections
        if flow in affected
    ]
    detections = SimpleNamespace(
        ev_detection_median=median(paths) if paths else None,
        ev_detection_last=max(paths, default=None),
    )
    same = {key: getattr(fault, key) for key in FaultSummary.model_fields if hasattr(fault, key)}
    return FaultSummary(
        **same,
        **FaultSummary.ev_detection_median.numbers(detections, data.scale),
        **FaultSummary.ev_detection_last.numbers(detections, data.scale),
        requested_s=data.seconds(fault.asked_ns),
        effective_s=data.seconds(fault.effective_ns),
        effective_uncertainty_ms=None if uncertainty_ns is None else uncertainty_ns / 1e6,
        heal_requested_s=data.seconds(fault.heal_asked_ns),
        healed_s=data.seconds(fault.healed_ns),
        flows_affected=sum(flow.affected for flow in flows),
        flows_lossy=sum(flow.evs_lossy > 0 for flow in affected),
        flows_noticed=sum(flow.evs_lossy > 0 and flow.evs_detected > 0 for flow in affected),
        evs_lossy=sum(flow.evs_lossy for flow in affected),
        evs_noticed=sum(flow.evs_noticed for flow in affected),
        over_flows=spreads([(flow.name, flow) for flow in affected]),
        flows=flows,
        **worst_effect(flows, affected),
    )


def fault_effects(
    data: RunData, tables: Sequence[FlowTables], fault: FaultRecord
) -> list[FaultMetrics]:
    """What one fault did to each flow, to be measured; nothing if it took no effect."""
    during = time_in_force(data, fault)
    if during is None:
        return []
    effects = (data.seconds(other.effective_ns) for other in data.faults)
    until = min([t for t in effects if t is not None and t > during.start] + [during.run_end])
    return [FaultMetrics(data, flow, fault, during, until) for flow in tables]


def worst_effect(flows: Sequence[FlowFault], affected: Sequence[FlowFault]) -> dict[str, Value]:
    """The worst over the flows that a fault affected; nothing of it exists if there are none.

    Packets are summed over all flows; shares of packets are those of the affected flows together.
    """
    numbers: dict[str, Value] = {}
    for metric in FaultEffect.metrics():
        if isinstance(metric, LossShare):
            numbers[metric.name] = metric.share(affected)
        else:
            counted = flows if metric.combine is total else affected
            for quantity in metric.quantities:
                numbers[quantity.key] = metric.combine([quantity.of(flow) for flow in counted])
    return numbers
