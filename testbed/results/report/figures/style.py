"""The style of all figures: colours for colour-blind readers, sizes, axes, marks.

`GridLayout` places the panels of a figure, with room for labels, legend and banner. Matplotlib's
constrained layout gives the same picture. It measures every label twice, and measuring takes as
long as drawing.
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import LayoutEngine
from numpy.typing import ArrayLike, NDArray

from testbed.model.summary import Summary

Lengths = NDArray[np.float64]


class GridLayout(LayoutEngine):
    """Lays out the one grid of a figure: panels share its room as its ratios say.

    The legends of the figure are below the grid, its title is above.
    """

    _adjust_compatible = False
    _colorbar_gridspec = True

    def __init__(self, pad_in: tuple[float, float]) -> None:
        """Keep this much room beside and above everything, in inches."""
        super().__init__()
        self._pad_in = pad_in

    def execute(self, fig: Figure) -> None:
        """Move the panels; all lengths are pixels."""
        renderer = fig._get_renderer()  # type: ignore[attr-defined]  # noqa: SLF001 - as all engines
        beside, above = (pad_in * fig.dpi for pad_in in self._pad_in)
        panels = [(axes, spec) for axes in fig.axes if (spec := axes.get_subplotspec()) is not None]
        if not panels:
            return
        grid = panels[0][1].get_gridspec()
        left, right = (np.full(grid.ncols, beside) for _ in range(2))
        top, bottom = (np.full(grid.nrows, above) for _ in range(2))
        for axes, spec in panels:
            inner = axes.get_window_extent()
            outer = axes.get_tightbbox(renderer, for_layout_only=True)
            if outer is not None:
                _widen(left, spec.colspan.start, beside + inner.x0 - outer.x0)
                _widen(right, spec.colspan.stop - 1, beside + outer.x1 - inner.x1)
                _widen(top, spec.rowspan.start, above + outer.y1 - inner.y1)
                _widen(bottom, spec.rowspan.stop - 1, above + inner.y0 - outer.y0)
        width, height = fig.bbox.size
        title, legend = 0.0, 0.0
        for text in fig.texts:
            text.set_y(1 - above / height)
            title = max(title, text.get_window_extent(renderer).height + 2 * above)
        for box in fig.legends:
            legend = max(legend, box.get_window_extent(renderer).height + 2 * above)
        begins, ends = _shared(width, left, right, grid.get_width_ratios())
        tops, bottoms = _shared(height - title - legend, top, bottom, grid.get_height_ratios())
        for axes, spec in panels:
            x0, x1 = begins[spec.colspan.start], ends[spec.colspan.stop - 1]
            y0 = height - title - bottoms[spec.rowspan.stop - 1]
            y1 = height - title - tops[spec.rowspan.start]
            place = x0 / width, y0 / height, (x1 - x0) / width, (y1 - y0) / height
            axes.set_position(place)


def _widen(margins: Lengths, place: int, least: float) -> None:
    margins[place] = max(margins[place], least)


def _shared(
    length: float, before: Lengths, after: Lengths, ratios: ArrayLike
) -> tuple[Lengths, Lengths]:
    """Where each panel begins and ends on a length, with margins before and after it."""
    shares = np.asarray(ratios, dtype=np.float64) / np.sum(ratios)
    sizes = max(length - before.sum() - after.sum(), shares.size) * shares
    ends = np.cumsum(before + sizes + after) - after
    return ends - sizes, ends


# Okabe and Ito, "Color Universal Design", 2008.
BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"

GREY = "#6b6b6b"
LIGHT = "#d9d9d9"

PLANES = (BLUE, SKY, GREEN, YELLOW, ORANGE, PURPLE, "#999999", "#4d4d4d")
"""Without vermillion, which stands for faults and losses in every figure."""

WIDTH_IN = 7.6
PNG_DPI = 170
RASTER_ABOVE = 6000
"""More points than this go into the SVG as a picture, so that it opens quickly."""

MARK_COLUMNS = 100
"""Characters on a line of the banner on figures of untrusted runs."""

_RC: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"],
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",  # text stays text: small, searchable, and set in the reader's fonts
    "svg.hashsalt": "testbed",  # the same run gives the same file
    "pdf.fonttype": 42,  # whole fonts, as publishers ask: no Type 3
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure as written: `<stem>.png` in the run's figures directory, maybe `<stem>.svg`."""

    stem: str
    title: str
    caption: str


Drawn = tuple[Figure, Drawing]
"""A figure of a run, and what the report says of it."""


