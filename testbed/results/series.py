"""Many runs of one scenario: repeats with different seeds, and sweeps over its keys.

A series is a directory: `sweep.json` says what it consists of and what has been run, below it is a
directory for every case, in which are its runs.
"""

import hashlib
import json
import re
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from testbed.model.errors import InputError, Problem
from testbed.model.scenario import Scenario
from testbed.results.run_directory import RunDirectory

INDEX = "sweep.json"
PREFIX = "series-"
"""What the directory of a series is called, in front of its time."""

REPEATS = "repeats"
"""The only case where nothing is swept."""

Settings = dict[str, Any]
"""Values by key path of the scenario, such as transport.evs."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Plan(_Record):
    """What a series consists of: every combination of the swept values, with every seed.

    `content` is a digest of the scenario and its topology, without the seed: runs of another
    content are not of this series, whatever it is called.
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


class Done(_Record):
    """A run of a series: its directory below the series', and why it has no summary."""

    case: Settings
    seed: int
    run: str
    seconds: float
    error: str | None = None


class Series(_Record):
    """A series as `sweep.json` has it."""

    plan: Plan
    done: list[Done] = []

    @property
    def left(self) -> list[tuple[Settings, int]]:
        """The runs that are still to be made."""
        made = [(one.case, one.seed) for one in self.done]
        return [one for one in self.plan.runs if one not in made]

    def plus(self, one: Done) -> "Series":
        """The series with one more run made."""
        return self.model_copy(update={"done": [*self.done, one]})

    def write(self, directory: Path) -> None:
        """Write `sweep.json`."""
        RunDirectory(directory).write(INDEX, self.model_dump_json(indent=2) + "\n")


def digest(scenario: Scenario) -> str:
    """What tells a scenario, its topology included, from every other; the seed is left out."""
    content = scenario.model_dump(mode="json", by_alias=True, exclude={"seed"})
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def label(case: Settings) -> str:
    """What a case is called."""
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
        raise InputError([Problem(str(file), "", f"a series ({error.strerror})")]) from None
    except ValidationError as error:
        raise InputError(
            [Problem(str(file), "", f"a series ({error.errors()[0]['msg']})")]
        ) from None
