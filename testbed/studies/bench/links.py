"""Links: what a packet costs, whether they have their rate, how soon faults on them hold.

The load of the first two is full packets from host to host, as fast as the kernel takes them.
"""

import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter

from testbed.emulation.controller.plan import ControllerPlan, choose_wires
from testbed.emulation.controller.process import ControllerProcess
from testbed.emulation.endpoint.nic import Carriers
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model import link_model as model
from testbed.emulation.fabric.link_model import shaping
from testbed.emulation.fabric.netlink import Request
from testbed.emulation.fabric.openvswitch import OpenVSwitch, available
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import HEADERS, PAYLOAD_MTU, Topology
from testbed.model.faults.kinds import Fault
from testbed.model.faults.record import FAULTS
from testbed.model.faults.schedule import scheduled_faults
from testbed.model.files.topologies import load_topology
from testbed.model.units import NS_PER_S
from testbed.mrc.constants import DscpClasses
from testbed.sandbox import namespaces
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import spawn
from testbed.sandbox.system_calls import SO_RCVBUFFORCE, SO_SNDBUFFORCE
from testbed.studies.bench.measure import Measurement, Setting, at_most, in_sandbox, no_target

BUFFER_BYTES = 1 << 29
_OUTER_BYTES = 40

Packet = tuple[bytes, tuple[str, int]]
"""An outer packet, whole, and the address to send it to."""


def two_host_topology(rate_bps: float, **changes: object) -> Topology:
    """Two hosts with a T1 between them: a path of four links of one emulated rate."""
    return Topology.model_validate(
        {
            "name": "line",
            "planes": 1,
            "t0_per_plane": 2,
            "t1_per_plane": 1,
            "hosts_per_t0": 1,
            "dilation": 100e9 / rate_bps,
            **changes,
        }
    )


def packet(topology: Topology, src: Node, dst: Node, inner_bytes: int = 0) -> Packet:
    """A data packet of the class that is never trimmed; by default a full one."""
    size = inner_bytes or HEADERS - _OUTER_BYTES + PAYLOAD_MTU
    carrier = Carriers(topology, src).to(
        nic_address(topology, dst).packed, 0, DscpClasses().no_trim
    )
    return carrier.outer_header(size) + bytes(size), carrier.address


def sender(node: Node) -> socket.socket:
    """A raw socket in a node that takes packets whole, and as many as are given to it."""
    opened = _raw_socket(node, socket.IPPROTO_RAW)
    opened.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
    return opened


def receiver(node: Node) -> socket.socket:
    """A raw socket in a node that gets what arrives for its NIC, without the outer header."""
    return _raw_socket(node, socket.IPPROTO_IPV6)


def _raw_socket(node: Node, protocol: int) -> socket.socket:
    with namespaces.entered_by_name(node.name):
        return socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol)


@contextmanager
def in_background(job: Callable[[], None]) -> Iterator[None]:
    """Run a function in a process of its own until the end of the block."""

    def work(_: Channel) -> None:
        job()

    with spawn(work, title="the load", isolated=False) as process:
        yield
        process.kill()


def detach(fabric: Fabric, request: Callable[[int], Request]) -> None:
    """Take something off every port; `request` asks the kernel for it, given an ifindex."""
    for name, node in fabric.topology.nodes.items():
        ports = [port for port, _, _ in fabric.topology.adjacency[node]]
        fabric.namespaces[name].netlink.send(request(port.ifindex) for port in ports)


RATES_MBPS = (10, 25, 50, 100, 200)
TARGET_PERCENT = 1.0
WARM_UP_S = 0.3
PACKETS = 1000
"""Packets in a measured window: one more or less is 0.1%."""


def rate(setting: Setting) -> list[Measurement]:
    """Send full packets over the four links of a path, at several rates."""
    figures = []
    for mbps in RATES_MBPS:
        measure = partial(in_sandbox, partial(_worst_percent, mbps * 1e6))
        samples = setting.repeat(f"rate of {mbps} Mbit/s", measure)
        name = f"links of {mbps} Mbit/s, off their rate at worst"
        figures.append(at_most(name, "%", samples, TARGET_PERCENT))
    return figures


