"""The states of a flow's EVs over time: a row for each EV, grouped by plane."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from matplotlib.patches import Patch

from testbed.model.fabric.addressing import source_port_of_ev
from testbed.model.summary import FaultSummary, Summary
from testbed.results.analysis.delivery import Span
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.results.report.figures import fault_rows, style
from testbed.results.report.figures.style import Drawing, Drawn
from testbed.results.run_data import RunData

MAX_ROWS = 64
"""Most rows; of more EVs those that ever changed are shown first."""


_LOOKS: dict[str, dict[str, Any]] = {
    "GOOD, active": {"facecolor": style.BLUE, "edgecolor": style.BLUE, "hatch": ""},
    "GOOD, standing by": {"facecolor": "#e3eef6", "edgecolor": "#9dbfd8", "hatch": ""},
    "SKIP": {"facecolor": style.YELLOW, "edgecolor": "#8a8100", "hatch": "...."},
    "ASSUMED_BAD": {"facecolor": "white", "edgecolor": style.VERMILLION, "hatch": "//////"},
    "DENIED": {"facecolor": style.BLACK, "edgecolor": style.BLACK, "hatch": ""},
}
"""How bars of each state look, and of both roles of GOOD."""


def draw(data: RunData, flow: FlowTables, summary: Summary) -> Drawn:
    """Draw `ev_states_flow<n>`."""
    faults = fault_rows.measured(summary)
    many = fault_rows.rows(summary)
    evs = _rows(data, flow)
    height = 0.17 if len(evs) <= MAX_ROWS // 2 else 0.12
    body = max(height * len(evs) + 1.8, 2.4)
    end = data.end_s
    if many:
        strip = fault_rows.ROW_IN * len(many)
        figure = style.new_figure(body + strip)
        above, axes = figure.subplots(2, 1, height_ratios=[strip, height * len(evs)])
        fault_rows.draw(above, many, end)
    else:
        figure = style.new_figure(body)
        axes = figure.subplots()
    shown = defaultdict[str, list[style.Bar]](list)
    for row, ev in enumerate(evs):
        for span in flow.spans[ev]:
            if span.end > 0:
                shown[_state(span)].append((row, max(span.start, 0), span.end))
    for state, spans in shown.items():
        style.bars(axes, spans, height=0.76, linewidth=0.4, **_LOOKS[state])
    paths = [data.path_of(flow.flow, ev) for ev in evs]
    for row, (path, below) in enumerate(pairwise(paths)):
        if path.plane != below.plane:
            axes.axhline(row + 0.5, color=style.GREY, linewidth=0.6)
    entropies = [f" #{entropy}" if (entropy := source_port_of_ev(ev)) else "" for ev in evs]
    labels = [f"{path.name}{entropy}" for path, entropy in zip(paths, entropies, strict=True)]
    places = {place for fault in faults for place in fault.places}
    through = [data.crosses(flow.flow, ev, places) for ev in evs]
    dense = height < 0.15  # noqa: PLR2004 - of the two heights
    style.label_paths(axes, labels, through, fontsize=5.5 if dense else 7)
    changes = [] if many else _changes(faults, end)
    rows = style.label_rows(changes, 0.009 * end)
    for (t, label), row in zip(changes, rows, strict=True):
        axes.axvline(t, color=style.VERMILLION, linewidth=1, linestyle=(0, (3, 1.5)), zorder=5)
        beside: dict[str, Any] = {"xytext": (3, 0), "va": "center", "zorder": 6}
        style.note(axes, label, (t, -1 - row), style.VERMILLION, **beside)
    axes.set_xlim(0, end)
    axes.set_ylim(len(evs) - 0.5, -0.6 - len(set(rows)))
    fault_rows.rtt_axis(axes, data, summary)
    axes.set_xlabel("time from the start of the run (s)")
    axes.set_ylabel("path (plane / T1)")
    axes.spines["top"].set_visible(False)
    handles = [Patch(label=state, **look) for state, look in _LOOKS.items() if state in shown]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    stem = f"ev_states_flow{flow.flow.flow}"
    return figure, Drawing(stem, f"EV states, {flow.flow.name}", _caption(flow, evs))


def _changes(faults: Sequence[FaultSummary], end: float) -> list[tuple[float, str]]:
    """When a few faults took effect and were healed, with their labels."""
    changes = []
    for fault in faults:
        healed = "healed" if len(faults) == 1 else f"{fault_rows.name(fault)} healed"
        changes += [(fault.effective_s, fault_rows.name(fault)), (fault.healed_s, healed)]
    return sorted((t, label) for t, label in changes if t is not None and t < end)


def _caption(flow: FlowTables, evs: Sequence[int]) -> str:
    text = (
        "Each row is an EV, named by its path and grouped by plane. Dark: in the active set, "
        "carrying data. Pale: a backup standing by. Hatched: assumed bad, only probed. A ▶ marks "
        "EVs whose path crosses a faulty link: exactly these should become hatched, each followed "
        "by a backup of the same plane turning dark, and return after healing."
    )
    if len(evs) < len(flow.spans):
        text += f" {len(evs)} of {len(flow.spans)} EVs: those that changed come first."
    return text


def _rows(data: RunData, flow: FlowTables) -> list[int]:
    def place(ev: int) -> tuple[int, int, int]:
        path = data.path_of(flow.flow, ev)
        return path.plane, path.t1 or 0, ev

    evs = sorted(flow.spans, key=place)
    if len(evs) > MAX_ROWS:
        evs = sorted(evs, key=lambda ev: len(flow.spans[ev]) == 1)[:MAX_ROWS]
    return sorted(evs, key=place)


def _state(span: Span) -> str:
    role = ", active" if span.active else ", standing by"
    return span.state + (role if span.state == "GOOD" else "")
