"""What a submission says of its runs."""

from pathlib import Path

import pytest

from testbed.labs.authoring import trial_key
from testbed.labs.grading.handed_in import HandedIn
from testbed.labs.grading.submission import submit, unpack
from testbed.labs.library import LABS, load_lab
from testbed.labs.work import Work, start


@pytest.fixture
def own(tmp_path: Path) -> Work:
    """Lab 9, whose runs have code of the student's, with a run that counts."""
    work = start(load_lab(LABS / "09-path-selector"), tmp_path, "ada", trial_key(1))
    code = work.assignment.code_digest("practice")
    work.journal.append(
        "run", run="practice", directory="results/practice/1", verdict="trusted", code=code
    )
    return work


def _handed_in(work: Work, directory: Path) -> HandedIn:
    submission = unpack(submit(work, directory), directory / "submission")
    return HandedIn(submission, work.assignment)


def test_code_that_made_the_run_is_the_same(own: Work, tmp_path: Path) -> None:
    assert _handed_in(own, tmp_path).changed_code("practice") == ""


def test_code_that_was_changed_after_the_run_is_named(own: Work, tmp_path: Path) -> None:
    selector = own.path / "selector.py"
    selector.write_text(selector.read_text() + "\n# changed\n")
    assert _handed_in(own, tmp_path).changed_code("practice") == "selector.py"


def test_a_later_try_that_does_not_count_says_nothing(own: Work, tmp_path: Path) -> None:
    """The records that are handed in are of the last run that can be trusted."""
    later = {"directory": "results/practice/2", "verdict": "invalid", "emulated": 1.0}
    own.journal.append("run", run="practice", code="0", **later)
    handed_in = _handed_in(own, tmp_path)
    assert handed_in.changed_code("practice") == ""
    assert not handed_in.claims_emulation("practice")
