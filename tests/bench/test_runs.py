"""Parts of the bench make runs of scenarios by the engine, each until it can be trusted."""

import json
from concurrent.futures import Future
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from testbed.model.errors import MachineError
from testbed.model.files.scenarios import load_scenario
from testbed.model.run_files.layout import SUMMARY
from testbed.results.analyse import analyse
from testbed.results.code_version import code_version
from testbed.results.run_directory import RunDirectory
from testbed.runs.job import Form, Job, JobRecord
from testbed.studies.bench.measure import Setting
from testbed.studies.bench.runs import TRIES, make_runs, seeded
from tests.results.synthetic import Plan, generate

pytestmark = pytest.mark.programs


class Executor:
    """Makes up runs; a list says which of them, in turn, can be trusted."""

    def __init__(self, directory: Path, trusted: list[bool]) -> None:
        self.directory, self.trusted, self.jobs = directory, trusted, list[Job]()

    def slots(self, _form: Form) -> int:
        return 1

    def submit(self, job: Job) -> Future[JobRecord]:
        started = datetime.now().astimezone() + timedelta(seconds=len(self.jobs))
        self.jobs.append(job)
        place = self.directory / job.folder / f"{started:%Y%m%dT%H%M%S}-{job.seed}"
        future = Future[JobRecord]()
        if not self.trusted:
            future.set_result(JobRecord(3, 0.0, message="no kernel"))
            return future
        generate(place, Plan(duration=1.0, failures=()))
        verdict = "trusted" if self.trusted.pop(0) else "degraded"
        summary = analyse(place, drawn=False).model_copy(update={"verdict": verdict})
        RunDirectory(place).write(SUMMARY, summary.model_dump_json())
        manifest = json.loads((place / "manifest.json").read_text())
        manifest |= {"scenario": job.scenario, "code": code_version()}
        (place / "manifest.json").write_text(json.dumps(manifest))
        future.set_result(JobRecord(0, 0.0, str(place.relative_to(self.directory))))
        return future

    def stop(self) -> None:
        """Nothing is under way."""


def _make(
    trusted: list[bool], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[tuple[bool, int]], list[int], list[str]]:
    """Two runs: whether they can be trusted and their attempts, the seeds in turn, progress."""
    executor = Executor(directory, trusted)
    monkeypatch.setattr("testbed.runs.many.LocalExecutor", lambda _: executor)
    reports: list[str] = []
    setting = Setting(2, directory, reports.append)
    made = make_runs(seeded(load_scenario("link-failure"), setting), setting)
    outcomes = [(run.trusted, run.attempts) for run in made]
    return outcomes, [job.seed for job in executor.jobs], reports


def test_a_run_is_made_until_it_can_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, seeds, reports = _make([False, True, True], tmp_path, monkeypatch)
    assert made == [(True, 2), (True, 1)]
    assert seeds == [1, 2, 1]
    begun = [report.partition(" (")[0] for report in reports]  # a run of a second reports again
    assert list(dict.fromkeys(begun)) == [
        "emulated run 1/2",
        "emulated run 2/2",
        "emulated run 1/1",
    ]
    made, seeds, _ = _make([True, *[False] * TRIES], tmp_path / "new", monkeypatch)
    assert made == [(True, 1), (False, TRIES)]


def test_runs_of_an_earlier_bench_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make([True, True], tmp_path, monkeypatch)
    for run in tmp_path.glob("bench-*/2*"):
        run.rename(run.with_name(f"20200101T000000{run.name[-2:]}"))
    made, _, _ = _make([False, False, True, True], tmp_path, monkeypatch)
    assert made == [(True, 2), (True, 2)]


def test_a_run_that_is_not_finished_ends_the_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MachineError, match="no kernel"):
        _make([], tmp_path, monkeypatch)
