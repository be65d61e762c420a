"""A hidden fault stays hidden until it is found; work survives being killed."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from testbed.cli import command_line
from testbed.model.scenario import Scenario
from testbed.results.analysis.verdict import NOT_DELIVERED
from testbed.results.code_version import code_version
from testbed.results.run_directory import RunDirectory
from testbed.runs.result import Result
from testbed.studies.labs import runs
from testbed.studies.labs.authoring import solution_of, trial_key
from testbed.studies.labs.checking import check
from testbed.studies.labs.grading.grade import grade
from testbed.studies.labs.grading.submission import submit
from testbed.studies.labs.library import LABS, load_lab
from testbed.studies.labs.runs import unseal
from testbed.studies.labs.work import SEALED, STATE, Work, start
from tests.commands import completed
from tests.waiting import wait_until

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-m", "testbed", "lab"]
TELLTALES = {
    *("faults.jsonl", "summary.json", "manifest.json"),
    *("report.html", "junit.xml", "links.parquet"),
}


def _call(work: Work, *words: str) -> str:
    done = completed([*COMMAND, *words], cwd=work.path)
    return done.stdout + done.stderr


@pytest.fixture
def hidden(tmp_path: Path) -> Work:
    """Lab 7, just started."""
    return start(load_lab(LABS / "07-which-link"), tmp_path, "", trial_key(3))


@pytest.mark.simulated
def test_a_hidden_fault_is_nowhere_until_it_is_found(hidden: Work) -> None:
    work = hidden
    link = work.assignment.drawn["link"]
    said = [_call(work, "predict", "how-far", "path"), _call(work, "run")]
    said += [_call(work, *words) for words in (("status",), ("check",), ("table", "hidden"))]
    shown = [path for path in work.path.rglob("*") if STATE not in path.parts and path.is_file()]
    assert not [text for text in said if link in text or "dropped" in text]
    assert not {path.name for path in shown} & TELLTALES
    texts = [path for path in shown if path.suffix in {".md", ".yaml"}]
    assert not [path for path in texts if link in path.read_text()]
    assert not [path for path in work.path.rglob("*") if link in path.name]

    answers = solution_of(work.assignment.directory).answers(work.path)
    work.answers.write_text(yaml.safe_dump(answers))
    document, evidence = work.read_answers(), work.evidence()
    for task in work.assignment.directory.lab.questions:
        assert unseal(work) == []
        result = check(task, document, evidence)
        assert result.passed, result.reason
        work.journal.append("attempt", task=task.id, answer=result.answer, passed=True)
    (shown_now,) = unseal(work)
    assert {"faults.jsonl", "summary.json"} <= {path.name for path in shown_now.iterdir()}
    assert unseal(work) == []
    said_again = _call(work, "run", "hidden", "--no-figures")
    assert "verdict: trusted" in said_again
    assert "Traceback" not in said_again
    entry = work.made_run("hidden")
    assert entry is not None
    assert (shown_now / "manifest.json").read_bytes() == (
        work.path / str(entry.content["directory"]) / "manifest.json"
    ).read_bytes()
    graded = grade(submit(work, work.path.parent), LABS, None, _new(work.path.parent / "graded"))
    assert (graded.points, graded.remarks) == (graded.max_points, ())


def _new(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _run_made(work: Work, name: str, content: bytes) -> None:
    """Make a run without simulating it: with one table and what is to be hidden."""
    number = len([*work.entries("run", run=name)])
    directory = work.path / STATE / SEALED / name / str(number)
    directory.mkdir(parents=True)
    for file in ("losses.parquet", "summary.json", "run.json"):
        (directory / file).write_bytes(content)
    made = {"directory": directory.relative_to(work.path).as_posix(), "verdict": "trusted"}
    made["version"] = code_version()
    work.journal.append("run", run=name, code=work.assignment.code_digest(name), **made)


def test_what_a_crash_broke_off_is_shown_by_the_next_command(tmp_path: Path) -> None:
    """Before and after the fault was found, and for a run that was made again."""
    work = start(load_lab(LABS / "09-path-selector"), tmp_path, "", trial_key(1))
    shown, task = work.path / "results/hidden-dead/latest", "hidden-dead-deficit"
    _run_made(work, "hidden-dead", b"first")
    _call(work, "status")
    assert [path.name for path in shown.iterdir()] == ["losses.parquet"]
    work.journal.append("attempt", task=task, answer="0.1 RTT", passed=True)
    (shown.parent / ".latest.new").mkdir()
    (shown.parent / ".latest.new/part").touch()
    shown.rename(shown.parent / ".latest.old")  # the crash came between the two renames
    _call(work, "status")
    assert [path.name for path in shown.parent.iterdir()] == ["latest"]
    assert (shown / "run.json").read_bytes() == b"first"
    (work.path / "selector.py").write_text("# other code")
    work.journal.append("attempt", task=task, answer="3 RTT", passed=False)
    _run_made(work, "hidden-dead", b"second")
    _call(work, "status")
    assert (shown / "run.json").read_bytes() == b"second"
    assert unseal(work) == []


def test_a_hidden_run_that_does_not_count_says_why_and_not_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = start(load_lab(LABS / "09-path-selector"), tmp_path, "", trial_key(1))
    link = str(work.assignment.drawn["dead"])
    told = f"fault 0 (blackhole of {link}) never took effect"
    reasons = (NOT_DELIVERED, told, f"{link} carried 9% of its rate")
    summary = cast("Any", SimpleNamespace(verdict="invalid", reasons=reasons))

    def simulated(_: Work, run: Scenario, results: Path, *__: object) -> Result:
        directory = RunDirectory.create(results, run.name, 1, datetime.now(UTC))
        return Result.of(directory.path, summary)

    monkeypatch.setattr(runs, "_simulated", simulated)
    monkeypatch.chdir(work.path)
    with pytest.raises(SystemExit) as ended:
        command_line()(["lab", "run", "hidden-dead"], prog_name="testbed")
    said = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 4
    assert NOT_DELIVERED in said
    assert "Change your code." in said
    assert link not in said
    assert "fault 0" not in said


@pytest.mark.simulated
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_leaves_work_to_go_on_with(predicted: Work, number: int) -> None:
    with subprocess.Popen(
        [*COMMAND, "run", "--no-figures"],
        cwd=predicted.path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until(lambda: any(predicted.path.glob("results/failure/*/raw")))
        os.kill(process.pid, number)
        process.wait()
    assert predicted.counted_run("failure") is None
    assert "testbed lab run failure" in _call(predicted, "status")
    assert "right" in _call(predicted, "run", "--no-figures")
    assert predicted.counted_run("failure") is not None
