"""What the experiment sees of its controller's end, where a fault is to kill it."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.controller.live import SOCKET
from testbed.emulation.controller.plan import ControllerPlan
from testbed.emulation.controller.player import FaultLog
from testbed.emulation.controller.process import ControllerProcess
from testbed.model.errors import RunFailedError
from testbed.model.faults.record import FAULTS, FaultRecord
from testbed.model.faults.schedule import CONTROLLER
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import spawn
from tests.commands import completed
from tests.controller.test_plan import TINY
from tests.sandbox import in_sandbox

ASKED_NS = 5
ENDINGS: dict[str, Callable[[], object]] = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "lives on": lambda: time.sleep(60),
    "exit status 0": lambda: None,
    "killed by signal 15": lambda: os.kill(os.getpid(), signal.SIGTERM),
}


@contextmanager
def _dying(directory: Path, ending: str) -> Iterator[ControllerProcess]:
    """A process that says what a controller says before it dies, and then ends like this."""
    log = FaultLog(directory / FAULTS)
    log.write(FaultRecord(0, "blackhole", "p1", ("a>b",), "link", 1, 2, 3, 4, 5, 6))
    record = FaultRecord(1, "kill", CONTROLLER, (CONTROLLER,), "endpoint", ASKED_NS, ASKED_NS + 1)
    log.write(record)

    def die(channel: Channel) -> None:
        channel.send({"ends": CONTROLLER})
        ENDINGS[ending]()

    process = spawn(die, title="the controller", isolated=False)
    controller = ControllerProcess(process, directory)
    yield controller
    assert process.has_ended, "whatever it did, it is gone"
    controller.kill()


def _records(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / FAULTS).read_text().splitlines()]


@pytest.mark.parametrize("seen", ["while the run lasts", "at its end"])
def test_a_death_is_recorded_with_its_proof(tmp_path: Path, seen: str) -> None:
    with _dying(tmp_path, "killed") as controller:
        if seen == "while the run lasts":
            while not controller.is_dead:
                controller.receive(5)
        else:
            controller.receive(5)
        controller.heal(0, lambda _messages: None)
        controller.stop()
        assert controller.receive() == []
    other, record = _records(tmp_path)
    assert (other["effective_ns"], other["proof"]) == (3, {})
    assert record["effective_ns"] > record["effective_after_ns"] == ASKED_NS + 1
    assert record["steps"][0]["state"] == {"dead": True}
    assert record["proof"] == {"injected": {"ended": True, "signal": 9}}
    assert record["error"] is None


@pytest.mark.parametrize("ending", [ending for ending in ENDINGS if ending != "killed"])
def test_what_does_not_die_by_the_fault_fails_the_run(tmp_path: Path, ending: str) -> None:
    with _dying(tmp_path, ending) as controller:
        controller.receive(5)
        with pytest.raises(RunFailedError, match=ending):
            controller.stop()
    record = _records(tmp_path)[1]
    assert record["effective_ns"] is None
    assert ending in record["error"]


@pytest.mark.root
@in_sandbox
def test_one_that_dies_before_the_fabric_stands_is_told(tmp_path: Path) -> None:
    """While it loads, or before it is told to get ready: who speaks to it hears how it ended."""
    plan = ControllerPlan(TINY, (), (), tmp_path)
    for ready_first in (True, False):
        controller = ControllerProcess.start(plan, tmp_path)
        if ready_first:
            controller.get_ready()
        os.kill(controller.process.pid, signal.SIGKILL)
        controller.process.wait()
        wait = partial(controller.wait_for, "ready") if ready_first else controller.get_ready
        with pytest.raises(RunFailedError, match="killed by signal 9"):
            wait()
        controller.kill()


@pytest.mark.root
@in_sandbox
def test_it_says_and_serves_nothing_until_the_fabric_stands(tmp_path: Path) -> None:
    """Nobody can inject a fault, or point a switch at it, while the fabric is being built."""
    plan = ControllerPlan(TINY, (), (), tmp_path)
    controller = ControllerProcess.start(plan, tmp_path)
    while not (tmp_path / FAULTS).exists():  # it has loaded
        assert controller.receive(0.05) == []
    assert controller.receive(0.2) == []
    assert not (tmp_path / SOCKET).exists()
    controller.get_ready()
    assert controller.wait_for("ready") == {"ready": True, "datapath": None}
    assert Path(f"/proc/{controller.process.pid}/comm").read_text().strip() == "controller"
    controller.stop()
    assert not (tmp_path / SOCKET).exists()


_DEAF = """
import os
kill = os.kill

def unless_the_controller_itself(pid, number):
    with open("/proc/self/comm") as name:
        if pid != os.getpid() or name.read().strip() != "controller":
            kill(pid, number)

os.kill = unless_the_controller_itself
"""
"""What Python loads before anything else: kill(2) of oneself does nothing in the controller."""


@pytest.mark.root
@pytest.mark.e2e
def test_a_run_fails_whose_controller_does_not_die(tmp_path: Path) -> None:
    """The whole command, with a controller that SIGKILL does not reach."""
    (tmp_path / "sitecustomize.py").write_text(_DEAF)
    (tmp_path / "x.yaml").write_text(
        "name: deaf\ntopology: clos-tiny\nduration: 3 s\nworkload: {pairs: [[h0, h1]]}\n"
        "timeline: [{kind: kill, target: controller, at: 500 ms}]\n"
    )
    command = [sys.executable, "-c", "from testbed.cli import main; main()", "run", "./x.yaml"]
    done = completed(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, timeout=60
    )
    assert done.returncode == 4, done.stderr
    assert "controller was to be killed, and lives on" in done.stderr
    (faults,) = (file for file in tmp_path.glob("results/*/2*/faults.jsonl"))
    (record,) = (json.loads(line) for line in faults.read_text().splitlines())
    assert record["effective_ns"] is None
    assert "state R" in record["error"], "as it saw itself"
