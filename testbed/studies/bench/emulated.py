"""Emulated runs of two scenarios that ship: all hosts at full rate, and silent link failures."""

import math
import random
from collections.abc import Sequence

from testbed.host.plan import links_in_use_by_all
from testbed.model.faults.kinds import Blackhole
from testbed.model.files.scenarios import load_scenario
from testbed.model.run_files.health import mean_busy
from testbed.model.scenario import Scenario
from testbed.model.summary import FaultSummary
from testbed.model.units import parse_duration
from testbed.studies.bench.measure import (
    Measurement,
    Setting,
    at_least,
    at_most,
    no_target,
    not_measured,
)
from testbed.studies.bench.runs import at_carried_dilation, make_runs, seeded

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
