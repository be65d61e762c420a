"""Runs of whole scenarios, as parts of the bench make them."""

from datetime import datetime
from pathlib import Path

from testbed.bench.setting import Setting
from testbed.experiment import run_experiment
from testbed.experiment.calibration import calibrate
from testbed.experiment.capacity import Capacity, kept
from testbed.model.scenario import Scenario
from testbed.results.analyse import analyse
from testbed.results.run_directory import RunDirectory
from testbed.results.summary import Summary


def carried(scenario: Scenario, setting: Setting) -> Scenario:
    """A scenario at the dilation that this machine carries, measured now if it never was."""
    capacity = kept()
    if capacity is None:
        setting.progress("what this machine carries")
        capacity = calibrate(lambda _what, _done: None)
    return fitted(scenario, capacity)


def fitted(scenario: Scenario, capacity: Capacity) -> Scenario:
    """A scenario at the dilation that a machine carries, or its own if it carries that."""
    dilation = max(capacity.fitting_dilation(scenario), scenario.topology.dilation)
    return scenario.at_dilation(dilation)


TRIES = 3
"""Runs of a scenario, until one is trusted."""


def run_until_trusted(scenario: Scenario, setting: Setting, what: str) -> list[Summary]:
    """Run a scenario until a run is trusted, or often enough; what each try came to, in order."""
    told: list[Summary] = []
    while len(told) < TRIES and not any(one.verdict == "trusted" for one in told):
        setting.progress(f"{what}, try {len(told) + 1}/{TRIES}")
        told.append(run(scenario, setting.results))
    return told


def run(scenario: Scenario, results: Path) -> Summary:
    """Run a scenario as `testbed run` does, into a directory of its own named after the bench."""
    started = datetime.now().astimezone()
    directory = RunDirectory.create(results, f"bench-{scenario.name}", scenario.seed, started)
    run_experiment(scenario, directory.path, lambda _what, _done: None)
    return analyse(directory.path)
