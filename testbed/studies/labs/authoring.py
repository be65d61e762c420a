"""For authors of labs: a new lab to begin with, and the test of a lab."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from types import ModuleType

import yaml

from testbed.host.own_class import describe_error
from testbed.model.errors import InputError, TestbedError
from testbed.model.files.reading import Document
from testbed.rights import acting_for
from testbed.studies.labs import checking
from testbed.studies.labs.grading.identity import code_print
from testbed.studies.labs.lab import NumberAnswer
from testbed.studies.labs.library import (
    FIGURES,
    HANDOUT,
    INSTRUCTOR,
    LAB_FILE,
    SOLUTION,
    START,
    LabDirectory,
    naming_line_of,
)
from testbed.studies.labs.predicting import predict
from testbed.studies.labs.quantities import show_quantity
from testbed.studies.labs.runs import checked_run, make_run, unseal
from testbed.studies.labs.students import student_key
from testbed.studies.labs.work import Work, start

SOLVE = "solve.py"
TEMPLATE = Path(__file__).parent / "template"
SEEDS = 5
"""For how many students a lab is tested."""

_FEW_STUDENTS = 4
"""With fewer students it may be chance that one number is right for all."""

_FUNCTIONS = {"predictions": "", "answers": "work: Path"}
"""What a solution has, with their arguments."""

_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
"""Code in a handout: a block, or within a line."""

_COMMAND = re.compile(r"testbed lab (predict|run|check|hint) ([a-z][a-z0-9-]*)")

_NAME = re.compile(r"\d\d-[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class LabProblem:
    """Something wrong with a lab.

    Attributes:
        where: the file, or the seed, and the task.
        what: what is wrong.
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def new_lab(name: str, labs: Path) -> Path:
    """Make a lab to begin with: complete, small, and passing its test.

    Raises:
        InputError: the name is not of the form NN-slug, or the lab exists or cannot be made.
    """
    if not _NAME.fullmatch(name):
        raise InputError.of("NAME", name, "a number of two digits and a short name: 12-my-lab")
    path = labs / name
    if path.exists():
        raise InputError.of("NAME", str(path), "a lab that does not exist")
    try:
        with acting_for(labs):
            shutil.copytree(TEMPLATE, path)
    except OSError as error:
        found = f"{path}: {(error.strerror or 'it cannot be written').lower()}"
        raise InputError.of("--into", found, "a directory that can be written") from None
    return path


def trial_key(seed: int) -> str:
    """The key of a student who exists only in a test."""
    return student_key(b"test of labs", str(seed))


def try_lab(
    directory: LabDirectory,
    scratch: Path,
    seeds: int,
    progress: Callable[[str, float], None],
) -> list[LabProblem]:
    """Test a lab: the texts, and for each seed that the starter fails and the solution passes.

    Args:
        directory: the lab.
        scratch: an empty directory.
        seeds: for how many students.
        progress: is told how far it is.
    """
    findings = [*_text_findings(directory), *_code_findings(directory)]
    rights: dict[str, list[float]] = {}
    solve = solution_of(directory)
    for seed in range(1, seeds + 1):
        progress(f"{directory.name}, student {seed}", (seed - 1) / seeds)
        try:
            with naming_line_of(directory.path / FIGURES), naming_line_of(solution_file(directory)):
                work = start(directory, scratch / str(seed), "", trial_key(seed))
                findings += [*_seed_findings(work, solve, f"student {seed}")]
                _add_right_numbers(work, rights)
        except TestbedError as error:
            findings.append(LabProblem(f"student {seed}", f"{error}{_cause(error, directory)}"))
    return [*findings, *_spread_findings(directory, rights)]


def _add_right_numbers(work: Work, rights: dict[str, list[float]]) -> None:
    """Add this student's right answers of all questions for a number."""
    evidence = work.evidence()
    for task in work.assignment.directory.lab.questions:
        if isinstance(task.answer, NumberAnswer) and task.points:
            rights.setdefault(task.id, []).append(float(checking.right_answer(task, evidence)))


def _spread_findings(
    directory: LabDirectory, rights: dict[str, list[float]]
) -> Iterator[LabProblem]:
    """Numbers that are right for all students: one of them would need no look at a run."""
    for name, values in rights.items():
        task = directory.lab.task(name)
        if task is None or not isinstance(task.answer, NumberAnswer) or len(values) < _FEW_STUDENTS:
            continue
        within = task.answer.within
        low = max(value - within.around(value) for value in values)
        high = min(value + within.around(value) for value in values)
        if low <= high:
            shown = show_quantity((low + high) / 2, task.answer.unit)
            what = f"{shown} is right for all {len(values)} students: draw more, or narrow within"
            yield LabProblem(f"{LAB_FILE}: {name}", what)


def _code_findings(directory: LabDirectory) -> Iterator[LabProblem]:
    """Solutions of which grading would not know the code."""
    for file in sorted((directory.path / START).glob("*.py")):
        solution = directory.path / SOLUTION / file.name
        if not solution.is_file():
            continue
        digest = code_print(solution.read_text(encoding="utf-8"))
        if digest not in directory.lab.known_code.get(file.name, ()):
            what = f"no {digest}, the digest of {SOLUTION}/{file.name}: grading knows copies by it"
            yield LabProblem(f"{LAB_FILE}: known_code.{file.name}", what)


