"""A lab that was started, and the commands in its directory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.studies.labs.library import LABS, load_lab
from testbed.studies.labs.students import student_key
from testbed.studies.labs.work import Work, start

FIRST_FAILURE = LABS / "02-first-failure"

Commands = Callable[..., tuple[int, str]]


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Lab 2, just started."""
    return start(load_lab(FIRST_FAILURE), tmp_path, "ada", student_key(b"test of labs", "ada"))


@pytest.fixture
def predicted(work: Work) -> Work:
    """The same with all predictions."""
    for task in ("detection", "exposure", "stall", "deficit"):
        work.journal.append("prediction", task=task, value=1.0, text="1 RTT", within=0.5)
    return work
