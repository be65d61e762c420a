"""Simulated runs on real Dask clusters: the same results, and nothing lost whatever is killed."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from distributed import Client, KilledWorker, Security
from distributed.utils import get_ip

import testbed
from testbed.model.errors import (
    SIGNALLED,
    ClusterLostError,
    ExitStatus,
    MachineError,
    RunFailedError,
)
from testbed.model.files.scenarios import load_scenario
from testbed.results.run_directory import locked
from testbed.runs.cluster import calls, launch
from testbed.runs.cluster import worker as worker_module
from testbed.runs.cluster.executor import cluster_executor, worker_pool
from testbed.runs.cluster.place import Place
from testbed.runs.cluster.worker import _made_before, make
from testbed.runs.job import Form, Job, JobRecord, PlannedRun, as_recorded, planned_run
from testbed.runs.many import many
from testbed.runs.process import EMULATION_LOCK, NOT_BEGUN, LocalExecutor
from testbed.runs.store import Store, manifest_of
from testbed.studies.labs.runs import differing_tables
from tests.commands import TESTBED, Completed, completed
from tests.runs.programs import program, scheduler, worker_options
from tests.runs.test_engine import _made as finished_run
from tests.waiting import WATCHDOG_S, wait_until

pytestmark = [pytest.mark.simulated, pytest.mark.long]

TINY = """\
name: tiny
topology: clos-tiny
duration: 300 ms
workload: {pairs: [[h0, h1]], message_size: 16 KiB}
"""
TWO_HOSTS = Path(__file__).with_name("two_hosts.sh")
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is refused
SLURM = Path(__file__).with_name("slurm.sh")
SIMULATED: dict[Form, str] = {"simulated": "tiny, seed 3"}
EMULATED: dict[Form, str] = {"emulated": "tiny"}


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


def _call(directory: Path, command: Sequence[str]) -> Completed:
    return completed(command, cwd=directory)


def _started(
    directory: Path, command: Sequence[str], *, start_new_session: bool = False
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=start_new_session,
    )


def _runs(directory: Path) -> dict[int, Path]:
    """The finished runs of a series by their seed."""
    done = json.loads((directory / "sweep.json").read_text())["done"]
    assert all(run["error"] is None for run in done), done
    return {run["seed"]: directory / run["run"] for run in done}


def _await_first_run(series: Path) -> None:
    index = series / "sweep.json"
    wait_until(lambda: index.is_file() and json.loads(index.read_text())["done"])


def _assert_equal(some: Path, others: Path) -> None:
    """Bit for bit."""
    ours, theirs = _runs(some), _runs(others)
    assert ours.keys() == theirs.keys()
    for seed, run in ours.items():
        assert differing_tables(run, theirs[seed]) == []


def _begun(directory: Path) -> list[Path]:
    """The runs that were begun in a directory, and are kept."""
    return sorted(file.parent for file in directory.rglob("manifest.json"))


def _hosts(directory: Path) -> list[str]:
    """The machines that made its runs, in the order of these."""
    return [manifest_of(run).host for run in _begun(directory)]


def _on_host(name: str, *commands: str) -> tuple[str, ...]:
    """What comes before the command of a worker of a machine with this name.

    The further commands are executed in its mount namespace before.
    """
    script = "; ".join((f"hostname {name}", *commands, 'exec "$@"'))
    return "unshare", "--uts", "--mount", "sh", "-c", script, "sh"


def test_a_local_cluster_makes_the_same_runs(directory: Path) -> None:
    plain = _call(directory, _command(2, "plain"))
    assert plain.returncode == ExitStatus.AS_EXPECTED, plain.stderr
    cluster = _call(directory, _command(2, "cluster", "--on", "local"))
    assert cluster.returncode == ExitStatus.AS_EXPECTED, cluster.stderr
    _assert_equal(directory / "plain", directory / "cluster")
    assert len(_begun(directory / "cluster")) == 2
    again = _call(directory, _command(3, "cluster", "--on", "local"))
    assert again.returncode == ExitStatus.WRONG_INPUT  # another plan


@pytest.mark.root
def test_a_run_that_is_made_again_is_made_by_another_machine(directory: Path) -> None:
    """Also if a later command makes it; the third time any machine may."""
    job = _job(directory)
    with scheduler() as (_, address), ExitStack() as workers:
        for name in ("one", "other"):
            workers.enter_context(program(*worker_options(address), before=_on_host(name)))
        _wait_for_workers(address, 2)
        for times in (1, 2):
            with cluster_executor(Place("dask", address), directory, SIMULATED) as executor:
                for _ in range(times):
                    record = executor.submit(job).result(WATCHDOG_S)
                    assert record.status == ExitStatus.AS_EXPECTED, record
    hosts = _hosts(directory / "tiny")
    assert len(hosts) == 3
    assert {*hosts[:2]} == {"one", "other"}


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
        for name in ("one", "other"):
            worker = (*worker_options(address), *options)
            workers.enter_context(program(*worker, before=_on_host(name)))
        place = ("--on", f"dask:{address}")
        command = [str(TESTBED), "run", "tiny.yaml", *series, *setting, *place]
        _wait_for_workers(address, 2)
        done = _call(directory, command)
    assert done.returncode == ExitStatus.UNTRUSTED, done.stderr
    runs = _begun(directory / "here")
    verdicts = [json.loads((run / "summary.json").read_text())["verdict"] for run in runs]
    assert verdicts == ["invalid"] * 3
    assert {*_hosts(directory / "here")[:2]} == {"one", "other"}


def test_a_call_that_comes_after_the_end_of_its_campaign_begins_nothing(directory: Path) -> None:
    """It was on its way when Ctrl-C ended the command, which does not wait for it."""
    with scheduler() as (_, address), program(*worker_options(address)), Client(address) as client:
        sent = client.submit(make, asdict(_job(directory)), "ended", str(directory / "store"))
        record = JobRecord(**sent.result(WATCHDOG_S)["record"])
    assert record == NOT_BEGUN
    assert not (directory / "store").exists()


def test_a_worker_that_is_killed_loses_no_run(directory: Path) -> None:
    command = _command(4, "here")
    with scheduler() as (_, address), ExitStack() as workers:
        first = workers.enter_context(program(*worker_options(address)))
        series = _started(directory, [*command, "--on", f"dask:{address}"])
        wait_until(lambda: _stopped_in_mid_run(first, directory / "here"))
        first.send_signal(signal.SIGKILL)
        workers.enter_context(program(*worker_options(address)))
        _, err = series.communicate(timeout=WATCHDOG_S)
        assert series.returncode == ExitStatus.AS_EXPECTED, err
    assert sorted(_runs(directory / "here")) == [1, 2, 3, 4]


@pytest.mark.root
def test_runs_come_back_from_machines_without_the_directory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same runs. One that is too large is named; one that a machine cannot make is given on."""
    job = _job(directory)
    hidden = f"mount -t tmpfs tmpfs {directory}"
    with scheduler() as (_, address), ExitStack() as workers:
        first = workers.enter_context(
            program(*worker_options(address), before=_on_host("one", hidden))
        )
        _wait_for_workers(address)
        place = Place("dask", address)
        with cluster_executor(place, directory / "there", SIMULATED) as executor:
            records = [executor.submit(job).result(WATCHDOG_S) for _ in range(2)]
            there = _begun(directory / "there")
            assert [record.run for record in records] == [
                str(run.relative_to(directory / "there")) for run in there
            ]
            assert _hosts(directory / "there") == ["one", "one"]
            assert (directory / "there" / job.log).is_file()
            here = LocalExecutor(directory / "plain").run(job)
            assert differing_tables(directory / "plain" / str(here.run), there[0]) == []
            made = Store(directory / "there").attempts(_planned(directory))
            took_s = [run.seconds for run in made]
            assert took_s == pytest.approx([record.seconds for record in records], abs=0.2)
        assert not [*(directory / "there").glob(".*")]
        temporary = f"{directory}/temporary"
        beside = _on_host("full", hidden, f"mkdir {temporary}")
        options = (*worker_options(address), "--local-directory", f"{directory}/dask")
        workers.enter_context(program(*options, before=beside, environment={"TMPDIR": temporary}))
        _wait_for_workers(address, 2)
        with Client(address) as client:
            client.run(tempfile.gettempdir)  # each keeps it from now on
            client.run(shutil.rmtree, temporary, ignore_errors=True)
        with cluster_executor(place, directory / "again", SIMULATED) as executor:
            sent = [executor.submit(_job(directory, f"tiny/{number}")) for number in range(4)]
            assert all(each.result(WATCHDOG_S).run is not None for each in sent)
            assert {*_hosts(directory / "again")} == {"one"}
            first.kill()
            failed = executor.submit(_job(directory, "tiny/failed")).result(WATCHDOG_S)
    assert failed.status == ExitStatus.MACHINE_CANNOT
    assert "full: " in failed.message
    monkeypatch.setattr(worker_module, "MOST_PACKED_BYTES", 1000)
    large = LocalExecutor(directory / "plain").run(job)
    record, packed = worker_module._packed(large, job, directory / "plain")
    assert packed is None
    assert "no more than 0 come back by Dask; give all machines the directory" in record.message


