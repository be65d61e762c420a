"""Whatever is killed, nothing is left behind, and what was finished stays whole."""

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.commands import completed
from tests.e2e.conftest import TINY, CommandLine, wait_until_running
from tests.waiting import WATCHDOG_S, wait_until

pytestmark = [pytest.mark.root, pytest.mark.e2e]

VICTIMS = {
    "an endpoint": "mrc-h0",
    "the controller": "controller",
    "ovs-vswitchd": "ovs-vswitchd",
}
FAULT = {"kind": "blackhole", "target": "p0_t0_0--p0_t1_1", "at": "2 s", "for": "1 s"}


def descendants(root: int) -> dict[int, str]:
    """Every process below one, in whatever namespace, with its name and arguments."""
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children[int(fields[1])].append(int(stat.parent.name))
    found, todo = {}, list(children[root])
    while todo:
        pid = todo.pop()
        todo += children[pid]
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            found[pid] = " ".join([Path(f"/proc/{pid}/comm").read_text().strip(), *words])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _host_state() -> tuple[str, str]:
    def say(*command: str) -> str:
        return completed(command, check=True).stdout

    return say("ip", "-o", "link"), say("ip", "netns")


GONE_WATCHDOG_S = 20
"""Nothing ends a process later, unless by chance: a process that runs so long was left behind."""


@pytest.fixture
def running(testbed: CommandLine) -> Iterator[subprocess.Popen[str]]:
    """A run in full swing."""
    with _in_full_swing(testbed) as process:
        yield process


@pytest.fixture
def small(testbed: CommandLine) -> Iterator[subprocess.Popen[str]]:
    """The same on the smallest fabric."""
    with _in_full_swing(testbed, **TINY) as process:
        yield process


@contextmanager
def _in_full_swing(testbed: CommandLine, **changes: Any) -> Iterator[subprocess.Popen[str]]:
    scenario = testbed.scenario(duration="30 s", timeline=[FAULT], **changes)
    process = testbed.start("run", scenario, "--results", testbed.results)
    try:
        wait_until_running(process)
        time.sleep(0.5)  # data is flowing
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits for init to take note of its end does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _names(pid: int) -> list[str]:
    return list(descendants(pid).values())


def assert_all_gone(pids: dict[int, str]) -> None:
    """Wait until none of these processes runs any more."""
    wait_until(lambda: not any(map(_is_alive, pids)), f"all of {pids} end", GONE_WATCHDOG_S)


@pytest.mark.parametrize("victim", VICTIMS)
def test_killing_a_part_ends_the_run(small: subprocess.Popen[str], victim: str) -> None:
    before = _host_state()
    parts = descendants(small.pid)
    (pid, *_) = [pid for pid, text in parts.items() if text.startswith(VICTIMS[victim])]
    os.kill(pid, signal.SIGKILL)
    _, err = small.communicate(timeout=WATCHDOG_S)
    assert small.returncode == 4
    assert "ended" in err
    assert "Traceback" not in err
    assert_all_gone(parts)
    assert _host_state() == before


def test_killing_the_command_ends_everything(
    testbed: CommandLine, running: subprocess.Popen[str]
) -> None:
    before = _host_state()
    parts = descendants(running.pid)
    assert len(parts) >= 5
    running.kill()
    assert_all_gone(parts)
    assert _host_state() == before
    summary = testbed.run(testbed.scenario(duration="2 s", **TINY), timed=False)
    assert summary["integrity"]["bytes_lost"] == 0


def test_ctrl_c_stops_the_run(running: subprocess.Popen[str]) -> None:
    parts = descendants(running.pid)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=WATCHDOG_S)
    assert running.returncode == 130
    assert "kept" in err
    assert_all_gone(parts)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_of_a_run_that_ends_while_it_is_built(
    testbed: CommandLine, ending: signal.Signals
) -> None:
    """The controller loads then, and the fabric is half there."""
    before = _host_state()
    scenario = testbed.scenario(duration="30 s", timeline=[FAULT])
    process = testbed.start("run", scenario, "--results", testbed.results)
    wait_until(lambda: any(name.startswith("controller") for name in _names(process.pid)))
    parts = descendants(process.pid)
    process.send_signal(ending)
    process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == (130 if ending == signal.SIGINT else -ending)
    assert_all_gone(parts)
    assert _host_state() == before


def test_a_finished_result_outlives_a_killed_run(testbed: CommandLine) -> None:
    scenario = testbed.scenario(duration="2 s", **TINY)
    run = Path(testbed.run(scenario, timed=False, drawn=True)["run"])
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with _in_full_swing(testbed, **TINY) as process:
        process.kill()
        process.communicate()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    unfinished = [path.parent for path in testbed.results.glob("*/2*/manifest.json")]
    assert len(unfinished) == 2
    assert [path for path in unfinished if (path / "summary.json").exists()] == [run]
