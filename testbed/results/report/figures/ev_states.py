"""The states of a flow's EVs over time: a row for each EV, grouped by plane."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from testbed.model.summary import FaultSummary, Summary
from testbed.results.analysis.ev_states import Span
from testbed.results.analysis.fault_metrics import FlowTables, run_end
from testbed.results.report.figures import fault_rows, style
from testbed.results.report.figures.style import Drawing
from testbed.results.run_data import RunData

MAX_ROWS = 64
"""Most rows; of more EVs those that ever changed are shown first."""


@dataclass(frozen=True, slots=True)
class _Look:
    label: str
    colour: str
    edge: str
    hatch: str


_ACTIVE = _Look("GOOD, active", style.BLUE, style.BLUE, "")
_STANDBY = _Look("GOOD, standing by", "#e3eef6", "#9dbfd8", "")
_SKIP = _Look("SKIP", style.YELLOW, "#8a8100", "....")
_BAD = _Look("ASSUMED_BAD", "white", style.VERMILLION, "//////")
_DENIED = _Look("DENIED", style.BLACK, style.BLACK, "")
_LOOKS = (_ACTIVE, _STANDBY, _SKIP, _BAD, _DENIED)


def draw(data: RunData, flow: FlowTables, summary: Summary) -> Drawing:
    """Draw `ev_states_flow<n>`."""
    faults = fault_rows.measured(summary)
    many = fault_rows.rows(summary)
    evs = _rows(data, flow)
    height = 0.17 if len(evs) <= MAX_ROWS // 2 else 0.12
    body = max(height * len(evs) + 1.8, 2.4)
    end = run_end(data)
    if many:
        strip = fault_rows.height_in(many)
        figure = style.new_figure(body + strip)
        above, axes = figure.subplots(2, 1, height_ratios=[strip, height * len(evs)])
        fault_rows.draw(above, many, end)
    else:
        figure = style.new_figure(body)
        axes = figure.subplots()
    labels, through = [], []
    for row, ev in enumerate(evs):
        for span in flow.spans[ev]:
            _bar(axes, row, span)
        path = data.path_of(flow.flow, ev)
        entropy = f" #{ev >> 16}" if ev >> 16 else ""
        crossing = any(data.crosses(flow.flow, ev, fault.places) for fault in faults)
        labels.append(f"{path.name}{entropy}")
        through.append(crossing)
    for row in range(1, len(evs)):
        planes = [data.path_of(flow.flow, evs[i]).plane for i in (row - 1, row)]
        if planes[0] != planes[1]:
            axes.axhline(row - 0.5, color=style.GREY, linewidth=0.6)
    dense = height < 0.15  # noqa: PLR2004 - of the two heights
    style.label_paths(axes, labels, through, fontsize=5.5 if dense else 7)
    changes = [] if many else _changes(faults, end)
    rows = style.label_rows(changes, 0.009 * end)
    for (t, label), row in zip(changes, rows, strict=True):
        _mark(axes, t, label, -1 - row)
    axes.set_xlim(0, end)
    axes.set_ylim(len(evs) - 0.5, -0.6 - len(set(rows)))
    zero = faults[0].effective_s or 0.0 if faults else 0.0
    style.rtt_axis(axes, zero, data.base_rtt_s, f"base RTTs from {fault_rows.origin(summary)}")
    axes.set_xlabel("time from the start of the run (s)")
    axes.set_ylabel("path (plane / T1)")
    axes.spines["top"].set_visible(False)
    used = {_look(s) for ev in evs for s in flow.spans[ev] if s.end > 0}
    figure.legend(
        handles=[
            Patch(facecolor=x.colour, edgecolor=x.edge, hatch=x.hatch, label=x.label)
            for x in _LOOKS
            if x in used
        ],
        loc="outside lower center",
        ncols=5,
    )
    stem = f"ev_states_flow{flow.flow.flow}"
    style.save(figure, data.figures, stem, summary)
    return Drawing(stem, f"EV states, {flow.flow.name}", _caption(flow, evs))


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


def _look(span: Span) -> _Look:
    match span.state:
        case "GOOD":
            return _ACTIVE if span.active else _STANDBY
        case "SKIP":
            return _SKIP
        case "DENIED":
            return _DENIED
    return _BAD


def _bar(axes: Axes, row: int, span: Span) -> None:
    if span.end <= 0:
        return
    look = _look(span)
    colours = {"facecolor": look.colour, "edgecolor": look.edge, "hatch": look.hatch}
    style.bar(axes, row, max(span.start, 0), span.end, height=0.76, linewidth=0.4, **colours)


def _mark(axes: Axes, t: float, label: str, row: float) -> None:
    axes.axvline(t, color=style.VERMILLION, linewidth=1, linestyle=(0, (3, 1.5)), zorder=5)
    style.note(axes, label, (t, row), style.VERMILLION, xytext=(3, 0), va="center", zorder=6)