def _cause(error: TestbedError, directory: LabDirectory) -> str:
    """The error of the author's `figures.py` behind one that students are shown; else empty."""
    if isinstance(error, InputError) or not isinstance(error.__cause__, Exception):
        return ""
    file = directory.path / FIGURES
    text, line, _ = describe_error(error.__cause__, str(file.absolute()))
    return "" if line is None else f"\n  cause: {file}:{line}: {text}"


def _text_findings(directory: LabDirectory) -> Iterator[LabProblem]:
    for name in (HANDOUT, INSTRUCTOR):
        if not (directory.path / name).is_file():
            yield LabProblem(name, "missing")
    handout = directory.path / HANDOUT
    text = handout.read_text(encoding="utf-8") if handout.is_file() else ""
    code = "\n".join(_CODE.findall(text))
    named = set(re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*", code))
    heading, title = text.partition("\n")[0], directory.lab.title
    if not heading.startswith("#") or not heading.casefold().endswith(title.casefold()):
        yield LabProblem(HANDOUT, f"its first line is {heading!r}, expected the title: # {title}")
    for task in directory.lab.tasks:
        if task.id not in named:
            yield LabProblem(f"{HANDOUT}: {task.id}", "the handout does not name this task in code")
    for run in directory.lab.runs:
        if run not in named:
            yield LabProblem(f"{HANDOUT}: {run}", "the handout does not name this run in code")
    known = {task.id for task in directory.lab.tasks} | set(directory.lab.runs)
    for command, name in _COMMAND.findall(code):
        if name not in known:
            what = f"testbed lab {command} {name}: the lab has no such task or run"
            yield LabProblem(HANDOUT, what)


def _seed_findings(work: Work, solve: ModuleType, student: str) -> Iterator[LabProblem]:
    yield from _starter_findings(work, student)
    for task, text in solve.predictions().items():
        predict(work, work.task(task), text, None)
    for run in work.assignment.directory.lab.runs:
        checked_run(work, run)
        yield from _run_findings(work, run, student)
    yield from _starter_findings(work, student)
    for run in _solve_code(work):
        yield from _run_findings(work, run, student)
    answers = solve.answers(work.path)
    work.answers.write_text(yaml.safe_dump(answers, sort_keys=False), encoding="utf-8")
    document = work.read_answers()
    yield from _solution_findings(work, document, student)
    unseal(work)


def _run_findings(work: Work, run: str, student: str) -> Iterator[LabProblem]:
    made = make_run(work, run, lambda *_: None, drawn=False)
    if made.summary.verdict != "trusted":
        yield LabProblem(f"{student}: {run}", f"{made.summary.verdict}: {made.summary.reasons}")


def _solve_code(work: Work) -> list[str]:
    """Replace the files that a student writes by those of the solution; returns their runs."""
    directory = work.assignment.directory
    for file in sorted((directory.path / START).glob("*")):
        solved = directory.path / SOLUTION / file.name
        if solved.is_file():
            shutil.copyfile(solved, work.path / file.name)
    return [run for run, planned in directory.lab.runs.items() if planned.code]


def _starter_findings(work: Work, student: str) -> Iterator[LabProblem]:
    document, evidence = work.read_answers(), work.evidence()
    for task in work.assignment.directory.lab.questions:
        if checking.check(task, document, evidence).passed:
            yield LabProblem(f"{student}: {task.id}", "the starter passes it")


def _solution_findings(work: Work, document: Document, student: str) -> Iterator[LabProblem]:
    evidence = work.evidence()
    for task in work.assignment.directory.lab.questions:
        result = checking.check(task, document, evidence)
        if not result.passed:
            what = f"the solution fails it with {result.answer!r}: {result.reason}"
            yield LabProblem(f"{student}: {task.id}", what)
        else:
            content = {"task": task.id, "answer": result.answer, "passed": True}
            work.journal.append("attempt", **content)


def solution_of(directory: LabDirectory) -> ModuleType:
    """A lab's solution, with the functions `predictions` and `answers`.

    Raises:
        InputError: it has none, or lacks one of them.
    """
    file = solution_file(directory)
    spec = util.spec_from_file_location(f"solution_of_{directory.name.replace('-', '_')}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        remedy = "labs are tested in a checkout: a wheel has no solutions"
        raise InputError.of(str(file), "no such file", f"the solution of {LAB_FILE}", remedy)
    module = util.module_from_spec(spec)
    with naming_line_of(file):
        spec.loader.exec_module(module)
    for name, argument in _FUNCTIONS.items():
        if not callable(getattr(module, name, None)):
            remedy = "testbed lab new makes a lab that has it"
            raise InputError.of(str(file), f"no {name}", f"def {name}({argument})", remedy)
    return module


def solution_file(directory: LabDirectory) -> Path:
    return directory.path / SOLUTION / SOLVE
