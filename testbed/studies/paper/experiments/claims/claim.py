"""What the claims have in common: with how many seeds they are made, and their usual drawing."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from matplotlib.figure import Figure

from testbed.campaign.store import Runs
from testbed.results.report.figures import style
from testbed.studies.paper.checks import Check
from testbed.studies.paper.experiments.drawing import draw_stacked, stacked_height_in
from testbed.studies.paper.figure import PaperFigure, Variant


def claim(
    number: str,
    variants: tuple[Variant, ...],
    measure: Callable[[Runs], tuple[Check, ...]],
    draw: Callable[[Runs], Figure],
) -> PaperFigure:
    """A claim with a drawing of its own; made only by its number, or with everything."""
    return PaperFigure(
        number, variants, measure, draw, seeds=5, emulated_seeds=(1, 2, 3), large=True
    )


def claim_over_time(
    number: str,
    panels: Sequence[tuple[Variant, str]],
    measure: Callable[[Runs], tuple[Check, ...]],
) -> PaperFigure:
    """A claim that is drawn as throughput over time, a panel with a title for each run."""
    titles = {variant.name: title for variant, title in panels}
    variants = tuple(variant for variant, _ in panels)
    return claim(number, variants, measure, partial(_draw_over_time, titles=titles))


def _draw_over_time(runs: Runs, titles: Mapping[str, str]) -> Figure:
    figure = style.new_figure(stacked_height_in(len(titles)))
    draw_stacked(figure, {title: runs[name] for name, title in titles.items()})
    return figure
