"""How MRC rides out a silent link failure, over a number of seeds."""

import math
import random
from collections.abc import Sequence

from testbed.bench.figure import Figure, at_least, at_most
from testbed.bench.runs import make_runs
from testbed.bench.setting import Setting
from testbed.files.scenarios import load_scenario
from testbed.host.plan import links_in_use_by_all
from testbed.model.faults.kinds import Blackhole
from testbed.model.scenario import Scenario
from testbed.model.summary import FaultSummary
from testbed.model.units import parse_duration

DURATION = "6 s"
FAULT = {"at": "2 s", "for": "2 s"}
"""Times at the nominal dilation."""


def with_dead_link(scenario: Scenario, seed: int) -> Scenario:
    """A scenario with another seed and a blackhole of a random link that all its flows use."""
    changed = scenario.model_copy(update={"seed": seed, "duration": parse_duration(DURATION)})
    link = random.Random(seed).choice(links_in_use_by_all(changed))  # noqa: S311 - repeatable
    fault = Blackhole.model_validate({"target": link.name, **FAULT})
    return changed.model_copy(update={"timeline": (fault,)})


def failover(setting: Setting) -> list[Figure]:
    """Run the default scenario's workload through seeded link failures and gather its figures."""
    scenario = load_scenario("link-failure")
    scenarios = [with_dead_link(scenario, seed) for seed in range(1, setting.repeats + 1)]
    runs = make_runs(scenarios, setting, tries=1)
    summaries = [made.summary for made in runs]
    faults = [summary.faults[0] for summary in summaries]
    lost = [run.integrity.bytes_lost + run.integrity.bytes_corrupted for run in summaries]
    goodput = [flow.before_fraction or 0.0 for run in summaries for flow in run.flows]
    last_real_us = times(faults, "detection_last", "real_us")
    return [
        at_least("steady goodput / attainable", "", goodput, 0.98),
        at_most("first EV out", "RTT", times(faults, "detection"), 2),
        at_most("last EV out", "RTT", times(faults, "detection_last"), 3),
        at_most("last EV out, real-equivalent", "us", last_real_us, 39),
        at_most("exposure", "RTT", times(faults, "exposure"), 4),
        at_most("stall", "RTT", times(faults, "stall"), 5),
        at_most("recovery", "RTT", times(faults, "recovery"), 10),
        at_most("deficit", "RTT", times(faults, "deficit"), 2),
        at_most("bytes lost or corrupted", "B", lost, 0, every=True),
        at_most("EVs back in service after healing", "RTT", times(faults, "return_last"), 20),
        at_least("runs trusted", "", [made.trusted for made in runs], 1),
    ]


def times(faults: Sequence[FaultSummary], metric: str, unit: str = "rtt") -> list[float]:
    """A time of every fault, in base RTTs or another unit; infinite where it never happened."""
    values = (getattr(fault, metric) for fault in faults)
    return [math.inf if time is None else getattr(time, unit) for time in values]
