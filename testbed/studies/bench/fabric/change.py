"""How soon a change through the link model's shared memory applies to every packet."""

import socket
import struct
import time

from testbed.emulation.endpoint.clock import realtime_offset_ns
from testbed.emulation.endpoint.sockets import SO_TIMESTAMPNS
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.units import NS_PER_S
from testbed.studies.bench.fabric.traffic import (
    in_background,
    packet,
    receiver,
    sender,
    two_host_topology,
)
from testbed.studies.bench.measure import Measurement, Setting, at_most, in_sandbox

TARGET_MS = 1.0
CHANGES = 20
SETTLE_S = 0.01
GAP_S = 50e-6
"""Between two packets: the resolution of the measurement."""

_TIMESPEC = struct.Struct("@qq")


def change(setting: Setting) -> list[Measurement]:
    """Blackhole the last link of a busy path repeatedly."""
    repeats = setting.repeat("change of a link", lambda: in_sandbox(_changes_ms))
    samples = [sample for samples in repeats for sample in samples]
    return [at_most("a change of a link, until every packet sees it", "ms", samples, TARGET_MS)]


def _changes_ms() -> list[float]:
    """From just before each change is requested to the last packet that the kernel received."""
    topology = two_host_topology(10e9)
    src, dst = topology.hosts
    data, to = packet(topology, src, dst, inner_bytes=100)
    with Fabric(topology) as fabric, sender(src) as out, receiver(dst) as arrivals:
        if fabric.link_model_missing is not None:
            raise fabric.link_model_missing
        link = topology.nic_link(dst, 0)
        control = LinkControl(topology, fabric.namespaces)
        control.open(link.name)
        arrivals.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        arrivals.setblocking(False)

        def keep_sending() -> None:
            while True:
                out.sendto(data, to)
                time.sleep(GAP_S)

        delays_ms = []
        with in_background(keep_sending):
            for _ in range(CHANGES):
                time.sleep(SETTLE_S)
                offset_ns = realtime_offset_ns()
                requested_ns = time.monotonic_ns()
                control.impair(link.directions[1], Impairment(blackhole=True))
                time.sleep(SETTLE_S)
                last_ns = _last_arrival_ns(arrivals) - offset_ns
                delays_ms.append(max(last_ns - requested_ns, 0) / 1e6)
                control.impair(link.directions[1], HEALTHY)
    return delays_ms


def _last_arrival_ns(arrivals: socket.socket) -> int:
    """When the last packet that waits in a socket was received, CLOCK_REALTIME."""
    last = 0
    while True:
        try:
            _, ancillary, _, _ = arrivals.recvmsg(256, 64)
        except BlockingIOError:
            if not last:
                raise TimeoutError("no packet arrived before the change") from None
            return last
        seconds, nanoseconds = _TIMESPEC.unpack_from(ancillary[0][2])
        last = seconds * NS_PER_S + nanoseconds
