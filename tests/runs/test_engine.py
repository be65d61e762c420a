"""Runs are made one by one; a failure is reported, and the run made again if that may help."""

import json
import os
import platform
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from testbed import interpreter
from testbed.model.errors import ExitStatus
from testbed.model.files.catalog import SCENARIOS
from testbed.model.files.reading import Document
from testbed.model.files.scenarios import load_recorded, load_scenario, scenario_of
from testbed.model.run_files.layout import MANIFEST, SUMMARY
from testbed.model.summary import State
from testbed.results.analyse import analyse
from testbed.results.code_version import code_version
from testbed.results.run_directory import RunDirectory, locked
from testbed.runs import process
from testbed.runs.job import SLOWED, UNDRAWN, Form, Job, JobKey, JobRecord, PlannedRun, planned_run
from testbed.runs.many import RetryPolicy, SeriesPolicy, estimate_s, many
from testbed.runs.process import LocalExecutor
from testbed.runs.store import Store
from tests.results.synthetic import Plan, generate
from tests.waiting import WATCHDOG_S, wait_until

NAMES = ("lossy-ev", "t1-down")


def _runs(form: Form) -> list[PlannedRun]:
    scenarios = [load_scenario(str(SCENARIOS / "paper" / f"{name}.yaml")) for name in NAMES]
    return [planned_run(scenario, form, f"{form}/{scenario.name}") for scenario in scenarios]


class ReplayingExecutor:
    """Makes no run: its jobs end as a function says."""

    def __init__(self, *records: JobRecord, then: JobRecord) -> None:
        self.jobs: list[Job] = []
        self.stopped = False
        self._records, self._then = list(records), then

    def slots(self, _form: Form) -> int:
        return 1

    def submit(self, job: Job) -> Future[JobRecord]:
        self.jobs.append(job)
        future = Future[JobRecord]()
        future.set_result(self._records.pop(0) if self._records else self._then)
        return future

    def stop(self) -> None:
        self.stopped = True


FAILED = JobRecord(ExitStatus.FAILED, 0.0, message="no luck")
LATE = JobRecord(ExitStatus.UNTRUSTED, 0.0, message="too late")


def _execute(
    runs: Sequence[PlannedRun],
    directory: Path,
    executor: ReplayingExecutor,
    policy: RetryPolicy | None = None,
) -> tuple[dict[JobKey, str], list[str]]:
    """Execute runs; returns the failures and the progress."""
    reports: list[tuple[str, float]] = []
    store = Store(directory)
    failures = many(
        runs,
        store,
        pool=executor,
        retry=policy or RetryPolicy(),
        progress=lambda *report: reports.append(report),
    )
    assert all(0 <= share <= 1 for _, share in reports)
    said = {key: record.failure for key, record in failures.items()}
    return said, [text for text, _ in reports]


def _made(
    planned: PlannedRun, directory: Path, number: int, state: State, code: str | None = None
) -> str:
    """Make up a run, at the next second; returns its directory relative to the campaign's."""
    place = directory / planned.job.folder / f"20260101T00000{number}-1"
    generate(place, Plan(duration=1.0, failures=()))
    summary = analyse(place, drawn=False).model_copy(update={"verdict": state})
    RunDirectory(place).write(SUMMARY, summary.model_dump_json())
    manifest = json.loads((place / "manifest.json").read_text())
    manifest |= {"scenario": planned.job.scenario, "code": code or code_version()}
    (place / "manifest.json").write_text(json.dumps(manifest))
    return str(place.relative_to(directory))


@pytest.mark.parametrize(
    ("form", "status", "times"),
    [
        ("emulated", ExitStatus.FAILED, len(SLOWED)),
        ("emulated", ExitStatus.MACHINE_CANNOT, 1),
        ("simulated", ExitStatus.FAILED, 1),
    ],
)
def test_a_run_that_fails_is_reported_and_does_not_end_the_others(
    form: Form, status: ExitStatus, times: int, tmp_path: Path
) -> None:
    runs = _runs(form)
    executor = ReplayingExecutor(then=JobRecord(status, 0.0, message="no luck"))
    failures, _ = _execute(runs, tmp_path, executor)
    keys = [job.key for job in executor.jobs]
    for planned in runs:
        assert failures[planned.job.key] == f"exit status {int(status)}: no luck"
        assert keys.count(planned.job.key) == times


