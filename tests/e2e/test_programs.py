"""Programs of a scenario: how they are started and ended, and what is recorded of them."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from testbed.live.stream.recorded import recorded_stream
from testbed.live.stream.records import Detection
from testbed.model.errors import ExitStatus
from tests.commands import TESTBED
from tests.e2e.conftest import UNDRAWN, wait_until_running
from tests.e2e.test_kill import assert_all_gone, descendants
from tests.waiting import WATCHDOG_S, wait_until

pytestmark = [pytest.mark.root, pytest.mark.e2e]

NOBODY = pwd.getpwnam("nobody")

NUMBER = "7654321"
"""Of seconds that a program sleeps, by which it is found among all processes."""


def scenario(directory: Path, script: str, duration: str = "30 s", **keys: Any) -> Path:
    """A scenario whose program is a script of sh, on the smallest fabric."""
    content = {
        "name": "programs",
        "topology": "clos-tiny",
        "duration": duration,
        "workload": {"kind": "program", "command": ["sh", "-c", script], **keys.pop("of", {})},
        **keys,
    }
    file = directory / "programs.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def start(file: Path, *options: str) -> "subprocess.Popen[str]":
    """Start a run as if nobody had called sudo."""
    caller = {"SUDO_UID": str(NOBODY.pw_uid), "SUDO_GID": str(NOBODY.pw_gid)}
    return subprocess.Popen(
        [TESTBED, "run", file, "--force", "--allow-code", "--results", file.parent, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "200", "TESTBED_PROGRESS": "all"} | caller,
    )


def run(file: Path, *options: str) -> tuple[int, dict[str, Any], Path]:
    """The exit status of a run, its summary and its directory."""
    process = start(file, UNDRAWN, "--json", *options)
    out, err = process.communicate(timeout=WATCHDOG_S)
    assert out, err
    answer = json.loads(out)
    return process.returncode, answer["summary"], Path(answer["run"])


def left_over() -> list[str]:
    """The processes that a program of a test has left behind."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [text] if NUMBER in (text := file.read_text().replace("\0", " ")) else []
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_a_program_knows_its_place_and_is_the_callers(tmp_path: Path) -> None:
    file = scenario(
        tmp_path,
        "echo $(id -un) $(hostname) $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR:$MASTER_PORT $MINE"
        ' {hosts} {host} {rank} "${NOT:-{brace}}" $HOME; getent hosts $MASTER_ADDR\n'
        "ibv_devices || true\n"
        'echo "begin step 7 1000" >&$TESTBED_REPORTS; sleep 0.$RANK\n'
        'echo "end step 7" >&$TESTBED_REPORTS; echo nonsense >&$TESTBED_REPORTS',
        of={"hosts": ["h1", "h0"], "env": {"MINE": 5}},
        expect={"operations": {"count": 1}},
    )
    process = start(file, "--print-output", "--json")  # its figures are drawn, too
    out, err = process.communicate(timeout=WATCHDOG_S)
    summary = json.loads(out)["summary"]
    expected = "nobody h0 1 2 0 198.18.0.2:29500 5 h1,h0 h0 1 {brace} " + NOBODY.pw_dir
    assert f"h0: {expected}\n" in err
    printed = (Path(json.loads(out)["run"]) / "programs/h0.log").read_text()
    assert printed.splitlines()[0] == expected
    assert "h1" in printed.splitlines()[1]
    if shutil.which("ibv_devices"):
        assert "mrc0" in printed
    assert [program["failed"] for program in summary["programs"]] == [False, False]
    (step,) = summary["operations"]
    assert (step["kind"], step["hosts"], step["bytes"], step["count"]) == ("step", 2, 1000, 1)
    assert all(expectation["holds"] for expectation in summary["expectations"])
    assert summary["flows"] == []


def test_a_fault_begins_with_an_operation_of_the_programs(tmp_path: Path) -> None:
    """Whenever that is: the first host that begins it counts."""
    after = {"operation": "step", "number": 2}
    fault = {"kind": "blackhole", "target": "p0_t0_0--p0_t1_1", "at": "100 ms", "for": "300 ms"}
    file = scenario(
        tmp_path,
        "for i in 0 1 2 3; do\n"
        'echo "begin step $i" >&$TESTBED_REPORTS; sleep 1; echo "end step $i" >&$TESTBED_REPORTS\n'
        "done",
        timeline=[fault | {"after": after}],
    )
    _, summary, directory = run(file)
    (found,) = summary["faults"]
    steps = pl.read_parquet(directory / "operations.parquet").filter(number=2)
    begun = min(steps["start_t"].to_list())
    assert found["requested_s"] == pytest.approx(begun + 0.1, abs=1e-6)
    assert found["healed_s"] - found["effective_s"] >= 0.29
    assert not [reason for reason in summary["reasons"] if "fault" in reason]


