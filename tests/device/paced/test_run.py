"""`testbed device`: programs on a simulated fabric in step with the clock, as any user."""

import json
import os
import pwd
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from testbed.device.library import put_into
from testbed.device.paced.host import Loopback
from testbed.emulation.controller.live import Client, socket_of
from testbed.emulation.experiment.programs import MASTER_PORT
from testbed.model.errors import InputError, MachineError
from testbed.model.fabric.topology import Topology
from testbed.sandbox.system_calls import children_of
from tests.commands import completed
from tests.judging import skip_without
from tests.waiting import WATCHDOG_S, wait_until

ROOT = Path(__file__).parents[3]
PROGRAM = [sys.executable, "-P", "-m", "tests.device.paced.program"]
MARK = "TESTBED_TEST_MARK"
DECIDED = (0, 4)
"""Exit statuses of a run whose programs did what they should: 4 where the machine is busy."""

HOSTS = Topology(name="tiny", planes=1, t0_per_plane=2, t1_per_plane=1, hosts_per_t0=1).hosts

SILENT = """
name: silent
topology: clos-tiny
duration: 60 s
workload: {kind: program, command: [unused]}
timeline:
  - {kind: blackhole, target: h0--p0_t0_0, at: 1 s, for: 3 s}
expect:
  run: {bytes_lost: 0, qps_in_error: 0}
"""


