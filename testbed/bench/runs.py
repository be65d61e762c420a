"""Emulated runs of whole scenarios, as parts of the bench make them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from testbed.bench.measure import Setting
from testbed.experiment.calibration import calibrate
from testbed.experiment.capacity import Capacity, load_capacity
from testbed.model.errors import RunFailedError
from testbed.model.progress import where_it_changes
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary

if TYPE_CHECKING:
    from testbed.campaign.store import Run

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
        RunFailedError: a run was not finished.
    """
    # They load Polars, which starts threads: not before `carried` has forked a sandbox.
    from testbed.campaign.budget import RetryPolicy  # noqa: PLC0415
    from testbed.campaign.engine import CampaignEngine  # noqa: PLC0415
    from testbed.campaign.local import LocalExecutor  # noqa: PLC0415
    from testbed.campaign.plan import planned_run  # noqa: PLC0415
    from testbed.campaign.store import Store  # noqa: PLC0415

    store = Store(setting.results, since=datetime.now().astimezone(), exclusive=False)
    planned = []
    for scenario in scenarios:
        suffix = f"-{scenario.topology.dilation:g}" if by_dilation else ""
        folder = f"bench-{scenario.name}{suffix}"
        planned.append(planned_run(scenario, "emulated", folder, options=("--force",)))
    policy = RetryPolicy(math.inf, factors=(1.0,) * tries, stop_if_late=False)
    engine = CampaignEngine(
        store, LocalExecutor(setting.results), where_it_changes(setting.progress), policy
    )
    engine.execute(planned)
    results = []
    for run in planned:
        if (best := store.best(run)) is None:
            raise RunFailedError(f"{run.job.name}: {engine.failures[run.job.key].failure}")
        results.append(BenchRun(best, len(store.attempts(run))))
    return results


def seeded(scenario: Scenario, setting: Setting) -> list[Scenario]:
    """A scenario with a seed for each repeat, from 1 on."""
    return [scenario.model_copy(update={"seed": seed}) for seed in range(1, setting.repeats + 1)]


def carried(scenario: Scenario, setting: Setting) -> Scenario:
    """A scenario at the dilation that this machine carries, measured now if it never was."""
    capacity = load_capacity()
    if capacity is None:
        setting.progress("what this machine carries")
        capacity = calibrate(lambda _what, _done: None)
    return fitted(scenario, capacity)


def fitted(scenario: Scenario, capacity: Capacity) -> Scenario:
    """A scenario at the dilation that a machine carries, or its own if it carries that."""
    dilation = max(capacity.fitting_dilation(scenario), scenario.topology.dilation)
    return scenario.at_dilation(dilation)
