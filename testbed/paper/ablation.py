"""MRC with one mechanism off at a time, where that mechanism acts: what each is worth."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from matplotlib.figure import Figure

from testbed.model.topology import NOMINAL_DILATION
from testbed.paper.checks import Check, not_behind, relative
from testbed.paper.failover import BLIND, DEFICIT, GO_BACK, MRC, STALL, Kind, deficit, stall
from testbed.paper.figure import PaperFigure, Runs, Variant
from testbed.paper.paths import SHARED, UNMOVED, slower_rate
from testbed.paper.runs import Run
from testbed.results.estimates import estimate
from testbed.results.figures import style

_HALF_AN_HOUR = "so that the emulated set takes no longer than half an hour"

_UNTRIMMED = {
    "base": "clos-16host",
    "name": "clos-16host-untrimmed",
    "dilation": NOMINAL_DILATION,
    "queue": {place: {"trim": None} for place in ("t0_up", "t1_down", "last_hop")},
}
"""The incast's fabric, whose queues drop what they cannot hold."""

Cost = Callable[[Run], float]
"""What something costs an application in a run: the less the better."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A scenario in which some mechanisms act, and the runs without them.

    Attributes:
        title: what happens in it.
        whole: the run with all of MRC.
        without: the others, by what is off.
        costs: by what they are compared, lower being better.
    """

    title: str
    whole: Variant
    without: Mapping[str, Variant]
    costs: Mapping[str, Cost]


def _slower_s(run: Run) -> float:
    """How long the slower flow takes for what line rate carries in a second."""
    return 1 / slower_rate(run)


def _all_s(run: Run) -> float:
    """How long all flows together take for a port's payload of a second."""
    attainable_bps = max(flow.attainable_bps for flow in run.summary.flows)
    return attainable_bps / sum(flow.goodput_run_bps for flow in run.summary.flows)


def _late_rtts(run: Run) -> float:
    """The 99th percentile of a message's time, of the flow that it is longest for, in base RTTs."""
    return max(flow.latency.p99_rtt if flow.latency else inf for flow in run.summary.flows)


def _incast(what: str, changes: Mapping[str, Any]) -> Variant:
    """Figure 18's incast in short."""
    return Variant(
        f"ablation-incast{what}",
        "incast-victim",
        {"duration": "6 s", **changes},
        only_simulated=_HALF_AN_HOUR,
    )


TRIALS = (
    Trial(
        "a dead link",
        MRC.variant,
        {
            "blind spraying": BLIND.variant,
            "go-back-N": GO_BACK.variant,
            "no backups": Kind(
                "no backups",
                "no-backups",
                {"kind": "mrc", "evs": 12, "backups": 0.0},
                only_simulated=_HALF_AN_HOUR,
            ).variant,
        },
        {STALL: stall, DEFICIT: deficit},
    ),
    Trial(
        "two flows on an EV",
        SHARED,
        {"no ECN skip": UNMOVED},
        {"time of the slower flow": _slower_s},
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
    ),
)


def _costs(cost: Cost, variant: Variant, seeds: Sequence[Runs]) -> list[float]:
    return [cost(runs[variant.name]) for runs in seeds]


def _made(trial: Trial, seeds: Sequence[Runs]) -> dict[str, Variant]:
    """The runs of a trial without a mechanism, as far as there are any, by what is off."""
    return {what: one for what, one in trial.without.items() if one.name in seeds[0]}


def _measure(seeds: Sequence[Runs]) -> tuple[Check, ...]:
    """Check that nothing is cheaper without a mechanism, beyond how MRC itself varies."""
    return tuple(
        not_behind(
            f"{trial.title}, {what}: {name}, over MRC's",
            _costs(cost, trial.whole, seeds),
            _costs(cost, variant, seeds),
        )
        for trial in TRIALS
        for what, variant in _made(trial, seeds).items()
        for name, cost in trial.costs.items()
    )


def _draw(seeds: Sequence[Runs]) -> Figure:
    """Draw a panel for each cost of each trial, over MRC's."""
    panels = [(trial, name) for trial in TRIALS if _made(trial, seeds) for name in trial.costs]
    figure = style.new_figure(1.8)
    for axes, (trial, name) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        bars = {"MRC": trial.whole, **_made(trial, seeds)}
        costs = [_costs(trial.costs[name], one, seeds) for one in bars.values()]
        found = [estimate(relative(costs[0], values)) for values in costs][::-1]
        colours = [style.GREY] * (len(bars) - 1) + [style.BLUE]
        drawn = axes.barh(range(len(bars)), [one.median for one in found], 0.6, color=colours)
        for place, one in enumerate(found):
            style.whisker(axes, place, one.low, one.high)
        axes.bar_label(drawn, fmt="%.2g", padding=8, fontsize=6)
        axes.set_xlim(0, 1.4 * max(one.high for one in found))
        axes.set_yticks(range(len(bars)), [*bars][::-1], fontsize=6)
        axes.set_title(trial.title, fontsize=7)
        axes.set_xlabel(f"{name}\n(over MRC's)", fontsize=6.5)
        axes.spines["top"].set_visible(False)
    return figure


ABLATION = PaperFigure(
    number="ablation",
    title="MRC without each of its mechanisms",
    saw="not in the paper",
    ours="Each mechanism is switched off where it acts: blind spraying, go-back-N and no backups "
    "(12 EVs, none standing by, instead of 12 and 4) where a link dies as in the failover; no ECN "
    "skip where two flows meet on an EV as in figure 14; no trimming and go-back-N under figure "
    "18's incast. MRC may be equal; it must not be behind by more than it varies itself.",
    variants=tuple(
        variant for trial in TRIALS for variant in (trial.whole, *trial.without.values())
    ),
    measure=lambda runs: _measure([runs]),
    measure_seeds=_measure,
    draw=lambda runs: _draw([runs]),
    draw_seeds=_draw,
    seeds=3,
    emulated_seeds=(1,),
    caption="What it costs without a mechanism, over what it costs with all of them: 1 is equal, "
    "more is worse. The median of the seeds, with their range.",
)