def _planned(directory: Path) -> PlannedRun:
    scenario = load_scenario(str(directory / "tiny.yaml"))
    return planned_run(scenario, "simulated", "tiny/tiny")


def test_a_run_whose_workers_are_lost_one_after_another_is_given_up(directory: Path) -> None:
    """After as many losses, whether Dask gives it to another worker or the command does."""
    scenario = load_scenario(str(directory / "tiny.yaml"), settings={"duration": "60 s"})
    job = Job("tiny", "simulated", as_recorded(scenario), "tiny/tiny", WATCHDOG_S)
    with scheduler() as (_, address), ExitStack() as workers:
        worker = workers.enter_context(program(*worker_options(address)))
        with cluster_executor(Place("dask", address), directory, SIMULATED) as executor:
            made = executor.submit(job)
            for _ in range(calls.MOST_LOSSES):
                wait_until(lambda: _under_way_in(directory) or made.done())
                assert not made.done(), made.exception()
                worker.kill()
                wait_until(lambda: not _under_way_in(directory))
                worker = workers.enter_context(program(*worker_options(address)))
            record = made.result(WATCHDOG_S)
    assert record.must_not_repeat
    assert "tiny: the worker that made it was lost, 4 times" in record.failure


def test_a_call_that_dask_gives_up_says_how_often_its_worker_was_lost() -> None:
    call = calls._Call("tiny", "simulated", print, (), ())
    worker = SimpleNamespace(address="tcp://127.0.0.1:1")
    killed = KilledWorker("tiny", worker, 3)
    calls._settle(call, SimpleNamespace(status="error"), (KilledWorker, killed, None))
    with pytest.raises(RunFailedError, match="was lost, 4 times"):
        call.result.result()