@pytest.fixture(autouse=True, scope="module")
def _library(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        put_into(tmp_path_factory.mktemp("library"))
    except MachineError as error:
        pytest.skip(f"needs the library of the device: {error}")


@pytest.fixture
def mark(tmp_path: Path) -> str:
    """Something in the environment of all processes of a test."""
    return f"{MARK}={tmp_path}"


def command(*arguments: str) -> list[str]:
    """The command line; the machine is not measured, and any machine keeps up that is not busy."""
    usual = "--set", "topology.dilation=10000"
    return [sys.executable, "-P", "-m", "testbed", "device", *usual, *arguments]


def environment(mark: str = "") -> dict[str, str]:
    name, _, value = mark.partition("=")
    return {**os.environ, "PYTHONPATH": str(ROOT), **({name: value} if mark else {})}


def run(
    results: Path, *arguments: str, program: list[str], status: tuple[int, ...] = DECIDED
) -> tuple[Any, Path, str]:
    """Make a run; returns its summary, its directory and what was printed."""
    done = completed(
        [*command("--results", str(results), *arguments), *(["--", *program] if program else [])],
        cwd=results,
        env=environment(),
    )
    assert done.returncode in status, done.stderr + done.stdout
    (directory,) = (file.parent for file in results.glob("*/2*/summary.json"))
    summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    return summary, directory, done.stderr


def of_program(what: str) -> list[str]:
    return [*PROGRAM, what]


def test_what_one_program_writes_is_what_the_other_finds(tmp_path: Path) -> None:
    summary, directory, printed = run(tmp_path, "-n", "2", program=of_program("write"))
    assert summary["simulated"]
    assert [program["failed"] for program in summary["programs"]] == [False, False]
    (flow,) = summary["flows"]
    assert (flow["src"], flow["dst"]) == ("h4", "h0")  # of two racks
    assert summary["integrity"]["bytes_verified"] == 100 * 40_000
    assert "h0: as it was sent" in printed
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["paced"]
    assert (directory / "junit.xml").exists()


@pytest.mark.root
@skip_without("ibv_devinfo", "ibverbs-utils")
def test_programs_of_the_caller_of_sudo_open_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = pwd.getpwnam("nobody")
    monkeypatch.setenv("SUDO_UID", str(nobody.pw_uid))
    monkeypatch.setenv("SUDO_GID", str(nobody.pw_gid))
    _, _, printed = run(tmp_path, "-n", "2", program=["sh", "-c", "id -un; ibv_devinfo"])
    assert "h0: nobody" in printed
    assert "mrc0" in printed


def test_the_example_in_python_runs_without_root(tmp_path: Path) -> None:
    """As a program that has nothing of the emulation, and calls its peer by name."""
    hello = f"{sys.executable} -P {ROOT / 'examples' / 'hello.py'}"
    script = f"test $RANK = 1 || exec {hello}; exec {hello} h0"
    summary, _, printed = run(tmp_path, "-n", "2", program=["/bin/sh", "-c", script])
    assert [program["failed"] for program in summary["programs"]] == [False, False]
    assert "h0: h0 RECV_RDMA_WITH_IMM success 42 b'hello over MRC'" in printed
    assert "h4: h4 RDMA_WRITE success None" in printed


def test_a_silent_link_is_noticed_and_left_as_in_every_run(tmp_path: Path) -> None:
    scenario = tmp_path / "silent.yaml"
    scenario.write_text(SILENT, encoding="utf-8")
    summary, directory, _ = run(
        tmp_path,
        "--scenario",
        str(scenario),
        "--set",
        "workload.hosts=[h0, h1]",
        program=of_program("write"),
    )
    (fault,) = summary["faults"]
    assert 0 < fault["detection_rtt"] < 5
    assert fault["packets_lost"] > 0
    assert summary["integrity"]["bytes_lost"] == 0
    assert [bound["holds"] for bound in summary["expectations"]] == [True, True]
    assert "silent.programs" in (directory / "junit.xml").read_text(encoding="utf-8")


def test_a_fault_begins_with_an_operation_of_the_programs(tmp_path: Path) -> None:
    """Not at its time from the start of the run."""
    scenario = tmp_path / "silent.yaml"
    after = "at: 0 s, after: {operation: step, number: 2}"
    scenario.write_text(SILENT.replace("at: 1 s", after).replace("for: 3 s", "for: 1 s"))
    steps = (
        "for i in 0 1 2 3; do echo begin step $i >&$TESTBED_REPORTS; sleep 1; "
        "echo end step $i >&$TESTBED_REPORTS; done"
    )
    given = "--scenario", str(scenario), "--set", "workload.hosts=[h0, h1]"
    summary, directory, _ = run(tmp_path, *given, program=["sh", "-c", steps])
    (fault,) = summary["faults"]
    begun = pl.read_parquet(directory / "operations.parquet").filter(number=2)["start_t"].to_list()
    assert 0 <= fault["effective_s"] - min(begun) < 1
    assert fault["healed_s"] - fault["effective_s"] == pytest.approx(1)


BESIDE = """
name: beside
topology: clos-tiny
duration: 7 s
interference: true
jobs:
  - name: mine
    workload: {kind: program, hosts: [h0, h2], command: COMMAND}
  - name: ring
    start: 1 s
    workload: {kind: allreduce, hosts: RING, size: 64 KiB}
    expect: {operations: {count: {at_least: 3}}}
"""


@pytest.mark.parametrize("ring", [("h1", "h3"), ("h0", "h2")], ids=["other hosts", "its hosts"])
def test_a_program_runs_beside_a_ring_that_hosts_send_themselves(
    tmp_path: Path, ring: tuple[str, str]
) -> None:
    """Each is measured for itself, beside the other and alone."""
    scenario = tmp_path / "beside.yaml"
    text = BESIDE.replace("COMMAND", json.dumps([*of_program("write"), "20"]))
    scenario.write_text(text.replace("RING", f"[{', '.join(ring)}]"))
    settings = "--allow-code", "--set", "topology.hosts_per_t0=2"
    summary, directory, printed = run(tmp_path, "--scenario", str(scenario), *settings, program=[])
    assert "h0: as it was sent" in printed
    assert summary["integrity"]["bytes_lost"] == summary["integrity"]["bytes_corrupted"] == 0
    ends = {flow["flow"]: (flow["src"], flow["dst"], flow["lane"]) for flow in summary["flows"]}
    lane = int(ring == ("h0", "h2"))
    assert ends == {0: (*ring, 0), 1: (*reversed(ring), 0), 2: ("h2", "h0", lane)}
    sent = (
        pl.read_parquet(directory / "transmissions.parquet")
        .group_by("flow")
        .agg(pl.col("t").min(), pl.col("bytes").filter(~pl.col("retransmitted")).sum())
    )
    first, payload = (dict(sent.select("flow", each).iter_rows()) for each in ("t", "bytes"))
    assert first[0] >= 1 <= first[1]
    assert payload[2] == 20 * 40_000
    jobs = summary["jobs"]
    assert all(job["goodput_bps"] > 0 for job in jobs)
    assert [each["kind"] for each in summary["operations"]] == ["ring/allreduce"]
    assert [bound["holds"] for bound in summary["expectations"]] == [True]
    for job in jobs:
        assert (job["interference"] is None) == bool(job["interference_unknown"])
        alone = json.loads((directory / job["alone"] / "summary.json").read_text())
        assert [each["job"] for each in alone["jobs"]] == [job["job"]]
        assert alone["simulated"]


def test_a_program_that_sends_nothing_slows_no_ring_down(tmp_path: Path) -> None:
    """The run alone is the same to the packet, so whatever differs is the program's doing."""
    scenario = tmp_path / "beside.yaml"
    scenario.write_text(BESIDE.replace("COMMAND", '["true"]').replace("RING", "[h1, h3]"))
    settings = "--allow-code", "--set", "topology.hosts_per_t0=2", "--set", "duration=3 s"
    summary, _, _ = run(tmp_path, "--scenario", str(scenario), *settings, program=[])
    assert summary["jobs"][1]["interference"] == 1


@contextmanager
def under_way(results: Path) -> Iterator[tuple["subprocess.Popen[str]", Path, Path]]:
    """A run of two programs that write: its process, its directory, and its socket."""
    with subprocess.Popen(
        [*command("-n", "2", "--results", str(results)), "--", *of_program("write")],
        cwd=results,
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "testbed fault inject" in line)
        directory = Path(line.partition("testbed fault inject ")[2].split(" cut ")[0])
        at = wait_until(lambda: listening(directory), "it takes commands")
        assert at is not None
        yield process, directory, at
        process.stderr.read()
    assert process.returncode in DECIDED


def test_faults_and_evs_are_reached_by_hand(tmp_path: Path) -> None:
    """From another process, by the socket in the directory of the run, as those of each run."""
    with under_way(tmp_path) as (_, directory, at):
        denied = wait_until(lambda: asked(at, {"kind": "deny", "ev": "p0"}), "there is a flow")
        assert denied is not None
        assert {row["state"] for row in denied["evs"] if row["port"] == 0} == {"DENIED"}
        with Client(at) as client:
            cut = client.inject({"kind": "cut", "target": "h0--p1_t0_0"})
        assert cut["effective_ns"]
        with Client(at) as client, pytest.raises(InputError, match="another fault"):
            client.inject({"kind": "kill", "target": "h0"})
        with Client(at) as client:
            healed = client.heal(cut["index"])
        assert healed["healed_ns"] >= cut["effective_ns"]
    (fault,) = json.loads((directory / "summary.json").read_text(encoding="utf-8"))["faults"]
    assert fault["kind"] == "cut"
    rows = pl.read_parquet(directory / "operator.parquet")
    assert set(rows["by"]) == {"hand"}
    with pytest.raises(InputError, match="a run that is over"):
        socket_of(directory)


def test_a_run_waits_for_no_probe_and_heals_what_was_injected(tmp_path: Path) -> None:
    """When its programs have ended; who has asked for the probe is told."""
    with under_way(tmp_path) as (_, directory, at), ThreadPoolExecutor() as pool:
        wait_until(lambda: asked(at, {"kind": "list"}), "there is a flow")
        probe = {"kind": "probe", "within": "60 min", "flow": "h4->h0"}
        with Client(at) as client:
            client.inject({"kind": "blackhole", "target": "h0--p1_t0_0"})
        with Client(at) as asking:
            probing = pool.submit(asking.operate, probe)
            with pytest.raises(InputError, match=r"over|destroyed"):
                probing.result(WATCHDOG_S)
    (fault,) = json.loads((directory / "summary.json").read_text(encoding="utf-8"))["faults"]
    assert fault["healed_s"]


def test_a_run_goes_on_where_nobody_can_ask_it_for_anything(tmp_path: Path) -> None:
    """As the process that takes commands has ended; the run says so."""
    with under_way(tmp_path) as (process, _, _):
        names = {pid: Path(f"/proc/{pid}/comm").read_text() for pid in children_of(process.pid)}
        (control,) = (pid for pid, name in names.items() if name == "control\n")
        os.kill(control, signal.SIGKILL)
        assert process.stderr is not None
        assert "no faults and commands by hand any more" in process.stderr.read()


def listening(directory: Path) -> Path | None:
    try:
        return socket_of(directory)
    except InputError:
        return None


def asked(at: Path, command: dict[str, Any]) -> dict[str, Any] | None:
    """What comes of a command for the flow between the two hosts, if there is one yet."""
    try:
        with Client(at) as client:
            return client.operate({**command, "flow": "h4->h0"})
    except InputError:
        return None


def test_each_host_has_a_name_and_all_ports_to_itself(tmp_path: Path) -> None:
    _, _, printed = run(tmp_path, "-n", "3", program=of_program("names"))
    assert printed.count("h0 h1 h4") == 3


def test_a_fabric_that_stood_still_is_not_trusted(tmp_path: Path) -> None:
    summary, _, _ = run(tmp_path, "-n", "2", program=of_program("stop"), status=(4,))
    assert any("fabric ran" in reason and "late" in reason for reason in summary["reasons"])
    assert summary["integrity"]["bytes_lost"] == 0


@pytest.mark.parametrize("what", ["fork", "close"])
def test_programs_that_fork_or_close_descriptors_do_no_harm(tmp_path: Path, what: str) -> None:
    summary, _, printed = run(tmp_path, "-n", "2", program=of_program(what))
    assert not any(program["failed"] for program in summary["programs"])
    assert what == "fork" or printed.count(": 5\n") == 2  # EIO


def test_memory_of_a_device_that_is_forgotten_is_out_of_reach(tmp_path: Path) -> None:
    """Python may give it to something else. Its queue pairs are gone as well."""
    _, _, printed = run(tmp_path, "-n", "2", program=of_program("drop"))
    assert "h0: untouched" in printed
    assert "h4: transport retry counter exceeded" in printed


def test_a_run_has_all_descriptors_that_a_process_may_have(tmp_path: Path) -> None:
    """For its hosts, its programs and their queue pairs; the usual limit is soft, and often 1,024.

    Programs have the usual one.
    """
    many = f"ulimit -n; test $RANK != 0 || exec {' '.join(of_program('many'))}"
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, most))
    try:
        _, _, printed = run(tmp_path, "-n", "8", program=["sh", "-c", many])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))
    assert printed.count(": made\n") == 1
    assert printed.count(": 40\n") == 8