@pytest.mark.parametrize(
    ("states", "times", "best"),
    [
        (("degraded", "trusted", "trusted"), 2, 1),
        (("invalid", "degraded", "invalid"), 3, 1),
        (("trusted",), 1, 0),
    ],
)
def test_a_series_on_a_cluster_repeats_what_cannot_be_trusted_twice_at_most(
    states: tuple[State, ...], times: int, best: int, tmp_path: Path
) -> None:
    """At the same dilation, also when it is continued; the best attempt counts."""
    planned, store, policy = _runs("emulated")[0], Store(tmp_path), SeriesPolicy()

    class MakingExecutor(ReplayingExecutor):
        def submit(self, job: Job) -> Future[JobRecord]:
            number = len(self.jobs)
            record = JobRecord(0, 0.0, _made(planned, tmp_path, number, states[number]))
            self._records.append(record)
            return super().submit(job)

    executor = MakingExecutor(then=FAILED)
    many([planned], store, pool=executor, retry=policy)
    assert [job.scenario for job in executor.jobs] == [planned.job.scenario] * times
    record = store.record(planned)
    assert record is not None
    assert record.run is not None
    assert record.run.endswith(f"0{best}-1")
    assert not policy.may_improve(planned, None, store)
    assert not policy.may_improve(planned, FAILED, store)


def test_workers_that_come_later_are_used(tmp_path: Path) -> None:
    """There is one when the first run is begun. It ends when the second is under way as well."""
    under_way: list[Future[JobRecord]] = []

    class GrowingExecutor(ReplayingExecutor):
        def slots(self, _form: Form) -> int:
            return 1 + len(under_way)

        def submit(self, _job: Job) -> Future[JobRecord]:
            under_way.append(Future())
            if len(under_way) == 2:
                for future in under_way:
                    future.set_result(FAILED)
            return under_way[-1]

    reports = iter(range(10))

    def progress(*_: object) -> None:
        assert next(reports, None) is not None, "the second run is never begun"

    executor = GrowingExecutor(then=FAILED)
    many(_runs("simulated"), Store(tmp_path), pool=executor, progress=progress)
    assert len(under_way) == 2


def test_what_cannot_be_trusted_is_made_again_in_the_time_left_the_worst_first(
    tmp_path: Path,
) -> None:
    """One is there, which is degraded; the other one fails."""
    degraded, missing = runs = _runs("emulated")
    record = JobRecord(0, 0.0, _made(degraded, tmp_path, 0, "degraded"))
    executor = ReplayingExecutor(record, then=FAILED)
    _execute(runs, tmp_path, executor, RetryPolicy(missing.expected_s(max(SLOWED)) + 5))
    keys = [job.key for job in executor.jobs]
    again = [missing.job.key] * (len(SLOWED) - 1)
    assert keys == [degraded.job.key, missing.job.key, *again]
    slowest = scenario_of(Document(None, dict(executor.jobs[-1].scenario)))
    assert slowest.topology.dilation == max(SLOWED) * missing.scenario.topology.dilation
    assert slowest.duration == max(SLOWED) * missing.scenario.duration


@pytest.mark.parametrize(
    ("minutes", "stopped_if_late"),
    [(600.0, [True] * (len(SLOWED) - 1) + [False]), (0.0, [False])],
    ids=["time for all", "no time"],
)
def test_a_run_is_ended_when_late_if_it_can_be_made_again(
    minutes: float, stopped_if_late: list[bool], tmp_path: Path
) -> None:
    runs = _runs("emulated")[:1]
    executor = ReplayingExecutor(then=LATE)
    failures, _ = _execute(runs, tmp_path, executor, RetryPolicy(60 * minutes))
    assert [job.how.stop_if_late for job in executor.jobs] == stopped_if_late
    assert failures[runs[0].job.key].endswith("too late")


