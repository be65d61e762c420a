"""The attempts at runs in the store: why each is made, and what a lost worker had finished."""

import time
from datetime import datetime
from pathlib import Path

import pytest

from testbed.campaign.cluster.attempts import begin, finish_lost
from testbed.campaign.cluster.files import StoreFiles
from testbed.results.run_directory import TIME_FORMAT
from tests.campaign.test_engine import _made as made
from tests.campaign.test_engine import _runs as runs


def test_an_attempt_says_whether_this_code_has_made_the_run_before(tmp_path: Path) -> None:
    """By whatever command."""
    job, files = runs("emulated")[0].job, StoreFiles(str(tmp_path))
    first = begin(job, files, [], "one/1", "a")
    assert first.reason == "first"
    finished = first.model_copy(update={"ended": first.began + 1, "verdict": "degraded"})
    assert begin(job, files, [finished], "two/1", "b").reason == "not trusted"
    of_other_code = finished.model_copy(update={"code": "another"})
    assert begin(job, files, [of_other_code], "two/2", "b").reason == "first"
