"""Each handout leads through its lab: its commands, typed in order, do what it says."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cli import command_line
from testbed.model.files.catalog import find_scenario
from testbed.model.files.topologies import load_topology
from testbed.studies.labs.authoring import solution_of
from testbed.studies.labs.library import (
    GLOSSARY,
    HANDOUT,
    LAB_FILE,
    LabDirectory,
    lab_directories,
    load_lab,
)
from testbed.studies.labs.predicting import predict
from testbed.studies.labs.students import student_key
from testbed.studies.labs.work import RESULTS, find_work, start

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def simulated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have code of one's own simulated once: that it repeats itself is not looked at here."""
    monkeypatch.setattr("testbed.studies.labs.runs._check_repeatable", lambda *_: None)


each_lab = pytest.mark.parametrize("directory", lab_directories(), ids=lambda path: str(path.name))


def _commands(lab: LabDirectory) -> Iterator[list[str]]:
    """The commands in the listings of a handout."""
    text = (lab.path / HANDOUT).read_text(encoding="utf-8")
    for listing in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in listing.splitlines():
            if line.startswith("testbed "):
                yield shlex.split(line)[1:]


def _call(words: list[str]) -> int:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        command_line()(words, prog_name="testbed")
    return int(ended.value.code or 0)


@each_lab
def test_a_scenario_that_a_student_is_told_of_is_one_that_ships(directory: Path) -> None:
    texts = [(directory / file).read_text(encoding="utf-8") for file in (LAB_FILE, HANDOUT)]
    told = re.findall(r"(?:testbed simulate|the scenario)\s+([\w-]+)", "\n".join(texts))
    assert all(find_scenario(name).is_file() for name in told)


@pytest.mark.parametrize(
    ("lab", "words"),
    [
        *((1, ["PSN"]), (2, ["PSN"]), (3, ["goodput", "queue pair"]), (5, ["NACK"])),
        *((6, ["goodput"]), (9, ["SACK"]), (10, ["DCQCN", "SACK"])),
    ],
)
def test_words_are_explained_where_they_come_first(lab: int, words: list[str]) -> None:
    """In italics, with what they mean behind them."""
    text = (lab_directories()[lab - 1] / HANDOUT).read_text(encoding="utf-8")
    without_code = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    for word in words:
        first = re.search(rf"\*?\b{word}s?\b\*?", without_code)
        assert first is not None
        assert first[0] == f"*{word}*"


@each_lab
def test_it_names_the_glossary_that_a_student_gets(directory: Path, tmp_path: Path) -> None:
    assert "`glossary.md` in your directory" in (directory / HANDOUT).read_text(encoding="utf-8")
    work = start(load_lab(directory), tmp_path, "", None)
    glossary = (work.path / GLOSSARY.name).read_text(encoding="utf-8")
    assert "goodput" in glossary
    assert "](" not in glossary
    assert "belong to the testbed's documentation" in glossary


@each_lab
def test_it_names_no_document_that_a_student_lacks(directory: Path, tmp_path: Path) -> None:
    """Neither does the code that one begins with: a wheel has no other documents."""
    work = start(load_lab(directory), tmp_path, "", None)
    for file in (*work.path.glob("*.md"), *work.path.glob("*.py")):
        if file.name != GLOSSARY.name:
            text = file.read_text(encoding="utf-8")
            named = set(re.findall(r"[\w/.-]+\.md\b|(?:examples|testbed)/[\w/.-]+", text))
            assert [name for name in named if not (work.path / name).is_file()] == []


