"""Limits of CPU time are those of one machine, whichever machine grades."""

import sys

import pytest

from testbed.studies.labs.grading import course, limits
from testbed.studies.labs.grading.course import Course, grade_all
from testbed.studies.labs.grading.submission import submit
from testbed.studies.labs.runs import make_run
from testbed.studies.labs.work import Work
from tests.commands import completed

LIMITED = """
import resource
from testbed.studies.labs.grading.limits import limit_this_process
limit_this_process(15.0)
print(resource.getrlimit(resource.RLIMIT_CPU)[0])
"""


def test_a_machine_15_times_slower_has_15_times_the_cpu_time() -> None:
    done = completed([sys.executable, "-c", LIMITED], check=True)
    assert int(done.stdout) == 15 * limits.CPU_S


def test_a_faster_machine_keeps_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu_s, expected in ((limits.REFERENCE_S / 3, 1.0), (limits.REFERENCE_S * 15, 15.0)):
        monkeypatch.setattr(limits, "_work", lambda cpu_s=cpu_s: cpu_s)
        limits.slowness.cache_clear()
        assert limits.slowness() == pytest.approx(expected)
    limits.slowness.cache_clear()


def test_other_work_of_the_machine_does_not_make_it_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([limits.REFERENCE_S * 9, limits.REFERENCE_S, *[limits.REFERENCE_S * 5] * 9])
    monkeypatch.setattr(limits, "_work", lambda: next(times))
    limits.slowness.cache_clear()
    assert limits.slowness() == 1
    limits.slowness.cache_clear()


def test_grading_tells_its_processes_how_slow_the_machine_is(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too little for any submission, so that it shows."""
    archive = submit(work, work.path.parent)
    monkeypatch.setattr(course, "slowness", lambda: 1e-3)
    (graded,) = grade_all([archive], Course(None), lambda *_: None)
    assert "took longer than" in graded.error or "grading ended" in graded.error


@pytest.mark.simulated
def test_memory_is_enough_on_a_machine_of_many_cpus(
    predicted: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default Polars starts a thread for each CPU, and malloc has arenas for each."""
    make_run(predicted, "failure", lambda *_: None, drawn=False)
    archive = submit(predicted, predicted.path.parent)
    monkeypatch.setenv("POLARS_MAX_THREADS", "64")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "512")
    (graded,) = grade_all([archive], Course(None), lambda *_: None)
    assert not graded.error
