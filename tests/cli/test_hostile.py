"""On a machine that lacks something: a clear message, and what was finished stays.

Each lack is really caused, in a mount namespace or for the one command.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.emulation.experiment.machine import load_capacity, save_capacity
from testbed.model.errors import ExitStatus
from testbed.model.run_files.layout import SUMMARY
from testbed.model.summary import Summary
from tests.cli.conftest import AMPLE, Call
from tests.commands import TESTBED, Completed, completed
from tests.machine import control_group
from tests.waiting import wait_until

pytestmark = pytest.mark.long

SCENARIO = """\
name: tiny
topology: {base: clos-tiny, dilation: 20000}
duration: 3 s
workload: {kind: write_bw, pairs: [[h0, h1]], message_size: 64 KiB}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a scenario, on a machine that was measured."""
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    save_capacity(AMPLE)
    return tmp_path


def _testbed(
    here: Path, arguments: str, before: str = "", environment: dict[str, str] | None = None
) -> Completed:
    """Call testbed after shell commands, in a mount namespace if this is root."""
    script = f"{before}\nexec {shlex.quote(str(TESTBED))} {arguments}"
    apart = ["unshare", "--mount"] if os.geteuid() == 0 else []
    return completed(
        [*apart, "bash", "-ec", script],
        cwd=here,
        env=dict(os.environ) if environment is None else environment,
    )


FULL = "mkdir disk && mount -t tmpfs -o size=200k none disk"


@pytest.mark.root
@pytest.mark.parametrize("command", ["simulate", "run"])
def test_a_disk_that_fills_up_is_named(here: Path, command: str) -> None:
    force = " --force" if command == "run" else ""
    done = _testbed(here, f"{command} tiny.yaml --results disk{force}", FULL)
    assert done.returncode == ExitStatus.MACHINE_CANNOT, done.stderr
    assert "error: no space is left on the file system of disk/tiny/" in done.stderr
    assert "remedy: free some, or write elsewhere: --results DIR" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.root
@pytest.mark.parametrize("size", ["200k", "420k"])
def test_a_disk_that_fills_up_in_a_series_is_named(here: Path, size: str) -> None:
    full = f"mkdir disk && mount -t tmpfs -o size={size} none disk"
    done = _testbed(here, "simulate tiny.yaml --repeat 2 --results disk", full)
    assert done.returncode == ExitStatus.MACHINE_CANNOT, done.stderr
    # The series itself, or one of its runs, whose process is told the whole path.
    places = rf"(?:{re.escape(str(here))}/)?disk/tiny/"
    assert re.search(f"no space is left on the file system of {places}", done.stderr), done.stderr
    assert "remedy: free some, or write elsewhere: --results DIR" in done.stderr
    assert "traceback" not in done.stderr.lower()


@pytest.mark.root
def test_a_finished_result_survives_a_full_disk(here: Path) -> None:
    """The next run fails; the one before it stays as it was."""
    quiet = f"{TESTBED} simulate tiny.yaml --results disk --no-figures >first.log 2>&1"
    before = f"mkdir disk && mount -t tmpfs -o size=4m none disk && {quiet}"
    fill = "head -c 8M /dev/zero >disk/filler 2>/dev/null || true"
    name = "mv disk/tiny/2* disk/tiny/first"
    script = f"{before}\ncp disk/tiny/latest/summary.json first.json\n{name}\n{fill}\n"
    again = f"{TESTBED} simulate tiny.yaml --results disk || status=$?"
    script += f"{again}\ncmp first.json disk/tiny/first/summary.json && exit $status"
    done = completed(["unshare", "--mount", "bash", "-ec", script], cwd=here)
    assert done.returncode == ExitStatus.MACHINE_CANNOT, done.stderr
    assert "no space is left" in done.stderr


@pytest.mark.root
@pytest.mark.parametrize("series", ["", " --repeat 2"])
def test_results_that_cannot_be_written_are_refused_at_once(here: Path, series: str) -> None:
    before = "mkdir disk && mount -t tmpfs -o ro none disk"
    done = _testbed(here, f"simulate tiny.yaml --results disk/r{series}", before)
    assert done.returncode == ExitStatus.WRONG_INPUT
    assert "--results: found disk/r" in done.stderr
    assert "expected a directory to write to (read-only file system)" in done.stderr.lower()
    assert "--into" not in done.stderr


def test_a_limit_of_the_size_of_files_is_named(here: Path) -> None:
    done = _testbed(here, "simulate tiny.yaml", "ulimit -f 1")
    assert done.returncode == ExitStatus.MACHINE_CANNOT, done.stderr
    assert "larger than files may be here" in done.stderr
    assert "remedy: raise that limit: ulimit -f unlimited" in done.stderr


@pytest.mark.root
def test_a_limit_of_open_files_is_named(here: Path) -> None:
    """A hard limit, which a container without CAP_SYS_RESOURCE cannot raise."""
    done = _testbed(here, "run tiny.yaml --force", "ulimit -n 40")
    assert done.returncode == ExitStatus.MACHINE_CANNOT, done.stderr
    assert "error: the limit of open files is too low for this fabric" in done.stderr
    assert "--ulimit nofile=65536" in done.stderr


@pytest.mark.root
def test_a_soft_limit_of_open_files_is_raised(here: Path) -> None:
    done = _testbed(here, "run tiny.yaml --force --no-figures", "ulimit -S -n 40")
    assert done.returncode in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, done.stderr


@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("pids", {"pids.max": "36"}, "need a process each, "),
        ("memory", {"memory.max": "200M", "memory.limit_in_bytes": "200M"}, "of memory, "),
    ],
)
def test_a_limit_of_a_control_group_is_named(
    here: Path, name: str, files: dict[str, str], message: str
) -> None:
    """Before anything is built."""
    with control_group(name, files) as group:
        enter = f"echo $$ > {group}/cgroup.procs"
        done = _testbed(here, "run permutation --force --set workload.depth=64", enter)
    assert done.returncode == ExitStatus.MACHINE_CANNOT, done.stderr
    assert message in done.stderr
    assert "remedy: " in done.stderr


HOG = """
import pathlib, sys
group, blocks = pathlib.Path(sys.argv[1]), []
(group / "cgroup.procs").write_text("0")
counters = [group / name for name in ("memory.events", "memory.oom_control")]
counter = next(file for file in counters if file.exists())
while "oom_kill 0\\n" in counter.read_text():
    blocks.append(b"x" * (1 << 22))
