"""Runs of whole scenarios, as parts of the bench make them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from testbed.emulation.experiment.calibration import calibrate
from testbed.emulation.experiment.capacity import Capacity, load_capacity
from testbed.model.progress import where_it_changes
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.runs.job import How, planned_run
from testbed.runs.many import RetryPolicy, made_here
from testbed.runs.result import Result
from testbed.runs.series import case_folder
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
        """Its figures."""
        return self.run.summary

    @property
    def trusted(self) -> bool:
        """Whether it can be trusted."""
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
    best = made_here(planned, store, retry=retry, progress=where_it_changes(setting.progress))
    return [BenchRun(run, len(store.attempts(one))) for one, run in zip(planned, best, strict=True)]


def simulate_runs(
    part: str, cases: Mapping[str, Scenario], setting: Setting
) -> dict[str, list[Summary]]:
    """Simulate each case once for each repeat, with seeds from 1 on; all CPUs are used.

    Finished runs of the same scenario and code are used again: a bench that was ended goes on.

    Args:
        part: the name of the part of the bench; its runs are kept in a directory of this name.
        cases: what is simulated, by name.
        setting: how often, where to, and what is called with the progress.

    Returns:
        The figures of each case, in the order of the seeds.

    Raises:
        MachineError: this machine cannot make a run; the message says what is missing.
        RunFailedError: a run was not finished.
    """
    store = Store(setting.pictures / part)
    runs = {
        case: [planned_run(repeat, "simulated", folder) for repeat in seeded(scenario, setting)]
        for number, (case, scenario) in enumerate(cases.items(), 1)
        for folder in [f"runs/{case_folder(number, case)}"]
    }
    planned = [run for of_case in runs.values() for run in of_case]
    best = iter(made_here(planned, store, progress=where_it_changes(setting.progress)))
    return {case: [next(best).summary for _ in of_case] for case, of_case in runs.items()}


def seeded(scenario: Scenario, setting: Setting) -> list[Scenario]:
    """A scenario with a seed for each repeat, from 1 on."""
    return [scenario.model_copy(update={"seed": seed}) for seed in range(1, setting.repeats + 1)]


def with_transport(scenario: Scenario, keys: Mapping[str, str]) -> Scenario:
    """A scenario with some keys of its transport changed."""
    transport = scenario.transport.model_copy(update=dict(keys))
    return scenario.model_copy(update={"transport": transport})


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
