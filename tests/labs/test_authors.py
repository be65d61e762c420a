"""A lab that was just made passes its test, and the test finds what an author gets wrong."""

from pathlib import Path

import pytest

from testbed.model.errors import InputError
from testbed.studies.labs.authoring import new_lab, try_lab
from testbed.studies.labs.library import load_lab


def _findings(lab: Path, scratch: Path, students: int = 1) -> list[str]:
    scratch.mkdir()
    return [str(one) for one in try_lab(load_lab(lab), scratch, students, lambda *_: None)]


def _replaced(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def _short_lab(labs: Path) -> Path:
    """A new lab whose run takes half of the time."""
    lab = new_lab("11-mine", labs)
    _replaced(lab / "lab.yaml", "duration: 6 s", "duration: 3 s")
    _replaced(
        lab / "lab.yaml", '.at": 2 s, "timeline[0].for": 2 s', '.at": 1 s, "timeline[0].for": 1 s'
    )
    return lab


@pytest.mark.simulated
def test_a_new_lab_passes_its_test(tmp_path: Path) -> None:
    assert _findings(new_lab("11-mine", tmp_path), tmp_path / "s", students=2) == []


def test_a_new_lab_needs_a_number_and_a_free_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a number of two digits"):
        new_lab("mine", tmp_path)
    new_lab("11-mine", tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        new_lab("11-mine", tmp_path)


@pytest.mark.simulated
def test_what_an_author_gets_wrong_is_found(tmp_path: Path) -> None:
    lab = _short_lab(tmp_path)
    run = next(iter(load_lab(lab).lab.runs))
    task = load_lab(lab).lab.questions[0]
    _replaced(lab / "handout.md", task.id, "something-else")
    _replaced(lab / "handout.md", f"testbed lab run {run}", "testbed lab run other")
    _replaced(lab / "handout.md", "# A new lab", "# Another lab")
    (lab / "instructor.md").unlink()
    (lab / "solution/solve.py").write_text(
        "def predictions():\n    return {"
        + ", ".join(f"{t.id!r}: '1 RTT'" for t in load_lab(lab).lab.predictions(run))
        + "}\n\n\ndef answers(work):\n    return {}\n"
    )
    found = " | ".join(_findings(lab, tmp_path / "s"))
    assert "instructor.md: missing" in found
    assert f"handout.md: {task.id}: the handout does not name this task" in found
    assert "testbed lab run other: the lab has no such task or run" in found
    assert "its first line is '# Another lab', expected the title: # A new lab" in found
    assert f"{task.id}: the solution fails it" in found


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title:", "titel:", "did you mean title"),
        ("format_version: 1", "format_version: 2", "format_version"),
        ("unit: RTT", "unit: parsec", "the unit of faults"),
        ("hints:", "hints: []\n    hint:", "hint"),
    ],
)
def test_a_wrong_lab_file_is_one_clear_error(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    lab = new_lab("11-mine", tmp_path)
    file = lab / "lab.yaml"
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=message) as refused:
        load_lab(lab)
    assert "lab.yaml:" in str(refused.value)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("figures.py", "def lost", "def lost(:", "figures.py:8: found SyntaxError"),
        ("figures.py", "import polars", "import polarz", "figures.py:3: found ModuleNotFoundError"),
        ("solution/solve.py", "def predictions(", "def (", "solve.py:9: found SyntaxError"),
        ("solution/solve.py", "def answers(", "def answer(", r"no answers, expected def answers\("),
    ],
)
def test_code_of_an_author_that_cannot_be_read_is_named(
    tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    lab = new_lab("11-mine", tmp_path)
    _replaced(lab / file, old, new)
    with pytest.raises(InputError, match=message):
        _findings(lab, tmp_path / "s")


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("figures.py", "lab.frame", "lob.frame", "figures.py:10: found NameError"),
        ("figures.py", '"spurious"', '"spurios"', "figures.py:10: ColumnNotFoundError"),
        ("solution/solve.py", '"1.3 RTT"', "1 / 0", "solve.py:11: found ZeroDivisionError"),
        ("solution/solve.py", "losses.height", "losses.hight", "solve.py:21: found AttributeErr"),
    ],
)
def test_an_error_of_an_authors_code_is_found_with_its_line(
    tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    lab = _short_lab(tmp_path)
    _replaced(lab / file, old, new)
    (found,) = _findings(lab, tmp_path / "s")
    assert message in found


def test_more_and_less_are_said_of_numbers_only(tmp_path: Path) -> None:
    lab = new_lab("11-mine", tmp_path)
    mistake = "mistakes: [{above: {name: lost}, because: x}]"
    _replaced(
        lab / "lab.yaml", "unit: packets, within: 0}", f"unit: packets, within: 0}}\n    {mistake}"
    )
    load_lab(lab)
    _replaced(lab / "lab.yaml", "{kind: number, unit: packets, within: 0}", "{kind: names}")
    with pytest.raises(
        InputError, match=r"mistakes\[0\].above: .*an answer of kind names is no num"
    ):
        load_lab(lab)


@pytest.mark.simulated
def test_a_number_that_is_right_for_all_students_is_found(tmp_path: Path) -> None:
    """Who knows it would need no look at a run."""
    lab = new_lab("11-mine", tmp_path)
    _replaced(lab / "lab.yaml", "unit: packets, within: 0}", "unit: packets, within: 20}")
    (finding,) = _findings(lab, tmp_path / "wide", students=4)
    assert finding.startswith("lab.yaml: lost: ")
    assert finding.endswith("is right for all 4 students: draw more, or narrow within")


@pytest.mark.simulated
def test_grading_has_to_know_the_code_of_a_solution(tmp_path: Path) -> None:
    lab = _short_lab(tmp_path)
    for place, text in (("start", "x = 1\n"), ("solution", "x = 2\n")):
        (lab / place).mkdir(exist_ok=True)
        (lab / place / "mine.py").write_text(text)
    (finding,) = _findings(lab, tmp_path / "unknown")
    digest = finding.partition("no ")[2].partition(",")[0]
    _replaced(lab / "lab.yaml", "tasks:\n", f"known_code: {{mine.py: ['{digest}']}}\ntasks:\n")
    assert _findings(lab, tmp_path / "known") == []
