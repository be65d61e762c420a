"""Simulated runs on real Dask clusters: the same results, and nothing lost whatever is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from distributed import Client, Event, LocalCluster, Security
from distributed.comm import CommClosedError
from distributed.utils import get_ip

import testbed
from testbed.emulation.experiment.capacity import load_capacity
from testbed.emulation.experiment.machine import cpu_model
from testbed.model.errors import SIGNALLED, ExitStatus, MachineError
from testbed.model.files.scenarios import load_scenario
from testbed.results.code_version import code_version, package_version
from testbed.results.run_directory import locked
from testbed.runs.attempt import Attempt
from testbed.runs.cluster import calls, slurm, start
from testbed.runs.cluster.attempts import MOST_LOSSES, begin, write
from testbed.runs.cluster.executor import ClusterExecutor
from testbed.runs.cluster.files import StoreFiles
from testbed.runs.cluster.place import Place
from testbed.runs.cluster.start import cluster_executor, worker_pool
from testbed.runs.cluster.worker import _record, make
from testbed.runs.job import Form, Job, JobRecord, as_recorded, planned_run
from testbed.runs.many import many
from testbed.runs.process import LocalExecutor
from testbed.runs.store import Store
from testbed.runs.turns import EMULATION_LOCK
from testbed.studies.labs.grading.records import differing_tables
from tests.runs.programs import program, scheduler, worker_options
from tests.runs.test_engine import _made as finished_run
from tests.waiting import WATCHDOG_S, wait_until

if TYPE_CHECKING:
    from concurrent.futures import Future

    from distributed import Future as Task

pytestmark = [pytest.mark.simulated, pytest.mark.long]

TINY = """\
name: tiny
topology: clos-tiny
duration: 300 ms
workload: {pairs: [[h0, h1]], message_size: 16 KiB}
"""
TESTBED = Path(sys.executable).with_name("testbed")
TWO_HOSTS = Path(__file__).with_name("two_hosts.sh")
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is refused
SLURM = Path(__file__).with_name("slurm.sh")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path


def _command(seeds: int, into: str, *options: str) -> list[str]:
    series = ("--repeat", str(seeds), "--into", into, "--no-figures", *options)
    return [str(TESTBED), "simulate", "tiny.yaml", *series]


def _job(directory: Path, folder: str = "tiny/tiny") -> Job:
    """A simulated run."""
    scenario = as_recorded(load_scenario(str(directory / "tiny.yaml")))
    return Job("tiny", "simulated", scenario, folder, WATCHDOG_S)


def _call(directory: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=WATCHDOG_S, check=False
    )


def _runs(directory: Path) -> dict[int, Path]:
    """The finished runs of a series by their seed."""
    done = json.loads((directory / "sweep.json").read_text())["done"]
    assert all(run["error"] is None for run in done), done
    return {run["seed"]: directory / run["run"] for run in done}


def _assert_equal(some: Path, others: Path) -> None:
    """Bit for bit."""
    ours, theirs = _runs(some), _runs(others)
    assert ours.keys() == theirs.keys()
    for seed, run in ours.items():
        assert differing_tables(run, theirs[seed]) == []


def _attempts(directory: Path) -> list[int]:
    """How often each job was begun by a worker."""
    folders = sorted((directory / "scenarios").glob("*.attempts"))
    return [len([*folder.glob("*.json")]) for folder in folders]


def _attempts_in(folder: Path) -> list[Attempt]:
    """The attempts at a job, in their order."""
    return [Attempt.model_validate_json(file.read_text()) for file in sorted(folder.glob("*.json"))]


def test_a_local_cluster_makes_the_same_runs(directory: Path) -> None:
    plain = _call(directory, _command(2, "plain"))
    assert plain.returncode == ExitStatus.AS_EXPECTED, plain.stderr
    cluster = _call(directory, _command(2, "cluster", "--on", "local"))
    assert cluster.returncode == ExitStatus.AS_EXPECTED, cluster.stderr
    _assert_equal(directory / "plain", directory / "cluster")
    assert _attempts(directory / "cluster") == [1, 1]
    again = _call(directory, _command(3, "cluster", "--on", "local"))
    assert again.returncode == ExitStatus.WRONG_INPUT  # another plan


def test_a_run_that_is_made_again_is_made_by_another_worker(directory: Path) -> None:
    """As far as there are others: the third time any worker may make it."""
    scenario = load_scenario(str(directory / "tiny.yaml"))
    job = Job("tiny", "simulated", as_recorded(scenario), "tiny/tiny", WATCHDOG_S)
    with cluster_executor(Place("local"), directory, {"simulated": "tiny"}, workers=2) as executor:
        for _ in range(3):
            assert executor.submit(job).result(WATCHDOG_S).status == ExitStatus.AS_EXPECTED
    (folder,) = (directory / "tiny/scenarios").glob("*.attempts")
    attempts = _attempts_in(folder)
    assert [attempt.reason for attempt in attempts] == ["first", "not trusted", "not trusted"]
    assert all(attempt.verdict == "trusted" for attempt in attempts)
    assert len({attempt.run for attempt in attempts}) == len(attempts)
    first, second, third = (attempt.worker for attempt in attempts)
    assert first != second
    assert third in {first, second}
    for worker in (first, second):
        known = json.loads((directory / f"workers/{worker}.json").read_text())
        assert known["code"] == code_version()
        assert known["kernel"].startswith("Linux")


def test_a_run_that_a_later_command_makes_again_is_made_by_another_worker(directory: Path) -> None:
    scenario = load_scenario(str(directory / "tiny.yaml"))
    job = Job("tiny", "simulated", as_recorded(scenario), "tiny/tiny", WATCHDOG_S)
    with scheduler() as (_, address), ExitStack() as workers:
        for _ in range(2):
            workers.enter_context(program(*worker_options(address)))
        place = Place("dask", address)
        for _ in range(2):
            with cluster_executor(place, directory, {"simulated": "tiny"}) as executor:
                wait_until(lambda: len([w for w in executor.workers if w.answered]) == 2)
                assert executor.submit(job).result(WATCHDOG_S).status == ExitStatus.AS_EXPECTED
    first, second = _attempts_in(directory / "tiny/scenarios/tiny-seed-1.attempts")
    assert first.worker != second.worker
    assert (first.reason, second.reason) == ("first", "not trusted")


@pytest.mark.root
@pytest.mark.e2e
def test_an_emulated_run_that_cannot_be_trusted_is_repeated_by_another_worker(
    directory: Path,
) -> None:
    """Twice at most, at the same dilation: one that no machine carries. All attempts are kept."""
    too_fast = TINY.replace("300 ms", "2 s").replace("16 KiB", "256 KiB")
    (directory / "tiny.yaml").write_text(too_fast)
    options = ("--resources", "emulation=1")
    series = ("--repeat", "1", "--into", "here", "--no-figures", "--force")
    setting = ("--set", "topology.dilation=100")
    with scheduler() as (_, address), ExitStack() as workers:
        for _ in range(2):
            workers.enter_context(program(*worker_options(address), *options))
        place = ("--on", f"dask:{address}")
        command = [str(TESTBED), "run", "tiny.yaml", *series, *setting, *place]
        _wait_for_workers(address, 2)
        done = _call(directory, command)
    assert done.returncode == ExitStatus.UNTRUSTED, done.stderr
    attempts = _every_attempt(directory / "here")
    attempts.sort(key=lambda attempt: attempt.began)
    assert [attempt.reason for attempt in attempts] == ["first", "not trusted", "not trusted"]
    assert all(attempt.verdict == "invalid" for attempt in attempts)
    assert attempts[0].worker != attempts[1].worker
    runs = {attempt.run for attempt in attempts}
    assert len(runs) == len(attempts)
    assert all((directory / "here" / str(run) / "summary.json").is_file() for run in runs)


def test_a_call_that_comes_after_the_end_of_its_campaign_begins_nothing(directory: Path) -> None:
    """It was on its way when Ctrl-C ended the command, which does not wait for it."""
    options: dict[str, Any] = {"processes": False, "dashboard_address": None}
    with LocalCluster(n_workers=1, **options) as cluster, Client(cluster) as client:
        Event("ended", client=client).set()
        sent = client.submit(make, asdict(_job(directory)), str(directory / "store"), "ended/1")
        record = JobRecord(**sent.result(WATCHDOG_S))
    assert record.status == SIGNALLED + signal.SIGTERM
    assert record.failure
    assert not (directory / "store").exists()


def test_a_worker_that_is_killed_loses_no_run(directory: Path) -> None:
    command = _command(4, "here")
    with scheduler() as (_, address), ExitStack() as workers:
        first = workers.enter_context(program(*worker_options(address)))
        series = subprocess.Popen(
            [*command, "--on", f"dask:{address}"],
            cwd=directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until(lambda: _stopped_in_mid_run(first, directory / "here"))
        first.send_signal(signal.SIGKILL)
        workers.enter_context(program(*worker_options(address)))
        _, err = series.communicate(timeout=WATCHDOG_S)
        assert series.returncode == ExitStatus.AS_EXPECTED, err
    assert sorted(_runs(directory / "here")) == [1, 2, 3, 4]
    assert max(_attempts(directory / "here")) > 1
    reasons = {attempt.reason: attempt.ended for attempt in _every_attempt(directory / "here")}
    assert reasons["worker lost"] is not None


def test_a_run_that_a_machine_cannot_make_is_made_by_another(directory: Path) -> None:
    """It fails when none can, with the reasons of all."""
    wanted: dict[Form, str] = {"simulated": "tiny"}
    store = f"file://{directory}/store"
    with scheduler() as (_, address), ExitStack() as workers:
        for name in ("one", "other"):
            temporary = {"TMPDIR": str(directory / name)}
            (directory / name).mkdir()
            options = (*worker_options(address, 1), "--local-directory", str(directory / "dask"))
            workers.enter_context(program(*options, environment=temporary))
        _wait_for_workers(address, 2)
        with Client(address) as client:
            client.run(tempfile.gettempdir)  # each keeps it from now on
        with cluster_executor(Place("dask", address), directory, wanted, store=store) as executor:
            (directory / "one").rmdir()
            sent = [executor.submit(_job(directory, f"tiny/{number}")) for number in range(4)]
            records = [each.result(WATCHDOG_S) for each in sent]
            assert all(record.status == ExitStatus.AS_EXPECTED for record in records), records
            (directory / "other").rmdir()
            failed = executor.submit(_job(directory, "tiny/failed")).result(WATCHDOG_S)
    assert failed.status == ExitStatus.MACHINE_CANNOT
    assert f"{directory}/one" in failed.message
    assert f"{directory}/other" in failed.message
    attempts = _every_attempt(directory / "store/tiny")
    assert {"first", "machine cannot"} == {attempt.reason for attempt in attempts}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_whose_workers_are_lost_one_after_another_is_given_up(
    directory: Path, workers: int
) -> None:
    """After as many attempts, whether Dask gives it to another worker or the command does."""
    scenario = load_scenario(str(directory / "tiny.yaml"), settings={"duration": "60 s"})
    job = Job("tiny", "simulated", as_recorded(scenario), "tiny/tiny", WATCHDOG_S)
    folder = directory / "tiny/scenarios/tiny-seed-1.attempts"
    wanted: dict[Form, str] = {"simulated": "tiny"}
    with cluster_executor(Place("local"), directory, wanted, workers=workers) as executor:
        made = executor.submit(job)
        for number in range(1, MOST_LOSSES + 1):
            wait_until(partial(_has_begun, folder, number, made))
            assert not made.done(), made.exception()
            os.kill(_attempts_in(folder)[-1].pid, signal.SIGKILL)
        record = made.result(WATCHDOG_S)
    assert record.must_not_repeat
    assert record.lost == MOST_LOSSES
    assert "the worker that made it was lost, 4 times" in record.failure
    attempts = _attempts_in(folder)
    assert [attempt.reason for attempt in attempts] == ["first", *["worker lost"] * 3]
    assert all(attempt.ended is None for attempt in attempts)


def test_a_run_that_was_finished_before_its_worker_was_lost_is_not_made_again(
    directory: Path,
) -> None:
    """Though the worker had not noted its end yet."""
    scenario = load_scenario(str(directory / "tiny.yaml"))
    job = Job("tiny", "simulated", as_recorded(scenario), "tiny/tiny", WATCHDOG_S)
    files, executor = StoreFiles(str(directory)), LocalExecutor(directory)
    before = executor.submit(job).result(WATCHDOG_S)
    known = begin(job, files, [], "earlier/1", "one")
    write(job, files, known.model_copy(update={"ended": known.began, "run": before.run}))
    begin(job, files, [known], "campaign/1", "two")
    finished = executor.submit(job).result(WATCHDOG_S)
    executor.stop()
    record = _record(job, str(directory), "campaign/1", "three", [str(before.run)])
    assert (record.status, record.run) == (ExitStatus.AS_EXPECTED, finished.run)
    (attempt,) = (each for each in _every_attempt(directory / "tiny") if each.worker != "one")
    assert (attempt.worker, attempt.run, attempt.verdict) == ("two", finished.run, "trusted")
    assert attempt.ended is not None


def test_a_run_that_a_worker_finishes_for_a_command_that_was_killed_is_not_made_again(
    directory: Path,
) -> None:
    """The worker goes on, and the same command is given again at once."""
    with scheduler() as (_, address), program(*worker_options(address, 1)):
        _wait_for_workers(address)
        command = _command(1, "here", "--on", f"dask:{address}")
        killed = subprocess.Popen(
            command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(lambda: _under_way_in(directory / "here"))
        (made,) = _under_way_in(directory / "here")
        os.kill(made, signal.SIGSTOP)  # it ends when the next command has sent its call
        with Client(address) as client:
            before = _tasks_of(client)
        killed.kill()
        killed.wait(WATCHDOG_S)
        again = subprocess.Popen(
            command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        with Client(address) as client:
            wait_until(lambda: _tasks_of(client) - before)
        os.kill(made, signal.SIGCONT)
        _, err = again.communicate(timeout=WATCHDOG_S)
    assert again.returncode == ExitStatus.AS_EXPECTED, err
    assert _attempts(directory / "here") == [1]
    assert len(_runs(directory / "here")) == 1


def _under_way_in(series: Path) -> list[int]:
    """The processes that make runs of a series: each writes a log there."""
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if any(file.startswith(f"{series}/") for file in _files_of_job(process))
    ]


def _files_of_job(process: Path) -> list[str]:
    try:
        is_job = b"--job" in (process / "cmdline").read_bytes().split(b"\0")
        return [str(file.readlink()) for file in process.glob("fd/*")] if is_job else []
    except OSError:
        return []  # it has ended


def _tasks_of(client: Client) -> set[str]:
    """The tasks that the scheduler of a client knows."""
    return {*client.run_on_scheduler(lambda dask_scheduler: [*dask_scheduler.tasks])}


@pytest.mark.root
def test_an_emulated_run_that_was_made_while_it_waited_for_its_turn_is_not_made_again(
    directory: Path,
) -> None:
    """By a worker that an earlier command has left on this machine."""
    job = replace(_job(directory), form="emulated")
    files, log = StoreFiles(str(directory)), directory / job.log
    with (
        scheduler() as (_, address),
        program(*worker_options(address)),
        Client(address) as client,
    ):
        with locked(EMULATION_LOCK):
            made = client.submit(make, asdict(job), str(directory), "campaign/call")
            wait_until(lambda: log.is_file() and "another campaign emulates" in log.read_text())
            earlier = begin(job, files, [], "earlier/call", "other")
            scenario = load_scenario(str(directory / "tiny.yaml"))
            planned = planned_run(scenario, "emulated", "tiny/tiny")
            run = finished_run(planned, directory, 0, "trusted")
            end = {"ended": earlier.began + 1, "status": 0, "run": run, "verdict": "trusted"}
            write(job, files, earlier.model_copy(update=end))
        fields = made.result(WATCHDOG_S)
    assert (fields["status"], fields["run"]) == (ExitStatus.AS_EXPECTED, run)


def _has_begun(attempts: Path, number: int, made: "Future[JobRecord]") -> bool:
    return len([*attempts.glob("*.json")]) == number or made.done()


def test_a_campaign_ends_when_no_worker_is_left(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the run and the reason, and no run waits for ever."""
    scenario = load_scenario(str(directory / "tiny.yaml"), settings={"duration": "60 s"})
    runs = [planned_run(scenario, "simulated", f"tiny/{name}") for name in ("one", "two", "three")]
    with scheduler() as (_, address), program(*worker_options(address)) as worker:
        place = Place("dask", address)
        with cluster_executor(place, directory, {"simulated": "tiny"}) as executor:
            monkeypatch.setattr(calls, "PATIENCE_S", 1.0)
            store = Store(directory)
            with pytest.raises(MachineError, match=r"(one|two): the cluster has no worker"):
                many(runs, store, pool=executor, progress=lambda *_: worker.kill())