class NoTime(RetryPolicy):
    """Promises that there is time for another attempt, but then there is none."""

    def choose(self, *_: object) -> list[PlannedRun]:
        """Choose none."""
        return []


def test_a_run_that_was_ended_early_is_made_to_its_end_though_time_has_run_out(
    tmp_path: Path,
) -> None:
    executor = ReplayingExecutor(then=LATE)
    _, reports = _execute(_runs("emulated")[:1], tmp_path, executor, NoTime())
    assert [job.how.stop_if_late for job in executor.jobs] == [True, False]
    assert "emulated, to the end, run 1/1" in reports[-1]


def test_progress_says_how_many_were_ended_early(tmp_path: Path) -> None:
    _, reports = _execute(_runs("emulated"), tmp_path, ReplayingExecutor(then=LATE))
    assert any("2/2" in text and "1 ended early, too late" in text for text in reports)


def test_progress_counts_the_runs_that_are_done_trusted_and_failed(tmp_path: Path) -> None:
    made, fails, last = [
        *_runs("simulated"),
        planned_run(_runs("simulated")[0].scenario, "simulated", "last"),
    ]
    executor = ReplayingExecutor(
        JobRecord(0, 0.0, _made(made, tmp_path, 0, "trusted")), then=FAILED
    )
    _, reports = _execute([made, fails, last], tmp_path, executor)
    assert any("2/3" in text and "; 1 done, 1 trusted)" in text for text in reports)
    assert any("3/3" in text and "; 2 done, 1 trusted, 1 failed)" in text for text in reports)


def test_runs_that_were_slowed_down_count_and_the_best_is_taken(tmp_path: Path) -> None:
    planned, store = _runs("emulated")[0], Store(tmp_path)
    states: dict[float, State] = {1.0: "degraded", 2.0: "trusted", 3.0: "trusted"}
    for number, (factor, state) in enumerate(states.items()):
        _made(planned.slowed(factor), tmp_path, number, state)
    assert [run.directory.name[-3] for run in store.attempts(planned)] == ["0", "1"]
    best = store.best(planned)
    assert best is not None
    assert best.directory.name == "20260101T000001-1"


def test_runs_of_other_code_or_another_form_or_seed_do_not_count(tmp_path: Path) -> None:
    planned, store = _runs("emulated")[0], Store(tmp_path)
    _made(planned, tmp_path, 0, "trusted", code="other")
    assert store.best(planned) is None
    _made(planned, tmp_path, 1, "trusted")
    assert store.best(planned) is not None
    folder = planned.job.folder
    seeded = planned.scenario.model_copy(update={"seed": 2})
    assert store.best(planned_run(seeded, "emulated", folder)) is None
    assert store.best(planned_run(planned.scenario, "simulated", folder)) is None


def test_runs_that_were_started_before_a_time_do_not_count(tmp_path: Path) -> None:
    """Whatever their names say, which are in the time of another machine."""
    planned = _runs("emulated")[0]
    manifest = tmp_path / _made(planned, tmp_path, 1, "trusted") / MANIFEST
    started = datetime.now().astimezone()
    os.utime(manifest, (started.timestamp(), started.timestamp()))
    assert Store(tmp_path, started).best(planned) is not None
    assert Store(tmp_path, started + timedelta(seconds=1)).best(planned) is None


def test_a_finished_run_is_read_once_and_only_if_it_may_count(tmp_path: Path) -> None:
    """A campaign looks for each of its many runs often."""
    planned, store = _runs("emulated")[0], Store(tmp_path)
    counts = tmp_path / _made(planned, tmp_path, 0, "trusted")
    other = tmp_path / _made(planned, tmp_path, 1, "trusted", code="other")
    (other / SUMMARY).write_text("whatever it was")
    assert [run.directory for run in store.attempts(planned)] == [counts]
    for run in (counts, other):
        (run / "manifest.json").unlink()
    assert [run.directory for run in store.attempts(planned)] == [counts]


