"""Real faults on a real link, by both actuators, with packets on it all the time."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.controller.plan import ControllerPlan
from testbed.emulation.controller.process import ControllerProcess
from testbed.emulation.fabric import openvswitch
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.openvswitch import OpenVSwitch, available
from testbed.model.errors import RunFailedError
from testbed.model.faults.kinds import Fault
from tests.controller.test_plan import FABRIC_LINK, TINY, fault, struck
from tests.controller.traffic import LinkTraffic
from tests.sandbox import in_sandbox
from tests.waiting import wait_until

MS = 1_000_000
AFTER_NS = 100 * MS
"""For so long it is looked, after a fault has healed, that nothing is lost any more."""


@pytest.fixture(scope="module")
def openvswitch_runs() -> None:
    """Skip where Open vSwitch does not run, with the reason."""
    open_vswitch = available()
    if open_vswitch.datapath is None:
        pytest.skip(f"Open vSwitch: {open_vswitch.reason}; {open_vswitch.remedy}")


@dataclass(frozen=True)
class Running:
    """A fabric with its controller, ready, and traffic on the link."""

    controller: ControllerProcess
    switch: OpenVSwitch | None
    traffic: LinkTraffic
    directory: Path

    def play(self, key: str, timeout_s: float = 8) -> list[dict[str, Any]]:
        """Begin the timeline 50 ms from now; what the controller says, until it says this.

        It has begun then, even if there is nothing in it.
        """
        t0_ns = time.monotonic_ns() + 50 * MS
        self.controller.begin(t0_ns, {})
        messages = self.listen(key, timeout_s)
        time.sleep(max(0, t0_ns - time.monotonic_ns()) / 1e9)
        return messages

    def listen(self, key: str, timeout_s: float = 8) -> list[dict[str, Any]]:
        """What the controller says, until it says this."""
        messages: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_s
        while not any(key in message for message in messages):
            assert time.monotonic() < deadline, f"no '{key}' but {messages}"
            messages += self.controller.receive(0.2)
        return messages

    def await_traffic(self, since_ns: int) -> None:
        """Wait for what `assert_silence` wants to see arrive after a fault has healed."""
        enough_ns = since_ns + AFTER_NS
        wait_until(lambda: min(times[-1] for times in self.traffic.sent) > enough_ns)

    def faults(self) -> list[dict[str, Any]]:
        """Read what `faults.jsonl` says now."""
        lines = (self.directory / "faults.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@contextmanager
def running(
    directory: Path, faults: tuple[Fault, ...], wires: tuple[str, ...]
) -> Iterator[Running]:
    """Build the smallest fabric in this sandbox, with its controller."""
    topology = TINY
    plan = ControllerPlan(topology, struck(*faults), wires, directory)
    controller = ControllerProcess.start(plan, directory)
    with Fabric(topology, wires) as fabric:
        controller.get_ready()
        switch = None
        if wires:
            switch = OpenVSwitch.start(plan.openflow_wires, directory)
            switch.connect(controller.wait_for("listening")["listening"])
        controller.wait_for("ready")
        fabric.sweep()
        with LinkTraffic(topology.links[FABRIC_LINK]) as traffic:
            yield Running(controller, switch, traffic, directory)


def assert_silence(run: Running, record: dict[str, Any]) -> None:
    """Nothing sent while the fault held arrived; everything sent well outside it did."""
    assert record["error"] is None
    assert record["requested_ns"] <= record["effective_after_ns"] <= record["effective_ns"]
    assert record["heal_requested_ns"] <= record["heal_after_ns"]
    # A frame that waits in the switch's socket when the fault heals is forwarded after all.
    start, end = record["effective_ns"], record["heal_after_ns"] - 20 * MS
    assert run.traffic.arrived_between(start, end) == (0, 0)
    assert min(run.traffic.lost_between(start, end)) > 0
    before = record["effective_after_ns"] - 20 * MS
    assert run.traffic.lost_between(before - 80 * MS, before) == (0, 0)
    after = record["healed_ns"]
    assert run.traffic.lost_between(after, after + AFTER_NS) == (0, 0)
    assert min(run.traffic.arrived_between(after, after + AFTER_NS)) > 0


@pytest.mark.root
@pytest.mark.usefixtures("openvswitch_runs")
@pytest.mark.parametrize("actuator", ["openflow", "link"])
@in_sandbox
def test_a_blackhole_and_a_cut_silence_both_directions(actuator: str, tmp_path: Path) -> None:
    """The blackhole with carrier, the cut without; both heal, and the records say when."""
    timeline = (
        fault(FABRIC_LINK, "200 ms", "300 ms", "blackhole"),
        fault(FABRIC_LINK, "700 ms", "300 ms", "cut"),
    )
    wires = (FABRIC_LINK,) if actuator == "openflow" else ()
    with running(tmp_path, timeline, wires) as run:
        messages = run.play("done")
        run.await_traffic(run.faults()[-1]["healed_ns"])
        if run.switch:
            assert not any(run.switch.packet_drops().values())  # in user space it counts them
            run.switch.check()
        run.controller.stop()
    states = [message["fault"] for message in messages if "fault" in message]
    assert [state["index"] for state in states] == [0, 0, 1, 1]
    blackhole, cut = run.faults()
    assert (blackhole, cut) == (states[1], states[3])
    for record in (blackhole, cut):
        assert record["actuator"] == actuator
        assert_silence(run, record)
        assert record["proof"]["healed"]["carrier"] is True
    shown = blackhole["proof"]["until_end"]
    assert shown["carrier"] is True
    if actuator == "openflow":
        assert shown["forwarded"] == [0, 0]
        assert min(shown["dropped_by_flows"]) > 0
    else:
        assert min(shown["lost"]) > 0
    assert cut["proof"]["injected"]["carrier"] is False
    assert cut["proof"]["until_end"]["carrier"] is False


@pytest.mark.root
@pytest.mark.usefixtures("openvswitch_runs")
@in_sandbox
def test_a_switch_that_restarts_gets_its_flows_and_its_faults_back(tmp_path: Path) -> None:
    """The new one begins empty: wires are patched again, the blackhole holds on."""
    timeline = (fault(FABRIC_LINK, "200 ms", "2500 ms"),)
    with running(tmp_path, timeline, (FABRIC_LINK,)) as run:
        run.play("fault")
        assert run.switch
        os.kill(run.switch.pid, signal.SIGKILL)
        os.waitid(os.P_PID, run.switch.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(RunFailedError, match="ovs-vswitchd ended"):
            run.switch.check()
        run.switch.start_vswitchd()
        run.listen("done")
        run.await_traffic(run.faults()[-1]["healed_ns"])
        run.controller.stop()
    (record,) = run.faults()
    assert_silence(run, record)
    assert min(record["proof"]["until_end"]["dropped_by_flows"]) > 100  # by the new one


@pytest.mark.root
@pytest.mark.usefixtures("openvswitch_runs")
@pytest.mark.kernel
@in_sandbox
def test_without_its_controller_the_switch_goes_on(tmp_path: Path) -> None:
    """It fails secure: the flows that it has stay."""
    with running(tmp_path, (), (FABRIC_LINK,)) as run:
        run.controller.kill()
        since = time.monotonic_ns()
        end = since + 60_000 * MS
        wait_until(lambda: min(run.traffic.arrived_between(since, end)) > 300)
    assert run.traffic.lost_between(since, end) == (0, 0)
    with pytest.raises(RunFailedError, match="killed by signal 9"):
        run.controller.stop()


@pytest.mark.root
@pytest.mark.usefixtures("openvswitch_runs")
@pytest.mark.kernel
@in_sandbox
def test_a_fault_that_does_not_take_effect_fails_the_run(tmp_path: Path) -> None:
    """A switch that does not answer: the record says so, and so does the exit status."""
    timeline = (fault(FABRIC_LINK, "50 ms", "100 ms"), fault(FABRIC_LINK, "1 min", "1 s", "cut"))
    with running(tmp_path, timeline, (FABRIC_LINK,)) as run:
        assert run.switch
        os.kill(run.switch.pid, signal.SIGSTOP)
        (message,) = run.play("fault")
        os.kill(run.switch.pid, signal.SIGCONT)
        with pytest.raises(RunFailedError, match="ended: exit status 1"):
            run.controller.stop()
    failed, never = run.faults()
    assert failed == message["fault"]
    assert failed["effective_ns"] is None
    assert "did not answer" in failed["error"]
    assert never["effective_ns"] is None
    assert "before it was due" in never["error"]


def test_open_vswitch_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    monkeypatch.setattr(openvswitch, "find_programs", lambda: ({}, ["ovs-vswitchd"]))
    open_vswitch = available()
    assert open_vswitch.datapath is None
    assert "ovs-vswitchd" in open_vswitch.reason
    assert "openvswitch-switch" in open_vswitch.remedy