def _worst_percent(rate_bps: float) -> float:
    """The largest deviation of a link of the path from its rate, in percent of the rate."""
    topology = two_host_topology(rate_bps)
    src, dst = topology.hosts
    bytes_per_s = rate_bps / 8
    window_s = PACKETS * topology.wire_bytes / bytes_per_s
    count = math.ceil((window_s + 2 * WARM_UP_S) * bytes_per_s / topology.wire_bytes)
    data, to = packet(topology, src, dst)
    with Fabric(topology) as fabric, sender(src) as out:
        counters = fabric.counters()

        def flood() -> None:
            for _ in range(count):
                out.sendto(data, to)

        path = ("h0>p0_t0_0", "p0_t0_0>p0_t1_0", "p0_t1_0>p0_t0_1", "p0_t0_1>h1")
        with in_background(flood):
            time.sleep(WARM_UP_S)
            start, before = time.monotonic_ns(), counters.directions()
            time.sleep(window_s)
            end, after = time.monotonic_ns(), counters.directions()
        carried = [
            (after[way].bytes - before[way].bytes) * NS_PER_S / (end - start) for way in path
        ]
    return max(abs(rate / bytes_per_s - 1) for rate in carried) * 100


MODEL_TARGET_NS = 600
TARGET_NS = 2000
SAMPLE_TARGET_MS = 25
"""A tenth of the 250 ms between two samples of a run."""
SAMPLES = 20
INNER_BYTES = 1000
BATCH_PACKETS = 1000
BATCHES = 20
RECEIVE_BUFFER_BYTES = 1 << 27
LINKS = 4
"""Links of a path over a T1."""

UNHINDERED_BPS = 100e9
"""So fast that no packet ever waits in a queue."""

STAGES = ("with link model and pacing", "with pacing", "bare")


def link_model(setting: Setting) -> list[Measurement]:
    """Send packets over four links as fast as one CPU can, with model and pacing and without.

    Sender and every hop share one CPU, so the time that passes is the CPU time of all. The
    quickest of several batches counts: nothing else disturbed it.
    """
    cost = _measured(setting, "cost of links", _per_link_ns)
    whole, paced, bare = (cost[stage] for stage in STAGES)
    of_model, of_both = _differences(whole, paced), _differences(whole, bare)
    return [
        *(no_target(f"a packet on a link, {stage}", "ns", cost[stage]) for stage in STAGES),
        at_most("the link model, per packet and link", "ns", of_model, MODEL_TARGET_NS),
        at_most("model and pacing, per packet and link", "ns", of_both, TARGET_NS),
        at_most(
            "a sample of all counters of clos-4plane", "ms", _samples_ms(setting), SAMPLE_TARGET_MS
        ),
    ]


def _measured(
    setting: Setting, what: str, measure: Callable[[], list[float]]
) -> dict[str, list[float]]:
    rows = setting.repeat(what, lambda: in_sandbox(measure))
    return {
        stage: list(column) for stage, column in zip(STAGES, zip(*rows, strict=True), strict=True)
    }


def _differences(more: list[float], less: list[float]) -> list[float]:
    return [larger - smaller for larger, smaller in zip(more, less, strict=True)]


def _stages(topology: Topology, measure: Callable[[Fabric], float]) -> list[float]:
    """Measure on a whole fabric, then without the link model, then also without queues."""
    with Fabric(topology) as fabric:
        if fabric.link_model_missing is not None:
            raise fabric.link_model_missing
        fabric.verify()
        results = [measure(fabric)]
        model.PINNED.unlink()  # what counts from here on is the kernel
        for request in (shaping.detach_model, shaping.detach):
            detach(fabric, request)
            results.append(measure(fabric))
    return results


def _per_link_ns() -> list[float]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    topology = two_host_topology(UNHINDERED_BPS)
    src, dst = topology.hosts

    def measure(_: Fabric) -> float:
        data = packet(topology, src, dst, inner_bytes=INNER_BYTES)
        with sender(src) as out, receiver(dst) as arrivals:
            arrivals.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
            best = min(_batch_ns(out, arrivals, data) for _ in range(BATCHES))
        return best / (BATCH_PACKETS * LINKS)

    return _stages(topology, measure)


def _batch_ns(out: socket.socket, arrivals: socket.socket, data: Packet) -> int:
    send, (content, to) = out.sendto, data
    start = time.perf_counter_ns()
    for _ in range(BATCH_PACKETS):
        send(content, to)
    took = time.perf_counter_ns() - start
    arrivals.settimeout(1)
    for _ in range(BATCH_PACKETS):
        arrivals.recv(len(content))  # TimeoutError: one was lost, and the figure means nothing
    return took


def _samples_ms(setting: Setting) -> list[float]:
    """CPU time of a sample of the counters of every link direction, in ms."""
    topology = load_topology("clos-4plane")

    def measure() -> float:
        with Fabric(topology) as fabric:
            counters = fabric.counters()
            counters.directions()
            start = time.process_time()
            for _ in range(SAMPLES):
                counters.directions()
            return (time.process_time() - start) * 1e3 / SAMPLES

    return setting.repeat("samples of counters", lambda: in_sandbox(measure))


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