def test_a_run_that_was_finished_before_its_worker_was_lost_is_not_made_again(
    directory: Path,
) -> None:
    """The command does not know it. One that it knows may be made again."""
    job, executor = _job(directory), LocalExecutor(directory)
    known, finished = (executor.run(job) for _ in range(2))
    found = _made_before(job, directory, [str(known.run)])
    assert found is not None
    assert (found.status, found.run) == (ExitStatus.AS_EXPECTED, finished.run)
    assert _made_before(job, directory, [str(known.run), str(finished.run)]) is None
    other = replace(job, scenario={**job.scenario, "duration": 1})
    assert _made_before(other, directory, []) is None


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
        again = _started(directory, command)
        with Client(address) as client:
            wait_until(lambda: _tasks_of(client) - before)
        os.kill(made, signal.SIGCONT)
        _, err = again.communicate(timeout=WATCHDOG_S)
    assert again.returncode == ExitStatus.AS_EXPECTED, err
    assert len(_begun(directory / "here")) == 1
    assert len(_runs(directory / "here")) == 1


def _under_way_in(series: Path) -> list[int]:
    """The processes that make runs of a series: each writes a log there."""
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if any(file.startswith(f"{series}/") for file in _files_of_job(process))
    ]


def _files_of_job(process: Path) -> list[str]:
    files = list[str]()
    with suppress(OSError):  # it has ended
        if b"--job" in (process / "cmdline").read_bytes().split(b"\0"):
            for file in process.glob("fd/*"):
                with suppress(OSError):  # it is closed
                    files.append(str(file.readlink()))
    return files


