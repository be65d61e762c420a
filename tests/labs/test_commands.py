"""The commands of a lab, with the mistakes that students make when they type them."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.results.code_version import code_version
from testbed.studies.labs.students import student_key
from testbed.studies.labs.work import Work, find_work
from tests.cli.conftest import Call, call

__all__ = ["call"]

IDENTITY = ("student", "key", "alone")
PREDICTED = ("detection", "exposure", "stall", "deficit")


@pytest.fixture
def at_work(work: Work, call: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line in the directory of lab 2, just started."""
    monkeypatch.chdir(work.path)
    return call


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("predict", "found nothing, expected one of detection, exposure, stall, deficit"),
        ("predict stll 1", "did you mean stall?"),
        ("predict failure", "failure is a run: testbed lab run failure"),
        ("predict awaited 3", "testbed lab check awaited"),
        ("predict stall 2", "add the unit: '2 RTT'"),
        ("predict stall -2", "add the unit: '-2 RTT'"),
        ("predict stall 2 RTT --witin 3", "the option --within"),
        ("predict stall 2 RTT --within much", "such as --within 20%"),
        ('predict stall "" --within 20%', "expected a number in RTT, such as '1.5 RTT'"),
        ('predict stall " " --within 20%', "expected a number in RTT, such as '1.5 RTT'"),
        ("predict stall 2 RTT --within 50 ms", "divide by the base RTT"),
        ("predict stall 2 RTT --within '-1 RTT'", "such as --within 20%"),
        ("predict stall --within much", "testbed lab predict stall VALUE --within much"),
        ("predict --within much", "testbed lab status shows what is next"),
        ("predict foo", "testbed lab status shows what is next"),
        ("check foo", "testbed lab status shows what is next"),
        ("hint foo", "testbed lab status shows what is next"),
        ("hint", "found nothing, expected one of substitute"),
        ("hint stall", "predictions are neither checked nor have hints"),
        ("check stall", "predictions are neither checked nor have hints"),
        ("check awaited stall", "predictions are neither checked nor have hints"),
        ("run", "testbed lab predict detection shows the question"),
        ("run stall", "stall is a task: testbed lab predict stall"),
        ("run awaited", "awaited is a task: testbed lab check awaited"),
        ("table", "testbed lab table failure"),
        ("table failure losses", "testbed lab run failure"),
        ("submit --into nowhere", "name a directory that exists"),
        ("table failure", "testbed lab run failure"),
        ("start 2", "cd .."),
        ("start", "found nothing, expected the number of a lab"),
    ],
)
def test_a_mistyped_command_says_what_to_type(at_work: Call, words: str, message: str) -> None:
    called = at_work("lab", *shlex.split(words))
    assert called.status == 2
    assert message in called.err
    assert called.err.count("error:") == 1
    assert called.out == ""


def test_a_negative_number_is_no_option(at_work: Call) -> None:
    for words in (("-2 RTT",), ("-2", "RTT"), ("-2", "RTT", "--within", "1 RTT")):
        called = at_work("lab", "predict", "stall", *words)
        assert called.status == 0, called.err
        assert "predicted" in called.out
        assert "-2 RTT" in called.out


@pytest.mark.parametrize(
    ("words", "within"),
    [
        ("3 RTT --within 0.5 RTT", "0.5 RTT"),
        ("--within 0.5 RTT 3 RTT", "0.5 RTT"),
        ("3RTT --within 0.5 RTT", "0.5 RTT"),
        ("3 RTT --within 20 %", "0.6 RTT"),
        ("3 RTT --within 0.5 rtt", "0.5 RTT"),
        ("3 RTT --within 0.5", "0.5 RTT"),
    ],
)
def test_a_tolerance_is_written_with_a_blank(at_work: Call, words: str, within: str) -> None:
    called = at_work("lab", "predict", "detection", *words.split())
    assert called.status == 0, called.err
    assert f"3 RTT, within {within}" in called.out


