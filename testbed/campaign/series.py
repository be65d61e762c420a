"""Many runs of one scenario: repeats with different seeds, and sweeps over its keys.

A series is a directory: `sweep.json` lists what it consists of and what has been run. Below it is a
directory for every case, which holds the case's runs.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from testbed.campaign.job import Record
from testbed.campaign.plan import PlannedRun, planned_run
from testbed.model.errors import InputError
from testbed.model.scenario import Scenario
from testbed.results.analysis.comparison import Group, group_of
from testbed.results.run_directory import RunDirectory, find_run

INDEX = "sweep.json"
PREFIX = "series-"
"""The name of a series' directory begins with it; the time follows."""

REPEATS = "repeats"
"""The name of the only case where nothing is swept."""

Settings = dict[str, Any]
"""Values by key path of the scenario, such as transport.evs."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SeriesPlan(_Record):
    """What a series consists of: every combination of the swept values, with every seed.

    `content` is a digest of the scenario and its topology, without the seed: runs of another
    content do not belong to this series, whatever it is called.
    """

    scenario: str
    simulated: bool
    settings: Settings
    sweep: dict[str, list[Any]]
    seeds: list[int]
    content: str

    @property
    def cases(self) -> list[Settings]:
        """The combinations of the swept values, the last key changing fastest."""
        return [
            dict(zip(self.sweep, values, strict=True)) for values in product(*self.sweep.values())
        ]

    @property
    def runs(self) -> list[tuple[Settings, int]]:
        """Every run: all cases with a seed, then with the next, so that drift meets all alike."""
        return [(case, seed) for seed in self.seeds for case in self.cases]


class SeriesRun(_Record):
    """A run of a series that has ended.

    `run` is its directory relative to the series'; of a run that failed, its log, and `error` is
    the reason.
    """

    case: Settings
    seed: int
    run: str
    seconds: float
    error: str | None = None


class Series(_Record):
    """The content of `sweep.json`."""

    plan: SeriesPlan
    done: list[SeriesRun] = []

    def write(self, directory: Path) -> None:
        """Write `sweep.json`."""
        RunDirectory(directory).write(INDEX, self.model_dump_json(indent=2) + "\n")


def planned_runs(
    plan: SeriesPlan, scenarios: Mapping[str, Scenario], options: tuple[str, ...]
) -> list[PlannedRun]:
    """The runs of a plan, in its order.

    Args:
        plan: what the series consists of.
        scenarios: that of each case, by its label.
        options: further options of `testbed run` or `testbed simulate`.
    """
    return [
        planned_run(
            scenarios[label(case)].model_copy(update={"seed": seed}),
            "simulated" if plan.simulated else "emulated",
            directory_name(case),
            name=f"{label(case)}, seed {seed}",
            options=options,
        )
        for case, seed in plan.runs
    ]


def series_of(
    plan: SeriesPlan, runs: Sequence[PlannedRun], records: Mapping[str, Record]
) -> Series:
    """A series with the runs that have ended, in the order of the plan.

    Args:
        plan: what it consists of.
        runs: its planned runs.
        records: what became of them, by the keys of their jobs.
    """
    ended = [
        SeriesRun(
            case=case,
            seed=seed,
            run=record.run or str(run.job.log),
            seconds=round(record.seconds, 1),
            error=record.failure or None,
        )
        for (case, seed), run in zip(plan.runs, runs, strict=True)
        if (record := records.get(run.job.key)) is not None
    ]
    return Series(plan=plan, done=ended)


def digest(scenario: Scenario) -> str:
    """A digest of a scenario and its topology, without the seed."""
    content = scenario.model_dump(mode="json", by_alias=True, exclude={"seed"})
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def label(case: Settings) -> str:
    """The name of a case."""
    return ", ".join(f"{key}={value}" for key, value in case.items()) or REPEATS


def directory_name(case: Settings) -> str:
    """The name of a case's directory."""
    return re.sub(r"[^\w.=,+-]+", "_", label(case))


def load_series(directory: Path) -> Series:
    """Read `sweep.json` of a directory.

    Raises:
        InputError: there is none, or it is damaged.
    """
    file = directory / INDEX
    try:
        return Series.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError.of(str(file), "", f"a series ({error.strerror})") from None
    except ValidationError as error:
        message = error.errors()[0]["msg"]
        raise InputError.of(str(file), "", f"a series ({message})") from None


def groups_of(places: Sequence[Path]) -> tuple[Group, ...]:
    """The groups to compare: a run by itself, or each case of a series.

    Args:
        places: directories of runs, of scenarios (their latest run counts) or of series.

    Raises:
        InputError: one is neither, or has no finished run.
    """
    groups: list[Group] = []
    for place in places:
        if (place / INDEX).is_file():
            groups += _cases(place, prefix=f"{place.name}: " if len(places) > 1 else "")
        else:
            run = find_run(place)
            groups.append(group_of(run.name, [run.path]))
    return tuple(groups)


def _cases(directory: Path, prefix: str) -> list[Group]:
    series = load_series(directory)
    groups = []
    for case in series.plan.cases:
        runs = [
            directory / run.run for run in series.done if run.case == case and run.error is None
        ]
        if runs:
            groups.append(group_of(f"{prefix}{label(case)}", runs))
    if not groups:
        raise InputError.of(str(directory), "", "a series with a run that has ended")
    return groups