def test_a_program_that_ends_at_once_is_what_came_of_the_run(tmp_path: Path) -> None:
    summary, directory, _ = run(tmp_path, "-n", "2", program=["true"], status=(0,))
    assert summary["verdict"] == "trusted"
    assert (directory / "report.html").exists()
    shutil.rmtree(tmp_path / "device")
    summary, _, printed = run(tmp_path, "-n", "2", program=["false"], status=(1,))
    assert all(program["failed"] for program in summary["programs"])
    assert "a program failed" in printed


def of_test(mark: str) -> list[int]:
    """The processes that have a mark in their environment."""
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            has_mark = mark.encode() in file.read_bytes().split(b"\0")
        except OSError:
            continue
        if has_mark and int(file.parent.name) != os.getpid():
            found.append(int(file.parent.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whatever_ends_it_nothing_is_left(tmp_path: Path, mark: str, number: int) -> None:
    """Not even what a program has started in a session of its own.

    A terminal sends Ctrl-C to all processes of the command; what kills it hits one of them.
    """
    started = subprocess.Popen(
        [*command("-n", "2", "--results", str(tmp_path)), "--", *of_program("wait")],
        cwd=tmp_path,
        env=environment(mark),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with started as process:
        assert process.stderr is not None
        here = 0
        while here < 2:
            line = process.stderr.readline()
            assert line
            here += "here" in line
        (os.kill if number == signal.SIGKILL else os.killpg)(process.pid, number)
        process.stderr.read()
        assert process.wait() == (-number if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: not of_test(mark), "all processes end")


@pytest.mark.root
def test_a_user_without_any_right_can_do_it(open_place: Path) -> None:
    """Nobody, without capabilities, and without the right to get some."""
    place = str(open_place)
    shutil.chown(place, "nobody")
    done = completed(
        [
            "setpriv",
            *("--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs"),
            *("--bounding-set=-all", "--inh-caps=-all"),
            *command("-n", "2", "--results", place),
            *("--", *of_program("write")),
        ],
        cwd=place,
        env=environment() | {"HOME": place, "TMPDIR": place},
    )
    assert done.returncode in DECIDED, done.stderr
    assert "h0: as it was sent" in done.stderr


def test_runs_side_by_side_have_networks_of_their_own() -> None:
    with Loopback(HOSTS) as first, Loopback(HOSTS) as second:
        places = {each.address_of(host) for each in (first, second) for host in HOSTS}
        assert len(places) == 4
        assert all(place.is_loopback for place in places)
        with socket.create_server((str(first.address_of(HOSTS[0])), 0)):
            pass


def test_another_port_is_taken_where_torchruns_is_in_use() -> None:
    with Loopback(HOSTS) as free:
        assert free.master_port == MASTER_PORT
        address = str(free.address_of(HOSTS[0]))
    with socket.create_server((address, MASTER_PORT)), Loopback(HOSTS) as other:
        assert str(other.address_of(HOSTS[0])) == address
        assert other.master_port not in (0, MASTER_PORT)
