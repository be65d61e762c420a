"""From the records of a run to its summary."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import inf
from statistics import median

import numpy as np

from testbed.model.checks import victim_of
from testbed.model.expect import Bound, Expect
from testbed.model.faults.record import FaultRecord
from testbed.model.run_files.run import FlowRecord
from testbed.model.summary import (
    Expectation,
    FaultEffect,
    FaultSummary,
    FlowFault,
    Integrity,
    LossShare,
    Summary,
)
from testbed.model.summary.metric import Value, total
from testbed.model.summary.scopes import JOB_SCOPES, SCOPES
from testbed.model.summary.spread import spreads
from testbed.model.summary.unit import Time
from testbed.results.analysis.delivery import (
    delivered_point,
    delivery,
    in_order,
)
from testbed.results.analysis.ev_states import ev_spans
from testbed.results.analysis.fault_metrics import FaultMetrics, FlowTables, time_in_force
from testbed.results.analysis.flow_metrics import (
    flow_summary,
    latencies_s,
    latency,
    node_summaries,
)
from testbed.results.analysis.jobs import summarise_jobs
from testbed.results.analysis.link_metrics import link_summaries, process_memory
from testbed.results.analysis.localisation import localisation
from testbed.results.analysis.operations import summarise_operations
from testbed.results.analysis.trust.contradictions import contradictions
from testbed.results.analysis.trust.verdict import judge
from testbed.results.capacity.attainable import attainable_rates
from testbed.results.records import ARRIVALS, EV_EVENTS, LOSSES, TRANSMISSIONS
from testbed.results.run_data import RunData

# --------------------------------------------------------------------------------------------------
# Compares a run's metrics with the bounds that its scenario sets.


def evaluate(
    summary: Summary, expect: Expect, victim: tuple[str, str] | None = None
) -> tuple[Expectation, ...]:
    """Compare every bound with the worst value of its metric.

    A value that does not exist, such as the recovery of a fault from which nothing recovered, is
    worse than any number. Faults that no flow had an active EV through are left out: they have no
    metrics. If nothing at all was measured, the expectation does not hold. Bounds on processes are
    left out in simulated runs, which have none. That all planned operations finish is expected as
    well, unless the scenario itself says how many do.

    Args:
        summary: the run's.
        expect: the scenario's bounds.
        victim: source and destination of the flow beside an incast.
    """
    measured = dict(_measured(summary, victim))
    bounds = {scope: dict(getattr(expect, scope)) for scope in SCOPES}
    planned = any(kind.planned is not None for kind in summary.operations)
    if planned and not expect.says_how_many_finish:
        bounds["operations"]["unfinished"] = Bound(at_least=0, at_most=0)
    return tuple(
        _worst(scope, key, bound, [(where, numbers[key]) for where, numbers in measured[scope]])
        for scope in SCOPES
        if scope != "processes" or not summary.simulated
        for key, bound in bounds[scope].items()
    )


def evaluate_jobs(data: RunData, summary: Summary) -> Iterator[Expectation]:
    """Compare the bounds that each job sets for itself with the worst value among its own."""
    jobs = zip(data.scenario.jobs, summary.jobs, data.flows_of_jobs, strict=False)
    for job, of_job, flows in jobs:
        measured: dict[str, _Subjects] = {
            "job": [(job.name, of_job.values)],
            "flows": [(f.name, f.values) for f in summary.flows if f.flow in (flows or ())],
            "operations": [
                (each.kind, each.values)
                for each in summary.operations
                if each.kind.startswith(job.label(""))
            ],
        }
        for key, scope in JOB_SCOPES.items():
            for figure, bound in getattr(job.expect, key).items():
                values = [(where, numbers[figure]) for where, numbers in measured[key]]
                worst = _worst(scope, figure, bound, values)
                yield worst.model_copy(update={"job": job.name})


_Subjects = list[tuple[str, Mapping[str, Value]]]
"""The name of each thing that was measured, and its numbers by key."""


def _measured(summary: Summary, victim: tuple[str, str] | None) -> Iterator[tuple[str, _Subjects]]:
    """For each scope what was measured."""
    yield "run", [("the run", {**summary.values, **summary.integrity.values})]
    yield "flows", [(flow.name, flow.values) for flow in summary.flows]
    yield "nodes", [(node.name, node.values) for node in summary.nodes]
    yield "victim", [(f.name, f.values) for f in summary.flows if (f.src, f.dst) == victim]
    yield "faults", [(f.name, f.values) for f in summary.faults if f.flows_affected]
    yield "operations", [(kind.kind, kind.values) for kind in summary.operations]
    yield "jobs", [(job.job, job.values) for job in summary.jobs]
    yield "processes", [(memory.process, memory.values) for memory in summary.memory]
    mapper = summary.localisation
    yield "clustermapper", [("the Clustermapper", mapper.values)] if mapper is not None else []


def _worst(scope: str, key: str, bound: Bound, values: Sequence[tuple[str, Value]]) -> Expectation:
    def excess(value: Value) -> float:
        return float("inf") if value is None else bound.excess(value)

    where, value = max(values, key=lambda item: excess(item[1]), default=("", None))
    return Expectation(
        scope=scope,
        figure=key,
        bound=str(bound),
        where=where,
        value=value,
        holds=bool(values) and all(bound.allows(value) for _, value in values),
    )


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
                lasted=data.lifetimes.get(flow.flow, (-inf, inf)),
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
        nodes=tuple(node_summaries(data, flows)),
        messages=latency(data, np.concatenate([[], *message_s])),
        over_flows=spreads([(flow.name, flow) for flow in flows if not flow.idle]),
        faults=tuple(map(partial(fault_summary, data), data.faults, effects)),
        operations=summarise_operations(data),
        jobs=summarise_jobs(data),
        links=link_summaries(data),
        programs=data.run.programs,
        localisation=localisation(data),
        memory=process_memory(data),
    )
    expectations = evaluate(summary, scenario.expect, victim_of(scenario))
    of_jobs = evaluate_jobs(data, summary)
    return summary.model_copy(update={"expectations": (*expectations, *of_jobs)})


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
    same = {key: getattr(fault, key) for key in FaultSummary.model_fields if hasattr(fault, key)}
    return FaultSummary(
        **same,
        ev_detection_median=Time.of(median(paths) if paths else None, data.scale),
        ev_detection_last=Time.of(max(paths, default=None), data.scale),
        requested_s=data.seconds(fault.requested_ns),
        effective_s=data.seconds(fault.effective_ns),
        effective_uncertainty_ms=None if uncertainty_ns is None else uncertainty_ns / 1e6,
        heal_requested_s=data.seconds(fault.heal_requested_ns),
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
    """What one fault did to each flow that there was; nothing if it took no effect."""
    during = time_in_force(data, fault)
    if during is None:
        return []
    effects = (data.seconds(other.effective_ns) for other in data.faults)
    until = min([t for t in effects if t is not None and t > during.start] + [during.run_end])
    met = [(flow, during.within(*flow.lasted)) for flow in tables]
    return [
        FaultMetrics(data, flow, fault, time, min(until, time.run_end))
        for flow, time in met
        if time is not None
    ]


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