@pytest.mark.simulated
@pytest.mark.parametrize("lab", [9, 10])
def test_a_student_who_writes_code_is_told_where_print_shows(
    lab: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = start(load_lab(lab_directories()[lab - 1]), tmp_path, "", None)
    text = (work.path / HANDOUT).read_text(encoding="utf-8")
    advice = re.search(r"`print\(\)` shows nothing.*?`(testbed simulate [^`]*)`", text, re.DOTALL)
    assert advice is not None
    (code,) = work.path.glob("*.py")
    code.write_text(f"{code.read_text(encoding='utf-8')}\n\nprint('seen')\n", encoding="utf-8")
    monkeypatch.chdir(work.path)
    _call([*shlex.split(advice[1])[1:], "--no-figures"])
    assert "seen" in capsys.readouterr().out
    assert not (work.path / RESULTS).exists()  # where the lab's own runs are
    assert "`print()` shows nothing" in (work.path / "algorithms.md").read_text(encoding="utf-8")


def test_the_copy_of_algorithms_has_the_interface_that_the_lab_asks_for_and_errors(
    tmp_path: Path,
) -> None:
    work = start(load_lab(lab_directories()[8]), tmp_path, "", None)
    text = (work.path / "algorithms.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#.*", text, re.MULTILINE)
    assert headings == ["# Your own algorithms", "## Path selector", "## Errors"]
    assert "](" not in text
    assert "testbed simulate link-failure --sweep" not in text


@pytest.mark.simulated
@each_lab
def test_its_commands_work_in_order(
    directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lab = load_lab(directory)
    monkeypatch.chdir(tmp_path)
    key = student_key(b"the key of a course", "ada")
    assert _call(["lab", "start", str(directory), "--student", "ada", "--key", key]) == 0
    monkeypatch.chdir(tmp_path / directory.name)
    for words in _commands(lab):
        if words[:2] == ["lab", "run"]:
            _predict_the_others(lab)
            words.append("--no-figures")
        status = _call(words)
        said = capsys.readouterr()
        wrong_or_missing = words[:2] == ["lab", "check"] and "not yet: " in said.out
        missed = words[0] == "simulate" and "missed" in said.out  # an expectation, as it says
        assert status == 0 or (status == 1 and (wrong_or_missing or missed)), (words, said)
    assert _call(["lab", "submit"]) == 0
    assert "hand in: " in capsys.readouterr().out


def _predict_the_others(lab: LabDirectory) -> None:
    """Make the predictions that the handout only names."""
    work = find_work(Path.cwd())
    for task, text in solution_of(lab).predictions().items():
        if work.last("prediction", task=task) is None:
            predict(work, work.task(task), text, None)


@pytest.mark.simulated
def test_the_next_step_of_a_score_is_to_change_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _call(["lab", "start", "9"])
    monkeypatch.chdir(tmp_path / "09-path-selector")
    _call(["lab", "predict", "starter-deficit", "1 RTT"])
    _call(["lab", "run", "practice", "--no-figures"])
    assert "next: testbed lab check practice-deficit" in capsys.readouterr().out
    assert _call(["lab", "check"]) == 1
    assert "at most 0.3 RTT passes" in capsys.readouterr().out
    _call(["lab", "status"])
    said = " ".join(capsys.readouterr().out.split())
    assert "change selector.py, testbed lab run practice, then: testbed lab check" in said


def test_an_answer_is_explained_once_and_an_address_is_written_between_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _call(["lab", "start", "1"])
    monkeypatch.chdir(tmp_path / "01-the-map")
    answers = Path("answers.yaml")
    drawn = find_work(Path.cwd()).assignment.drawn
    fabric = load_topology(drawn["map"])
    right = fabric.planes * fabric.t1_per_plane
    text = answers.read_text(encoding="utf-8")
    text = text.replace("paths-across:\n", f"paths-across: {right}\n")
    answers.write_text(text.replace('carrier: ""', 'carrier: "5f00:0:1::"'), encoding="utf-8")
    capsys.readouterr()
    assert _call(["lab", "check"]) == 1
    assert "Planes times upper switches" in capsys.readouterr().out
    assert _call(["lab", "check"]) == 1
    again = capsys.readouterr().out
    assert "right: How many paths between two racks?" in again
    assert "Planes times upper switches" not in again
    assert _call(["lab", "check", "paths-across"]) == 0
    assert "Planes times upper switches" in capsys.readouterr().out
    assert _call(["lab", "check", "carrier"]) == 1
    assert "5f00:0:1:: is not it" in capsys.readouterr().out


@pytest.mark.simulated
def test_a_run_in_which_the_own_code_sends_nothing_says_why_it_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _call(["lab", "start", "10"])
    monkeypatch.chdir(tmp_path / "10-congestion-controller")
    code = Path("controller.py")
    lines = code.read_text(encoding="utf-8").replace("10 * path.mtu", "0")
    code.write_text(lines, encoding="utf-8")
    _call(["lab", "predict", "nscc-median", "2 RTT"])
    capsys.readouterr()
    assert _call(["lab", "run", "incast", "--no-figures"]) == 4
    said = capsys.readouterr().out
    assert "payload was still under way" in said
    assert "Change your code." in said