@pytest.mark.simulated
def test_a_student_who_mistypes_rows_and_answers(at_work: Call, work: Work) -> None:
    for task in PREDICTED:
        assert at_work("lab", "predict", task, "1 RTT").status == 0
    assert "it with --form emulated" in at_work("lab", "run", "--slower", "2").err
    assert at_work("lab", "run", "--no-figures").status == 0
    for words, message in {
        "transmissions psn=3": "did you mean seq?",
        "transmissions seq": "without blanks",
        "transmissions seq = 3": "without blanks",
        "transmissions seq==3": "a value such as 0",
        "transmissions seq=many": "a value such as 0",
        "transmissions path=p0_t1_1": "a value such as p",
        "losses spurious=no": "a value such as false",
        "transmissions --from 1 RTT": "--from 1.5s",
        "transmissions --from 2s --to 1s": "a time before that of --to",
    }.items():
        called = at_work("lab", "table", "failure", *words.split())
        assert called.status == 2, words
        assert message in called.err, (words, called.err)
    whole_losses = next(Path("results/failure").glob("2*/losses.parquet")).read_bytes()
    for words in ("losses flow=7", "losses spurious=true", "transmissions path=p7/t1_7"):
        called = at_work("lab", "table", "failure", *words.split())
        assert called.out.endswith("0 rows\n"), words
    latest = next(Path("results/failure").glob("2*"))
    for file, task in (
        ("summary.json", "explain"),
        ("losses.parquet", "awaited"),
        ("run.json", "awaited"),
    ):
        whole = (latest / file).read_bytes()
        for content in (b"x", b""):
            (latest / file).write_bytes(content)
            text = " ".join(first + second for first in "abcdefgh" for second in "stuvwxyz")
            work.answers.write_text(f"awaited: 3\nexplain: {text}\n")
            called = at_work("lab", "check", task)
            assert (called.status, called.err.count("error:")) == (2, 1), called.err
            assert "make it again: testbed lab run failure" in called.err
        (latest / file).write_bytes(whole)
    (latest / "losses.parquet").write_bytes(b"x")
    assert "make it again" in at_work("lab", "table", "failure", "losses").err
    (latest / "losses.parquet").write_bytes(whole_losses)
    for answer, announced in (
        ("p7/t1_7", "a hint has opened"),
        ("p7/t1_7", "shows your hints"),
        ("p7/t1_6", "a hint has opened"),
    ):
        work.answers.write_text(f"substitute: {answer}\n")
        assert announced in at_work("lab", "check", "substitute").out


def test_reset_works_without_a_journal(at_work: Call, work: Work) -> None:
    work.journal.path.unlink()
    assert "LAB --reset" in at_work("lab", "status").err
    called = at_work("lab", "start", "2", "--reset", "--into", "..")
    assert "your work so far: ../02-first-failure.old-1" in called.out
    assert "Begun without a name and a key" in called.out


