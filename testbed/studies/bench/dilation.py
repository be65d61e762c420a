"""The same link failure at several dilations: what is measured in round trips must agree."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.model.fabric.topology import NOMINAL_DILATION
from testbed.model.files.scenarios import load_scenario
from testbed.runs.result import Result
from testbed.studies.bench.emulated import times, with_dead_link
from testbed.studies.bench.measure import Measurement, Setting, at_least, at_most
from testbed.studies.bench.runs import BenchRun, make_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DILATIONS = (NOMINAL_DILATION // 2, NOMINAL_DILATION, NOMINAL_DILATION * 2)
MEASURES = {
    "detection": ("first EV out", 0.5),
    "detection_last": ("last EV out", 0.5),
    "exposure": ("exposure", 0.5),
    "stall": ("stall", 0.5),
    "recovery": ("recovery", 1.0),
    "deficit": ("deficit", 0.5),
}
"""Times of a fault, their labels, and how far apart they may be in base RTTs.

That is what scheduling and the order of the spray leave; recovery is averaged over a round trip.
"""

BASE_RTT_APART_PERCENT = 5.0

BEFORE_RTT, AFTER_RTT = 2.0, 8.0
WINDOW_RTT = 0.5

_Runs = Mapping[int, list[BenchRun]]


def dilation(setting: Setting) -> list[Measurement]:
    """Run seeded link failures at three dilations, each as many round trips long; a picture."""
    scenario = load_scenario("link-failure")
    scenarios = [
        with_dead_link(scenario, seed).at_dilation(factor)
        for seed in range(1, setting.repeats + 1)
        for factor in DILATIONS
    ]
    all_runs = make_runs(scenarios, setting, by_dilation=True)
    runs = {factor: all_runs[i :: len(DILATIONS)] for i, factor in enumerate(DILATIONS)}
    _draw(runs, setting.pictures / "dilation.png")
    rtts_us = [[run.summary.base_rtt_real_us for run in of_one] for of_one in runs.values()]
    percent = [apart / min(map(min, rtts_us)) * 100 for apart in _apart(rtts_us)]
    return [
        at_least("runs trusted", "", [run.trusted for run in all_runs], 1),
        at_most("base RTT, apart between dilations", "%", percent, BASE_RTT_APART_PERCENT),
        *(
            at_most(
                f"{name}, apart between dilations",
                "RTT",
                _apart([_times(of_one, key) for of_one in runs.values()]),
                apart,
            )
            for key, (name, apart) in MEASURES.items()
        ),
    ]


def _apart(by_dilation: list[list[float]]) -> list[float]:
    """The largest minus the smallest value of each seed; 0 if all are NEVER."""
    ends = ((min(seed), max(seed)) for seed in zip(*by_dilation, strict=True))
    return [0.0 if least == most else most - least for least, most in ends]


def _times(runs: Sequence[BenchRun], metric: str) -> list[float]:
    """A time of each run's fault, in base RTTs."""
    return times([run.summary.faults[0] for run in runs], metric)


# --- the picture ------------------------------------------------------------------------------


def _draw(runs: _Runs, place: Path) -> None:
    from testbed.results.report.figures import style  # noqa: PLC0415 - Polars starts threads

    with style.style():
        figure = style.new_figure(2.8)
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
        for number, (factor, colour) in enumerate(
            zip(runs, (style.ORANGE, style.BLUE, style.GREEN), strict=True)
        ):
            _goodput(left, runs[factor][0].run, colour, f"dilation {factor:,}")
            for place_, key in enumerate(MEASURES):
                values = _times(runs[factor], key)
                x = [place_ + (number - 1) * 0.2] * len(values)
                right.plot(x, values, "o", color=colour, markersize=3.5, alpha=0.7)
        left.set(xlabel="base RTTs from the fault", ylabel="goodput / attainable", ylim=(0.6, 1.15))
        left.axvline(0, color="black", linewidth=0.7, linestyle=":")
        left.legend(loc="lower right")
        right.set_xticks(
            range(len(MEASURES)), [name.replace(" ", "\n", 1) for name, _ in MEASURES.values()]
        )
        right.set(ylabel="base RTTs", ylim=(0, None))
        figure.savefig(place, dpi=style.PNG_DPI)


def _goodput(axes: "Axes", run: Result, colour: str, label: str) -> None:
    """The first flow's goodput over the last half RTT, as a share of what the fabric allows."""
    import numpy as np  # noqa: PLC0415 - with what draws

    data, flow = run.data, run.flows[0]
    rtt, effect_s = data.base_rtt_s, data.seconds(data.faults[0].effective_ns) or 0.0
    moments = effect_s + np.linspace(-BEFORE_RTT, AFTER_RTT, 500) * rtt
    width = WINDOW_RTT * rtt
    placed = flow.delivery.bytes_until(moments) - flow.delivery.bytes_until(moments - width)
    share = placed * 8 / width / flow.attainable.undamaged_bps
    axes.plot((moments - effect_s) / rtt, share, color=colour, label=label)
