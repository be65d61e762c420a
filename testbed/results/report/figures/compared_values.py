"""A panel of a comparison: one metric's medians with their intervals, on lines below each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from testbed.results.comparison.rows import Cell
from testbed.results.report.figures import style

TICKS = 4
NEVER_AT = 1.15
"""Where NEVER is marked: beyond the greatest number by this factor of the axis' length."""


@dataclass(frozen=True, slots=True)
class Value:
    """A cell of the comparison, the height at which it is drawn, its colour and its mark."""

    height: float
    cell: Cell
    colour: str
    mark: str = "o"


def draw_values(axes: Axes, title: str, values: Sequence[Value]) -> None:
    """Draw a metric's values.

    The axis begins at zero, so that a difference looks as large as it is. NEVER has a place of its
    own beyond all numbers.
    """
    axes.set_title(title, fontsize=7)
    numbers = [
        number
        for value in values
        if (cell := value.cell.value) is not None
        for number in (cell.low, cell.median, cell.high)
    ]
    finite = [number for number in numbers if isfinite(number)]
    left, right = min([0.0, *finite]), max([0.0, *finite])
    steps = MaxNLocator(TICKS).tick_values(left, right) if left < right else [0.0]
    ticks = [tick for tick in steps if left <= tick <= right]
    right = max(right, left + (left == right))
    never_at = left + NEVER_AT * (right - left)
    axes.set_xticks(ticks)
    reach = right
    if len(finite) < len(numbers):
        axes.set_xticks([*ticks, never_at], [*(f"{tick:g}" for tick in ticks), "never"])
        axes.axvline(never_at, color=style.LIGHT, linewidth=0.7, zorder=0)
        reach = never_at
    axes.set_xlim(left - 0.05 * (reach - left), reach + 0.12 * (reach - left))
    for value in values:
        _draw(axes, value, left, never_at)


def _draw(axes: Axes, value: Value, left: float, never_at: float) -> None:
    estimate = value.cell.value
    if estimate is None:
        style.note(axes, "not measured", (left, value.height), style.GREY, xytext=(0, -2.5))
        return
    low, median, high = (
        number if isfinite(number) else never_at
        for number in (estimate.low, estimate.median, estimate.high)
    )
    if high > low:
        axes.plot([low, high], [value.height] * 2, color=value.colour, linewidth=1.2)
    if not isfinite(estimate.high):
        axes.plot(never_at, value.height, ">", color=value.colour, markersize=4)
    if isfinite(estimate.median):
        axes.plot(median, value.height, value.mark, color=value.colour, markersize=4)
    if value.cell.measured < value.cell.runs or value.cell.never:
        _note_basis(axes, value, low, high, middle=(left + never_at) / 2)


def _note_basis(axes: Axes, value: Value, low: float, high: float, *, middle: float) -> None:
    """Write how many runs a value is based on: left or right of it, or above it if it is wide."""
    if low > middle:
        place, offset, aligned = low, (-6, 0), ("right", "center")
    elif high < middle:
        place, offset, aligned = high, (6, 0), ("left", "center")
    else:
        place, offset, aligned = high, (-6, 2), ("right", "bottom")
    where, (ha, va) = (place, value.height), aligned
    style.note(axes, value.cell.basis, where, style.GREY, xytext=offset, ha=ha, va=va)
