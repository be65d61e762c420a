"""Runs of whole scenarios, as parts of the bench make them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from testbed.emulation.experiment.calibration import calibrate
from testbed.emulation.experiment.machine import Capacity, load_capacity
from testbed.model.progress import where_it_changes
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.runs.job import How, planned_run
from testbed.runs.many import RetryPolicy, made_here
from testbed.runs.result import Result
from testbed.runs.store import Store
from testbed.studies.bench.measure import Setting

TRIES = 3
"""How often a run is made at most, until it can be trusted."""


@dataclass(frozen=True, slots=True)
class BenchRun:
    """The run of a scenario that counts: the trusted one, or the best.

    Attributes:
        run: the run.
        attempts: how often it was made.
    """

    run: Result
    attempts: int = 1

    @property
    def summary(self) -> Summary:
        return self.run.summary

    @property
    def trusted(self) -> bool:
        return self.summary.verdict == "trusted"


def make_runs(
    scenarios: Sequence[Scenario],
    setting: Setting,
    *,
    tries: int = TRIES,
    by_dilation: bool = False,
) -> list[BenchRun]:
    """Make a run of each scenario, in turn; then again those that cannot be trusted.

    Runs that are there already are not used: the bench measures this machine as it is.

    Args:
        scenarios: what is run; they differ by name or seed, or by their dilation.
        setting: where to, and what is called with the progress.
        tries: how often each is made at most.
        by_dilation: whether runs of different dilations go into different directories.

    Raises:
        MachineError: this machine cannot make a run; the message says what is missing.
        RunFailedError: a run was not finished.
    """
    store = Store(setting.results, since=datetime.now().astimezone(), exclusive=False)
    planned = []
    for scenario in scenarios:
        folder = f"bench-{scenario.name}"
        if by_dilation:
            folder += f"/dilation-{scenario.topology.dilation}"
        planned.append(planned_run(scenario, "emulated", folder, how=How(force=True)))
    retry = RetryPolicy(math.inf, factors=(1.0,) * tries, stop_if_late=False)
    progress = where_it_changes(setting.progress)
    best = made_here(planned, store, retry=retry, progress=progress, anew=True)
    return [BenchRun(run, len(store.attempts(one))) for one, run in zip(planned, best, strict=True)]


def seeded(scenario: Scenario, setting: Setting) -> list[Scenario]:
    """A scenario with a seed for each repeat, from 1 on."""
    return [scenario.model_copy(update={"seed": seed}) for seed in range(1, setting.repeats + 1)]


def at_carried_dilation(scenario: Scenario, setting: Setting) -> Scenario:
    """A scenario at the dilation that this machine carries, measured now if it never was."""
    capacity = load_capacity()
    if capacity is None:
        setting.progress("what this machine carries")
        capacity = calibrate(lambda _what, _done: None)
    return at_fitting_dilation(scenario, capacity)


def at_fitting_dilation(scenario: Scenario, capacity: Capacity) -> Scenario:
    """A scenario at the dilation that a machine carries, or its own if it carries that."""
    dilation = max(capacity.fitting_dilation(scenario), scenario.topology.dilation)
    return scenario.at_dilation(dilation)
