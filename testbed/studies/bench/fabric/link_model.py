"""The CPU time of a packet on a link, and how many packet-hops the machine carries."""

import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.layout import receive_cpu
from testbed.emulation.fabric.link_model import link_model as model
from testbed.emulation.fabric.link_model import shaping
from testbed.model.fabric.addressing import Path, ev_for_path
from testbed.model.fabric.topology import Topology
from testbed.model.files.topologies import load_topology
from testbed.model.units import NS_PER_S
from testbed.sandbox.system_calls import SO_RCVBUFFORCE
from testbed.studies.bench.fabric.traffic import (
    Packet,
    detach,
    in_background,
    packet,
    receiver,
    sender,
    two_host_topology,
)
from testbed.studies.bench.measure import Measurement, Setting, at_most, in_sandbox, no_target

MODEL_TARGET_NS = 600
TARGET_NS = 2000
SAMPLE_TARGET_MS = 25
"""A tenth of the 250 ms between two samples of a run."""
SAMPLES = 20
INNER_BYTES = 1000
PACKETS = 1000
BATCHES = 20
BUFFER_BYTES = 1 << 27
LINKS = 4
"""Links of a path over a T1."""

UNHINDERED_BPS = 100e9
"""So fast that no packet ever waits in a queue."""

CEILING_WARM_UP_S = 0.1
CEILING_S = 0.5
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


def ceiling(setting: Setting) -> list[Measurement]:
    """Send full packets from a host on each CPU; each CPU has planes of its own."""
    rates = _measured(setting, "ceiling of the fabric", _hops_per_s)
    return [
        no_target(f"the whole fabric, {stage}", "packet-hops/s", rates[stage]) for stage in STAGES
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


# --- cost -------------------------------------------------------------------------------------


def _per_link_ns() -> list[float]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    topology = two_host_topology(UNHINDERED_BPS)
    src, dst = topology.hosts

    def measure(_: Fabric) -> float:
        data = packet(topology, src, dst, inner_bytes=INNER_BYTES)
        with sender(src) as out, receiver(dst) as arrivals:
            arrivals.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            best = min(_batch_ns(out, arrivals, data) for _ in range(BATCHES))
        return best / (PACKETS * LINKS)

    return _stages(topology, measure)


def _batch_ns(out: socket.socket, arrivals: socket.socket, data: Packet) -> int:
    send, (content, to) = out.sendto, data
    start = time.perf_counter_ns()
    for _ in range(PACKETS):
        send(content, to)
    took = time.perf_counter_ns() - start
    arrivals.settimeout(1)
    for _ in range(PACKETS):
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


# --- ceiling ----------------------------------------------------------------------------------


def _hops_per_s() -> list[float]:
    topology = Topology(
        name="ceiling", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4, dilation=1
    )
    cpus = sorted(os.sched_getaffinity(0))
    half = len(topology.hosts) // 2
    pairs = list(zip(topology.hosts[:half], topology.hosts[half:], strict=True))

    def packets_for(number: int) -> tuple[socket.socket, list[Packet]]:
        """The socket and packets of a CPU, if possible on paths whose hops it processes."""
        src, dst = pairs[number % len(pairs)]
        paths = [Path(p, t1) for p in range(topology.planes) for t1 in range(topology.t1_per_plane)]
        of_cpu = [
            path
            for path in paths
            if receive_cpu(topology, topology.nic_link(src, path.plane), len(cpus)) == number
        ]
        evs = [ev_for_path(path) for path in of_cpu or paths]
        return sender(src), [packet(topology, src, dst, ev) for ev in evs]

    def measure(fabric: Fabric) -> float:
        with ExitStack() as stack:
            counters = fabric.counters()
            for host in topology.hosts:  # so that the kernel refuses nothing
                stack.enter_context(receiver(host))

            def arrived() -> int:
                hosts = {host.name for host in topology.hosts}
                return sum(
                    count.packets
                    for direction, count in counters.directions().items()
                    if direction.split(">")[1] in hosts
                )

            for number, cpu in enumerate(cpus):
                out, packets = packets_for(number)
                stack.enter_context(out)
                stack.enter_context(in_background(lambda o=out, p=packets: _flood(o, p), cpu))  # type: ignore[misc]
            time.sleep(CEILING_WARM_UP_S)
            start, before = time.monotonic_ns(), arrived()
            time.sleep(CEILING_S)
            end, after = time.monotonic_ns(), arrived()
        return (after - before) * LINKS * NS_PER_S / (end - start)

    return _stages(topology, measure)


def _flood(out: socket.socket, packets: list[Packet]) -> None:
    while True:
        for content, to in packets:
            out.sendto(content, to)
