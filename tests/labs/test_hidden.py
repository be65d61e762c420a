"""A hidden fault stays hidden until it is found; work survives being killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from testbed.labs.authoring import solution_of, trial_key
from testbed.labs.checking import check
from testbed.labs.library import LABS, load_lab
from testbed.labs.runs import unseal
from testbed.labs.work import STATE, Work, start
from tests.waiting import wait_until

COMMAND = [sys.executable, "-m", "testbed", "lab"]
TELLTALES = {
    *("faults.jsonl", "summary.json", "manifest.json"),
    *("report.html", "junit.xml", "links.parquet"),
}


def _call(work: Work, *words: str) -> str:
    done = subprocess.run(
        [*COMMAND, *words], cwd=work.path, capture_output=True, text=True, check=False
    )
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
