"""The CPU time of a packet on a link."""

import os
import socket
import time
from collections.abc import Callable

from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model import link_model as model
from testbed.emulation.fabric.link_model import shaping
from testbed.model.fabric.topology import Topology
from testbed.model.files.topologies import load_topology
from testbed.sandbox.system_calls import SO_RCVBUFFORCE
from testbed.studies.bench.fabric.traffic import (
    Packet,
    detach,
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
