"""A run on a machine that does not keep up says so, in its verdict and in its exit status."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.fabric.link_model import link_model
from testbed.model.errors import ExitStatus
from testbed.sandbox import namespaces
from tests.e2e.conftest import TINY, CommandLine, wait_until_running
from tests.e2e.test_kill import assert_all_gone, descendants
from tests.sandbox import run_in_sandbox
from tests.waiting import WATCHDOG_S

pytestmark = [pytest.mark.root, pytest.mark.e2e]

HOGS_PER_CPU = 2
HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.setpriority(os.PRIO_PROCESS, 0, -20)
if os.path.exists("/proc/self/autogroup"):
    os.setsid()
    open("/proc/self/autogroup", "w").write("-20")
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    pass
"""


@contextmanager
def _overload(seconds: float) -> Iterator[None]:
    """Keep every CPU busy with programs that go before all others, for so long at most."""
    hogs = [
        subprocess.Popen([sys.executable, "-c", HOG, str(cpu), str(seconds)])
        for cpu in sorted(os.sched_getaffinity(0))
        for _ in range(HOGS_PER_CPU)
    ]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def _health(run: Path, process: str) -> list[dict[str, Any]]:
    lines = (run / "health.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["process"] == process]


def test_an_overloaded_machine_invalidates_the_run(testbed: CommandLine) -> None:
    scenario = testbed.scenario(duration="3 s")
    process = testbed.start("run", scenario, "--results", testbed.results, "--json")
    wait_until_running(process)
    with _overload(seconds=6):
        out, err = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == ExitStatus.UNTRUSTED, err
    answer = json.loads(out)
    summary = answer["summary"]
    assert answer["exit_status"] == ExitStatus.UNTRUSTED
    assert summary["verdict"] == "invalid"
    assert summary["integrity"]["bytes_lost"] == 0
    assert any("busy" in reason or "late" in reason for reason in summary["reasons"])
    (run,) = testbed.results.glob("e2e/2*")
    assert "invalid" in (run / "report.html").read_text()


def test_a_run_that_is_to_stop_if_late_does_and_leaves_nothing(testbed: CommandLine) -> None:
    scenario = testbed.scenario(duration="60 s", **TINY)
    process = testbed.start("run", scenario, "--results", testbed.results, "--stop-if-late")
    wait_until_running(process)
    parts = descendants(process.pid)
    (endpoint,) = (pid for pid, text in parts.items() if text.startswith("mrc-h0"))
    os.kill(endpoint, signal.SIGSTOP)
    time.sleep(0.3)  # two round trips
    os.kill(endpoint, signal.SIGCONT)
    _, err = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode == ExitStatus.UNTRUSTED, err
    assert re.search(r"ended after \d+ s, .* the event loop of h\d ran .* late", err)
    assert "nothing is kept" in err
    assert not any(testbed.results.iterdir())
    assert_all_gone(parts)


@pytest.mark.alone
def test_a_quiet_run_is_not_invalid_and_was_watched(testbed: CommandLine) -> None:
    summary = testbed.run(testbed.scenario(duration="3 s"))
    assert summary["verdict"] in ("trusted", "degraded")
    assert bool(summary["reasons"]) == (summary["verdict"] == "degraded")
    samples = _health(Path(summary["run"]), "machine")
    assert len(samples) >= 3
    for sample in samples:
        assert set(sample["cores"]) == {f"cpu{n}" for n in range(os.cpu_count() or 0)}
        assert 0 <= sample["busy_share"] <= 1
        assert sample["timer_late_ns"] >= 0
        assert "softnet" in sample["drops"]


def test_a_run_without_the_link_model_says_so(testbed: CommandLine) -> None:
    """From the fabric that was built without it to the verdict and the report."""

    def without_it() -> dict[str, Any]:
        if link_model.OBJECT.exists():
            namespaces.mount("/dev/null", str(link_model.OBJECT), "", namespaces.MS_BIND)
        scenario = testbed.scenario(duration="2 s", **TINY)
        return testbed.run(scenario, timed=False, drawn=True)

    summary = run_in_sandbox(without_it)
    assert summary["verdict"] in ("degraded", "invalid")
    assert any(reason.startswith("no link model (") for reason in summary["reasons"])
    assert summary["integrity"]["bytes_lost"] == 0
    assert "no link model (" in (Path(summary["run"]) / "report.html").read_text()