def test_ctrl_c_ends_the_runs_on_the_workers_and_keeps_the_finished_ones(directory: Path) -> None:
    command = _command(8, "here")
    with scheduler() as (_, address), program(*worker_options(address)) as worker:
        series = subprocess.Popen(
            [*command, "--on", f"dask:{address}"],
            cwd=directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        index = directory / "here/sweep.json"
        wait_until(lambda: index.is_file() and json.loads(index.read_text())["done"])
        series.send_signal(signal.SIGINT)
        _, err = series.communicate(timeout=WATCHDOG_S)
        assert series.returncode == SIGNALLED + signal.SIGINT, err
        assert "interrupted by SIGINT; the same command with --into" in err
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children]
        assert not [line for line in commands if b"simulate" in line]
        finished = _runs(directory / "here")
        assert finished
        attempts = _every_attempt(directory / "here")
        assert all(attempt.ended is not None for attempt in attempts)
        resumed = _call(directory, [*command, "--on", f"dask:{address}"])
        assert resumed.returncode == ExitStatus.AS_EXPECTED, resumed.stderr
    runs = _runs(directory / "here")
    assert sorted(runs) == [*range(1, 9)]
    assert runs.items() >= finished.items()


def test_ctrl_c_at_a_terminal_reaches_no_worker_of_a_local_cluster(directory: Path) -> None:
    """The terminal sends it to the command and all that it has started; the runs end in order."""
    series = subprocess.Popen(
        _command(8, "here", "--on", "local"),
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    index = directory / "here/sweep.json"
    wait_until(lambda: index.is_file() and json.loads(index.read_text())["done"])
    os.killpg(series.pid, signal.SIGINT)
    _, err = series.communicate(timeout=WATCHDOG_S)
    assert series.returncode == SIGNALLED + signal.SIGINT, err
    assert _runs(directory / "here")
    attempts = _every_attempt(directory / "here")
    assert all(attempt.ended is not None for attempt in attempts)
    assert len(attempts) < 8


def test_a_worker_that_waits_for_its_turn_to_emulate_is_stopped(directory: Path) -> None:
    """At once, and it does not begin its run when its turn comes."""
    scenario = load_scenario(str(directory / "tiny.yaml"))
    job = Job("tiny", "emulated", as_recorded(scenario), "tiny/tiny", WATCHDOG_S)
    log = directory / job.log
    with (
        scheduler() as (_, address),
        program(*worker_options(address)),
        Client(address) as client,
        locked(EMULATION_LOCK),
    ):
        made = client.submit(make, asdict(job), str(directory), "campaign/call")
        wait_until(lambda: log.is_file() and "another campaign emulates" in log.read_text())
        Event("campaign", client=client).set()
        fields = made.result(WATCHDOG_S)
    assert fields["message"] == "stopped before it began"
    assert fields["run"] is None
    (attempt,) = _attempts_in(directory / "tiny/scenarios/tiny-seed-1.attempts")
    assert attempt.ended is not None


def test_a_pool_that_is_left_ends_the_processes_of_its_calls(directory: Path) -> None:
    """As with Ctrl-C while submissions are graded. The worker goes on."""
    with scheduler() as (_, address), program(*worker_options(address)) as worker:
        place, began = Place("dask", address), directory / "begun"
        with worker_pool(place, "grading", directory) as pool:
            pool.submit(
                subprocess.run, ["sh", "-c", f"echo $$ > {directory}/begun; exec sleep 1000"]
            )
            wait_until(lambda: began.is_file() and began.read_text().strip())
            pid = began.read_text().strip()
            assert Path(f"/proc/{pid}").exists()
        assert not Path(f"/proc/{pid}").exists()
        assert worker.poll() is None


def _every_attempt(series: Path) -> list[Attempt]:
    folders = (series / "scenarios").glob("*.attempts")
    return [attempt for folder in folders for attempt in _attempts_in(folder)]


def _stopped_in_mid_run(worker: subprocess.Popen[str], series: Path) -> bool:
    """Stop a worker; whether it has begun a run that is not finished. If not, it goes on."""
    worker.send_signal(signal.SIGSTOP)
    finished = len([*series.glob("tiny/*/summary.json")])
    if sum(_attempts(series)) > finished:
        return True
    worker.send_signal(signal.SIGCONT)
    return False


def test_a_scheduler_that_is_killed_costs_no_finished_run(directory: Path) -> None:
    with scheduler() as (killed, address), program(*worker_options(address)):
        series = subprocess.Popen(
            _command(8, "here", "--on", f"dask:{address}"),
            cwd=directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        index = directory / "here/sweep.json"
        wait_until(lambda: index.is_file() and json.loads(index.read_text())["done"])
        killed.send_signal(signal.SIGKILL)
        _, err = series.communicate(timeout=WATCHDOG_S)
        assert series.returncode == ExitStatus.MACHINE_CANNOT, err
        assert "the scheduler of the cluster is gone" in err
        assert "remedy: the same command with --into here makes the remaining runs" in err
    finished = _runs(directory / "here")
    assert finished
    resumed = _call(directory, _command(8, "here", "--on", "local"))
    assert resumed.returncode == ExitStatus.AS_EXPECTED, resumed.stderr
    runs = _runs(directory / "here")
    assert sorted(runs) == [*range(1, 9)]
    assert runs.items() >= finished.items()


def test_a_scheduler_that_is_started_again_takes_the_same_command(directory: Path) -> None:
    """On the same port, with a worker: it makes the runs that are missing."""
    with scheduler() as (_, address), program(*worker_options(address)):
        command = _command(4, "here", "--on", f"dask:{address}")
        series = subprocess.Popen(
            command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        index = directory / "here/sweep.json"
        wait_until(lambda: index.is_file() and json.loads(index.read_text())["done"])
    assert series.wait(WATCHDOG_S) == ExitStatus.MACHINE_CANNOT
    finished = _runs(directory / "here")
    port = urlsplit(address).port or 0
    with scheduler(port) as (_, again), program(*worker_options(again)):
        assert again == address
        resumed = _call(directory, command)
    assert resumed.returncode == ExitStatus.AS_EXPECTED, resumed.stderr
    runs = _runs(directory / "here")
    assert sorted(runs) == [1, 2, 3, 4]
    assert runs.items() >= finished.items()


def _another_version(tmp_path: Path, file: str) -> dict[str, str]:
    """The environment of a worker with another version of a file of the testbed."""
    other = tmp_path / "other"
    shutil.copytree(Path(testbed.__file__).parent, other / "testbed")
    with (other / "testbed" / file).open("a") as changed:
        changed.write("\n# changed\n")
    return {"PYTHONPATH": str(other)}


def test_a_scheduler_that_dies_while_a_result_is_fetched_fails_no_run() -> None:
    """The run is not known to have failed: the command ends, and resumes later."""

    def fetch() -> None:
        raise CommClosedError("Stream is closed")

    value, error = calls._outcome(SimpleNamespace(status="finished", result=fetch))
    assert value is None
    assert isinstance(error, MachineError)
    assert str(error) == "the scheduler of the cluster is gone\n  remedy: give the command again"


def test_a_result_that_is_lost_with_its_worker_is_fetched_from_another(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler lives. What was finished is not made again."""
    job = _job(directory)
    deliver = calls.WorkerCalls._deliver
    with scheduler() as (_, address), ExitStack() as workers:
        first = workers.enter_context(program(*worker_options(address)))

        def late(each: calls.WorkerCalls, task: "Task") -> None:
            if first.poll() is None:
                first.kill()
                wait_until(lambda: task.status == "lost")
                workers.enter_context(program(*worker_options(address)))
            deliver(each, task)

        monkeypatch.setattr(calls.WorkerCalls, "_deliver", late)
        place = Place("dask", address)
        with cluster_executor(place, directory, {"simulated": "tiny"}) as executor:
            record = executor.submit(job).result(WATCHDOG_S)
    assert record.status == ExitStatus.AS_EXPECTED, record.failure
    assert _attempts(directory / "tiny") == [1]


def test_no_result_waits_until_the_run_of_another_is_copied(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be lost if its worker died meanwhile."""
    copied, copy = threading.Event(), ClusterExecutor._fetched

    def slowly(executor: ClusterExecutor, job: Job, record: JobRecord) -> JobRecord:
        if job.folder == "tiny/one":
            copied.wait(WATCHDOG_S)
        return copy(executor, job, record)

    monkeypatch.setattr(ClusterExecutor, "_fetched", slowly)
    wanted: dict[Form, str] = {"simulated": "tiny"}
    store = f"file://{directory}/store"
    with cluster_executor(Place("local"), directory, wanted, store=store) as executor:
        one = executor.submit(_job(directory, "tiny/one"))
        folder = directory / "store/tiny/scenarios/one-seed-1.attempts"
        wait_until(lambda: [each for each in _attempts_in(folder) if each.ended is not None])
        other = executor.submit(_job(directory, "tiny/other"))
        assert other.result(WATCHDOG_S).status == ExitStatus.AS_EXPECTED
        assert not one.done()
        copied.set()
        assert one.result(WATCHDOG_S).status == ExitStatus.AS_EXPECTED


@pytest.mark.parametrize("file", ["mrc/constants.py", "bench/parts.py"])
def test_a_worker_with_another_version_makes_no_run(directory: Path, file: str) -> None:
    """Whatever part of the testbed it is: a worker is sent calls of all of them."""
    environment = _another_version(directory, file)
    with (
        scheduler() as (_, address),
        program(*worker_options(address), environment=environment),
    ):
        refused = _call(directory, _command(1, "here", "--on", f"dask:{address}"))
    assert refused.returncode == ExitStatus.MACHINE_CANNOT
    assert "tiny, seed 1: dask:tcp" in refused.stderr
    assert "no worker can make simulated runs" in refused.stderr
    assert "another version of the testbed" in refused.stderr


def test_a_worker_that_comes_later_is_asked_as_well(directory: Path) -> None:
    """One with another version makes no run, at whatever address it comes."""
    scenario = load_scenario(str(directory / "tiny.yaml"))
    job = Job("tiny", "simulated", as_recorded(scenario), "tiny/tiny", WATCHDOG_S)
    environment = _another_version(directory, "cli/run.py")
    with scheduler() as (_, address), ExitStack() as workers:
        workers.enter_context(program(*worker_options(address)))
        place = Place("dask", address)
        with cluster_executor(place, directory, {"simulated": "tiny"}) as executor:
            (first,) = executor.workers
            workers.enter_context(program(*worker_options(address, 4), environment=environment))
            wait_until(lambda: len([w for w in executor.workers if w.answered]) == 2)
            (late,) = [w for w in executor.workers if w.address != first.address]
            assert "another version of the testbed" in late.reason("simulated")
            assert executor.slots("simulated") == 2
            made = [executor.submit(job) for _ in range(4)]
            assert all(each.result(WATCHDOG_S).run is not None for each in made)
    assert {attempt.worker for attempt in _every_attempt(directory / "tiny")} == {
        first.description["id"]
    }
    kept = json.loads((directory / f"workers/{late.description['id']}.json").read_text())
    assert "another version" in kept["unfit"]["simulated"]


def test_a_start_that_failed_leaves_a_directory_for_the_same_command(directory: Path) -> None:
    """As its message says, though it leaves the records of workers, and a killed one its keys."""
    with (
        scheduler() as (_, address),
        program(*worker_options(address), environment=_another_version(directory, "cli/run.py")),
    ):
        refused = _call(directory, _command(1, "here", "--on", f"dask:{address}"))
    assert "the same command with --into here makes the remaining runs" in refused.stderr
    assert [*(directory / "here/workers").iterdir()]
    (directory / "here/.tls-killed").mkdir()
    done = _call(directory, _command(1, "here"))
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    (directory / "other/slurm").mkdir(parents=True)
    (directory / "other/notes.txt").touch()
    foreign = _call(directory, _command(1, "other"))
    assert foreign.returncode == ExitStatus.WRONG_INPUT
    assert "expected an empty directory or a series" in foreign.stderr


@pytest.mark.root
def test_a_worker_that_comes_later_without_root_emulates_nothing(directory: Path) -> None:
    directory.chmod(0o777)
    with scheduler() as (_, address), ExitStack() as workers:
        options = (*worker_options(address), "--resources", "emulation=1")
        workers.enter_context(program(*options))
        place = Place("dask", address)
        with cluster_executor(place, directory, {"emulated": "tiny"}) as executor:
            workers.enter_context(program(*options, before=("setpriv", "--reuid=65534")))
            wait_until(lambda: len([w for w in executor.workers if w.answered]) == 2)
            (late,) = [w for w in executor.workers if w.description["user"] != 0]
            reason = late.reason("emulated")
            assert reason.startswith("testbed doctor fails there: ")
            assert "nobody ALL=(root) NOPASSWD: " in reason
            assert executor.slots("emulated") == 1


def test_the_record_of_each_worker_says_what_doctor_finds_there(directory: Path) -> None:
    """In a simulated campaign as well, which does not wait for it."""
    done = _call(directory, _command(1, "here", "--on", "local"))
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    (file,) = (directory / "here/workers").iterdir()
    worker = json.loads(file.read_text())
    assert worker["doctor"]["findings"]
    assert worker["cpu"] == cpu_model()
    known = load_capacity()
    assert worker["calibration"] == (None if known is None else asdict(known))
    assert worker["package"] == package_version()


def test_a_start_without_an_answer_names_the_run(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connecting, waiting for a worker and asking it are one wait of `PATIENCE_S`."""
    monkeypatch.setattr(start, "PATIENCE_S", 2.0)
    monkeypatch.setattr(start, "_LEAST_S", 0.5)
    with scheduler() as (_, address):
        place = Place("dask", address)
        with (
            pytest.raises(MachineError, match=r"tiny, seed 3: dask:.*: no worker came in [12] s"),
            cluster_executor(place, directory, {"simulated": "tiny, seed 3"}),
        ):
            pass
        with program(*worker_options(address)) as worker:
            _wait_for_workers(address)
            worker.send_signal(signal.SIGSTOP)
            with (
                pytest.raises(MachineError, match=r"tiny, seed 3: .* has not answered yet"),
                cluster_executor(place, directory, {"simulated": "tiny, seed 3"}),
            ):
                pass


def _wait_for_workers(address: str, count: int = 1) -> None:
    with Client(address) as client:
        client.wait_for_workers(count, timeout=WATCHDOG_S)


def test_others_than_this_machines_user_do_not_reach_a_local_cluster(directory: Path) -> None:
    """It listens on loopback, which all users share, and speaks TLS with its own certificate."""
    with cluster_executor(Place("local"), directory, {"simulated": "tiny"}) as executor:
        (worker,) = executor.workers
        reached = executor.scheduler
        for address in (reached, worker.address):
            assert address.startswith("tls://127.0.0.1:")
        plain = reached.replace("tls:", "tcp:")
        for address, stranger in ((reached, Security.temporary()), (plain, Security())):
            with pytest.raises(OSError, match=r"Timed out|in TLS|closed|certificate"):
                Client(address, security=stranger, timeout=2)


def test_a_scheduler_that_others_reach_without_tls_is_refused(directory: Path) -> None:
    """Though the command reaches it on loopback: so do workers on other machines."""
    with scheduler(host=EVERYWHERE) as (_, address):
        port = urlsplit(address).port
        if urlsplit(address).hostname == "127.0.0.1":
            pytest.skip("this machine has no other address than loopback")
        refused = _call(directory, _command(1, "here", "--on", f"dask:127.0.0.1:{port}"))
    assert refused.returncode == ExitStatus.WRONG_INPUT
    assert f"whose scheduler is reached at {address} as well" in refused.stderr
    assert "--host 127.0.0.1" in refused.stderr


def test_a_worker_that_others_reach_without_tls_makes_no_run(directory: Path) -> None:
    host = get_ip()
    if host == "127.0.0.1":
        pytest.skip("this machine has no other address than loopback")
    with scheduler() as (_, address), program(*worker_options(address), "--host", host):
        _wait_for_workers(address)
        refused = _call(directory, _command(1, "here", "--on", f"dask:{address}"))
    assert refused.returncode == ExitStatus.MACHINE_CANNOT
    assert f"it speaks plain TCP at tcp://{host}:" in refused.stderr
    assert "start it with TLS" in refused.stderr


def test_a_worker_that_listens_everywhere_without_tls_makes_no_run(directory: Path) -> None:
    """As Dask's do by default, though the scheduler knows it by an address on loopback."""
    with scheduler() as (_, address), program(*worker_options(address, host=None)):
        _wait_for_workers(address)
        refused = _call(directory, _command(1, "here", "--on", f"dask:{address}"))
    assert refused.returncode == ExitStatus.MACHINE_CANNOT
    assert f"it speaks plain TCP at tcp://{EVERYWHERE}:" in refused.stderr
    assert "--host 127.0.0.1" in refused.stderr


def test_tls_without_a_certificate_is_named(directory: Path) -> None:
    refused = _call(directory, _command(1, "here", "--on", "dask:tls://127.0.0.1:1"))
    assert refused.returncode == ExitStatus.MACHINE_CANNOT
    assert "dask:tls://127.0.0.1:1: Dask's configuration has no certificate" in refused.stderr
    assert "DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in refused.stderr


def test_nothing_that_answers_is_named(directory: Path) -> None:
    with scheduler() as (_, address):
        pass  # its port is free again
    refused = _call(directory, _command(1, "here", "--on", f"dask:{address}"))
    assert refused.returncode == ExitStatus.MACHINE_CANNOT
    assert f"no scheduler answers at {address}" in refused.stderr
    assert "remedy: start one" in refused.stderr


@pytest.mark.root
def test_a_full_disk_is_named(directory: Path) -> None:
    """The store is on a file system of 64 KiB, in a mount namespace of the command's own."""
    command = " ".join(_command(1, "small/here", "--on", "local"))
    small = f"mkdir small && mount -t tmpfs -o size=64k tmpfs small && {command}"
    full = _call(directory, ["unshare", "--mount", "sh", "-c", small])
    assert full.returncode == ExitStatus.MACHINE_CANNOT, full.stderr
    assert "no space is left on the file system of small/here" in full.stderr


@pytest.mark.root
@pytest.mark.parametrize(
    ("into", "store", "said"),
    [
        ("small/here", "store", "no space is left on the file system of small/here"),
        ("here", "small/store", "no space is left in the store file://"),
    ],
    ids=["here", "the store"],
)
def test_a_full_disk_is_told_from_a_full_store(
    directory: Path, into: str, store: str, said: str
) -> None:
    place = ("--on", "local", "--store", f"file://{directory}/{store}")
    command = " ".join(_command(1, into, *place))
    small = f"mkdir small && mount -t tmpfs -o size=96k tmpfs small && {command}"
    full = _call(directory, ["unshare", "--mount", "sh", "-c", small])
    assert full.returncode == ExitStatus.MACHINE_CANNOT, full.stderr
    assert said in full.stderr
    assert "remedy: free some, or write elsewhere: --" in full.stderr


@pytest.mark.root
def test_hosts_are_reached_by_ssh_and_speak_tls(directory: Path) -> None:
    """Two network namespaces, each with an sshd."""
    if not Path("/usr/sbin/sshd").exists():
        pytest.skip("no sshd: apt-get install openssh-server")
    plain = _call(directory, _command(4, "plain"))
    assert plain.returncode == ExitStatus.AS_EXPECTED, plain.stderr
    place = ("--on", f"ssh:{directory}/hosts")
    beside = _call(directory, [str(TWO_HOSTS), str(directory), *_command(4, "here", *place)])
    assert beside.returncode == ExitStatus.AS_EXPECTED, beside.stderr
    _assert_equal(directory / "plain", directory / "here")
    assert not [*(directory / "here").glob(".tls-*")]


@pytest.mark.root
def test_a_host_that_takes_the_login_and_hangs_is_named(directory: Path) -> None:
    """The login of the second host starts a program that answers nothing."""
    if not Path("/usr/sbin/sshd").exists():
        pytest.skip("no sshd: apt-get install openssh-server")
    environment = {"SECOND_HOST": "ForceCommand=sleep 1000"}
    command = _command(1, "here", "--on", f"ssh:{directory}/hosts")
    refused = subprocess.run(
        [str(TWO_HOSTS), str(directory), *command],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
        env=os.environ | environment,
    )
    assert refused.returncode == ExitStatus.MACHINE_CANNOT, refused.stderr
    assert "10.11.0.2: it takes the login, but did not answer in" in refused.stderr
    assert "10.11.0.1" not in refused.stderr


def test_a_store_at_an_address_has_the_runs_and_a_command_resumes_from_it(directory: Path) -> None:
    """The same runs; the campaign's directory may be lost, and no run is made again."""
    plain = _call(directory, _command(2, "plain"))
    assert plain.returncode == ExitStatus.AS_EXPECTED, plain.stderr
    place = ("--on", "local", "--store", f"file://{directory}/store")
    first = _call(directory, _command(2, "here", *place))
    assert first.returncode == ExitStatus.AS_EXPECTED, first.stderr
    _assert_equal(directory / "plain", directory / "here")
    runs = {run.name for run in (directory / "store/tiny").iterdir()}
    assert {run.name for run in _runs(directory / "here").values()} == runs
    assert [*(directory / "store/workers").iterdir()]
    shutil.rmtree(directory / "here")
    again = _call(directory, _command(2, "here", *place))
    assert again.returncode == ExitStatus.AS_EXPECTED, again.stderr
    assert {run.name for run in _runs(directory / "here").values()} == runs
    assert _attempts(directory / "store") == [1, 1]
    index = json.loads((directory / "here/sweep.json").read_text())
    took_s = {run["run"]: run["seconds"] for run in index["done"]}
    attempts = _every_attempt(directory / "store")
    lasted_s = {a.run: (a.ended or 0.0) - a.began for a in attempts}
    assert took_s == pytest.approx(lasted_s, abs=0.2), "not how long copying took"


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("nowhere://host/path", "Protocol not known: nowhere"),
        ("memory://runs", "each process has a memory of its own"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused(directory: Path, store: str, said: str) -> None:
    refused = _call(directory, _command(1, "here", "--on", "local", "--store", store))
    assert refused.returncode == ExitStatus.WRONG_INPUT
    assert f"--store: found {store}" in refused.stderr
    assert said in refused.stderr


def test_a_store_without_a_place_is_refused(directory: Path) -> None:
    refused = _call(directory, _command(1, "here", "--store", f"file://{directory}/store"))
    assert refused.returncode == ExitStatus.WRONG_INPUT
    assert "expected --on as well" in refused.stderr


@pytest.mark.root
def test_a_store_may_be_reached_by_sftp(directory: Path) -> None:
    """The sshd of a network namespace has it."""
    pytest.importorskip("paramiko", reason="no paramiko: pip install paramiko")
    if not Path("/usr/sbin/sshd").exists():
        pytest.skip("no sshd: apt-get install openssh-server")
    store = f"sftp://root@10.11.0.1{directory}/store"
    command = _command(2, "here", "--on", "local", "--store", store)
    done = _call(directory, [str(TWO_HOSTS), str(directory), *command])
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    runs = {run.name for run in (directory / "store/tiny").iterdir()}
    assert {run.name for run in _runs(directory / "here").values()} == runs


DRAINED = """\
"$@" &
until grep -q '"run"' here/sweep.json 2>/dev/null; do kill -0 $! || exit; sleep 0.1; done
scontrol show job > jobs.txt
scontrol update NodeName=node2 State=DRAIN Reason=test
scancel --nodelist=node2 --name=testbed
wait %1
sinfo --noheader --Node --format='%N %T' > nodes.txt
"""
"""Drains a node and ends its job, as soon as a run of a campaign is finished."""


@pytest.mark.root
def test_slurm_starts_the_workers_and_a_drained_node_loses_no_run(directory: Path) -> None:
    """A Slurm cluster of two nodes, started for the test (slurm.sh)."""
    if missing := [name for name in ("slurmctld", "slurmd", "sbatch", "munged") if not _has(name)]:
        packages = "slurmctld slurmd slurm-client munge"
        pytest.skip(f"no {missing[0]}: apt-get install --no-install-recommends {packages}")
    plain = _call(directory, _command(12, "plain"))
    assert plain.returncode == ExitStatus.AS_EXPECTED, plain.stderr
    (directory / "slurm.yaml").write_text("interface: net\nmemory: 500 MiB\n")
    command = _command(12, "here", "--on", "slurm:slurm.yaml")
    beside = [str(SLURM), str(directory / "slurm"), "bash", "-c", DRAINED, "bash", *command]
    done = _call(directory, beside)
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    _assert_equal(directory / "plain", directory / "here")
    jobs = (directory / "jobs.txt").read_text()
    assert {"JobId=1", "JobId=2"} <= {*jobs.split()}, jobs
    assert jobs.count("JobName=testbed") == 2
    assert "node2 drained" in (directory / "nodes.txt").read_text()
    assert {entry.name for entry in (directory / "here").iterdir()} == {
        *("junit.xml", "scenarios", "slurm", "sweep.json", "tiny", "workers")
    }


def test_slurm_that_is_not_there_is_named(directory: Path) -> None:
    command = _command(1, "here", "--on", "slurm")
    refused = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, env={"PATH": "/none"}
    )
    assert refused.returncode == ExitStatus.MACHINE_CANNOT
    assert "no sbatch and no scancel and no squeue here" in refused.stderr


def test_jobs_that_slurm_refuses_are_named_with_its_reason(directory: Path) -> None:
    """At once, and without a traceback."""
    refused = _call_with_slurm(directory, "echo 'sbatch: error: invalid partition' >&2; exit 1")
    assert refused.returncode == ExitStatus.MACHINE_CANNOT
    assert "slurm: the jobs are refused: sbatch: error: invalid partition" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_slurm_that_does_not_answer_is_named(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _commands_of_slurm(directory, "exec sleep 10")
    monkeypatch.setenv("PATH", f"{directory}/commands:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "_SUBMIT_S", 1.0)
    with (
        pytest.raises(MachineError, match="sbatch has not taken the jobs in 1 s"),
        cluster_executor(Place("slurm"), directory, {"simulated": "tiny"}),
    ):
        pass


def test_an_interface_that_is_not_there_is_named(directory: Path) -> None:
    refused = _call_with_slurm(directory, "exit 1", "interface: none9\n")
    assert refused.returncode == ExitStatus.MACHINE_CANNOT
    assert "'none9' is not a valid network interface" in refused.stderr
    assert "check the interface" in refused.stderr
    assert "Traceback" not in refused.stderr


def _call_with_slurm(
    directory: Path, sbatch: str, options: str = ""
) -> subprocess.CompletedProcess[str]:
    """A series on Slurm, of which `sbatch` is this script and the other commands do nothing."""
    (directory / "slurm.yaml").write_text(f"workers: 2\n{options}")
    _commands_of_slurm(directory, sbatch)
    return subprocess.run(
        _command(1, "here", "--on", "slurm:slurm.yaml"),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
        env=os.environ | {"PATH": f"{directory}/commands:{os.environ['PATH']}"},
    )


def _commands_of_slurm(directory: Path, sbatch: str) -> None:
    """Make `sbatch` of a script, and other commands that do nothing."""
    (directory / "commands").mkdir()
    for name in ("sbatch", "scancel", "squeue"):
        command = directory / "commands" / name
        command.write_text(f"#!/bin/sh\n{sbatch if name == 'sbatch' else ''}\n")
        command.chmod(0o755)


def test_options_of_slurm_are_checked_before_anything_starts(directory: Path) -> None:
    (directory / "slurm.yaml").write_text("workers: many\n")
    refused = _call(directory, _command(1, "here", "--on", "slurm:slurm.yaml"))
    assert refused.returncode == ExitStatus.WRONG_INPUT
    assert "slurm.yaml:1: workers: found many, expected a whole number" in refused.stderr


def _has(program: str) -> bool:
    return shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin") is not None