"""
"""A program in the same control group that takes memory until the kernel kills another for it."""


@pytest.mark.root
def test_memory_that_runs_out_in_mid_run_is_named(here: Path) -> None:
    limits = dict.fromkeys(("memory.max", "memory.limit_in_bytes"), "2G")
    with control_group("memory", limits) as group:
        command = f"echo $$ >{group}/cgroup.procs; exec {TESTBED} run tiny.yaml --force"
        options = "--set duration='1000 s' --results results"
        with subprocess.Popen(
            ["bash", "-ec", f"{command} {options}"], cwd=here, stderr=subprocess.PIPE, text=True
        ) as run:
            wait_until(lambda: list(here.glob("results/tiny/2*/health.jsonl")), "the run begins")
            subprocess.run([sys.executable, "-c", HOG, str(group)], check=True)
            _, printed = run.communicate()
    assert run.returncode == ExitStatus.MACHINE_CANNOT, printed
    assert "error: memory ran out\n  remedy: " in printed
    assert "killed by signal 9 (Cannot allocate memory" in printed


@pytest.mark.root
def test_where_ipv6_is_disabled_around_it_it_runs(here: Path) -> None:
    """As in a container: the namespaces of the run have their own IPv6."""
    off = "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6"
    command = f"{TESTBED} run tiny.yaml --force --no-figures"
    done = completed(
        [
            "unshare",
            "--mount",
            "--net",
            "bash",
            "-ec",
            f"mount -t proc proc /proc; {off}; {command}",
        ],
        cwd=here,
    )
    assert done.returncode in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, done.stderr


def test_a_second_run_at_the_same_time_is_warned(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    sign = f"\0mrc-testbed-test-{os.getpid()}"  # its own: others may run on this machine
    monkeypatch.setattr("testbed.runs.making._UNDER_WAY", sign)
    monkeypatch.setattr("testbed.emulation.experiment.outside.run_experiment", run)
    Path("tiny.yaml").write_text(SCENARIO)
    assert "another run" not in call("run", "tiny.yaml", "--force").err
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(sign)
        assert "another run is under way on this machine" in call("run", "tiny.yaml", "--force").err


TWICE = """
for one in a b; do
  (status=0; {command} 2>$one.txt >&2 || status=$?; echo $status >$one.status) &
