"""Emulated runs: hosts at full rate, silent link failures, delays of packets, PyTorch."""

import math
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from testbed import interpreter
from testbed.host.plan import links_in_use_by_all
from testbed.model.fabric.topology import NOMINAL_DILATION
from testbed.model.faults.kinds import Blackhole
from testbed.model.files.scenarios import load_scenario
from testbed.model.files.topologies import load_topology
from testbed.model.run_files.content import mean_busy
from testbed.model.scenario import Scenario
from testbed.model.summary import FaultSummary
from testbed.model.units import NS_PER_S, parse_duration
from testbed.model.workload import WriteBw
from testbed.results.analysis.operations import completed
from testbed.results.records import ARRIVALS, OPERATIONS, TRANSMISSIONS
from testbed.runs.result import Result
from testbed.studies.bench.measure import (
    Measurement,
    Setting,
    at_least,
    at_most,
    no_target,
    not_measured,
)
from testbed.studies.bench.runs import BenchRun, at_carried_dilation, make_runs, seeded

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from testbed.results.run_data import RunData

MOST_BUSY_PERCENT = 70.0
"""Of all CPUs: what is left keeps a machine that does a little else trustworthy."""

LEAST_ATTAINABLE = 0.97
"""Of what the fabric allows, for every flow: MRC paper, appendix (97.5% of line rate)."""

DURATION = "6 s"
FAULT = {"at": "2 s", "for": "2 s"}
"""Times at the nominal dilation."""


def permutation(setting: Setting) -> list[Measurement]:
    """Run the permutation at the dilation that this machine carries, as `dilation: auto` does."""
    scenario = at_carried_dilation(load_scenario("permutation"), setting)
    runs = make_runs(seeded(scenario, setting), setting)
    busy = [mean_busy(bench_run.run.data.health_during) for bench_run in runs]
    busy_percent = [math.inf if share is None else share * 100 for share in busy]
    attainable = [
        flow.before_fraction or 0.0 for bench_run in runs for flow in bench_run.summary.flows
    ]
    return [
        no_target("dilation", "", [scenario.topology.dilation]),
        at_least("runs trusted", "", [bench_run.trusted for bench_run in runs], 1, every=True),
        at_most("all CPUs busy, mean of the run", "%", busy_percent, MOST_BUSY_PERCENT),
        at_least("goodput / attainable, every flow", "", attainable, LEAST_ATTAINABLE, every=True),
    ]


def with_dead_link(scenario: Scenario, seed: int) -> Scenario:
    """A scenario with another seed and a blackhole of a random link that all its flows use."""
    changed = scenario.model_copy(update={"seed": seed, "duration": parse_duration(DURATION)})
    link = random.Random(seed).choice(links_in_use_by_all(changed))  # noqa: S311 - repeatable
    fault = Blackhole.model_validate({"target": link.name, **FAULT})
    return changed.model_copy(update={"timeline": (fault,)})


def failover(setting: Setting) -> list[Measurement]:
    """Run the default scenario's workload through seeded link failures and gather its figures."""
    scenario = load_scenario("link-failure")
    scenarios = [with_dead_link(scenario, seed) for seed in range(1, setting.repeats + 1)]
    runs = make_runs(scenarios, setting, tries=1)
    summaries = [bench_run.summary for bench_run in runs]
    faults = [summary.faults[0] for summary in summaries]
    lost = [run.integrity.bytes_lost + run.integrity.bytes_corrupted for run in summaries]
    goodput = [flow.before_fraction or 0.0 for run in summaries for flow in run.flows]

    def time(name: str, metric: str, target: float, unit: str = "rtt") -> Measurement:
        symbol = {"rtt": "RTT", "real_us": "us"}[unit]
        samples = times(faults, metric, unit)
        figure = at_most(name, symbol, samples, target)
        if len(samples) == len(faults):
            return figure
        return not_measured(figure, f"measured in {len(samples)} of {len(faults)} runs only")

    return [
        at_least("steady goodput / attainable", "", goodput, 0.98),
        time("first EV out", "detection", 2),
        time("last EV out", "detection_last", 3),
        time("last EV out, real-equivalent", "detection_last", 39, "real_us"),
        time("exposure", "exposure", 4),
        time("stall", "stall", 5),
        time("recovery", "recovery", 10),
        time("deficit", "deficit", 2),
        at_most("bytes lost or corrupted", "B", lost, 0, every=True),
        time("EVs back in service after healing", "return_last", 20),
        at_least("runs trusted", "", [bench_run.trusted for bench_run in runs], 1),
    ]


def times(faults: Sequence[FaultSummary], metric: str, unit: str = "rtt") -> list[float]:
    """A time of each fault that has it, in base RTTs or another unit; perhaps NEVER."""
    values = (getattr(fault, metric) for fault in faults)
    return [getattr(time, unit) for time in values if time is not None]


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


DELAY_PAIRS = (("h0", "h4"), ("h1", "h2"))
"""One pair over a T1 and one below the same T0s: the two possible delays."""

MEDIAN_PERCENT, P99_PERCENT = 2.0, 5.0
DELAY_DURATION = "5 s"
"""At the default dilation; the number of round trips is the same at any other."""