@contextmanager
def style(*, plain: bool = False) -> Iterator[None]:
    """Draw in the project's style within this context, whatever the user's settings are.

    Args:
        plain: whether a $ is a sign like others, as in names that a user gives.
    """
    with mpl.rc_context():
        # Not by `rcdefaults`, which reads the user's style files.
        defaults = {key: value for key, value in mpl.rcParamsDefault.items() if key != "backend"}
        mpl.rcParams.update(defaults)  # type: ignore[arg-type]  # as below
        mpl.rcParams.update(_RC)  # type: ignore[arg-type]  # keys are checked when it runs
        mpl.rcParams["text.parse_math"] = not plain
        yield


def new_figure(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """An empty figure, of the common width."""
    return Figure(figsize=(width_in, height_in), layout=GridLayout((0.05, 0.06)))


def write(figure: Figure, file: Path, title: str) -> None:
    """Write a figure in the format of the file's suffix; equal figures give equal files.

    Raises:
        OSError: the file cannot be written.
    """
    # Not by `savefig`, which draws a figure with a layout twice: once only to lay it out.
    if file.suffix == ".svg":
        metadata = {"Date": None, "Title": title, "Creator": "mrc-testbed"}
        FigureCanvasSVG(figure).print_svg(file, metadata=metadata)  # type: ignore[no-untyped-call]
    elif file.suffix == ".pdf":
        from matplotlib.backends.backend_pdf import FigureCanvasPdf  # noqa: PLC0415 - fontTools

        facts = {"CreationDate": None, "Title": title, "Creator": "mrc-testbed", "Producer": None}
        FigureCanvasPdf(figure).print_pdf(file, metadata=facts)  # type: ignore[no-untyped-call]
    else:
        on_screen = figure.dpi
        figure.dpi = PNG_DPI
        FigureCanvasAgg(figure).print_png(file)  # type: ignore[no-untyped-call]
        figure.dpi = on_screen


def save(figure: Figure, directory: Path, stem: str, summary: Summary, *, svg: bool) -> None:
    """Write a run's figure as PNG, marked if the run is simulated or not trusted.

    With `svg`, or if there was one, as SVG too: to write it takes a third of the whole time.
    """
    _mark(figure, summary)
    directory.mkdir(exist_ok=True)
    write(figure, directory / f"{stem}.png", stem)
    vector = directory / f"{stem}.svg"
    if svg or vector.exists():
        figure.set_layout_engine("none")  # laid out once: it takes as long as drawing
        write(figure, vector, stem)


def _mark(figure: Figure, summary: Summary) -> None:
    kind = "simulated run" if summary.simulated else "run"
    if summary.verdict != "trusted":
        reason = f": {summary.reasons[0]}" if summary.reasons else ""
        _banner(figure, f"{summary.verdict} {kind}".upper() + reason)
    elif summary.simulated:
        figure.suptitle(kind, fontsize=7.5, fontstyle="italic", color=GREY)


def mark(figure: Figure, summaries: Sequence[Summary]) -> None:
    """Mark a figure of several runs if any of them are simulated or not trusted."""
    count = len(summaries)
    simulated = sum(summary.simulated for summary in summaries)
    untrusted = sum(summary.verdict != "trusted" for summary in summaries)
    words = [
        f"{number} of {count} runs {what}" if number < count else f"all runs {what}"
        for number, what in ((simulated, "simulated"), (untrusted, "not trusted"))
        if number
    ]
    if untrusted:
        _banner(figure, ", ".join(words).upper())
    elif words:
        figure.suptitle(words[0], fontsize=7.5, fontstyle="italic", color=GREY)


def _banner(figure: Figure, text: str) -> None:
    figure.suptitle(
        textwrap.fill(text, MARK_COLUMNS),
        fontsize=7.5,
        fontweight="bold",
        color="white",
        bbox={"facecolor": VERMILLION, "edgecolor": "none", "boxstyle": "round,pad=0.35"},
    )


def label_rows(labels: Sequence[tuple[float, str]], character: float) -> list[int]:
    """The row of each label, so that none covers another: the first row that is free.

    Args:
        labels: where each begins, and its text.
        character: the width of a character, in units of the axis.
    """
    free: list[float] = []
    rows = []
    for start, text in labels:
        row = next((i for i, until in enumerate(free) if until <= start), len(free))
        until = start + (len(text) + 2) * character
        free[row : row + 1] = [until]
        rows.append(row)
    return rows


Bar = tuple[int, float, float]
"""A bar on a row of an axis: the row, from where, and up to where."""


def bars(axes: Axes, drawn: Iterable[Bar], *, height: float = 0.84, **look: Any) -> None:
    """Draw bars, of a height in rows, as one artist: each artist costs time of its own.

    They do not move the limits of the axis.
    """
    half = height / 2
    corners = [
        [(start, row - half), (start, row + half), (end, row + half), (end, row - half)]
        for row, start, end in drawn
    ]
    axes.add_collection(PolyCollection(corners, **look), autolim=False)


def note(axes: Axes, text: str, place: tuple[float, float], colour: str, **options: Any) -> None:
    """Write a small text in the colour of what it belongs to, on a light ground."""
    box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.6}
    font: dict[str, Any] = {"fontsize": 7, "color": colour}
    axes.annotate(text, place, textcoords="offset points", bbox=box, **font, **options)