def test_every_scenario_is_recognised_when_it_has_been_run() -> None:
    """What its file says is, to the last digit, what is looked for."""
    for file in {*SCENARIOS.rglob("*.yaml")} - {*SCENARIOS.rglob("studies/*")}:
        planned = planned_run(load_scenario(str(file)), "emulated", "x").slowed(SLOWED[1])
        data = json.loads(json.dumps(planned.job.scenario))
        loaded = scenario_of(Document(None, data))
        assert planned_run(loaded, "emulated", "x").job.scenario == data, file


def test_each_run_is_made_once_though_there_is_no_time(tmp_path: Path) -> None:
    runs, executor = _runs("emulated"), ReplayingExecutor(then=FAILED)
    _execute(runs, tmp_path, executor, RetryPolicy(0))
    assert [job.key for job in executor.jobs] == [run.job.key for run in runs]


def test_the_estimate_is_that_of_all_runs(tmp_path: Path) -> None:
    runs = _runs("emulated")
    estimate = estimate_s(runs, LocalExecutor(tmp_path))
    assert estimate["emulated"] == sum(run.expected_s() for run in runs)
    assert estimate["emulated"] > sum(run.scenario.duration / 1e9 for run in runs)
    assert estimate["simulated"] == 0


def test_an_interruption_ends_what_is_under_way_and_removes_what_is_not_finished(
    tmp_path: Path,
) -> None:
    (planned, _), executor = _runs("emulated"), ReplayingExecutor(then=FAILED)
    finished = _made(planned, tmp_path, 0, "trusted")
    unfinished = _made(planned, tmp_path, 1, "trusted")
    reports = iter(["start"])

    def interrupt(*_: object) -> None:
        if next(reports, None) is None:
            (tmp_path / unfinished / SUMMARY).unlink()
            raise KeyboardInterrupt

    ended: list[JobRecord] = []
    with pytest.raises(KeyboardInterrupt):
        many(
            [planned],
            Store(tmp_path),
            pool=executor,
            progress=interrupt,
            on_end=lambda _, record: ended.append(record),
        )
    assert executor.stopped
    assert [record.run for record in ended] == [finished]
    assert not (tmp_path / unfinished).exists()


@pytest.mark.parametrize(
    ("host", "age_s", "stays"),
    [("elsewhere", 10, True), ("elsewhere", 100_000, False), (platform.node(), 10, False)],
)
def test_what_a_worker_elsewhere_may_be_making_is_not_removed(
    tmp_path: Path, host: str, age_s: int, *, stays: bool
) -> None:
    """Its lock is not seen here. On this machine the lock tells; in the end the time limit does."""
    planned = _runs("emulated")[0]
    unfinished = tmp_path / _made(planned, tmp_path, 1, "trusted")
    (unfinished / SUMMARY).unlink()
    manifest = json.loads((unfinished / MANIFEST).read_text())
    (unfinished / MANIFEST).write_text(json.dumps(manifest | {"host": host}))
    then = time.time() - age_s
    os.utime(unfinished, (then, then))
    Store(tmp_path).clean([planned])
    assert unfinished.exists() == stays


def test_what_a_lost_repeat_left_is_removed_when_the_campaign_goes_on(tmp_path: Path) -> None:
    """The run is there, cannot be trusted, and may be made again."""
    planned = _runs("emulated")[0]
    degraded, lost = (_made(planned, tmp_path, number, "degraded") for number in (1, 2))
    (tmp_path / lost / SUMMARY).unlink()
    many([], Store(tmp_path), pool=ReplayingExecutor(then=FAILED), again=[planned])
    assert (tmp_path / degraded).exists()
    assert not (tmp_path / lost).exists()


def _program(code: str) -> tuple[str, ...]:
    """A stand-in for `testbed`."""
    return (sys.executable, "-c", code)