def delay(setting: Setting) -> list[Measurement]:
    """Compare the delay of single packets on idle paths with the model's."""
    scenario = at_carried_dilation(_scenario(), setting)
    runs = make_runs(seeded(scenario, setting), setting)
    middle, high = zip(*(_errors(bench_run.run.data) for bench_run in runs), strict=True)
    return [
        no_target("dilation", "", [scenario.topology.dilation]),
        at_least("runs trusted", "", [bench_run.trusted for bench_run in runs], 1),
        at_most("propagation delay off by, median, of a base RTT", "%", middle, MEDIAN_PERCENT),
        at_most("propagation delay off by, p99, of a base RTT", "%", high, P99_PERCENT),
    ]


def _scenario() -> Scenario:
    return Scenario(
        name="delay",
        topology=load_topology("clos-4plane"),
        duration=DELAY_DURATION,
        workload=WriteBw(pairs=DELAY_PAIRS, message_size="4 KiB"),
    )


def _errors(data: "RunData") -> tuple[float, float]:
    """Median and 99th percentile of the error, in percent of the model's base RTT."""
    import polars as pl  # noqa: PLC0415 - starts threads, and sandboxes are forked before

    once = pl.col("retransmitted").not_()
    sent = data.tables[TRANSMISSIONS].filter(once, pl.col("t") > 0)
    seen = data.tables[ARRIVALS].filter(once).select("flow", "seq", seen="t")
    should_s = {flow.flow: _one_way_s(data, flow.src, flow.dst) for flow in data.run.flows}
    error = (
        sent.join(seen, on=["flow", "seq"])
        .select(
            (pl.col("seen") - pl.col("t") - pl.col("flow").replace_strict(should_s)).abs()
            / (data.topology.propagation_rtt_ns / NS_PER_S)
            * 100
        )
        .to_series()
    )
    middle, high = error.median(), error.quantile(0.99)
    return float(str(middle)), float(str(high))


def _one_way_s(data: "RunData", src: str, dst: str) -> float:
    topology = data.topology
    same_rack = topology.rack(topology.nodes[src]) == topology.rack(topology.nodes[dst])
    return topology.one_way_ns(1 if same_rack else 3) / NS_PER_S


BYTES: Final = 1 << 20
LEAST: Final = 0.9
"""Of the rate of the workload `allreduce` of the same size, on the same hosts and dilation."""

MOST_START_S: Final = 30.0
TORCH_DURATION: Final = "40 s"
"""A dozen of the workload's, at the dilation of `torch-training`."""


def torch(setting: Setting) -> list[Measurement]:
    """Run `examples/all_reduce.py` and the workload in turn, in the Python of `TORCH_PYTHON`."""
    python = os.environ.get("TORCH_PYTHON", "/usr/bin/python3")
    runs: list[BenchRun] = []
    missing = _why_no_torch(python)
    if not missing:
        ranks, workload = scenarios(python)
        runs = make_runs([*seeded(ranks, setting), *seeded(workload, setting)], setting)
    by_torch, by_workload = runs[: len(runs) // 2], runs[len(runs) // 2 :]
    rates = [_lasted_s(own) / _lasted_s(of) for of, own in zip(by_torch, by_workload, strict=True)]
    starts = [float(_operations(run)["start"].min()) for run in by_torch]  # type: ignore[arg-type]
    figures = [
        at_most("start of 8 ranks, until all have met", "s", starts, MOST_START_S),
        at_least("rate of all_reduce / of the workload allreduce", "", rates, LEAST),
        at_least("runs trusted", "", [run.trusted for run in runs], 1, every=True),
    ]
    return [not_measured(figure, missing) for figure in figures] if missing else figures


def scenarios(python: str) -> tuple[Scenario, Scenario]:
    """PyTorch's all_reduce, and the workload of the same size, on the same hosts and dilation."""
    ranks = load_scenario(
        "torch-training",
        settings={
            "name": "torch-all-reduce",
            "timeline": [],
            "expect": {},
            "workload.check": [],
            "workload.command": [python, "all_reduce.py", BYTES],
        },
    )
    workload = load_scenario(
        "allreduce",
        settings={
            "topology.dilation": ranks.topology.dilation,
            "workload.size": f"{BYTES} B",
            "duration": TORCH_DURATION,
            "expect": {},
        },
    )
    return ranks, workload


def _why_no_torch(python: str) -> str:
    program = str(Path(python).absolute()) if os.sep in python else python
    try:
        done = interpreter.run((program, "-c", "import torch"), capture_output=True)
    except OSError as error:
        return f"{python}: {error.strerror}: TORCH_PYTHON=PYTHON"
    return f"{python} has no torch: TORCH_PYTHON=PYTHON" if done.returncode else ""


def _operations(run: BenchRun) -> pl.DataFrame:
    return completed(run.run.data.tables[OPERATIONS])


def _lasted_s(run: BenchRun) -> float:
    operations = _operations(run)
    return float((operations["end"] - operations["start"]).median())  # type: ignore[arg-type]
