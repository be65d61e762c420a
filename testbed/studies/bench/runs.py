"""Runs of whole scenarios, as parts of the bench make them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from testbed.emulation.experiment.calibration import calibrate
from testbed.emulation.experiment.capacity import Capacity, load_capacity
from testbed.model.progress import where_it_changes
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.runs.job import error_of
from testbed.runs.options import NO_FIGURES
from testbed.studies.bench.measure import Setting

if TYPE_CHECKING:
    from testbed.runs.budget import RetryPolicy
    from testbed.runs.engine import CampaignEngine
    from testbed.runs.plan import PlannedRun
    from testbed.runs.store import Run, Store

TRIES = 3
"""How often a run is made at most, until it can be trusted."""


@dataclass(frozen=True, slots=True)
class BenchRun:
    """The run of a scenario that counts: the trusted one, or the best.

    Attributes:
        run: the run.
        attempts: how often it was made.
    """

    run: "Run"
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
    from testbed.runs.budget import RetryPolicy  # noqa: PLC0415 - see `_engine`
    from testbed.runs.plan import planned_run  # noqa: PLC0415
    from testbed.runs.store import Store  # noqa: PLC0415

    store = Store(setting.results, since=datetime.now().astimezone(), exclusive=False)
    planned = []
    for scenario in scenarios:
        folder = f"bench-{scenario.name}"
        if by_dilation:
            folder += f"/dilation-{scenario.topology.dilation}"
        planned.append(planned_run(scenario, "emulated", folder, options=("--force",)))
    policy = RetryPolicy(math.inf, factors=(1.0,) * tries, stop_if_late=False)
    engine = _engine(store, setting, policy)
    engine.execute(planned)
    return [BenchRun(_best(run, engine), len(store.attempts(run))) for run in planned]


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
    from testbed.runs.budget import RetryPolicy  # noqa: PLC0415 - see `_engine`
    from testbed.runs.plan import planned_run  # noqa: PLC0415
    from testbed.runs.series import case_folder  # noqa: PLC0415
    from testbed.runs.store import Store  # noqa: PLC0415

    store = Store(setting.pictures / part)
    runs = {
        case: [
            planned_run(repeat, "simulated", folder, options=(NO_FIGURES,))
            for repeat in seeded(scenario, setting)
        ]
        for number, (case, scenario) in enumerate(cases.items(), 1)
        for folder in [f"runs/{case_folder(number, case)}"]
    }
    planned = [run for of_case in runs.values() for run in of_case]
    due = [run for run in planned if store.best(run) is None]
    engine = _engine(store, setting, RetryPolicy())
    engine.execute(due, made_before=len(planned) - len(due))
    return {case: [_best(run, engine).summary for run in of_case] for case, of_case in runs.items()}


def _engine(store: "Store", setting: Setting, policy: "RetryPolicy") -> "CampaignEngine":
    """What makes runs on this machine.

    Planning and storing runs loads Polars, which starts threads: that must not happen before
    `at_carried_dilation`, or another part of the bench, has forked a sandbox.
    """
    from testbed.runs.engine import CampaignEngine  # noqa: PLC0415
    from testbed.runs.local import LocalExecutor  # noqa: PLC0415

    progress = where_it_changes(setting.progress)
    return CampaignEngine(store, LocalExecutor(store.directory), progress, policy)


def _best(planned: "PlannedRun", engine: "CampaignEngine") -> "Run":
    """The run that counts of those made.

    Raises:
        MachineError: this machine cannot make it.
        RunFailedError: none was finished.
    """
    if (run := engine.store.best(planned)) is not None:
        return run
    record = engine.failures.get(planned.job.key)
    raise error_of(record, engine.store.directory / planned.job.log)


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
