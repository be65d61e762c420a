"""From the records of a run to its summary."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from math import inf
from statistics import median
from typing import Any, TypeVar

import numpy as np

from testbed.model.faults.record import FaultRecord
from testbed.model.run_files.content import FlowRecord
from testbed.model.scenario import Bound, Expect
from testbed.model.summary import (
    Expectation,
    FaultEffect,
    FaultSummary,
    FlowFault,
    FlowSummary,
    Integrity,
    LossShare,
    MetricGroup,
    PairFault,
    Summary,
)
from testbed.model.summary.metric import Value, spreads, total
from testbed.model.summary.scopes import JOB_SCOPES, SCOPES
from testbed.model.summary.unit import Time
from testbed.results.analysis.attainable import attainable_rates
from testbed.results.analysis.contradictions import contradictions
from testbed.results.analysis.delivery import (
    ByFlow,
    FlowDelivery,
    InOrder,
    advances,
    delivered_point,
    ev_spans,
    in_order,
    placed_bytes,
)
from testbed.results.analysis.fault_metrics import (
    AVERAGED_RTTS,
    Course,
    FaultMetrics,
    FlowTables,
    GoodputMetrics,
    time_in_force,
)
from testbed.results.analysis.flow_metrics import (
    FlowCounts,
    flow_summary,
    latency,
    node_summaries,
)
from testbed.results.analysis.link_metrics import link_summaries, localisation, process_memory
from testbed.results.analysis.operations import summarise_jobs, summarise_operations
from testbed.results.analysis.verdict import judge
from testbed.results.records import ARRIVALS, EV_EVENTS, LOSSES, TRANSMISSIONS
from testbed.results.run_data import RunData

# --------------------------------------------------------------------------------------------------
# Compares a run's metrics with the bounds that its scenario sets.


def evaluate(summary: Summary, expect: Expect) -> tuple[Expectation, ...]:
    """Compare every bound with the worst value of its metric.

    A value that does not exist, such as the recovery of a fault from which nothing recovered, is
    worse than any number. Faults that no flow had an active EV through are left out: they have no
    metrics. If nothing at all was measured, the expectation does not hold. Bounds on processes are
    left out in simulated runs, which have none. That all planned operations finish is expected as
    well, unless the scenario itself says how many do.
    """
    bounds = {scope: dict(getattr(expect, scope)) for scope in SCOPES}
    planned = any(kind.planned is not None for kind in summary.operations)
    if planned and not expect.says_how_many_finish:
        bounds["operations"]["unfinished"] = Bound(at_least=0, at_most=0)
    return tuple(
        _worst(scope, key, bound, SCOPES[scope].numbers(summary, key))
        for scope in SCOPES
        if scope != "processes" or not summary.simulated
        for key, bound in bounds[scope].items()
    )


def evaluate_jobs(data: RunData, summary: Summary) -> Iterator[Expectation]:
    """Compare the bounds that each job sets for itself with the worst value among its own."""
    jobs = zip(data.scenario.jobs, summary.jobs, data.flows_of_jobs, strict=False)
    for job, of_job, flows in jobs:
        own: dict[str, list[tuple[str, MetricGroup]]] = {
            "job": [(job.name, of_job)],
            "flows": [(f.name, f) for f in summary.flows if f.flow in (flows or ())],
            "operations": [
                (each.kind, each)
                for each in summary.operations
                if each.kind.startswith(job.label(""))
            ],
        }
        for key, scope in JOB_SCOPES.items():
            for figure, bound in getattr(job.expect, key).items():
                quantity = SCOPES[scope].quantities[figure]
                values = [(name, quantity.of(group)) for name, group in own[key]]
                worst = _worst(scope, figure, bound, values)
                yield worst.model_copy(update={"job": job.name})


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
    arrivals, transmissions = data.tables[ARRIVALS], data.tables[TRANSMISSIONS]
    point = delivered_point(arrivals)
    placed, moves = ByFlow(placed_bytes(arrivals)), ByFlow(advances(point))
    sent = ByFlow(in_order(transmissions, point))
    spans = ev_spans(data.tables[EV_EVENTS], data.end_s)
    rates = attainable_rates(data)
    healed = (data.seconds(fault.healed_ns) for fault in data.faults)
    healings = tuple(t for t in healed if t is not None)
    return tuple(
        FlowTables(
            flow=flow,
            attainable=rates[flow.flow].attainable,
            ideal=rates[flow.flow].ideal,
            delivery=FlowDelivery(*placed.columns(flow.flow), *moves.columns(flow.flow)),
            in_order=InOrder(*sent.columns(flow.flow)),
            spans=spans.get(flow.flow, {}),
            transmissions=data.table(TRANSMISSIONS, flow.flow),
            losses=data.table(LOSSES, flow.flow),
            lasted=data.lifetimes.get(flow.flow, (-inf, inf)),
            done=data.done.get(flow.flow, inf),
            undamaged=rates[flow.flow].undamaged,
            healings=healings if data.simulated and not data.paced else None,
            spells=data.spells.get(flow.flow, ()) if data.faults else (),
        )
        for flow in data.flows
    )


class RunMetrics:
    """Computes the metrics of `Summary` and of `Integrity`."""

    def __init__(
        self, data: RunData, tables: Sequence[FlowTables], flows: Sequence[FlowSummary]
    ) -> None:
        """Take the run, and the records and the metrics of its flows, in the same order."""
        self.duration_s = data.run.duration_s
        self.base_rtt_us = data.run.base_rtt_ns / 1e3
        self.base_rtt_real_us = self.base_rtt_us / data.topology.dilation
        self.qps_in_error = sum(bool(flow.errors) for flow in data.run.flows)
        busy = [
            (flow, end - begin, begin, end)
            for table, flow in zip(tables, flows, strict=True)
            for begin, end in [table.measured(data.base_rtt_s, data.end_s)]
            if not flow.idle
        ]
        # A single flow cannot be unfair to itself.
        reached = [flow.reached for flow, *_ in busy]
        self.fairness = jain(reached) if len(reached) > 1 and any(reached) else None
        placed, ideal, even = (
            sum(getattr(flow, key) * seconds for flow, seconds, *_ in busy)
            for key in ("goodput_run_bps", "ideal_run_bps", "attainable_run_bps")
        )
        seconds = max((end for *_, end in busy), default=0.0) - min(
            (begin for *_, begin, _ in busy), default=0.0
        )
        self.goodput_bps = placed / seconds if seconds else 0.0
        self.ideal_fraction = placed / ideal if ideal else None
        self.attainable_fraction = placed / even if even else None


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
    counts = FlowCounts(data, tables)
    flows = tuple(flow_summary(data, table, counts) for table in tables)
    message_s = [counts.latencies_s(table.flow.flow) for table in tables]
    effects = [fault_effects(data, tables, fault) for fault in data.faults]
    courses = dict[tuple[int, ...], Course]()

    def course_of(of: Sequence[FlowTables]) -> Course:  # faults mostly meet the same flows
        numbers = tuple(table.flow.flow for table in of)
        if numbers not in courses:
            courses[numbers] = Course.together(of)
        return courses[numbers]

    integrity = integrity_of(data.run.flows, data.scenario.expect)
    contradicting = contradictions(data, tables, flows, list(chain.from_iterable(effects)))
    verdict = judge(data, flows, integrity, contradicting)
    scenario = data.scenario
    summary = Summary.measured(
        RunMetrics(data, tables, flows),
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
        faults=tuple(map(partial(fault_summary, data, course_of), data.faults, effects)),
        operations=summarise_operations(data),
        jobs=summarise_jobs(data),
        links=link_summaries(data),
        programs=data.run.programs,
        localisation=localisation(data),
        memory=process_memory(data),
    )
    expectations = evaluate(summary, scenario.expect)
    of_jobs = evaluate_jobs(data, summary)
    return summary.model_copy(update={"expectations": (*expectations, *of_jobs)})


CourseOf = Callable[[Sequence[FlowTables]], Course]
"""Makes one course of those of some flows."""


def fault_summary(
    data: RunData, course_of: CourseOf, fault: FaultRecord, effects: Sequence[FaultMetrics]
) -> FaultSummary:
    """What one fault did to each flow, to each pair of hosts and to all together, and the worst."""
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
    members = list(zip(effects, flows, strict=True))
    of_pair = defaultdict[tuple[str, str], list[tuple[FaultMetrics, FlowFault]]](list)
    for effect, flow in members:
        of_pair[flow.src, flow.dst].append((effect, flow))
    pairs = tuple(
        PairFault(
            src=src,
            dst=dst,
            queue_pairs=len(members),
            affected=any(flow.affected for _, flow in members),
            **together(data, course_of, members),
        )
        for (src, dst), members in of_pair.items()
        if len(of_pair) < len(flows)
    )
    uncertainty_ns = fault.uncertainty_ns
    # A killed sender notices nothing: its flows are left out.
    killed = fault.places if fault.kind == "kill" else ()
    affected, of_pairs = _left(flows, killed), _left(pairs or flows, killed)
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
        over_pairs=spreads([(pair.name, pair) for pair in of_pairs]),
        run=FaultEffect(**together(data, course_of, members, killed)) if flows else None,
        pairs=pairs,
        flows=flows,
        **worst_effect(pairs or flows, of_pairs),
    )


_Effect = TypeVar("_Effect", bound=FlowFault | PairFault)


def _left(effects: Sequence[_Effect], killed: Collection[str]) -> list[_Effect]:
    """Those that a fault affected, without those whose sender it killed, unless all are."""
    affected = [effect for effect in effects if effect.affected]
    return [effect for effect in affected if effect.src not in killed] or affected


def together(
    data: RunData,
    course_of: CourseOf,
    members: Sequence[tuple[FaultMetrics, FlowFault]],
    killed: Collection[str] = (),
) -> dict[str, Any]:
    """What a fault did to some flows together: to their common goodput; else the worst, or sums."""
    # Those with nothing to send take no share.
    members = [member for member in members if member[1].flow not in data.idle] or members
    effects, flows = [effect for effect, _ in members], [flow for _, flow in members]
    longest = max(effects, key=lambda effect: effect.during.run_end)
    course = course_of([effect.flow for effect in effects])
    goodput = GoodputMetrics(course, data.base_rtt_s, longest.during, longest.until)
    values: dict[str, Any] = worst_effect(flows, _left(flows, killed))
    for metric in FaultEffect.metrics():
        if hasattr(goodput, metric.name):
            for quantity in metric.quantities:
                del values[quantity.key]
            values[metric.name] = metric.measure(goodput, data.scale)
    return values


def fault_effects(
    data: RunData, tables: Sequence[FlowTables], fault: FaultRecord
) -> list[FaultMetrics]:
    """What one fault did to each flow that had something to send; nothing if it took no effect.

    A flow that begins while it is in force does not show what it does to it. What begins within the
    time of averaging counts as begun at once: nothing tells them apart.
    """
    during = time_in_force(data, fault)
    if during is None:
        return []
    effects = (data.seconds(other.effective_ns) for other in data.faults)
    later = during.start + AVERAGED_RTTS * data.base_rtt_s
    until = min([t for t in effects if t is not None and t > later] + [during.run_end])
    return [
        FaultMetrics(data, flow, fault, time, min(until, time.run_end))
        for flow in tables
        if (busy := flow.busy_at(during.start)) is not None
        for time in [during.until(busy[1])]
    ]


def worst_effect(
    effects: Sequence[FaultEffect], affected: Sequence[FaultEffect]
) -> dict[str, Value]:
    """The worst over those that a fault affected; nothing of it exists if there are none.

    Packets are summed over all; shares of packets are those of the affected ones together.
    """
    numbers: dict[str, Value] = {}
    for metric in FaultEffect.metrics():
        if isinstance(metric, LossShare):
            numbers[metric.name] = metric.share(affected)
        else:
            counted = effects if metric.combine is total else affected
            for quantity in metric.quantities:
                numbers[quantity.key] = metric.combine([quantity.of(effect) for effect in counted])
    return numbers
