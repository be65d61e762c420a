"""The labs that ship, and labs in other directories: found, read and checked."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import util
from pathlib import Path
from types import ModuleType

from testbed.host.own_class import describe_error
from testbed.installation import PROJECT
from testbed.model.errors import InputError, Problem, TestbedError, did_you_mean, raise_any
from testbed.model.files.catalog import relative_to_here
from testbed.model.files.reading import read_document
from testbed.model.files.validation import validated
from testbed.model.summary.scopes import SCOPES
from testbed.studies.labs.lab import Lab, NumberAnswer, StudentFigure, Task
from testbed.studies.labs.quantities import counts_things, factor
from testbed.studies.labs.students import placeholders

LABS = PROJECT / "labs"
LAB_FILE, HANDOUT, FIGURES, START = "lab.yaml", "handout.md", "figures.py", "start"
GLOSSARY = PROJECT / "docs/glossary.md"
"""The terms, of which each student gets a copy."""

ALGORITHMS = PROJECT / "docs/algorithms.md"
"""How to write classes of one's own, of which students get a copy in labs that begin with code."""

_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_INTERFACES = {"spray": "Path selector", "congestion": "Congestion controller"}
"""The sections of this document, by the keys of a transport that name such classes."""

SOLUTION, INSTRUCTOR = "solution", "instructor.md"

_NUMBERED = re.compile(r"(\d+)-.+")


@dataclass(frozen=True)
class LabDirectory:
    """A lab and its directory."""

    path: Path
    lab: Lab

    @property
    def name(self) -> str:
        """Its name, such as `02-first-failure`."""
        return self.path.name

    @cached_property
    def functions(self) -> ModuleType | None:
        """The functions of its `figures.py`; None if it has none."""
        file = self.path / FIGURES
        if not file.is_file():
            return None
        spec = util.spec_from_file_location(f"figures_of_{self.name.replace('-', '_')}", file)
        if spec is None or spec.loader is None:
            return None
        module = util.module_from_spec(spec)
        with naming_line_of(file):
            spec.loader.exec_module(module)
        return module


@contextmanager
def naming_line_of(file: Path) -> Iterator[None]:
    """Report an error that an author's code raises as one of its file and line.

    Raises:
        InputError: the code raised one, or is not Python. Other errors are raised as they are.
    """
    try:
        yield
    except TestbedError:
        raise
    except Exception as error:
        text, line, remedy = describe_error(error, str(file.absolute()))
        if line is None:
            raise
        raise InputError.of(f"{file}:{line}", text, "code that raises no error", remedy) from error


def algorithms_for_students(lab: Lab) -> str:
    """How to write the classes that a lab asks for: their interfaces, and errors.

    Links are left out, as the documents that they lead to are not beside it.
    """
    text = ALGORITHMS.read_text(encoding="utf-8")
    title, *parts = text.split("\n## ")
    asked = {key.rpartition(".")[2] for run in lab.runs.values() for key in run.code}
    wanted = [_INTERFACES[key] for key in sorted(asked) if key in _INTERFACES] + ["Errors"]
    chosen = [f"## {part}" for part in parts if part.partition("\n")[0] in wanted]
    return _LINK.sub(r"\1", "\n".join([title.partition("\n")[0] + "\n", *chosen]))


def glossary_for_students() -> str:
    """The glossary without links, as the documents that it names are not beside it."""
    text = _LINK.sub(r"\1", GLOSSARY.read_text(encoding="utf-8"))
    title, _, rest = text.partition("\n")
    note = "Documents that it names, such as metrics.md, belong to the testbed's documentation."
    return f"{title}\n\n{note}\n{rest}"


def lab_directories(labs: Path = LABS) -> tuple[Path, ...]:
    return tuple(sorted(file.parent for file in labs.glob(f"*/{LAB_FILE}")))