def test_reset_keeps_name_and_key(work: Work, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a journal that is damaged behind its first entry; those that are given win."""
    parent, facts = work.path.parent, {key: work.start.content[key] for key in IDENTITY}
    work.journal.path.write_text(f"{work.journal.path.read_text()}damaged\n")
    monkeypatch.chdir(parent)
    assert call("lab", "start", "2", "--reset").status == 0
    again = Work(work.path).start.content
    assert facts == {key: again[key] for key in IDENTITY}
    bob = student_key(b"the key of a course", "bob")
    call("lab", "start", "2", "--reset", "--student", "bob", "--key", bob)
    other = Work(work.path).start.content
    assert (other["student"], other["key"]) == ("bob", bob)


def test_reset_of_somebody_who_works_alone(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call("lab", "start", "2")
    first = Work(tmp_path / "02-first-failure").start.content
    call("lab", "start", "2", "--reset")
    second = Work(tmp_path / "02-first-failure").start.content
    assert first == second
    assert (first["student"], first["alone"]) == ("", True)


def test_a_submission_says_what_grading_will_find(at_work: Call, work: Work) -> None:
    for number in (1, 2):
        work.journal.append("prediction", task="stall", value=number, text="", within=0.5)
    made = {"run": "failure", "directory": "results/x", "verdict": "trusted", "code": ""}
    work.journal.append("run", **made, version=code_version())
    called = at_work("lab", "submit")
    assert called.status == 0
    assert "make these runs again: failure" in called.out
    work.journal.append("run", **made, version="0" * 16, testbed="0.0.1")
    called = at_work("lab", "submit")
    said = " ".join(called.out.split())
    assert called.status == 1
    assert "cannot be graded as it is: the run failure was made with testbed 0.0.1, and" in said
    assert "hand in:" not in said


def test_work_on_other_questions_is_begun_again(at_work: Call, work: Work) -> None:
    """After an update that changed the lab: answers would be about other numbers."""
    text = work.journal.path.read_text()
    digest = work.start.content["questions"]
    work.journal.path.write_text(text.replace(str(digest), "0" * 16))
    refused = at_work("lab", "run", "failure")
    assert refused.status == 2
    assert "found one begun with testbed" in refused.err
    assert "testbed lab start LAB --reset" in refused.err
    called = at_work("lab", "submit")
    assert called.status == 1
    assert "cannot be graded as it is" in called.out


def test_a_lab_beside_others_takes_their_name_and_key(
    work: Work, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who forgets both would do the lab with numbers that nobody can grade."""
    monkeypatch.chdir(work.path.parent)
    assert "with the name and the key of 02-first-failure" in call("lab", "start", "5").out
    begun = Work(work.path.with_name("05-congestion")).start.content
    assert {key: begun[key] for key in IDENTITY} == {
        key: work.start.content[key] for key in IDENTITY
    }
    bob = student_key(b"the key of a course", "bob")
    assert call("lab", "start", "3", "--student", "bob", "--key", bob).status == 0
    called = call("lab", "start", "4")
    assert called.status == 2
    assert "05-congestion of ada" in called.err
    assert "03-one-path of bob" in called.err
    assert not Path("04-four-ways").exists()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ada", lambda key: key[:3] + ("0" if key[3] != "0" else "1") + key[4:], "mistyped"),
        ("ada", lambda key: key[1] + key[0] + key[2:], "mistyped"),
        ("adda", lambda key: key, "expected the key of --student adda"),
        ("ada", lambda key: key[:-1], "expected 16 hexadecimal digits"),
        ("x" * 100_000, lambda key: key, "100000 characters, expected a name of 1 to 100"),
        ("a\x1bb", lambda key: key, "printable characters"),
    ],
)
def test_a_mistyped_key_is_noticed_at_the_start(
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    change: Callable[[str], str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    key = student_key(b"the key of a course", "ada")
    assert key[0] != key[1]
    called = call("lab", "start", "2", "--student", name, "--key", change(key))
    assert called.status == 2
    assert message in called.err
    assert len(called.err) < 400
    assert not [*tmp_path.iterdir()]


def test_a_submission_is_made_with_code_that_cannot_run(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the deadline it has at least the points of the other tasks; it says what is wrong."""
    assert call("lab", "start", "9").status == 0
    monkeypatch.chdir(tmp_path / "09-path-selector")
    selector = Path("selector.py")
    for text, message in {
        "class Selector:\n  def pick(self)\n": "selector.py:2: found no Python",
        "class Other: pass\n": "rename that class to Selector",
    }.items():
        selector.write_text(text)
        assert _submitted(call).count(message) == 1
    selector.unlink()
    assert "found no such file, expected your code" in _submitted(call)


def _submitted(call: Call) -> str:
    """What is said to a submission that was made, in a single line."""
    Path("09-path-selector-alone.zip").unlink(missing_ok=True)
    called = call("lab", "submit")
    assert (called.status, called.err) == (1, "")
    assert "it was begun without a name and a key" in called.out
    assert Path("09-path-selector-alone.zip").is_file()
    return " ".join(called.out.split())


def test_a_first_hint_needs_a_wrong_answer(at_work: Call) -> None:
    assert "the first hint opens after a wrong answer" in at_work("lab", "hint", "awaited").out


def test_a_student_without_a_key_is_asked_for_it(call: Call) -> None:
    said = call("lab", "start", "2", "--student", "ada").err
    assert "found nothing, expected both --student and --key" in said
    assert "without a course leave them out" in said


def test_a_task_is_done_only_with_the_code_and_the_run_that_were_checked(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("lab", "start", "9")
    monkeypatch.chdir(tmp_path / "09-path-selector")
    work = find_work(Path.cwd())
    results = Path("results/x")
    results.mkdir(parents=True)
    (results / "summary.json").touch()

    def make_run() -> None:
        digest = find_work(Path.cwd()).assignment.code_digest("practice")
        said = {"directory": results.as_posix(), "verdict": "trusted", "code": digest}
        said["version"] = code_version()
        work.journal.append("run", run="practice", **said)

    def status() -> str:
        return " ".join(call("lab", "status").out.split())

    work.journal.append("prediction", task="starter-deficit", value=2, text="", within=0.5)
    make_run()
    work.journal.append("attempt", task="practice-deficit", answer="0.1 RTT", passed=True)
    assert "Leave the dead path 3 done" in status()
    assert "4 of 18 points so far" in status()
    selector = Path("selector.py")
    selector.write_text(f"{selector.read_text()}\n# worse\n")
    assert "Leave the dead path 3 run practice again" in status()
    assert "1 of 18 points so far next: testbed lab run practice" in status()
    make_run()
    assert "Leave the dead path 3 check again" in status()
    assert "next: testbed lab check practice-deficit" in status()
    work.journal.append("attempt", task="practice-deficit", answer="9 RTT", passed=False)
    assert "Leave the dead path 3 wrong, 1 wrong answer" in status()


def test_a_submission_needs_its_answers(at_work: Call, work: Work) -> None:
    work.answers.rename(work.path / "answers.yml")
    called = at_work("lab", "submit")
    assert (called.status, called.out) == (2, "")
    assert "rename answers.yml to answers.yaml" in called.err
    work.answers.write_text("awaited 3\n")
    called = at_work("lab", "submit")
    assert called.status == 0
    assert "No answer counts before" in called.out
    assert "write awaited: 3" in called.out
    assert [*Path().glob("*.zip")]


def test_a_lab_elsewhere_is_worked_on(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "testbed lab test own/12-my-lab" in call("lab", "new", "12-my-lab", "--into", "own").out
    assert "a lab elsewhere, its directory: DIR/NAME" in call("lab", "test", "12").err
    assert call("lab", "start", "own/12-my-lab").status == 0
    assert "testbed lab start own/12-my-lab --reset" in call("lab", "start", "own/12-my-lab").err
    monkeypatch.chdir("12-my-lab")
    assert call("lab", "status").status == 0
    monkeypatch.chdir(tmp_path)
    Path("own").rename("moved")
    monkeypatch.chdir("12-my-lab")
    said = call("lab", "status").err
    assert "own/12-my-lab/lab.yaml: found no such file, expected the lab of this work" in said
    assert "testbed lab start DIR/NAME --reset" in said


@pytest.mark.parametrize(
    "said",
    [{"lab": "../evil"}, {"lab_path": "../evil"}, {"lab_path": "/proc/self/cwd/../evil"}],
    ids=["name", "relative", "link"],
)
def test_work_that_somebody_else_has_made_executes_no_lab_beside_it(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, said: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("lab", "new", "12-my-lab", "--into", "own").status == 0
    assert call("lab", "start", "own/12-my-lab").status == 0
    Path("own/12-my-lab").rename("evil")
    Path("evil/figures.py").write_text("open('executed', 'w').close()\n")
    journal = Path("12-my-lab/.lab/journal.jsonl")
    entry = json.loads(journal.read_text())
    del entry["content"]["lab_path"]
    entry["content"] |= said
    journal.write_text(json.dumps(entry) + "\n")
    monkeypatch.chdir("12-my-lab")
    called = call("lab", "status")
    assert called.status == 2
    assert "journal.jsonl" in called.err
    assert not Path("executed").exists()
