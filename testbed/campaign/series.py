"""Many runs of one scenario or several: repeats with different seeds, and sweeps over keys.

A series is a directory: `sweep.json` lists what it consists of and what has been run. Below it is a
directory for every case, which holds the case's runs.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from testbed.campaign.job import JobRecord
from testbed.campaign.plan import PlannedRun, planned_run
from testbed.campaign.store import machine_of
from testbed.model.errors import InputError
from testbed.model.scenario import Scenario
from testbed.results.comparison.rows import Group, group_of
from testbed.results.run_directory import RunDirectory, find_run

INDEX = "sweep.json"
PREFIX = "series-"
"""The name of a series' directory begins with it; the time follows."""

SEVERAL = "several"
"""The directory of series of several scenarios, in that of all results."""

_LONGEST_NAME, _KEPT = 150, 30
"""Bytes of the name of a directory, beside which others have longer ones; characters kept of it."""

Settings = dict[str, Any]
"""Values by key path of the scenario, such as transport.evs."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SeriesCase(_Record):
    """Runs of a series that differ by their seed only.

    `settings` are the swept values that it has. `content` is a digest of its scenario and topology,
    without the seed: runs of another content do not belong to it, whatever it is called.
    """

    name: str
    scenario: str
    settings: Settings
    seeds: list[int]
    content: str


class SeriesPlan(_Record):
    """What a series consists of; `settings` are those of all its cases.

    `dilation` is the one that was chosen for `auto`; None if no case has that.
    """

    name: str
    simulated: bool
    settings: Settings
    dilation: float | None = None
    cases: list[SeriesCase]

    @property
    def runs(self) -> list[tuple[SeriesCase, int]]:
        """Every run: all cases with their first seed, then with the next.

        So drift meets all cases alike.
        """
        return [
            (case, seed)
            for seeds in zip(*(case.seeds for case in self.cases), strict=True)
            for case, seed in zip(self.cases, seeds, strict=True)
        ]

    @property
    def first(self) -> str:
        """What the first run is called."""
        case, seed = self.runs[0]
        return _called(case, seed)

    def differences(self, other: "SeriesPlan") -> list[str]:
        """The names of what differs from another plan."""
        different = _different(self, other)
        if [case.name for case in self.cases] != [case.name for case in other.cases]:
            return different
        of_cases = {
            name: None
            for case, counterpart in zip(self.cases, other.cases, strict=True)
            for name in _different(case, counterpart)
        }
        return [*(name for name in different if name != "cases"), *of_cases]


def _different(record: _Record, other: _Record) -> list[str]:
    return [n for n in type(record).model_fields if getattr(record, n) != getattr(other, n)]


class SeriesRun(_Record):
    """A run of a series that has ended: the name of its case, and its seed.

    `run` is its directory relative to the series'; of a run that failed, its log, `error` is the
    reason, and `status` the exit status of its command (minus the signal that killed it).
    """

    case: str
    seed: int
    run: str
    seconds: float
    error: str | None = None
    status: int | None = None


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
        scenarios: that of each case, by its name.
        options: further options of `testbed run` or `testbed simulate`.
    """
    return [
        planned_run(
            scenarios[case.name].model_copy(update={"seed": seed}),
            "simulated" if plan.simulated else "emulated",
            directory_name(case.name),
            name=_called(case, seed),
            options=options,
        )
        for case, seed in plan.runs
    ]


def _called(case: SeriesCase, seed: int) -> str:
    """The name of a run."""
    return f"{case.name}, seed {seed}"


def series_of(
    plan: SeriesPlan, runs: Sequence[PlannedRun], records: Mapping[str, JobRecord]
) -> Series:
    """A series with the runs that have ended, in the order of the plan.

    Args:
        plan: what it consists of.
        runs: its planned runs.
        records: what became of them, by the keys of their jobs.
    """
    ended = [
        SeriesRun(
            case=case.name,
            seed=seed,
            run=record.run or str(run.job.log),
            seconds=round(record.seconds, 1),
            error=record.failure or None,
            status=record.status if record.failure else None,
        )
        for (case, seed), run in zip(plan.runs, runs, strict=True)
        if (record := records.get(run.job.key)) is not None
    ]
    return Series(plan=plan, done=ended)


def digest(scenario: Scenario) -> str:
    """A digest of a scenario and its topology, without the seed."""
    content = scenario.model_dump(mode="json", by_alias=True, exclude={"seed"})
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def named(scenario: str, settings: Settings) -> str:
    """The name of a case: its scenario's, if any, and the swept values."""
    values = (f"{key}={_written(value)}" for key, value in settings.items())
    return ", ".join(filter(None, (scenario, *values)))


def _written(value: Any) -> str:
    """A value as it is written in YAML."""
    if not isinstance(value, dict | list):
        return str(value)
    text: str = yaml.safe_dump(value, default_flow_style=True, width=inf, sort_keys=False)
    return text.strip()


def directory_name(case: str) -> str:
    """The name of a case's directory; of a long one the beginning, and a digest of all."""
    name = re.sub(r"[^\w.=,+-]+", "_", case)
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    return f"{name[:_KEPT]}-{hashlib.sha256(case.encode()).hexdigest()[:16]}"


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


def groups_of(places: Sequence[Path], labels: Sequence[str] = ()) -> tuple[Group, ...]:
    """The groups to compare: a run by itself, or each case of a series.

    Args:
        places: directories of runs, of scenarios (their latest run counts) or of series.
        labels: what each of them is called; none: after its directory.

    Raises:
        InputError: one is neither, or has no finished run.
    """
    groups: list[Group] = []
    for place, name in zip(places, labels or [""] * len(places), strict=True):
        if (place / INDEX).is_file():
            groups += _cases(place, name, alone=len(places) == 1)
        else:
            run = find_run(place)
            groups.append(group_of(name or run.name, [run.path]))
    return tuple(groups)


def _cases(directory: Path, name: str, *, alone: bool) -> list[Group]:
    """The cases of a series that have a finished run; `alone`: no other series is compared.

    Emulated runs of unlike machines are groups of their own. Runs that failed are counted in the
    first of them.
    """
    series = load_series(directory)
    groups = []
    for case in series.plan.cases:
        ended = [run for run in series.done if run.case == case.name]
        runs = [directory / run.run for run in ended if run.error is None]
        if not runs:
            continue
        only = len(series.plan.cases) == 1
        prefix = name or ("" if alone else directory.name)
        called = name if name and only else ": ".join(filter(None, (prefix, case.name)))
        failed = len(ended) - len(runs)
        machines: dict[str, list[Path]] = {}
        for run_directory in runs:
            machines.setdefault(machine_of(run_directory), []).append(run_directory)
        for machine, made_there in machines.items():
            where = f" on {machine}" if len(machines) > 1 else ""
            groups.append(group_of(called + where, made_there, failed))
            failed = 0
    if not groups:
        raise InputError.of(str(directory), "", "a series with a run that has ended")
    return groups
