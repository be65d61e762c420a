"""The attempts at runs in the store: why each is made, and what a lost worker had finished."""

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from testbed.results.run_directory import TIME_FORMAT
from testbed.runs.cluster.attempts import attempts_at, begin, finish_lost
from testbed.runs.cluster.files import StoreFiles
from testbed.runs.cluster.worker import _record_of
from tests.runs.test_engine import _made as made
from tests.runs.test_engine import _runs as runs


@pytest.fixture(autouse=True)
def _home() -> Iterator[None]:
    """Back to this machine's time zone after each test."""
    yield
    time.tzset()


def test_an_attempt_says_whether_this_code_has_made_the_run_before(tmp_path: Path) -> None:
    """By whatever command."""
    job, files = runs("emulated")[0].job, StoreFiles(str(tmp_path))
    first = begin(job, files, [], "one/1", "a")
    assert first.reason == "first"
    finished = first.model_copy(update={"ended": first.began + 1, "verdict": "degraded"})
    assert begin(job, files, [finished], "two/1", "b").reason == "not trusted"
    of_other_code = finished.model_copy(update={"code": "another"})
    assert begin(job, files, [of_other_code], "two/2", "b").reason == "first"


def test_what_a_lost_worker_had_finished_is_found_from_another_time_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run directories are named by the time of the machine that makes them."""
    planned, files = runs("emulated")[0], StoreFiles(str(tmp_path))
    _go_to("UTC+12", monkeypatch)
    begin(planned.job, files, [], "one/1", "a")
    place = tmp_path / made(planned, tmp_path, 0, "trusted")
    run = place.rename(place.with_name(f"{datetime.now().astimezone():{TIME_FORMAT}}-1"))
    _go_to("UTC-12", monkeypatch)
    attempt = finish_lost(planned.job, files, attempts_at(planned.job, files), "one/1")
    assert attempt is not None
    assert attempt.run == str(run.relative_to(tmp_path))


def test_no_time_went_with_workers_that_were_lost_after_a_run_had_begun(tmp_path: Path) -> None:
    """An earlier command had begun it, and its worker finished it meanwhile."""
    lost = begin(runs("simulated")[0].job, StoreFiles(str(tmp_path)), [], "two/1", "b")
    made_before = lost.model_copy(update={"began": lost.began - 60, "ended": lost.began + 1})
    record = _record_of(made_before, [lost])
    assert (record.lost, record.lost_s) == (1, 0.0)


def _go_to(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
