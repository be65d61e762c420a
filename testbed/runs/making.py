"""Runs made from Python: simulated in this process, emulated by `testbed run` beside it."""

from datetime import datetime
from pathlib import Path

from testbed.model.scenario import Scenario
from testbed.results.forked import require_threads
from testbed.results.run_directory import TIME_FORMAT, making_run, new_directory
from testbed.rights import acting_for
from testbed.runs.budget import RetryPolicy
from testbed.runs.engine import CampaignEngine
from testbed.runs.job import JobKey, JobRecord, error_of
from testbed.runs.local import LocalExecutor
from testbed.runs.options import NO_FIGURES
from testbed.runs.plan import SLOWED, PlannedRun, planned_run
from testbed.runs.result import Result
from testbed.runs.scenarios import checked
from testbed.runs.store import Store

RESULTS = Path("results")
"""Where runs are written by default: in the current directory."""

OPTIONS = (NO_FIGURES,)
"""Further options of the commands that make runs: figures are drawn when they are asked for."""

PREFIX = "python-"
"""The name of the directory of an emulated run begins with it; the time follows."""


def simulate(
    scenario: Scenario | str | Path, *, seed: int | None = None, results: str | Path = RESULTS
) -> Result:
    """Simulate a scenario in virtual time: no root, and equal seeds give equal results.

    Args:
        scenario: an object, or the name or path of a scenario.
        seed: in place of the scenario's.
        results: the directory of all results; the run gets one of its own in it.

    Raises:
        InputError: the scenario is wrong, or cannot be simulated (kernel TCP and MPTCP).
        RunFailedError: the run did not finish.
        MachineError: this process was forked after Polars had been loaded.
    """
    from testbed.results.analyse import analyse  # noqa: PLC0415 - these take long
    from testbed.sim import simulate as simulate_run  # noqa: PLC0415

    require_threads()
    checked_scenario = with_seed(checked(scenario), seed)
    with making_run(Path(results), checked_scenario.name, checked_scenario.seed) as run:
        try:
            simulate_run(checked_scenario, run.path)
            analyse(run.path, drawn=False)
        except BaseException:
            run.remove()  # no half a run is left
            raise
    return Result(run.path)


def emulate(
    scenario: Scenario | str | Path,
    *,
    seed: int | None = None,
    results: str | Path = RESULTS,
    attempts: int = 3,
) -> Result:
    """Run a scenario with real packets through the kernel (root), by `testbed run`.

    A run that this machine was too late for is made again, at larger dilations; the best counts.
    Look at `Result.verdict`.

    Args:
        scenario: an object, or the name or path of a scenario.
        seed: in place of the scenario's.
        results: the directory of all results.
        attempts: how often the run is made at most until it can be trusted: 1, 2 or 3.

    Raises:
        InputError: the scenario is wrong.
        MachineError: this machine cannot run it; the message says what is missing.
        RunFailedError: the run did not finish.
    """
    checked_scenario = with_seed(checked(scenario), seed)
    run = planned_run(
        checked_scenario, "emulated", "run", name=checked_scenario.name, options=OPTIONS
    )
    stamp = datetime.now().astimezone().strftime(TIME_FORMAT)
    directory = new_directory(Path(results) / checked_scenario.name, f"{PREFIX}{stamp}")
    results_by_key, records = execute(directory, [run], attempts)
    if run.job.key not in results_by_key:
        raise error_of(records.get(run.job.key), directory / run.job.log)
    return results_by_key[run.job.key]


def execute(
    directory: Path, runs: list[PlannedRun], attempts: int
) -> tuple[dict[JobKey, Result], dict[JobKey, JobRecord]]:
    """Make runs, each in a process of its own; results, and what became of each, by their keys."""
    with acting_for(directory):
        return _execute(directory, runs, attempts)


def _execute(
    directory: Path, runs: list[PlannedRun], attempts: int
) -> tuple[dict[JobKey, Result], dict[JobKey, JobRecord]]:
    store, records = Store(directory), dict[JobKey, JobRecord]()

    def keep(planned: PlannedRun, record: JobRecord) -> None:
        records[planned.job.key] = record

    policy = RetryPolicy(factors=SLOWED[:attempts], stop_if_late=False)
    executor = LocalExecutor(directory)
    try:
        CampaignEngine(store, executor, lambda *_: None, policy, keep).execute(runs)
    finally:
        executor.stop()
    finished = {}
    for run in runs:
        best = store.best(run)
        if best is not None:
            finished[run.job.key] = Result(best.directory)
            records[run.job.key] = store.record(run) or records[run.job.key]
    return finished, records


def with_seed(scenario: Scenario, seed: int | None) -> Scenario:
    """A scenario with another seed; None: with its own."""
    return scenario if seed is None else checked(scenario, {"seed": seed})
