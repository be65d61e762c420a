"""Emulated runs by a worker that is not root, and calls `sudo -n`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.model.errors import SIGNALLED, ExitStatus
from tests.commands import completed
from tests.waiting import WATCHDOG_S, wait_until

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.long]

SUDO = Path(__file__).with_name("sudo.sh")
TINY = """\
name: tiny
topology: clos-tiny
duration: 1 s
workload: {pairs: [[h0, h1]], message_size: 16 KiB}
"""
AS_NOBODY = ("setpriv", "--reuid=nobody", "--clear-groups")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that others than root can reach."""
    if shutil.which("sudo") is None:
        pytest.skip("no sudo: apt-get install --no-install-recommends sudo")
    reached = subprocess.run(
        [*AS_NOBODY, sys.executable, "-P", "-m", "testbed", "--help"],
        capture_output=True,
        check=False,
    )
    if reached.returncode:
        pytest.skip(f"nobody cannot start {sys.executable}: move the checkout out of root's home")
    with tempfile.TemporaryDirectory(prefix="testbed-sudo-") as name:
        path = Path(name)
        (path / "tiny.yaml").write_text(TINY)
        (path / "tiny.yaml").chmod(0o644)
        path.chmod(0o755)
        yield path


def _as_nobody(directory: Path, *command: str) -> list[str]:
    return [str(SUDO), str(directory), sys.executable, *command]


def _series(directory: Path, *options: str) -> list[str]:
    testbed = (sys.executable, "-m", "testbed", "run", "tiny.yaml")
    series = ("--repeat", "2", "--into", "here", "--no-figures", "--on", "local")
    return _as_nobody(directory, *testbed, *series, *options)


def test_a_worker_without_root_emulates(directory: Path) -> None:
    """What root leaves belongs to the worker's user. Trusted or not: the machine may be busy."""
    done = completed(_series(directory))
    fine = (ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED)
    assert done.returncode in fine, done.stderr
    nobody = directory.stat().st_uid
    assert nobody != 0
    series = json.loads((directory / "here/sweep.json").read_text())
    assert [(run["seed"], run["error"]) for run in series["done"]] == [(1, None), (2, None)]
    for run in series["done"]:
        manifest = json.loads((directory / "here" / run["run"] / "manifest.json").read_text())
        assert not manifest.get("simulated")
    owners = {path.lstat().st_uid for path in (directory / "here").rglob("*")}
    assert owners == {nobody}


def test_the_rule_allows_nothing_else(directory: Path) -> None:
    """Neither another program nor a testbed in the current directory, which is nobody's."""
    (directory / "testbed").mkdir()
    (directory / "testbed/__init__.py").write_text("")
    (directory / "testbed/__main__.py").write_text("open('proof', 'w')")
    script = f"sudo -n id; sudo -n {sys.executable} -P -m testbed doctor --help"
    done = completed(_as_nobody(directory, "sh", "-c", script))
    assert "uid=0" not in done.stdout
    assert "a password is required" in done.stderr
    assert "Check what this machine can do" in done.stdout
    assert not (directory / "proof").exists()


def test_a_run_ends_with_its_worker_and_with_the_command(directory: Path) -> None:
    """Though it is root's, and its worker is killed with SIGKILL, or cannot signal it."""
    command = _series(directory, "--set", "duration=120 s")
    series = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: len(_under_way()) == 1)
        (first,) = _under_way()
        worker = _parent(first)
        assert worker is not None
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: first not in _under_way())
        wait_until(lambda: len(_under_way()) == 1)  # by the worker that is started again
    finally:
        for pid in _commands(directory):
            os.kill(pid, signal.SIGINT)
        _, err = series.communicate(timeout=WATCHDOG_S)
    assert series.returncode == SIGNALLED + signal.SIGINT, err
    wait_until(lambda: not _under_way())


def _under_way() -> set[int]:
    """The runs that `sudo` has started with this Python, by their PIDs.

    A child of `sudo` has the same command line until it executes the run.
    """
    command = [sys.executable, "-P", "-m", "testbed", "run", "--job"]
    started = {
        pid for pid, words in _processes() if words[:1] == ["sudo"] and words[2:8] == command
    }
    return {pid for pid in started if _parent(pid) not in {None, *started}}


def _parent(pid: int) -> int | None:
    """The parent of a process; None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return int(status.partition("PPid:")[2].split()[0])


def _commands(directory: Path) -> list[int]:
    """The command of the series."""
    return [
        pid
        for pid, words in _processes()
        if words[1:5] == ["-m", "testbed", "run", "tiny.yaml"]
        and Path(f"/proc/{pid}/cwd").readlink() == directory
    ]


def _processes() -> Iterator[tuple[int, list[str]]]:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # it has ended
        yield int(place.name), words