done
wait
"""


@pytest.mark.root
def test_two_runs_at_the_same_time_both_end_well(here: Path) -> None:
    """The same run twice, started together: one of them warns, and nothing is lost in either.

    They share CPUs, so they may be late, which is said of them and is no failure. The network
    namespace keeps runs of others out of it, as the sign that a run is under way belongs to it.
    """
    run = f"{TESTBED} run tiny.yaml --force --no-figures --set duration='10 s'"
    subprocess.run(
        ["unshare", "--net", "bash", "-ec", TWICE.format(command=run)], cwd=here, check=True
    )
    printed = [(here / f"{one}.txt").read_text() for one in "ab"]
    for one in "ab":
        status = int((here / f"{one}.status").read_text())
        assert status in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, printed
    warned = ["another run is under way on this machine" in text for text in printed]
    assert sorted(warned) == [False, True], printed
    directories = list(here.glob("results/tiny/2*"))
    assert len(directories) == len(printed)
    for directory in directories:
        summary = Summary.model_validate_json((directory / SUMMARY).read_text())
        assert summary.integrity.intact, summary.integrity
        assert all(flow.packets_sent for flow in summary.flows)


ODD = "ein Ordner mit Leerzeichen und Ümläuten 漢"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("simulate", marks=pytest.mark.simulated),
        pytest.param("run --force", marks=pytest.mark.root),
    ],
)
def test_odd_surroundings_change_nothing(here: Path, command: str) -> None:
    """Spaces and other letters in the path, LANG=C, umask 077, no HOME, /tmp where nothing runs."""
    place = here / ODD
    place.mkdir()
    (here / "tiny.yaml").rename(place / "ä b.yaml")
    environment = {"PATH": os.environ["PATH"], "LANG": "C", "LC_ALL": "C"}
    noexec = "mount --bind /tmp /tmp && mount -o remount,bind,noexec /tmp"
    before = f"umask 077\n{noexec if os.geteuid() == 0 else ''}"
    done = _testbed(place, f"{command} './ä b.yaml' --results 'ö ü'", before, environment)
    assert done.returncode in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, done.stderr
    (report,) = place.glob("ö ü/tiny/2*/report.html")
    assert report.stat().st_mode & 0o077 == 0


@pytest.mark.root
@pytest.mark.parametrize(
    ("command", "variable", "place"),
    [
        ("simulate", "HOME", "/dev/null"),
        ("run --force", "HOME", "/proc/1/ä"),
        ("run --force", "XDG_CACHE_HOME", "/dev/null"),
    ],
)
def test_where_no_cache_can_be_written_it_runs(
    here: Path, command: str, variable: str, place: str
) -> None:
    (here / "tmp").mkdir()
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(here / "tmp"), variable: place}
    done = _testbed(here, f"{command} tiny.yaml --no-figures", environment=environment)
    assert done.returncode in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, done.stderr


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    return tmp_path / "tmp"


@pytest.mark.parametrize("cache", ["/dev/null", "/proc/1"])
def test_what_no_cache_can_hold_is_kept_in_the_temporary_directory(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    """So that a machine is measured once and not at each run."""
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    place = save_capacity(AMPLE)
    assert place.is_relative_to(temporary)
    assert place.parent.stat().st_mode & 0o077 == 0
    assert load_capacity() == AMPLE


def test_no_other_users_directory_is_trusted(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    """A link in the place of the directory leads root to any file."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    (here / "elsewhere").mkdir()
    (temporary / f"mrc-testbed-{os.geteuid()}").symlink_to(here / "elsewhere")
    with pytest.raises(OSError, match="/dev/null"):
        save_capacity(AMPLE)
    assert load_capacity() is None
    assert not list((here / "elsewhere").iterdir())


@pytest.mark.parametrize("content", [b"", b'{"endpoint_ns": 1', b"\xff\x00", b"[]", b'{"x": 1}'])
def test_a_cache_that_is_broken_is_as_none(content: bytes) -> None:
    place = save_capacity(AMPLE)
    place.write_bytes(content)
    assert load_capacity() is None
    save_capacity(AMPLE)
    assert load_capacity() == AMPLE


def test_a_user_without_a_home_has_a_cache_all_the_same(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", nobody)
    assert save_capacity(AMPLE).is_relative_to(temporary)
    assert load_capacity() == AMPLE
