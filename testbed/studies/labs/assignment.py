"""A lab for one student: the seed, the drawn values, the scenarios."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from testbed.model.errors import InputError
from testbed.model.faults.checks import fault_remarks
from testbed.model.files.catalog import find_scenario
from testbed.model.files.own_code import files_of
from testbed.model.files.reading import Document, read_document
from testbed.model.files.scenarios import nominal, scenario_of
from testbed.model.scenario import Scenario
from testbed.rights import reading_for
from testbed.studies.labs.lab import Task
from testbed.studies.labs.library import START, LabDirectory
from testbed.studies.labs.students import draw, filled, may_read, seed_of

_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class Assignment:
    """A lab as one student has it.

    Attributes:
        directory: the lab.
        key: the student's.
        files: where the files are that the student writes; None: as the lab brings them.
    """

    directory: LabDirectory
    key: str
    files: Path | None = None

    @cached_property
    def seed(self) -> int:
        """The seed of all runs."""
        return seed_of(self.key, self.directory.name)

    @cached_property
    def drawn(self) -> Mapping[str, Any]:
        """What the seed has drawn: such that each run's faults meet traffic."""
        functions = self.directory.functions
        return draw(self.directory.lab, self.seed, functions, self._fits)

    def _fits(self, drawn: Mapping[str, Any]) -> bool:
        start = self.directory.path / START
        scenarios = {run: self._scenario(run, drawn, start) for run in self.directory.lab.runs}
        fits = getattr(self.directory.functions, "fits", None)
        if fits is not None and not fits(scenarios):
            return False
        return not any(
            remark for scenario in scenarios.values() for remark in fault_remarks(scenario)
        )

    def scenario(self, run: str) -> Scenario:
        """The scenario of a run, with the student's seed, values and code.

        Raises:
            InputError: the lab's scenario is wrong, or the student's code is not Python.
        """
        return self._scenario(run, self.drawn, self._place)

    def code_digest(self, run: str) -> str:
        """A digest of the student's code that a run uses, as it is now; empty if it uses none.

        Raises:
            InputError: a file cannot be read.
        """
        with reading_for(self._place), may_read():
            files = self.code_files(run)
            contents = [file.read_bytes() if file.is_file() else b"" for file in files]
        return hashlib.sha256(b"\0".join(contents)).hexdigest() if files else ""

    def code_files(self, run: str) -> list[Path]:
        """The files of the student's code that a run uses, with those that they import."""
        named = self.directory.lab.runs[run].code_files
        return list(dict.fromkeys(file for name in named for file in files_of(self._place / name)))

    @property
    def _place(self) -> Path:
        return self.files or self.directory.path / START

    def _scenario(self, run: str, drawn: Mapping[str, Any], files: Path) -> Scenario:
        planned = self.directory.lab.runs[run]
        settings = {key: filled(value, drawn) for key, value in planned.set.items()}
        places = {}
        for key, code in planned.code.items():
            file = places[f"--set: {key}"] = files / code.rpartition(":")[0]
            with reading_for(files), may_read():
                if not file.exists():
                    remedy = f"copy {self.directory.path / START / file.name} here"
                    raise InputError.of(str(file), "no such file", "your code", remedy)
            settings[key] = str(files / code)
        try:
            document = self._document(planned.scenario)
            with reading_for(files), may_read():
                scenario = scenario_of(document, nominal, settings)
        except InputError as error:  # in the student's terms: the file, not the key that names it
            located = [
                replace(problem, where=str(places.get(problem.where, problem.where)))
                for problem in error.problems
            ]
            raise InputError(located) from None
        named = {"name": run, "seed": self.seed}
        return scenario.model_copy(update=named)

    def _document(self, scenario: str) -> Document:
        own = self.directory.path / scenario
        return read_document(own if own.is_file() else find_scenario(scenario))

    def text(self, text: str) -> str:
        """A text of the lab with the student's values in place of `{name}`."""
        return str(filled(_SPACES.sub(" ", text).strip(), self.drawn))

    def question(self, task: Task) -> str:
        return self.text(task.question)
