"""A lab's run with real packets: it counts, its answers are checked and graded by its records."""

import json
import zipfile
from pathlib import Path

import pytest

from testbed.labs.authoring import solution_of
from testbed.labs.grading.grade import grade
from testbed.labs.grading.submission import submit
from testbed.labs.library import LABS
from testbed.labs.runs import MadeRun, make_run
from testbed.labs.work import SEALED, STATE, Work
from tests.judging import until_trusted

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.alone]


def _made(work: Work) -> MadeRun:
    """The run of lab 2, emulated, as slowly as the machine needs to be in time for it."""
    made: list[MadeRun] = []

    def run_slowed(slower: int) -> dict[str, object]:
        made.append(make_run(work, "failure", lambda *_: None, drawn=False, slower=slower))
        summary = made[-1].summary
        return {"verdict": summary.verdict, "reasons": summary.reasons}

    until_trusted(run_slowed)
    return made[-1]


def test_an_emulated_run_is_checked_and_graded_by_its_own_records(
    predicted: Work, tmp_path: Path
) -> None:
    work = predicted
    made = _made(work)
    assert not made.summary.simulated
    assert made.summary.integrity.intact
    assert [path.name for path in (work.path / "results").iterdir()] == ["failure"]
    assert not (work.path / STATE / SEALED).exists()
    answers = solution_of(work.assignment.directory).answers(work.path)
    work.answers.write_text(json.dumps(answers))  # which is YAML
    archive = submit(work, tmp_path)
    (tmp_path / "graded").mkdir()
    graded = grade(archive, LABS, None, tmp_path / "graded")
    assert not graded.error
    assert [task.reason for task in graded.tasks if task.status == "lost"] == []
    assert any("was emulated" in remark for remark in graded.remarks)

    with zipfile.ZipFile(archive) as content:
        files = {name: content.read(name) for name in content.namelist()}
    manifest = json.loads(files["runs/failure/manifest.json"])
    manifest["scenario"]["timeline"][0]["target"] = ["p0_t0_0--p0_t1_0", "p1_t0_0--p1_t1_0"]
    files["runs/failure/manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(archive, "w") as changed:
        for name, data in files.items():
            changed.writestr(name, data)
    (tmp_path / "again").mkdir()
    again = grade(archive, LABS, None, tmp_path / "again")
    assert not any("was emulated" in remark for remark in again.remarks)
    assert any("not what its seed gives" in remark for remark in again.remarks)
