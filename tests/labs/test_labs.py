"""Every lab that ships: its texts, and for some students that starters fail and solutions pass."""

import io
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from testbed.cli.summary import show
from testbed.model.flows import flows_of
from testbed.results.run_directory import RunDirectory
from testbed.studies.labs.answers import show_answer
from testbed.studies.labs.assignment import Assignment
from testbed.studies.labs.authoring import trial_key, try_lab
from testbed.studies.labs.checking import check, right_answer, unit_of
from testbed.studies.labs.evidence import canonical
from testbed.studies.labs.lab import AddressAnswer, NamesAnswer, NumberAnswer, Task, TextAnswer
from testbed.studies.labs.library import LABS, lab_directories, load_lab
from testbed.studies.labs.predicting import outcome
from testbed.studies.labs.work import Work
from tests.labs.prepared import solved

pytestmark = pytest.mark.long

NAMES = [
    *(f"p{plane}_t0_{t0}--p{plane}_t1_{t1}" for plane in "0123" for t0 in "01" for t1 in "0123"),
    *(f"h{host}" for host in range(8)),
    *("T0", "T1", "t0_0", "t1_3", "p0", "p1/t1_2", "h0--p0_t0_0"),
]
"""Names of the labs' fabrics: all links between switches, hosts, and some others."""

COURSE_KEY = b"test of labs"
"""That of the students of `testbed lab test`, of whom the project's workflow tries five."""


@pytest.mark.simulated
@pytest.mark.parametrize("directory", lab_directories(), ids=lambda path: str(path.name))
def test_starters_fail_and_solutions_pass(directory: Path, tmp_path: Path) -> None:
    """For two students; of the second only that the solution passes."""
    lab = load_lab(directory)
    findings = try_lab(lab, tmp_path, 1, lambda *_: None)
    assert not [str(finding) for finding in findings]
    (tmp_path / "2").mkdir()
    second = solved(tmp_path / "2", "2", directory, COURSE_KEY)
    for task in lab.lab.questions:
        result = check(task, second.read_answers(), second.evidence())
        assert result.passed, (task.id, result)

    works = [Work(tmp_path / "1" / lab.name), second]
    for work in works:
        for task in lab.lab.questions:
            if isinstance(task.answer, TextAnswer):
                _refuses_a_text_of_names(work, task)
    printed = [_printed(work) for work in works]
    own = {
        task.id: [_answer(task, work) for work in works]
        for task in lab.lab.questions
        if isinstance(task.answer, NumberAnswer | NamesAnswer | AddressAnswer) and task.figure
    }
    assert [
        task
        for task, answers in own.items()
        if len({*answers}) > 1 and not all(map(_reads, answers, printed))
    ], "no question whose answer differs between students and is not printed with the run"


def _refuses_a_text_of_names(work: Work, task: Task) -> None:
    """Answer a task with as many words as the solution's, which are names of nodes and links."""
    assert isinstance(task.answer, TextAnswer)
    answers = yaml.safe_load(work.answers.read_text())
    length = max(task.answer.words, len(answers[task.id].split()))
    text = " ".join((NAMES * (length // len(NAMES) + 1))[:length])
    work.answers.write_text(yaml.safe_dump({**answers, task.id: text}))
    result = check(task, work.read_answers(), work.evidence())
    work.answers.write_text(yaml.safe_dump(answers))
    assert "does not quote" in result.reason, (task.id, result)


def _answer(task: Task, work: Work) -> str:
    """The right answer as a run would print it: without its unit, names in a row."""
    right = right_answer(task, work.evidence())
    if isinstance(right, int | float):
        assert isinstance(task.answer, NumberAnswer)
        return show_answer(float(right), task.answer).removesuffix(unit_of(task)).strip()
    return " ".join(canonical([right] if isinstance(right, str) else right)) if right else ""


def _reads(answer: str, printed: str) -> bool:
    return f" {answer} " in printed


def _printed(work: Work) -> str:
    """What the terminal shows of all runs, and of their predictions."""
    text = io.StringIO()
    evidence = work.evidence()
    for run, path in evidence.runs.items():
        if not work.assignment.directory.lab.runs[run].hidden:
            console = Console(file=text, width=1000)
            show(evidence.summary(run), RunDirectory(path), console, drawn=False)
        for task in work.assignment.directory.lab.predictions(run):
            entry = work.last("prediction", task=task.id)
            assert entry is not None
            print(outcome(task, entry, evidence), file=text)
    return " ".join(text.getvalue().replace("%", " % ").replace(":", " : ").split())


@pytest.mark.parametrize("directory", lab_directories(), ids=lambda path: str(path.name))
def test_an_example_in_a_question_is_an_answer_of_the_right_form(directory: Path) -> None:
    for task in load_lab(directory).lab.questions:
        examples = re.findall(r"\blike ([\w/>-]*\d[\w/>-]*)", task.question)
        if isinstance(task.answer, NamesAnswer):
            assert all(map(task.answer.has_form, [*examples, task.answer.like])), task.id


def test_every_direction_is_a_guess_at_where_packets_wait() -> None:
    """Also a wrong one, which opens a hint; and the example does not tell which ones are right."""
    task = load_lab(LABS / "05-congestion").lab.task("where")
    assert task is not None
    assert isinstance(task.answer, NamesAnswer)
    for direction in ("p0_t1_0>p0_t0_1", "p0_t0_1>p0_t1_0", "p0_t0_1>h6", "h6>p0_t0_1"):
        assert task.answer.has_form(direction)
    assert not task.answer.has_form("p0_t0_1")
    assert "h" not in task.answer.like


def _assignments(lab: str, students: int) -> list[Assignment]:
    directory = load_lab(LABS / lab)
    return [Assignment(directory, trial_key(student)) for student in range(students)]


def test_a_hidden_link_does_not_follow_from_the_one_that_is_named() -> None:
    """Else its upper switch would be known before the run."""
    drawn = [assignment.drawn for assignment in _assignments("09-path-selector", 20)]
    for hidden in ("dead", "thin"):
        switches = {(str(artist["link"])[-1], str(artist[hidden])[-1]) for artist in drawn}
        assert len(switches) > len("0123")


def test_who_collides_in_lab_3_differs_between_students() -> None:
    """By the paths that the hash gives: no answer is that of most students."""
    answers = []
    for assignment in _assignments("03-one-path", 40):
        assert assignment.directory.lab.task("who-collides") is not None
        scenario = assignment.scenario("roce")
        paths = {
            flow.src.name: scenario.transport.choose_evs(
                scenario.topology, flow.src, flow.dst, lane=flow.lane, seed=scenario.seed
            )[0].path
            for flow in flows_of(scenario)
        }
        shared = Counter(paths.values())
        answers.append(tuple(host for host, path in paths.items() if shared[path] > 1))
    ((_, most),) = Counter(answers).most_common(1)
    assert most <= len(answers) / 3
