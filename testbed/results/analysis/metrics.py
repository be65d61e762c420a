"""From the records of a run to its summary."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from testbed.model.faults.record import FaultRecord
from testbed.model.units import NS_PER_S
from testbed.results.analysis.capacity import attainable_rates
from testbed.results.analysis.delivery import delivery, message_latencies, reordering
from testbed.results.analysis.ev_states import ev_spans
from testbed.results.analysis.expectations import evaluate, victim_of
from testbed.results.analysis.fault_metrics import (
    Effect,
    FlowTables,
    effect,
    run_end,
    window,
)
from testbed.results.analysis.link_metrics import link_summaries
from testbed.results.analysis.localisation import localisation
from testbed.results.analysis.memory import process_memory
from testbed.results.analysis.operations import summarise_operations
from testbed.results.analysis.verdict import judge
from testbed.results.json_records import FlowRecord
from testbed.results.run_data import RunData
from testbed.results.summary import (
    EvSummary,
    FaultMetrics,
    FaultSummary,
    FlowFault,
    FlowSummary,
    Integrity,
    Latency,
    Summary,
)

WARM_UP_RTTS = 10.0
"""Left out of the steady goodput at the start: windows open and the first SACKs come back."""

MAX_WARM_UP_SHARE = 0.3
"""... but not more than this share of the fault-free time."""

_TIMES = (
    "detection",
    "detection_last",
    "exposure",
    "stall",
    "placement_gap",
    "recovery",
    "return_first",
    "return_last",
    "return_data",
)


def flow_tables(data: RunData) -> tuple[FlowTables, ...]:
    """Every flow's records, prepared for metrics and figures."""
    rates = attainable_rates(data)
    end = run_end(data)
    return tuple(
        FlowTables(
            flow=flow,
            attainable=rates[flow.flow],
            delivery=delivery(data.table("arrivals", flow.flow)),
            spans=ev_spans(data.table("ev_events", flow.flow), end),
            transmissions=data.table("transmissions", flow.flow),
            losses=data.table("losses", flow.flow),
        )
        for flow in data.run.flows
    )


def summarise(data: RunData, tables: Sequence[FlowTables]) -> Summary:
    """Compute everything that `summary.json` holds."""
    flows = tuple(_flow(data, flow) for flow in tables)
    integrity = Integrity(
        **{name: sum(getattr(f, name) for f in data.run.flows) for name in Integrity.model_fields}
    )
    verdict = judge(data, flows, integrity)
    dilation = data.topology.dilation
    summary = Summary(
        scenario=data.scenario.name,
        description=data.scenario.description.strip(),
        run=data.directory.name,
        simulated=data.simulated,
        seed=data.scenario.seed,
        dilation=dilation,
        duration_s=data.run.duration_s,
        verdict=verdict.state,
        reasons=verdict.reasons,
        base_rtt_us=data.run.base_rtt_ns / 1e3,
        base_rtt_real_us=data.run.base_rtt_ns / 1e3 / dilation,
        integrity=integrity,
        qps_in_error=sum(bool(flow.errors) for flow in data.run.flows),
        fairness=_fairness([flow.attainable_fraction for flow in flows]),
        flows=flows,
        faults=tuple(_fault(data, tables, fault) for fault in data.faults),
        links=link_summaries(data),
        operations=summarise_operations(data),
        localisation=localisation(data),
        memory=process_memory(data),
    )
    scenario = data.scenario
    expectations = evaluate(summary, scenario.expect, victim_of(scenario))
    return summary.model_copy(update={"expectations": expectations})


def _fairness(shares: Sequence[float]) -> float | None:
    """Jain's index of flows; None for a single one, or where nothing was sent."""
    if len(shares) < 2 or not any(shares):  # noqa: PLR2004 - one cannot be unfair to itself
        return None
    return jain(shares)


