"""From the records of a run to its summary."""

from collections.abc import Sequence

from testbed.model.expect_checks import victim_of
from testbed.model.faults.record import FaultRecord
from testbed.model.summary import (
    FaultEffect,
    FaultSummary,
    FlowFault,
    Integrity,
    LossShare,
    Summary,
)
from testbed.model.summary.metric import Value, total
from testbed.results.analysis.delivery import delivery
from testbed.results.analysis.ev_states import ev_spans
from testbed.results.analysis.expectations import evaluate
from testbed.results.analysis.fault_metrics import FaultMetrics, FlowTables, run_end, window
from testbed.results.analysis.flow_metrics import flow_summary
from testbed.results.analysis.link_metrics import link_summaries
from testbed.results.analysis.localisation import localisation
from testbed.results.analysis.memory import process_memory
from testbed.results.analysis.operations import summarise_operations
from testbed.results.analysis.verdict import judge
from testbed.results.capacity.attainable import attainable_rates
from testbed.results.run_data import RunData


def flow_tables(data: RunData) -> tuple[FlowTables, ...]:
    """Every flow's records, prepared for metrics and figures."""
    rates = attainable_rates(data)
    end = run_end(data)
    return tuple(
        FlowTables(
            flow=flow,
            attainable=rates[flow.flow].attainable,
            ideal=rates[flow.flow].ideal,
            delivery=delivery(data.table("arrivals", flow.flow)),
            spans=ev_spans(data.table("ev_events", flow.flow), end),
            transmissions=data.table("transmissions", flow.flow),
            losses=data.table("losses", flow.flow),
        )
        for flow in data.run.flows
    )


class RunMetrics:
    """Computes the metrics of `Summary` and of `Integrity`."""

    def __init__(self, data: RunData, attainable_fractions: Sequence[float]) -> None:
        """Take the run, and the share of the attainable rate that each flow reached."""
        self.duration_s = data.run.duration_s
        self.base_rtt_us = data.run.base_rtt_ns / 1e3
        self.base_rtt_real_us = self.base_rtt_us / data.topology.dilation
        self.qps_in_error = sum(bool(flow.errors) for flow in data.run.flows)
        # A single flow cannot be unfair to itself.
        several = len(attainable_fractions) > 1 and any(attainable_fractions)
        self.fairness = jain(attainable_fractions) if several else None


def jain(shares: Sequence[float]) -> float:
    """Jain's fairness index (DEC-TR-301, 1984): 1 where all shares are alike and one is not 0."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def summarise(data: RunData, tables: Sequence[FlowTables]) -> Summary:
    """Compute everything that `summary.json` holds."""
    flows = tuple(flow_summary(data, flow) for flow in tables)
    records = data.run.flows
    integrity = Integrity(
        **{q.key: sum(getattr(flow, q.key) for flow in records) for q in Integrity.quantities()}
    )
    verdict = judge(data, flows, integrity)
    scenario = data.scenario
    summary = Summary.measured(
        RunMetrics(data, [flow.run_fraction or 0.0 for flow in flows]),
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
        faults=tuple(fault_summary(data, tables, fault) for fault in data.faults),
        operations=summarise_operations(data),
        links=link_summaries(data),
        localisation=localisation(data),
        memory=process_memory(data),
    )
    expectations = evaluate(summary, scenario.expect, victim_of(scenario))
    return summary.model_copy(update={"expectations": expectations})


def fault_summary(data: RunData, tables: Sequence[FlowTables], fault: FaultRecord) -> FaultSummary:
    """What one fault did to each flow, and the worst of it."""
    flows = tuple(_flow_faults(data, tables, fault))
    uncertainty_ns = fault.uncertainty_ns
    # A killed sender notices nothing: its flows are left out.
    surviving = [flow for flow in flows if fault.kind != "kill" or flow.src not in fault.places]
    same = {key: getattr(fault, key) for key in FaultSummary.model_fields if hasattr(fault, key)}
    return FaultSummary(
        **same,
        requested_s=data.seconds(fault.asked_ns),
        effective_s=data.seconds(fault.effective_ns),
        effective_uncertainty_ms=None if uncertainty_ns is None else uncertainty_ns / 1e6,
        heal_requested_s=data.seconds(fault.heal_asked_ns),
        healed_s=data.seconds(fault.healed_ns),
        flows_affected=sum(flow.affected for flow in flows),
        flows=flows,
        **worst_effect(surviving or flows),
    )


def _flow_faults(
    data: RunData, tables: Sequence[FlowTables], fault: FaultRecord
) -> list[FlowFault]:
    during = window(data, fault)
    if during is None:
        return []
    effects = (data.seconds(other.effective_ns) for other in data.faults)
    until = min([t for t in effects if t is not None and t > during.start] + [during.run_end])
    return [
        FlowFault.measured(
            effect := FaultMetrics(data, flow, fault, during, until),
            data.scale,
            flow=flow.flow.flow,
            src=flow.flow.src,
            dst=flow.flow.dst,
            affected=effect.affected,
        )
        for flow in tables
    ]


def worst_effect(flows: Sequence[FlowFault]) -> dict[str, Value]:
    """The worst over the flows that a fault affected, or over all if it affected none.

    Packets are summed over all flows; shares of packets are those of the former flows together.
    Empty if there is no flow.
    """
    concerned = [flow for flow in flows if flow.affected] or list(flows)
    numbers: dict[str, Value] = {}
    for metric in FaultEffect.metrics() if concerned else ():
        if isinstance(metric, LossShare):
            numbers[metric.name] = metric.share(concerned)
        else:
            counted = flows if metric.combine is total else concerned
            for quantity in metric.quantities:
                numbers[quantity.key] = metric.combine([quantity.of(flow) for flow in counted])
    return numbers
