"""The figures of a run, with captions that say what to look for."""

import testbed.results.plotting  # noqa: F401 - before Matplotlib

# isort: split
from collections.abc import Iterator, Sequence

from testbed.model.summary import FaultSummary, FlowFault, Summary
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.results.report.figures import (
    ev_states,
    failover,
    goodput,
    link_health,
    operations,
    queues,
    style,
)
from testbed.results.report.figures.style import Drawing, Drawn
from testbed.results.run_data import RunData

MAX_EV_FIGURES = 2
MAX_FAILOVERS = 4
"""Most faults drawn packet by packet: those that stalled a flow longest."""

__all__ = ["Drawing", "draw_all"]


def draw_all(
    data: RunData, tables: Sequence[FlowTables], summary: Summary, *, svg: bool
) -> tuple[Drawing, ...]:
    """Draw the figures of a run as PNG, and with `svg` as SVG too."""
    drawings = []
    with style.style():
        for drawn in _figures(data, tables, summary):
            if drawn is not None:
                figure, drawing = drawn
                style.save(figure, data.figures, drawing.stem, summary, svg=svg)
                drawings.append(drawing)
    return tuple(drawings)


def _figures(
    data: RunData, tables: Sequence[FlowTables], summary: Summary
) -> Iterator[Drawn | None]:
    by_flow = {flow.flow.flow: flow for flow in tables}
    effective = [fault for fault in summary.faults if fault.flows]
    worst = sorted(
        ((fault, _worst_flow(fault)) for fault in effective if fault.flows_affected),
        key=lambda item: _stall_ms(item[1]),
        reverse=True,
    )[:MAX_FAILOVERS]
    worst.sort(key=lambda item: item[0].index)
    yield goodput.draw(data, tables, summary)
    yield operations.draw(data, summary)
    for fault, effect in worst:
        yield failover.draw(data, by_flow[effect.flow], fault, effect)
    for flow in _for_ev_states(tables, effective):
        yield ev_states.draw(data, flow, summary)
    yield queues.draw(data, summary)
    if summary.localisation is not None:
        yield link_health.draw(data)


def _worst_flow(fault: FaultSummary) -> FlowFault:
    """The flow that stalled longest, of those that lost packets to the fault if any did.

    Without losses a stall may only mean that nothing was to be sent.
    """
    affected = (flow for flow in fault.flows if flow.affected)
    return max(affected, key=lambda flow: (flow.packets_lost > 0, _stall_ms(flow)))


def _stall_ms(flow: FlowFault) -> float:
    return flow.stall.ms if flow.stall is not None else 0.0


def _for_ev_states(
    tables: Sequence[FlowTables], faults: Sequence[FaultSummary]
) -> list[FlowTables]:
    affected = {flow.flow for fault in faults for flow in fault.flows if flow.affected}
    affected_first = sorted(tables, key=lambda flow: flow.flow.flow not in affected)
    return [flow for flow in affected_first if _has_changes(flow)][:MAX_EV_FIGURES]


def _has_changes(flow: FlowTables) -> bool:
    """Whether any EV of a flow changed its state: if none did, a figure has nothing to show."""
    return any(len(spans) > 1 for spans in flow.spans.values())
