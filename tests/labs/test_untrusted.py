"""An emulated run that cannot be trusted costs nothing in grading, if its records are handed in."""

import json
from pathlib import Path

import pytest

from testbed.labs import runs
from testbed.labs.grading.grade import grade
from testbed.labs.grading.grades import Grade
from testbed.labs.grading.submission import submit
from testbed.labs.library import LABS
from testbed.labs.runs import make_run
from testbed.labs.work import Work
from testbed.model.scenario import Scenario
from testbed.results.run_directory import RunDirectory
from testbed.sim import simulate

from .prepared import changed

pytestmark = pytest.mark.simulated


@pytest.fixture
def archive(predicted: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A submission whose run was only made with real packets, on a machine that was too slow."""

    def emulate(scenario: Scenario, results: Path, _slower: float) -> RunDirectory:
        """A simulation that says that it was none, and in which no fault took effect."""
        directory = RunDirectory(results / scenario.name / "1")
        directory.path.mkdir(parents=True)
        simulate(scenario, directory.path)
        manifest = directory.path / "manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "simulated": False}))
        (directory.path / "faults.jsonl").write_bytes(b"")
        return directory

    monkeypatch.setattr(runs, "emulate", emulate)
    made = make_run(predicted, "failure", lambda *_: None, drawn=False, slower=1.0)
    assert made.summary.verdict != "trusted"
    predicted.answers.write_text("awaited: 7\n")
    return submit(predicted, tmp_path)


def _graded(archive: Path, scratch: Path) -> tuple[Grade, dict[str, tuple[str, int]]]:
    scratch.mkdir()
    graded = grade(archive, LABS, None, scratch)
    assert not graded.error
    return graded, {task.task: (task.status, task.points) for task in graded.tasks}


def test_what_is_answered_keeps_its_points(archive: Path, tmp_path: Path) -> None:
    graded, tasks = _graded(archive, tmp_path / "graded")
    assert any("was emulated" in remark for remark in graded.remarks)
    assert tasks["awaited"] == ("unknown", 2)
    assert tasks["explain"] == ("lost", 0)  # no answer


def test_a_journal_alone_wins_nothing(archive: Path, tmp_path: Path) -> None:
    def without_records(files: dict[str, bytes]) -> None:
        for name in [name for name in files if name.startswith("runs/")]:
            del files[name]

    forged = changed(archive, tmp_path, "forged", without_records)
    _, tasks = _graded(forged, tmp_path / "graded")
    assert tasks["awaited"] == ("lost", 0)