def jain(shares: Sequence[float]) -> float:
    """Jain's fairness index (DEC-TR-301, 1984): 1 where all shares are alike and one is not 0."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def steady_window(data: RunData) -> tuple[float, float]:
    """The fault-free time after warming up, in seconds: steady goodput is taken from it."""
    effects = [t for f in data.faults if (t := data.seconds(f.effective_ns)) is not None]
    end = min([run_end(data), *effects])
    return min(WARM_UP_RTTS * data.base_rtt_s, MAX_WARM_UP_SHARE * end), end


def killed_hosts(data: RunData) -> frozenset[str]:
    """The hosts whose endpoints faults have killed."""
    return frozenset(
        place for fault in data.faults if fault.kind == "kill" for place in fault.places
    )


def _flow(data: RunData, tables: FlowTables) -> FlowSummary:
    flow = tables.flow
    start, end = steady_window(data)
    arrivals = data.table("arrivals", flow.flow)
    last = arrivals["t"].max()
    if flow.dst in killed_hosts(data) and isinstance(last, float):
        end = min(end, last)  # what it received in its last moments it could not write down
    order = reordering(arrivals)
    goodput = tables.delivery.goodput_bps(start, end)
    steady = arrivals.filter((pl.col("t") > start) & (pl.col("t") <= end))
    scale = 8 / (end - start) if end > start else 0.0  # a fault from the start on
    planes = steady.group_by("plane").agg(pl.col("bytes").sum()).sort("plane")
    spurious = tables.losses.filter("spurious").height
    return FlowSummary(
        flow=flow.flow,
        src=flow.src,
        dst=flow.dst,
        transport=flow.transport,
        goodput_bps=goodput,
        goodput_run_bps=tables.delivery.goodput_bps(0.0, run_end(data)),
        attainable_bps=flow.attainable_bps,
        attainable_fraction=goodput / flow.attainable_bps,
        packets_sent=flow.packets_sent,
        packets_lost=flow.packets_lost,
        packets_retransmitted=flow.packets_retransmitted,
        packets_spurious=spurious,
        packets_lost_elsewhere=_lost_elsewhere(data, tables),
        packets_reordered=order.reordered,
        reorder_depth_max=order.depth_max,
        goodput_by_plane_bps={plane: total * scale for plane, total in planes.iter_rows()},
        evs=_evs(data, tables, steady, scale),
        latency=_latency(data, tables),
    )


def _evs(
    data: RunData, tables: FlowTables, steady: pl.DataFrame, scale: float
) -> tuple[EvSummary, ...]:
    placed: dict[int, int] = dict(steady.group_by("ev").agg(pl.col("bytes").sum()).iter_rows())
    sent: dict[int, int] = dict(tables.transmissions.group_by("ev").len().iter_rows())
    lost: dict[int, int] = dict(
        tables.losses.filter(~pl.col("spurious")).group_by("ev").len().iter_rows()
    )
    paths = {ev: data.path_of(tables.flow, ev) for ev in {*tables.spans, *sent}}
    return tuple(
        EvSummary(
            ev=ev,
            plane=path.plane,
            path=path.name,
            goodput_bps=placed.get(ev, 0) * scale,
            packets_sent=sent.get(ev, 0),
            packets_lost=lost.get(ev, 0),
        )
        for ev, path in sorted(
            paths.items(), key=lambda item: (item[1].plane, item[1].t1 or 0, item[0])
        )
    )


def _lost_elsewhere(data: RunData, tables: FlowTables) -> int:
    """Transmissions lost for good that no fault on their path explains."""
    lost = tables.losses.filter(~pl.col("spurious"))
    for fault in data.faults:
        start, healed = data.seconds(fault.effective_ns), data.seconds(fault.healed_ns)
        if start is None:
            continue
        through = [ev for ev in lost["ev"].unique() if data.crosses(tables.flow, ev, fault.places)]
        end = np.inf if healed is None else healed
        lost = lost.filter(
            ~(
                pl.col("ev").is_in(through)
                & pl.col("sent_t").is_between(start - data.base_rtt_s, end)
            )
        )
    return lost.height


def _latency(data: RunData, tables: FlowTables) -> Latency | None:
    seconds = message_latencies(data.table("completions", tables.flow.flow), tables.transmissions)
    if not seconds.size:
        return None
    median, p99 = np.percentile(seconds, [50, 99])
    values = {"median": float(median), "p99": float(p99), "max": float(seconds.max())}
    return Latency(
        messages=seconds.size,
        **{f"{name}_ms": value * 1e3 for name, value in values.items()},
        **{f"{name}_rtt": value / data.base_rtt_s for name, value in values.items()},
    )


# --- faults -----------------------------------------------------------------------------------


def _fault(data: RunData, tables: Sequence[FlowTables], fault: FaultRecord) -> FaultSummary:
    during = window(data, fault)
    flows: tuple[FlowFault, ...] = ()
    if during is not None:
        later = [
            t
            for other in data.faults
            if (t := data.seconds(other.effective_ns)) is not None and t > during.start
        ]
        until = min([*later, during.run_end])
        flows = tuple(
            _flow_fault(data, one.flow, effect(data, one, fault, during, until)) for one in tables
        )
    unsure = None
    if fault.effective_ns is not None and fault.effective_after_ns is not None:
        unsure = (fault.effective_ns - fault.effective_after_ns) / 1e6
    return FaultSummary(
        index=fault.index,
        kind=fault.kind,
        target=fault.target,
        places=fault.places,
        actuator=fault.actuator,
        requested_s=(fault.asked_ns - data.run.t0_ns) / NS_PER_S,
        effective_s=data.seconds(fault.effective_ns),
        effective_uncertainty_ms=unsure,
        heal_requested_s=data.seconds(fault.heal_asked_ns),
        healed_s=data.seconds(fault.healed_ns),
        proof=fault.proof,
        flows_affected=sum(flow.affected for flow in flows),
        flows=flows,
        **_worst([flow for flow in flows if not _ended(fault, flow)] or flows),
    )


def _ended(fault: FaultRecord, flow: FlowFault) -> bool:
    """Whether a fault killed the sender of a flow, so that nobody is left to notice anything."""
    return fault.kind == "kill" and flow.src in fault.places


def _flow_fault(data: RunData, flow: FlowRecord, found: Effect) -> FlowFault:
    values: dict[str, Any] = {
        "deficit_rtt": found.deficit,
        "deficit_baseline_rtt": found.deficit_baseline,
        "surviving_fraction": found.surviving_fraction,
        "packets_exposed": found.packets_exposed,
        "packets_lost": found.packets_lost,
        "packets_sent": found.sent,
        "packets_sent_after_detection": found.sent_after_detection,
        "packets_lost_after_detection": found.lost_after_detection,
        "loss_share": _share(found.packets_lost, found.sent),
        "residual_loss": _share(found.lost_after_detection, found.sent_after_detection),
    }
    for name in _TIMES:
        values |= three_ways(name, getattr(found, name), data)
    return FlowFault(
        flow=flow.flow,
        src=flow.src,
        dst=flow.dst,
        affected=found.evs_active > 0,
        evs_active=found.evs_active,
        evs_detected=found.evs_detected,
        **values,
    )


def three_ways(name: str, seconds: float | None, data: RunData) -> dict[str, float | None]:
    """A time in emulated ms, base RTTs and real-equivalent us."""
    if seconds is None:
        return {f"{name}_ms": None, f"{name}_rtt": None, f"{name}_real_us": None}
    return {
        f"{name}_ms": seconds * 1e3,
        f"{name}_rtt": seconds / data.base_rtt_s,
        f"{name}_real_us": seconds * 1e6 / data.topology.dilation,
    }


def _share(part: int, whole: int) -> float | None:
    """Part of the whole; None where there is no whole."""
    return part / whole if whole else None


def _worst(flows: Sequence[FlowFault]) -> dict[str, Any]:
    """The worst over the flows that the fault affected; over all of them where it affected none.

    Null where it is null for one of these flows: what never happened is worse than any number.
    Only exposure is not: there null says that a flow sent nothing into the fault. Packets are
    summed over all flows, and the shares of them that were lost are of these flows' together.
    """
    concerned = [flow for flow in flows if flow.affected] or list(flows)
    if not concerned:
        return {}
    worst: dict[str, Any] = {}
    for name in FaultMetrics.model_fields:
        values = [getattr(flow, name) for flow in concerned]
        if name.startswith("packets_"):
            worst[name] = sum(getattr(flow, name) for flow in flows)
        elif name.startswith("exposure_"):
            worst[name] = max((value for value in values if value is not None), default=None)
        elif None in values:
            worst[name] = None
        else:
            worst[name] = (min if name == "surviving_fraction" else max)(values)
    worst["loss_share"] = _pooled(concerned, "packets_lost", "packets_sent")
    worst["residual_loss"] = _pooled(
        concerned, "packets_lost_after_detection", "packets_sent_after_detection"
    )
    return worst


def _pooled(flows: Sequence[FlowFault], part: str, whole: str) -> float | None:
    return _share(*(sum(getattr(flow, name) for flow in flows) for name in (part, whole)))