def find_lab(name: str, labs: Path = LABS) -> Path:
    """The directory of a lab: by its number, its name, a part of its name, or by path.

    Raises:
        InputError: there is no such lab.
    """
    if "/" in name or (Path(name) / LAB_FILE).is_file():
        if (Path(name) / LAB_FILE).is_file():
            return relative_to_here(Path(name).resolve())
        raise InputError.of("LAB", name, f"a directory with a {LAB_FILE}")
    directories = {path.name: path for path in lab_directories(labs)}
    if name in directories:
        return directories[name]
    for lab_name, path in directories.items():
        numbered = _NUMBERED.fullmatch(lab_name)
        if name.isdecimal() and numbered and int(numbered[1]) == int(name):
            return path
        if lab_name.partition("-")[2] == name:
            return path
    containing = [lab_name for lab_name in directories if name.lower() in lab_name]
    similar = f"did you mean {containing[0]}?" if len(containing) == 1 else ""
    remedy = similar or did_you_mean(name, tuple(directories))
    remedy = remedy or "testbed lab list shows all; for a lab elsewhere, its directory: DIR/NAME"
    raise InputError.of("LAB", name, "the number or the name of a lab", remedy)


def load_lab(directory: Path) -> LabDirectory:
    """Read a lab and check that its parts fit together.

    Raises:
        InputError: a value is wrong, or two do not fit together.
    """
    document = read_document(directory / LAB_FILE)
    lab = validated(Lab, document.data, document)
    labelled = LabDirectory(directory, lab)
    raise_any(document.located(problem) for problem in _problems(labelled))
    return labelled


def _problems(directory: LabDirectory) -> Iterator[Problem]:
    lab = directory.lab
    seen: set[str] = set()
    for i, task in enumerate(lab.tasks):
        where = f"tasks[{i}]"
        if task.id in seen:
            yield Problem(f"{where}.id", task.id, "an id that no other task has")
        seen.add(task.id)
        for run in filter(None, (task.before, *task.after)):
            if run not in lab.runs:
                key = f"{where}.{'before' if run == task.before else 'after'}"
                yield Problem(key, run, f"one of the lab's runs: {', '.join(lab.runs)}")
        yield from _together_problems(where, task, lab)
        yield from _mistake_problems(where, task)
        for figure in task.figures:
            yield from _figure_problems(directory, where, figure)
        if task.figure is not None and isinstance(task.answer, NumberAnswer):
            yield from _unit_problems(where, task.figure, task.answer.unit)
    for name, run_ in lab.runs.items():
        for key, value in run_.set.items():
            for unknown in sorted(placeholders(value) - lab.draw.keys()):
                yield Problem(f"runs.{name}.set.{key}", f"{{{unknown}}}", "a name under draw")


def _together_problems(where: str, task: Task, lab: Lab) -> Iterator[Problem]:
    scores = [known.id for known in lab.tasks if known.is_score and known is not task]
    for other in task.together:
        if other not in scores or not task.is_score:
            yield Problem(f"{where}.together", other, f"another score: {', '.join(scores)}")


def _mistake_problems(where: str, task: Task) -> Iterator[Problem]:
    for i, mistake in enumerate(task.mistakes):
        key = "above" if mistake.above else "below" if mistake.below else ""
        if key and not isinstance(task.answer, NumberAnswer):
            expected = f"equals or figure: an answer of kind {task.answer.kind} is no number"
            yield Problem(f"{where}.mistakes[{i}].{key}", key, expected)


def _figure_problems(
    directory: LabDirectory, where: str, figure: StudentFigure
) -> Iterator[Problem]:
    if not figure.is_metric:
        if not hasattr(directory.functions, figure.name):
            yield Problem(where, figure.name, f"SCOPE.METRIC, or a function of {FIGURES}")
        return
    scope, _, key = figure.name.partition(".")
    if scope not in SCOPES:
        yield Problem(where, figure.name, f"a metric of {', '.join(SCOPES)}")
    elif key not in SCOPES[scope].quantities:
        known = tuple(SCOPES[scope].quantities)
        yield Problem(where, figure.name, f"a metric of {scope}", did_you_mean(key, known))
    if figure.run not in directory.lab.runs:
        runs = ", ".join(directory.lab.runs)
        yield Problem(where, figure.run, f"the run of {figure.name}: {runs}")


def _unit_problems(where: str, figure: StudentFigure, unit: str) -> Iterator[Problem]:
    scope, _, key = figure.name.partition(".")
    if not figure.is_metric or scope not in SCOPES or key not in SCOPES[scope].quantities:
        return
    own = SCOPES[scope].quantities[key].unit
    other = counts_things(own.symbol) != counts_things(unit)
    if own.symbol and (other or factor(own.symbol) != factor(unit)):
        yield Problem(f"{where}.answer.unit", unit, f"the unit of {figure.name}: {own.symbol}")