def _tasks_of(client: Client) -> set[str]:
    """The tasks that the scheduler of a client knows."""
    return {*client.run_on_scheduler(lambda dask_scheduler: [*dask_scheduler.tasks])}


@pytest.mark.root
def test_an_emulated_run_that_was_made_while_it_waited_for_its_turn_is_not_made_again(
    directory: Path,
) -> None:
    """By a worker that an earlier command has left on this machine."""
    job = replace(_job(directory), form="emulated")
    log = directory / job.log
    options = ("--resources", "emulation=1")
    with (
        scheduler() as (_, address),
        program(*worker_options(address), *options),
        cluster_executor(Place("dask", address), directory, EMULATED) as executor,
    ):
        with locked(EMULATION_LOCK):
            made = executor.submit(job)
            wait_until(lambda: log.is_file() and "another campaign emulates" in log.read_text())
            scenario = load_scenario(str(directory / "tiny.yaml"))
            planned = planned_run(scenario, "emulated", "tiny/tiny")
            run = finished_run(planned, directory, 0, "trusted")
        record = made.result(WATCHDOG_S)
    assert (record.status, record.run) == (ExitStatus.AS_EXPECTED, run)


def test_a_campaign_ends_when_no_worker_is_left(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the run and the reason, and no run waits for ever."""
    scenario = load_scenario(str(directory / "tiny.yaml"), settings={"duration": "60 s"})
    runs = [planned_run(scenario, "simulated", f"tiny/{name}") for name in ("one", "two", "three")]
    with scheduler() as (_, address), program(*worker_options(address)) as worker:
        place = Place("dask", address)
        with cluster_executor(place, directory, SIMULATED) as executor:
            monkeypatch.setattr(calls, "PATIENCE_S", 1.0)
            store = Store(directory)
            with pytest.raises(MachineError, match=r"(one|two): the cluster has no worker"):
                many(runs, store, pool=executor, progress=lambda *_: worker.kill())


def test_ctrl_c_ends_the_runs_on_the_workers_and_keeps_the_finished_ones(directory: Path) -> None:
    command = _command(8, "here")
    with scheduler() as (_, address), program(*worker_options(address)) as worker:
        series = _started(directory, [*command, "--on", f"dask:{address}"])
        _await_first_run(directory / "here")
        series.send_signal(signal.SIGINT)
        _, err = series.communicate(timeout=WATCHDOG_S)
        assert series.returncode == SIGNALLED + signal.SIGINT, err
        assert "interrupted by SIGINT; the same command with --into" in err
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children]
        assert not [line for line in commands if b"simulate" in line]
        finished = _runs(directory / "here")
        assert finished
        resumed = _call(directory, [*command, "--on", f"dask:{address}"])
        assert resumed.returncode == ExitStatus.AS_EXPECTED, resumed.stderr
    runs = _runs(directory / "here")
    assert sorted(runs) == [*range(1, 9)]
    assert runs.items() >= finished.items()


def test_ctrl_c_at_a_terminal_reaches_no_worker_of_a_local_cluster(directory: Path) -> None:
    """The terminal sends it to the command and all that it has started; the runs end in order."""
    series = _started(directory, _command(8, "here", "--on", "local"), start_new_session=True)
    _await_first_run(directory / "here")
    os.killpg(series.pid, signal.SIGINT)
    _, err = series.communicate(timeout=WATCHDOG_S)
    assert series.returncode == SIGNALLED + signal.SIGINT, err
    assert 0 < len(_runs(directory / "here")) < 8
    assert not _under_way_in(directory / "here")


@pytest.mark.root
def test_a_worker_that_waits_for_its_turn_to_emulate_is_stopped(directory: Path) -> None:
    """At once, and it does not begin its run when its turn comes."""
    job = replace(_job(directory), form="emulated")
    log, options = directory / job.log, ("--resources", "emulation=1")
    with (
        scheduler() as (_, address),
        program(*worker_options(address), *options),
        cluster_executor(Place("dask", address), directory, EMULATED) as executor,
        locked(EMULATION_LOCK),
    ):
        made = executor.submit(job)
        wait_until(lambda: log.is_file() and "another campaign emulates" in log.read_text())
        executor.stop()
        assert made.cancelled()
    assert not _begun(directory)


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


def _stopped_in_mid_run(worker: subprocess.Popen[str], series: Path) -> bool:
    """Stop a worker; whether it has begun a run that is not finished. If not, it goes on."""
    worker.send_signal(signal.SIGSTOP)
    if [run for run in _begun(series) if not (run / "summary.json").is_file()]:
        return True
    worker.send_signal(signal.SIGCONT)
    return False


def test_a_scheduler_that_is_killed_costs_no_finished_run(directory: Path) -> None:
    with scheduler() as (killed, address), program(*worker_options(address)):
        series = _started(directory, _command(8, "here", "--on", f"dask:{address}"))
        _await_first_run(directory / "here")
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
        _await_first_run(directory / "here")
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


def test_a_call_that_ends_with_its_scheduler_has_not_failed() -> None:
    """The command ends, and resumes later."""
    call = calls._Call("tiny", "simulated", print, (), ())
    calls._settle(call, SimpleNamespace(status="cancelled"), CancelledError())
    with pytest.raises(ClusterLostError, match="the scheduler of the cluster is gone"):
        call.result.result()


def test_a_worker_with_another_version_makes_no_run(directory: Path) -> None:
    """Whatever part of the testbed it is: a worker is sent calls of all of them."""
    environment = _another_version(directory, "studies/bench/measure.py")
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
    job, environment = _job(directory), _another_version(directory, "cli/run.py")
    with scheduler() as (_, address), ExitStack() as workers:
        workers.enter_context(program(*worker_options(address)))
        place = Place("dask", address)
        with cluster_executor(place, directory, SIMULATED) as executor:
            workers.enter_context(program(*worker_options(address, 4), environment=environment))
            wait_until(lambda: len([w for w in executor.calls.workers.values() if w.answered]) == 2)
            (late,) = [w for w in executor.calls.workers.values() if w.reason("simulated")]
            assert "another version of the testbed" in late.reason("simulated")
            assert executor.slots("simulated") == 2
            made = [executor.submit(job) for _ in range(4)]
            assert all(each.result(WATCHDOG_S).run is not None for each in made)


def test_a_worker_without_the_testbed_says_so(directory: Path) -> None:
    """It runs on, for others; and the next command asks it again."""
    (directory / "other/testbed").mkdir(parents=True)
    (directory / "other/testbed/__init__.py").write_text("raise ImportError('no testbed here')")
    environment = {"PYTHONPATH": str(directory / "other")}
    with (
        scheduler() as (_, address),
        program(*worker_options(address), environment=environment) as worker,
    ):
        for _ in range(2):
            with (
                pytest.raises(MachineError, match="it cannot use the testbed: ImportError: no tes"),
                cluster_executor(Place("dask", address), directory, SIMULATED),
            ):
                pass
        assert worker.poll() is None
        with Client(address) as client:
            left = client.run_on_scheduler(lambda dask_scheduler: [*dask_scheduler.worker_plugins])
            assert not [name for name in left if name.startswith("testbed")]


def test_a_start_that_failed_leaves_a_directory_for_the_same_command(directory: Path) -> None:
    """As its message says, though a killed one leaves its keys."""
    with (
        scheduler() as (_, address),
        program(*worker_options(address), environment=_another_version(directory, "cli/run.py")),
    ):
        refused = _call(directory, _command(1, "here", "--on", f"dask:{address}"))
    assert "the same command with --into here makes the remaining runs" in refused.stderr
    (directory / "here/.cluster-killed").mkdir()
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
        with cluster_executor(place, directory, EMULATED) as executor:
            workers.enter_context(program(*options, before=("setpriv", "--reuid=65534")))
            wait_until(lambda: len([w for w in executor.calls.workers.values() if w.answered]) == 2)
            (late,) = [w for w in executor.calls.workers.values() if w.reason("emulated")]
            reason = late.reason("emulated")
            assert reason.startswith("testbed doctor fails there: ")
            assert "nobody ALL=(root) NOPASSWD: " in reason
            assert executor.slots("emulated") == 1


def test_a_start_without_an_answer_names_the_run(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether no worker comes, or one that says nothing."""
    monkeypatch.setattr(launch, "PATIENCE_S", 2.0)
    with scheduler() as (_, address):
        place = Place("dask", address)
        with (
            pytest.raises(MachineError, match=r"tiny, seed 3: dask:.*: the cluster has no worker"),
            cluster_executor(place, directory, SIMULATED),
        ):
            pass
        with program(*worker_options(address)) as worker:
            _wait_for_workers(address)
            worker.send_signal(signal.SIGSTOP)
            with (
                pytest.raises(MachineError, match=r"tiny, seed 3: .* has not answered yet"),
                cluster_executor(place, directory, SIMULATED),
            ):
                pass


def _wait_for_workers(address: str, count: int = 1) -> None:
    with Client(address) as client:
        client.wait_for_workers(count, timeout=WATCHDOG_S)


def test_others_than_this_machines_user_do_not_reach_a_local_cluster(directory: Path) -> None:
    """It listens on loopback, which all users share, and speaks TLS with its own certificate."""
    with cluster_executor(Place("local"), directory, SIMULATED) as executor:
        reached = str(executor.calls._client.scheduler.address)
        for address in (reached, *executor.calls.workers):
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
    assert "no scheduler answers at tls://127.0.0.1:1: TLS expects" in refused.stderr
    assert "DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in refused.stderr


def test_nothing_that_answers_is_named(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    refused = _call(directory, _command(1, "here", "--on", f"dask:{address}"))
    assert refused.returncode == ExitStatus.MACHINE_CANNOT
    assert f"no scheduler answers at {address}" in refused.stderr
    assert "remedy: start one" in refused.stderr


@pytest.mark.root
def test_a_full_disk_is_named(directory: Path) -> None:
    """The runs are on a file system of 64 KiB, in a mount namespace of the command's own."""
    command = " ".join(_command(1, "small/here", "--on", "local"))
    small = f"mkdir small && mount -t tmpfs -o size=64k tmpfs small && {command}"
    full = _call(directory, ["unshare", "--mount", "sh", "-c", small])
    assert full.returncode == ExitStatus.MACHINE_CANNOT, full.stderr
    assert f"no space is left on the file system of {directory}/small/here" in full.stderr
    assert "remedy: free some, or write elsewhere" in full.stderr


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
    assert not [*(directory / "here").glob(".*")]


@pytest.mark.root
def test_a_host_that_takes_the_login_and_hangs_is_named(directory: Path) -> None:
    """The login of the second host starts a program that answers nothing."""
    if not Path("/usr/sbin/sshd").exists():
        pytest.skip("no sshd: apt-get install openssh-server")
    environment = {"SECOND_HOST": "ForceCommand=sleep 1000"}
    command = _command(1, "here", "--on", f"ssh:{directory}/hosts")
    refused = completed(
        [str(TWO_HOSTS), str(directory), *command], cwd=directory, env=os.environ | environment
    )
    assert refused.returncode == ExitStatus.MACHINE_CANNOT, refused.stderr
    assert "10.11.0.2: it takes the login, but did not answer in" in refused.stderr
    assert "10.11.0.1" not in refused.stderr


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
def test_slurm_starts_the_workers_and_a_drained_node_loses_no_run(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Slurm cluster of two nodes, started for the test (slurm.sh)."""
    if missing := [name for name in ("slurmctld", "slurmd", "sbatch", "munged") if not _has(name)]:
        packages = "slurmctld slurmd slurm-client munge"
        pytest.skip(f"no {missing[0]}: apt-get install --no-install-recommends {packages}")
    plain = _call(directory, _command(12, "plain"))
    assert plain.returncode == ExitStatus.AS_EXPECTED, plain.stderr
    command = _command(12, "here", "--on", "slurm")
    monkeypatch.setenv("DASK_JOBQUEUE__SLURM__INTERFACE", "net")
    monkeypatch.setenv("DASK_JOBQUEUE__SLURM__MEMORY", "500 MiB")
    beside = [str(SLURM), str(directory / "slurm"), "bash", "-c", DRAINED, "bash", *command]
    done = _call(directory, beside)
    assert done.returncode == ExitStatus.AS_EXPECTED, done.stderr
    _assert_equal(directory / "plain", directory / "here")
    jobs = (directory / "jobs.txt").read_text()
    assert jobs.count("JobName=testbed") == 2
    assert "node2 drained" in (directory / "nodes.txt").read_text()
    assert {entry.name for entry in (directory / "here").iterdir()} == {
        *("junit.xml", "scenarios", "slurm", "sweep.json", "1-tiny")
    }


def test_slurm_that_is_not_there_is_named(directory: Path) -> None:
    command = _command(1, "here", "--on", "slurm")
    refused = completed(command, cwd=directory, env={"PATH": "/none"})
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
    monkeypatch.setattr(launch, "_ANSWER_S", 1.0)
    with (
        pytest.raises(MachineError, match="sbatch has not answered in 1 s"),
        cluster_executor(Place("slurm"), directory, SIMULATED),
    ):
        pass


def test_an_interface_that_is_not_there_is_named(directory: Path) -> None:
    refused = _call_with_slurm(directory, "exit 1", "none9")
    assert refused.returncode == ExitStatus.MACHINE_CANNOT
    assert "'none9' is not a valid network interface" in refused.stderr
    assert "check jobqueue.slurm" in refused.stderr
    assert "Traceback" not in refused.stderr


def _call_with_slurm(directory: Path, sbatch: str, interface: str = "lo") -> Completed:
    """A series on Slurm, of which `sbatch` is this script and the other commands do nothing."""
    _commands_of_slurm(directory, sbatch)
    path = f"{directory}/commands:{os.environ['PATH']}"
    return completed(
        _command(1, "here", "--on", "slurm:2"),
        cwd=directory,
        env=os.environ | {"PATH": path, "DASK_JOBQUEUE__SLURM__INTERFACE": interface},
    )


def _commands_of_slurm(directory: Path, sbatch: str) -> None:
    """Make `sbatch` of a script, and other commands that do nothing."""
    (directory / "commands").mkdir()
    for name in ("sbatch", "scancel", "squeue"):
        command = directory / "commands" / name
        command.write_text(f"#!/bin/sh\n{sbatch if name == 'sbatch' else ''}\n")
        command.chmod(0o755)


def _has(program: str) -> bool:
    return shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin") is not None