def test_a_program_that_checks_itself_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    script = 'test "$1" != --check || { echo "$(id -un) needs a licence"; exit 3; }'
    file = scenario(tmp_path, script, of={"check": ["sh", "--check"]})
    process = start(file)
    out, err = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == ExitStatus.MACHINE_CANNOT, out
    assert "says: nobody needs a licence" in err
    assert "workload.check" in err
    assert not (tmp_path / "programs").exists()


OVER_TCP = """
import os, socket, time
here = socket.socket(socket.AF_INET6)
if os.environ["RANK"] == "0":
    here.bind(("h0", 4444))
    here.listen()
    there = here.accept()[0]
    there.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    while there.recv(4096):
        pass
else:
    while here.connect_ex(("h0", 4444)):
        time.sleep(0.1)
    here.sendall(bytes(1000))
print("protocol", here.getsockopt(socket.SOL_SOCKET, 38), "at", socket.gethostname())
"""


@pytest.mark.parametrize(("variables", "protocol"), [({}, 6), ({"TESTBED_MPTCP": 1}, 262)])
def test_tcp_of_a_program_crosses_the_fabric(
    tmp_path: Path, variables: dict[str, int], protocol: int
) -> None:
    """It finds the other host by name; its sockets are those of Multipath TCP if it says so."""
    command = [sys.executable, "-c", OVER_TCP]
    file = scenario(tmp_path, "", of={"command": command, "env": variables})
    status, summary, directory = run(file)
    assert [program["status"] for program in summary["programs"]] == [0, 0], status
    for host in ("h0", "h1"):
        assert f"protocol {protocol} " in (directory / f"programs/{host}.log").read_text()
    links = pl.read_parquet(directory / "links.parquet")
    carried = links.filter(pl.col("direction") == "h1>p0_t0_1")["bytes"].to_list()
    assert carried[-1] - carried[0] > 1000


def test_one_that_fails_is_no_lost_byte_and_nothing_of_the_others_stays(tmp_path: Path) -> None:
    """The other ignores SIGTERM, leaves a process behind, and prints what is no text."""
    file = scenario(
        tmp_path,
        f'if [ $RANK = 1 ]; then sleep 1; exec sh -c "kill -SEGV \\$\\$"; fi\n'
        f"trap '' TERM; setsid sleep {NUMBER} & printf 'a\\377\\033[2Jb'\n"
        "echo begin step 0 >&$TESTBED_REPORTS\n"
        f"while :; do sleep 1; done # {NUMBER}",
    )
    status, summary, directory = run(file)
    assert status == ExitStatus.FAILED
    first, second = summary["programs"]
    assert (first["stopped"], first["failed"], first["status"]) == (True, False, None)
    assert (second["stopped"], second["failed"], second["status"]) == (False, True, -11)
    assert (directory / "programs/h0.log").read_bytes() == b"a\xff\x1b[2Jb"
    assert summary["integrity"]["bytes_lost"] == 0
    assert summary["operations"][0]["count"] == 0
    junit = (directory / "junit.xml").read_text()
    assert 'message="killed by signal 11"' in junit
    wait_until(lambda: not left_over(), "all processes of the programs have ended")


def test_one_that_hangs_has_failed_unless_it_is_endless(tmp_path: Path) -> None:
    for endless in (False, True):
        file = scenario(tmp_path, f"sleep {NUMBER}", "2 s", of={"endless": endless})
        status, summary, _ = run(file)
        assert (status == ExitStatus.FAILED) is not endless
        assert [program["failed"] for program in summary["programs"]] == [not endless] * 2
        assert all(program["stopped"] for program in summary["programs"])


@pytest.mark.skipif(shutil.which("ib_write_bw") is None, reason="needs perftest")
def test_a_cable_is_pulled_under_an_unmodified_program(tmp_path: Path) -> None:
    """Its queue pair is a flow of the run, with the failover in the summary and in the stream."""
    file = scenario(
        tmp_path,
        "if [ $RANK = 0 ]; then exec ib_write_bw -d mrc0 -n 200; fi\n"
        "sleep 2; exec ib_write_bw -d mrc0 -n 200 $MASTER_ADDR",
        timeline=[{"kind": "blackhole", "target": "p0_t0_0--p0_t1_1", "at": "4 s", "for": "2 s"}],
        transport={"kind": "mrc", "evs": 4},
    )
    status, summary, directory = run(file)
    assert status in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, summary["reasons"]
    assert [program["status"] for program in summary["programs"]] == [0, 0]
    (flow,) = summary["flows"]
    assert (flow["src"], flow["dst"], len(flow["evs"])) == ("h1", "h0", 4)
    assert 0 < flow["packets_lost"] <= flow["packets_retransmitted"]  # a busy CPU sends some again
    integrity = summary["integrity"]
    assert integrity["bytes_verified"] == integrity["bytes_sent"] >= 200 * 65_536
    (fault,) = summary["faults"]
    assert fault["flows_affected"] == fault["flows_noticed"] == 1
    assert not [reason for reason in summary["reasons"] if "contradict" in reason]
    records = [*recorded_stream(directory)]
    assert [record.flow for record in records if isinstance(record, Detection)][:1] == [0]


