"""How long each operation of the workload took: over the run, and as a distribution."""

import numpy as np
import polars as pl

from testbed.model.summary import Summary
from testbed.model.summary.unit import MS, NEVER, US
from testbed.results.analysis.operations import completed
from testbed.results.records import OPERATIONS
from testbed.results.report.figures import fault_rows, style
from testbed.results.report.figures.style import Drawing, Drawn
from testbed.results.run_data import RunData


def draw(data: RunData, summary: Summary) -> Drawn | None:
    """Draw `operations`: a row for each kind of which some were finished; None if none were."""
    operations = completed(data.tables[OPERATIONS])
    if operations.is_empty():
        return None
    some_finished = {*operations["kind"]}
    drawn = [kind for kind in summary.operations if kind.kind in some_finished]
    figure = style.new_figure(2.4 * len(drawn) + 0.6)
    grid = figure.subplots(len(drawn), 2, squeeze=False, width_ratios=[1.7, 1])
    for (over_time, distribution), kind in zip(grid, drawn, strict=True):
        of_kind = operations.filter(pl.col("kind") == kind.kind)
        ends = of_kind["end"].to_numpy()
        lasted_s = ends - of_kind["start"].to_numpy()
        unit = style.time_unit(lasted_s.max())
        lasted = lasted_s * unit.per_s
        longest = lasted.max() or 1.0  # some take no time, such as a receipt of what is there
        side_by_side = kind.planned is not None  # those of a graph
        line = "" if side_by_side else "-"
        dots = over_time.plot(
            ends, lasted, f"o{line}", color=style.BLUE, markersize=3, linewidth=0.8
        )
        for fault in fault_rows.measured(summary):
            style.shade(over_time, *fault_rows.in_force(fault, data.run.duration_s))
        over_time.set_xlim(0, data.run.duration_s)
        over_time.set_ylim(0, longest * 1.15)
        over_time.set_ylabel(f"{kind.kind} ({unit.symbol})")
        over_time.set_xlabel("when it ended, from the start of the run (s)")
        never = np.full(kind.unfinished, NEVER)
        steps = distribution.ecdf(np.concatenate([lasted, never]), color=style.BLUE)
        for drawn_line in (*dots, steps):
            drawn_line.set_rasterized(len(lasted) > style.RASTER_ABOVE)
        distribution.set_xlim(0, longest * 1.15)
        distribution.set_ylim(0, 1.02)
        distribution.set_xlabel(f"completion time ({unit.symbol})")
        distribution.set_ylabel("share finished")
    return figure, Drawing("operations", "Completion times", _caption(summary))


def _caption(summary: Summary) -> str:
    return (
        "Left: how long each operation took, at the time when its last host was done; faults in "
        "force are shaded. Right: the share of operations that took no longer. An operation lasts "
        "from when its first host began it until its last host is done; one that should have "
        "finished and did not lasts forever. "
        + "; ".join(
            f"{kind.kind}: {kind.finished}, median {MS.show(kind.median.ms)} "
            f"({US.show(kind.median.real_us)} at full speed)"
            for kind in summary.operations
        )
        + "."
    )