def test_as_many_simulations_are_made_at_a_time_as_there_are_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a large machine: none ends before all have begun."""
    count = 40
    all_have_begun = threading.Barrier(count)
    monkeypatch.setattr(process, "simulations_at_once", lambda: count)
    monkeypatch.setattr(LocalExecutor, "run", lambda *_: all_have_begun.wait(WATCHDOG_S))
    executor, job = LocalExecutor(tmp_path), _runs("simulated")[0].job
    assert executor.slots("simulated") == count
    begun = [executor.submit(job) for _ in range(count)]
    assert len({made.result() for made in begun}) == count


def test_a_job_is_made_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = _runs("simulated")[0]
    run = tmp_path / planned.job.folder / "20260101T000000-1"
    code = (
        "import json, sys; request = json.loads(sys.stdin.readline()); "
        f"print(json.dumps({{'status': 0, 'run': {str(run)!r}}})); "
        "print(json.dumps([sys.argv[1:], request]), file=sys.stderr)"
    )
    monkeypatch.setattr(interpreter, "TESTBED", _program(code))
    record = LocalExecutor(tmp_path).submit(planned.job).result()
    assert (record.status, record.run) == (0, str(run.relative_to(tmp_path)))
    file = tmp_path / planned.job.file
    assert load_recorded(file) == planned.scenario
    command, request = json.loads((tmp_path / planned.job.log).read_text())
    assert command == ["simulate", "--job"]
    assert request == {
        "scenario": planned.job.scenario,
        "results": str(tmp_path / "simulated"),
        "folder": "lossy-ev",
        "how": {**asdict(UNDRAWN), "pcap": []},
    }


def test_a_job_is_made_by_the_testbed_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is in the current directory."""
    (tmp_path / "testbed").mkdir()
    (tmp_path / "testbed/__init__.py").write_text("raise SystemExit('another testbed')")
    monkeypatch.chdir(tmp_path)
    scenario = {"name": "none", "seed": 1}
    record = LocalExecutor(tmp_path).submit(Job("x", "simulated", scenario, "x/x", 60.0)).result()
    assert record.status == ExitStatus.WRONG_INPUT
    assert "another testbed" not in record.message


def test_a_job_that_fails_or_hangs_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _runs("emulated")[0].job
    monkeypatch.setattr(interpreter, "TESTBED", _program("import sys; sys.exit('no luck')"))
    record = LocalExecutor(tmp_path).submit(job).result()
    assert record.failure == "exit status 1: no luck"
    monkeypatch.setattr(interpreter, "TESTBED", _program("import time; time.sleep(1000)"))
    hanging = Job("x", "emulated", job.scenario, "emulated/x", timeout_s=0.2)
    record = LocalExecutor(tmp_path).submit(hanging).result()
    assert record.failure == "exit status 1: not done after 0 s"


def test_emulations_take_turns_and_what_is_stopped_while_it_waits_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is no part of the time that a run may take."""
    job = replace(_runs("emulated")[0].job, timeout_s=WATCHDOG_S)
    code = f"open({str(tmp_path / 'begun')!r}, 'w')"
    monkeypatch.setattr(interpreter, "TESTBED", _program(code))
    (tmp_path / "next").mkdir()
    monkeypatch.setattr(process, "QUEUE_LOCK", tmp_path / "next")
    monkeypatch.setattr(process, "EMULATION_LOCK", tmp_path)
    log = tmp_path / job.log
    stopped, waiting = LocalExecutor(tmp_path), LocalExecutor(tmp_path)
    with locked(tmp_path):
        future = stopped.submit(job)
        wait_until(lambda: log.is_file() and "another campaign emulates" in log.read_text())
        stopped.stop()
        assert future.result(WATCHDOG_S).failure == "exit status 143: stopped before it began"
        future = waiting.submit(job)
        wait_until(lambda: "another campaign emulates" in log.read_text())
        assert not (tmp_path / "begun").exists()
    assert future.result(WATCHDOG_S).status == 0
    assert (tmp_path / "begun").exists()