@pytest.mark.parametrize("victim", ["nic-h0", "programs"])
def test_killing_a_part_leaves_nothing(tmp_path: Path, victim: str) -> None:
    process = start(scenario(tmp_path, f"setsid sleep {NUMBER} & sleep {NUMBER}"))
    try:
        wait_until_running(process)
        wait_until(lambda: len(left_over()) >= 4, "the programs run")
        parts = descendants(process.pid)
        (pid, *_) = [pid for pid, text in parts.items() if text.split()[0] == victim]
        os.kill(pid, signal.SIGKILL)
        _, err = process.communicate(timeout=WATCHDOG_S)
    finally:
        process.kill()
    assert process.returncode == ExitStatus.UNTRUSTED
    assert "ended" in err
    assert "Traceback" not in err
    assert_all_gone(parts)
    assert not left_over()


SESSIONS = f"""
if os.fork(): os._exit(0)
os.setsid()
for number in (1, 15): signal.signal(number, signal.SIG_IGN)
if os.fork(): os._exit(0)
os.closerange(0, 100)
time.sleep({NUMBER})
"""
"""A daemon: it has left its session and its parents, holds no file, and ignores SIGTERM."""

HOPS = f"""
while {NUMBER}:
    if os.fork(): os._exit(0)
"""
"""A process that is never the same for long."""

IMPORTS = "import os, signal, socket, sys, time\n"


def python(script: str) -> list[str]:
    return [sys.executable, "-c", IMPORTS + script]


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that the caller may enter."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)


def test_programs_that_misbehave_harm_only_their_own_job(tmp_path: Path, public: Path) -> None:
    """All at once: each is named by its host and rank, and nothing stays."""
    for host, mode in (("h0", 0o755), ("h1", 0o700)):  # that of h1 is root's alone
        file = public / host
        file.write_text("#!/bin/sh\nexec sleep 60\n")
        file.chmod(mode)
    waits = (
        "rank = int(os.environ['RANK']); address = os.environ['MASTER_ADDR']\n"
        "port = int(os.environ['MASTER_PORT'])\n"
        f"if rank: time.sleep({NUMBER})\n"
        "print('waiting for rank 1', flush=True)\n"
        "socket.create_server((address, port)).accept()"
    )
    of_jobs = {
        "daemons": python(SESSIONS),
        "chatter": python("os.write(1, b'\\xff\\0\\x1b[2J' * 14_000_000); sys.exit()"),
        "forbidden": [f"{public}/{{host}}"],
        "quitter": ["sh", "-c", f"if [ $RANK = 1 ]; then exit 3; fi; exec sleep {NUMBER}"],
        "waiting": python(waits),
    }
    jobs = [
        {"name": name, "workload": {"kind": "program", "command": command}}
        for name, command in of_jobs.items()
    ]
    file = scenario(tmp_path, "", "15 s", workload=None, jobs=jobs)
    process = start(file, UNDRAWN)
    out, err = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == ExitStatus.FAILED, err
    assert "waiting/h1 (rank 1): still ran when the run ended" in out
    assert "quitter/h1 (rank 1): exit 3" in out
    (file,) = tmp_path.glob("programs/[0-9]*/summary.json")
    programs = {
        (each["job"], each["rank"]): each for each in json.loads(file.read_text())["programs"]
    }
    failed = {place for place, each in programs.items() if each["failed"]}
    assert failed == {("forbidden", 1), ("quitter", 1), ("waiting", 0), ("waiting", 1)}
    assert programs["forbidden", 1]["error"] == "Permission denied"
    assert programs["quitter", 1]["status"] == 3
    assert programs["quitter", 0]["stopped"]
    chatter = programs["chatter", 0]
    assert (file.parent / chatter["output"]).stat().st_size == 64 << 20
    assert chatter["output_dropped"] == 14_000_000 * 6 - (64 << 20)
    assert "Traceback" not in err
    assert not left_over()


def test_a_process_that_changes_all_the_time_does_not_outlive_the_run(tmp_path: Path) -> None:
    file = scenario(tmp_path, "", "2 s", of={"command": python(HOPS), "hosts": ["h0", "h1"]})
    status, summary, _ = run(file)
    assert status in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED, ExitStatus.FAILED}
    assert [each["status"] for each in summary["programs"]] == [0, 0]
    assert not left_over()