def label_paths(
    axes: Axes, paths: Sequence[str], faulty: Sequence[bool], *, fontsize: float
) -> None:
    """Label the rows of an axis with paths; faulty ones are marked with ▶ and in colour."""
    labels = [f"{'▶ ' * marked}{path}" for path, marked in zip(paths, faulty, strict=True)]
    axes.set_yticks(range(len(paths)), labels, fontsize=fontsize)
    axes.tick_params(axis="y", length=0)
    for tick, marked in zip(axes.get_yticklabels(), faulty, strict=True):
        if marked:
            tick.set_color(VERMILLION)
            tick.set_fontweight("bold")


def shade(axes: Axes, start: float, end: float, label: str | None = None, row: int = 0) -> None:
    """Shade the time in which a fault was in force; its label goes into a row from the top."""
    axes.axvspan(start, end, color=VERMILLION, alpha=0.10, linewidth=0, zorder=0)
    axes.axvline(start, color=VERMILLION, linewidth=0.9, zorder=1)
    if label is not None:
        offset, where = (3, -3 - 9 * row), ("data", "axes fraction")
        note(axes, label, (start, 1), VERMILLION, xycoords=where, xytext=offset, va="top")


def whisker(axes: Axes, place: float, low: float, high: float) -> None:
    """Mark the range of values on a horizontal bar at `place`, if there is one."""
    if low < high:
        axes.plot([low, high], [place] * 2, color=BLACK, linewidth=1)
        axes.plot([low, high], [place] * 2, "|", color=BLACK, markersize=5)


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """The unit of a time axis: its symbol, and how many of it a second has."""

    symbol: str
    per_s: float


def time_unit(length_s: float) -> TimeUnit:
    units = (TimeUnit("s", 1.0), TimeUnit("ms", 1e3), TimeUnit("us", 1e6))
    return next((unit for unit in units if length_s * unit.per_s >= _LEAST_LENGTH), units[-1])


_LEAST_LENGTH = 3.0
"""Least length of an axis in its unit."""


def rtt_axis(axes: Axes, zero: float, unit: float, label: str) -> None:
    """Add a top axis in base RTTs: `unit` of the lower axis' units each, from `zero`."""
    top = axes.secondary_xaxis("top", functions=_scale(zero, unit))
    top.set_xlabel(label, color=GREY, fontsize=7.5)
    top.tick_params(colors=GREY, labelsize=7)


def title(axes: Axes, text: str, *, over_axis: bool = False) -> None:
    """Write the title of a panel, which may have an axis in base RTTs on top.

    Matplotlib would find the same place by measuring all labels of the panel, each time it is
    drawn.
    """
    pad = mpl.rcParams["axes.titlepad"]
    axes.set_title(text, y=1.0, pad=pad + _RTT_AXIS_PT if over_axis else pad)


_RTT_AXIS_PT = 23.7
"""The height of an axis in base RTTs, with its labels, in points."""


def real_rate_axis(axes: Axes, dilation: float) -> None:
    """Add a right axis in Gbit/s at full speed to one in emulated Mbit/s."""
    factor = dilation / 1e3
    right = axes.secondary_yaxis("right", functions=_scale(0.0, 1 / factor))
    right.spines["right"].set_visible(True)
    right.set_ylabel("at full speed (Gbit/s)", color=GREY, fontsize=7.5)
    right.tick_params(colors=GREY, labelsize=7)


_Function = Callable[[ArrayLike], ArrayLike]


def _scale(zero: float, unit: float) -> tuple[_Function, _Function]:
    """The function from an axis' numbers to units counted from `zero`, and its inverse."""
    return (
        lambda x: (np.asarray(x, dtype=np.float64) - zero) / unit,
        lambda x: np.asarray(x, dtype=np.float64) * unit + zero,
    )
