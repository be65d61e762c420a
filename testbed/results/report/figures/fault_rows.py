"""When faults were in force, on axes of their own: for figures with too many faults to name."""

from collections import defaultdict
from collections.abc import Sequence
from math import inf

from matplotlib.axes import Axes

from testbed.model.summary import FaultSummary, Summary
from testbed.results.report.figures import style
from testbed.results.run_data import RunData

MAX_NAMED = 2
"""Most faults that a figure names; if there are more, they have rows of their own above it."""

MAX_ROWS = 12
"""Most faults with a row each; if there are more, each kind has a row."""

ROW_IN = 0.15
"""Height of a row, in inches."""

Row = tuple[str, list[FaultSummary]]


def measured(summary: Summary) -> list[FaultSummary]:
    """The faults that took effect in the measured time, in order of time."""
    faults = [fault for fault in summary.faults if fault.effective_s is not None and fault.flows]
    return sorted(faults, key=lambda fault: fault.effective_s or 0.0)


def too_late(summary: Summary) -> list[FaultSummary]:
    """The faults that took effect after the measured time."""
    return [f for f in summary.faults if f.effective_s is not None and not f.flows]


def in_force(fault: FaultSummary, end: float = inf) -> tuple[float, float]:
    """When a fault took effect, and when it was healed, or `end`; in seconds of the run."""
    return fault.effective_s or 0.0, end if fault.healed_s is None else fault.healed_s


def name(fault: FaultSummary) -> str:
    """The name of a fault in figures: `cut p0_t0_0--p0_t1_1`, with the first of many targets."""
    first, *others = fault.target.split(", ")
    return f"{fault.kind} {first}" + (f" and {len(others)} more" if others else "")


def origin(summary: Summary) -> str:
    """The origin of an axis in base RTTs."""
    count = len(measured(summary))
    return ("the start", "the fault")[count] if count <= 1 else "the first fault"


def rtt_axis(axes: Axes, data: RunData, summary: Summary) -> None:
    """Add a top axis in base RTTs from the first fault, or from the start, to one in seconds."""
    zero = next((in_force(fault)[0] for fault in measured(summary)), 0.0)
    style.rtt_axis(axes, zero, data.base_rtt_s, f"base RTTs from {origin(summary)}")


def rows(summary: Summary) -> list[Row]:
    """A row for each fault, or kind of many faults; none if the figure names all faults."""
    faults = measured(summary)
    if len(faults) <= MAX_NAMED:
        return []
    if len(faults) <= MAX_ROWS:
        return [(name(fault), [fault]) for fault in faults]
    by_kind = defaultdict[str, list[FaultSummary]](list)
    for fault in faults:
        by_kind[fault.kind].append(fault)
    return [(f"{kind}, {_times(len(group))}", group) for kind, group in by_kind.items()]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def draw(axes: Axes, shown: Sequence[Row], end: float) -> None:
    """Draw the rows: a bar for each fault, from its effect to its healing or the end."""
    times = (
        (row, *in_force(fault, end)) for row, (_, faults) in enumerate(shown) for fault in faults
    )
    in_run = [(row, start, min(until, end)) for row, start, until in times]
    colours = {"facecolor": style.VERMILLION, "edgecolor": "white", "alpha": 0.75}
    style.bars(axes, in_run, height=0.72, linewidth=0.3, **colours)
    axes.set_xlim(0, end)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_yticks(range(len(shown)), [label for label, _ in shown], fontsize=6.5)
    axes.tick_params(axis="y", length=0, colors=style.VERMILLION)
    axes.tick_params(axis="x", labelbottom=False, length=0)
    axes.spines[["top", "bottom"]].set_visible(False)


def shade(axes: Axes, faults: Sequence[FaultSummary], end: float) -> None:
    """Shade the times in which at least one of many faults was in force."""
    until = 0.0
    for fault in faults:
        effective, healed = in_force(fault, end)
        start = max(effective, until)
        if healed > start:
            axes.axvspan(start, healed, color=style.VERMILLION, alpha=0.07, linewidth=0, zorder=0)
        until = max(until, healed)
