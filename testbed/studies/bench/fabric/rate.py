"""Whether links have their configured rate, on every link of a loaded path at once."""

import math
import time
from functools import partial

from testbed.emulation.fabric.fabric import Fabric
from testbed.model.units import NS_PER_S
from testbed.studies.bench.fabric.traffic import in_background, packet, sender, two_host_topology
from testbed.studies.bench.measure import Measurement, Setting, at_most, in_sandbox

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
