"""How soon a fault that the controller injects applies to every packet, and heals."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter

from testbed.emulation.controller.plan import ControllerPlan, choose_wires
from testbed.emulation.controller.process import ControllerProcess
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.openvswitch import OpenVSwitch, available
from testbed.model.faults.kinds import Fault
from testbed.model.faults.record import FAULTS
from testbed.model.faults.schedule import scheduled_faults
from testbed.model.files.topologies import load_topology
from testbed.studies.bench.measure import Measurement, Setting, at_most, in_sandbox, no_target

TOPOLOGY = "clos-4plane"
TARGET_MS = 2.0
EFFECT = "from call to effect"
LASTING_MS, GAP_MS = 60, 60
AT_ONCE: dict[str, dict[str, Any]] = {
    "cut": {},
    "blackhole": {},
    "loss": {"probability": 0.1},
    "corrupt": {"probability": 0.1},
    "delay": {"extra": "1 us"},
    "ev_loss": {"probability": 1.0, "path": "p0/t1_1"},
    "flap": {"period": f"{LASTING_MS} ms"},
}
"""Kinds that take only a few stores to memory, on any target; a change of rate is slower."""

TARGETS = ("p0_t0_0--p0_t1_1", "h0--p0_t0_0", "p0_t0_0", "p0_t1_1", "p0")
WIRES = ("p0_t0_0--p0_t1_1", "h0--p0_t0_0")


def faults(setting: Setting) -> list[Measurement]:
    """Inject every immediate kind on links, switches and a plane, one after the other."""
    faults = [(kind, target) for kind in AT_ONCE for target in TARGETS]
    figures = _figures(setting, "on the links", faults, wires=False)
    if available().datapath is not None:
        wired = [(kind, wire) for kind in ("cut", "blackhole") for wire in WIRES]
        figures += _figures(setting, "through Open vSwitch", wired, wires=True)
    effects = [ms for figure in figures if figure.name.endswith(EFFECT) for ms in figure.samples]
    return [at_most(f"any fault, {EFFECT}", "ms", effects, TARGET_MS), *figures]


def _figures(
    setting: Setting, where: str, faults: list[tuple[str, str]], *, wires: bool
) -> list[Measurement]:
    repeats = setting.repeat(
        f"faults {where}", lambda: in_sandbox(lambda: list(_play(faults, wires=wires)))
    )
    effects, healings = zip(*(times for played in repeats for times in played), strict=True)
    return [
        at_most(f"a fault {where}, {EFFECT}", "ms", effects, TARGET_MS),
        no_target(f"a fault {where}, from call to healed", "ms", healings),
    ]


def _play(faults: list[tuple[str, str]], *, wires: bool) -> Iterator[tuple[float, float]]:
    """Milliseconds of each fault from its request to its effect, and from its end to healed."""
    topology = load_topology(TOPOLOGY)
    entries = [
        {
            "kind": kind,
            "target": target,
            "at": f"{100 + i * (LASTING_MS + GAP_MS)} ms",
            "for": f"{LASTING_MS} ms",
            **AT_ONCE[kind],
        }
        for i, (kind, target) in enumerate(faults)
    ]
    timeline = TypeAdapter(tuple[Fault, ...]).validate_python(entries)
    happen = scheduled_faults(topology, timeline, 0, 1)
    wired = choose_wires(happen, openvswitch=wires)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="bench-faults-")))
        plan = ControllerPlan(topology, happen, wired, directory)
        controller = ControllerProcess.start(plan, directory)
        fabric = stack.enter_context(Fabric(topology, wired))
        controller.get_ready()
        if wired:
            switch = OpenVSwitch.start(plan.openflow_wires, directory)
            stack.callback(switch.stop)
            switch.connect(controller.wait_for("listening")["listening"])
        controller.wait_for("ready")
        fabric.sweep()
        controller.begin(time.monotonic_ns(), {})
        controller.wait_for("done", timeout_s=60)
        controller.stop()
        for line in (directory / FAULTS).read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            yield (
                (record["effective_ns"] - record["requested_ns"]) / 1e6,
                (record["healed_ns"] - record["heal_requested_ns"]) / 1e6,
            )
