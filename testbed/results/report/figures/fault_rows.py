"""When faults were in force, on axes of their own: where there are too many to name in a figure."""

from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes

from testbed.model.summary import FaultSummary, Summary
from testbed.results.report.figures import style

MAX_NAMED = 2
"""Faults that a figure names beside what they did; more have rows of their own above it."""

MAX_ROWS = 12
"""Faults that have a row each; of more every kind has one."""

ROW_IN = 0.15

Row = tuple[str, list[FaultSummary]]


def struck(summary: Summary) -> list[FaultSummary]:
    """The faults that took effect in the measured time, in order of time."""
    found = [fault for fault in summary.faults if fault.effective_s is not None and fault.flows]
    return sorted(found, key=lambda fault: fault.effective_s or 0.0)


def too_late(summary: Summary) -> list[FaultSummary]:
    """The faults that took effect after the measured time."""
    return [one for one in summary.faults if one.effective_s is not None and not one.flows]


def name(fault: FaultSummary) -> str:
    """What a fault is called in a figure: `cut p0_t0_0--p0_t1_1`, and of many targets the first."""
    first, *others = fault.target.split(", ")
    return f"{fault.kind} {first}" + (f" and {len(others)} more" if others else "")


def origin(summary: Summary) -> str:
    """From what an axis in base RTTs counts."""
    count = len(struck(summary))
    return ("the start", "the fault")[count] if count <= 1 else "the first fault"


def rows(summary: Summary) -> list[Row]:
    """A row a fault, or a kind where there are many; none where all are named in the figure."""
    faults = struck(summary)
    if len(faults) <= MAX_NAMED:
        return []
    if len(faults) <= MAX_ROWS:
        return [(name(fault), [fault]) for fault in faults]
    kinds = list(dict.fromkeys(fault.kind for fault in faults))
    of_kind = groupby(sorted(faults, key=lambda one: kinds.index(one.kind)), lambda one: one.kind)
    found = [(kind, list(group)) for kind, group in of_kind]
    return [(f"{kind}, {_times(len(group))}", group) for kind, group in found]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def height_in(shown: Sequence[Row]) -> float:
    """How high the rows are, in inches."""
    return ROW_IN * len(shown)


def draw(axes: Axes, shown: Sequence[Row], end: float) -> None:
    """Draw the rows, each fault a bar from when it took effect until it was healed, or the end."""
    for row, (_, faults) in enumerate(shown):
        for fault in faults:
            start = fault.effective_s or 0.0
            until = end if fault.healed_s is None else min(fault.healed_s, end)
            axes.broken_barh(
                [(start, until - start)],
                (row - 0.36, 0.72),
                facecolor=style.VERMILLION,
                edgecolor="white",
                linewidth=0.3,
                alpha=0.75,
            )
    axes.set_xlim(0, end)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_yticks(range(len(shown)), [label for label, _ in shown], fontsize=6.5)
    axes.tick_params(axis="y", length=0, colors=style.VERMILLION)
    axes.tick_params(axis="x", labelbottom=False, length=0)
    axes.spines[["top", "bottom"]].set_visible(False)


def shade(axes: Axes, faults: Sequence[FaultSummary], end: float) -> None:
    """Shade the time in which at least one of many faults was in force, once."""
    until = 0.0
    for fault in faults:
        healed = end if fault.healed_s is None else fault.healed_s
        start = max(fault.effective_s or 0.0, until)
        if healed > start:
            axes.axvspan(start, healed, color=style.VERMILLION, alpha=0.07, linewidth=0, zorder=0)
        until = max(until, healed)
