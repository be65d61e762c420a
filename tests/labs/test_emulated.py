"""A lab's run with real packets is for looking: it counts neither at home nor in grading."""

from pathlib import Path

import pytest

from testbed.model.errors import InputError
from testbed.model.scenario import Scenario
from testbed.runs.job import How
from testbed.runs.making import make
from testbed.runs.result import Result
from testbed.studies.labs import runs
from testbed.studies.labs.grading.grade import grade
from testbed.studies.labs.grading.submission import notes, submit
from testbed.studies.labs.library import LABS, load_lab
from testbed.studies.labs.predicting import predict
from testbed.studies.labs.runs import MadeRun, emulate_run
from testbed.studies.labs.work import Work, start
from tests.judging import until_trusted


def _looked_at(work: Work, tmp_path: Path, made: MadeRun) -> None:
    """Check that a run of lab 2 counts nowhere."""
    assert made.directory.path.is_relative_to(work.path / "emulated")
    assert work.made_run("failure") is None
    assert work.evidence().runs == {}
    with pytest.raises(InputError, match="a prediction before the run failure"):
        predict(work, work.task("stall"), "2 RTT", None)
    assert any("also without --form emulated: failure" in note for note in notes(work))
    work.answers.write_text("awaited: 7\nwhy-longer: b\n")
    (tmp_path / "graded").mkdir()
    graded = grade(submit(work, tmp_path), LABS, None, tmp_path / "graded")
    assert not graded.error
    assert (graded.points, {task.status for task in graded.tasks}) == (0, {"lost"})
    assert all("the run failure was not made" in task.reason for task in graded.tasks)


@pytest.mark.simulated
def test_what_is_looked_at_counts_nowhere(
    predicted: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without root: what is emulated is a simulation here."""

    def emulated(scenario: Scenario, results: Path, how: How) -> Result:
        return make(scenario, "simulated", results, how=how)

    monkeypatch.setattr(runs, "_emulated", emulated)
    made = emulate_run(predicted, "failure", lambda *_: None, drawn=False)
    _looked_at(predicted, tmp_path, made)


@pytest.mark.root
@pytest.mark.e2e
@pytest.mark.alone
def test_a_run_with_real_packets_is_for_looking(predicted: Work, tmp_path: Path) -> None:
    made: list[MadeRun] = []

    def run_slowed(slower: int) -> dict[str, object]:
        made.append(emulate_run(predicted, "failure", lambda *_: None, drawn=False, slower=slower))
        summary = made[-1].summary
        return {"verdict": summary.verdict, "reasons": summary.reasons}

    until_trusted(run_slowed)
    assert not made[-1].summary.simulated
    assert made[-1].summary.integrity.intact
    _looked_at(predicted, tmp_path, made[-1])


def test_a_hidden_fault_is_not_looked_at(tmp_path: Path) -> None:
    """The files of a run with real packets have no copy without it."""
    work = start(load_lab(LABS / "07-which-link"), tmp_path, "", None)
    with pytest.raises(InputError, match="find it in the simulated run first"):
        emulate_run(work, "hidden", lambda *_: None, drawn=False)
