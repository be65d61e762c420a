"""Where the panels of a figure are: its grid, with room for labels, legend and banner.

Matplotlib's constrained layout gives the same picture. It measures every label twice, and measuring
takes as long as drawing.
"""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import LayoutEngine
from numpy.typing import ArrayLike, NDArray

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
