"""MRC with one mechanism off at a time, where that mechanism acts: what each is worth."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from testbed.model.fabric.topology import NOMINAL_DILATION
from testbed.results.analysis.estimates import estimate
from testbed.results.report.figures import style
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.experiments import failover
from testbed.studies.paper.experiments.drawing import legend_below, new_panels
from testbed.studies.paper.experiments.paths import SHARED, UNMOVED, slower_rate
from testbed.studies.paper.figure import (
    Check,
    PaperFigure,
    Variant,
    costs_less,
    costs_no_more,
    relative,
)

_UNTRIMMED = {
    "base": "clos-16host",
    "name": "clos-16host-untrimmed",
    "dilation": NOMINAL_DILATION,
    "queue": {place: {"trim": None} for place in ("t0_up", "t1_down", "last_hop")},
}
"""The incast's fabric, whose queues drop what they cannot hold."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A scenario in which some mechanisms act, and the runs without them.

    Attributes:
        title: what happens in it.
        whole: the run with all of MRC.
        without: the runs without a mechanism, by the mechanism's label.
        costs: the costs that are compared.
        saves: the cost that each mechanism is there to save; in the other costs MRC may be as
            costly as without it.
    """

    title: str
    whole: Variant
    without: Mapping[str, Variant]
    costs: Mapping[str, failover.Cost]
    saves: Mapping[str, str]


def _slower_s(run: Result) -> float:
    """How long the slower flow takes for what line rate carries in a second."""
    return 1 / slower_rate(run)


def _all_s(run: Result) -> float:
    """How long all flows together take for a port's payload of a second."""
    ports_bps = max(flow.ports_bps for flow in run.summary.flows)
    return ports_bps / sum(flow.goodput_run_bps for flow in run.summary.flows)


def _late_rtts(run: Result) -> float:
    """The 99th percentile of a message's time, of the flow that it is longest for, in base RTTs."""
    return max(flow.latency.p99.rtt if flow.latency else inf for flow in run.summary.flows)


def _incast(what: str, changes: Mapping[str, Any]) -> Variant:
    """Figure 18's incast in short."""
    shorter = {"duration": "6 s", **changes}
    return Variant(f"ablation-incast{what}", "incast-victim", shorter, repeated_only=True)


TRIALS = (
    Trial(
        "a dead link",
        failover.MRC,
        {
            "blind spraying": failover.BLIND,
            "go-back-N": failover.GO_BACK,
            "no backups": replace(
                failover.dead_link("no-backups", {"kind": "mrc", "evs": 12, "backups": 0.0}),
                repeated_only=True,
            ),
        },
        {failover.STALL: failover.stall, failover.SHORTFALL: failover.shortfall},
        {"blind spraying": failover.SHORTFALL, "go-back-N": failover.SHORTFALL},
    ),
    Trial(
        "two flows on an EV",
        SHARED,
        {"no ECN skip": UNMOVED},
        {"time of the slower flow": _slower_s},
        {"no ECN skip": "time of the slower flow"},
    ),
    Trial(
        "7:1 incast",
        _incast("", {}),
        {
            "no trimming": _incast("-no-trim", {"topology": _UNTRIMMED}),
            "go-back-N": _incast(
                "-go-back",
                {"transport": {"kind": "mrc", "congestion": "nscc", "repair": "go-back"}},
            ),
        },
        {"time of all": _all_s, "message time, p99": _late_rtts},
        {"no trimming": "message time, p99", "go-back-N": "message time, p99"},
    ),
)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A cost with all of MRC, and without a mechanism that may be there to save it."""

    what: str
    whole: tuple[float, ...]
    other: tuple[float, ...]
    saved: bool

    @property
    def check(self) -> Check:
        """A cost that is saved is less with each seed; any other is no more, as MRC varies."""
        compare = costs_less if self.saved else costs_no_more
        return compare(f"{self.what}, over MRC's", self.whole, self.other)


def _comparisons(seeds: Sequence[Results]) -> Iterator[_Comparison]:
    """All comparisons of which there are runs; the costs are those with each seed."""
    for trial in TRIALS:
        for off, variant in trial.without.items():
            if variant.name in seeds[0]:
                for name, cost in trial.costs.items():
                    whole, other = (
                        tuple(cost(runs[run.name]) for runs in seeds)
                        for run in (trial.whole, variant)
                    )
                    what, saved = f"{trial.title}, {off}: {name}", trial.saves.get(off) == name
                    yield _Comparison(what, whole, other, saved)


def _measure(*seeds: Results) -> tuple[Check, ...]:
    """Check that no cost is lower without a mechanism, and the cost that it saves is higher."""
    return tuple(comparison.check for comparison in _comparisons(seeds))


def _draw(*seeds: Results) -> Figure:
    """Draw a line for each comparison: the spread of MRC's cost and of that without, over MRC's."""
    compared = [*_comparisons(seeds)][::-1]
    figure, (axes,) = new_panels(1.0 + 0.24 * len(compared))
    places = range(len(compared))
    whole = [estimate(relative(row.whole, row.whole)) for row in compared]
    other = [estimate(relative(row.whole, row.other)) for row in compared]
    for costs, colour, label in (
        (whole, style.BLUE, "MRC"),
        (other, style.VERMILLION, "without the mechanism"),
    ):
        for place, cost in enumerate(costs):
            style.whisker(axes, place, cost.low, cost.high)
        axes.plot([cost.median for cost in costs], places, "o", color=colour, ms=5, label=label)
    beside: Any = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
    for place, cost in enumerate(other):
        axes.annotate(f"{cost.median:.2f}", (1, place), **beside)
    axes.set_yticks(places, [row.what for row in compared])
    axes.set_xscale("log")
    axes.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvline(1, color=style.LIGHT, linewidth=0.8, zorder=0)
    axes.set_xlabel("cost, over MRC's with all of its mechanisms")
    legend_below(figure, 2)
    return figure


_TICKS = (0.5, 1, 2, 5, 10, 20)


ABLATION = PaperFigure(
    "ablation",
    tuple(variant for trial in TRIALS for variant in (trial.whole, *trial.without.values())),
    _measure,
    _draw,
    compares_seeds=True,
    seeds=3,
    emulated_seeds=(1, 2, 3),
    is_own=True,
)
