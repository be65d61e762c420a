"""A link carries its configured rate, and its queue drops what does not fit."""

import socket
import time
from collections.abc import Mapping
from pathlib import Path as FilePath

import pytest

from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model import link_model
from testbed.emulation.fabric.link_model.link_control import LinkCounters
from testbed.emulation.fabric.link_model.shaping import DEEPER
from testbed.model.fabric.addressing import Path
from testbed.model.fabric.topology import NIC_QUEUE_BDP, Topology, shape_of
from testbed.model.run_files.content import LinkSample
from tests.sandbox import in_sandbox, run_in_sandbox

from .packets import encapsulated, raw_socket


def test_switch_queues_are_short_and_nic_queues_deep(tiny: Topology) -> None:
    """In BDPs; the rate is the dilated one."""
    link = tiny.links["h0--p0_t0_0"]
    assert shape_of(tiny, link, link.lower).limit_bytes == NIC_QUEUE_BDP * tiny.bdp_bytes
    assert shape_of(tiny, link, link.upper).limit_bytes == 4 * tiny.bdp_bytes
    assert shape_of(tiny, link, link.lower).rate_bps == 10_000_000


def sample(counters: LinkCounters) -> tuple[int, Mapping[str, LinkSample]]:
    """Read the counters at a known moment: again while something else had the CPU meanwhile."""
    while True:
        start, found, end = time.monotonic_ns(), counters.directions(), time.monotonic_ns()
        if end - start < 3_000_000:
            return (start + end) // 2, found


@pytest.mark.root
@pytest.mark.kernel
@pytest.mark.parametrize("dilation", [10_000, 2_000])
def test_no_link_of_a_path_is_faster_than_it_should_be(dilation: int) -> None:
    """Full packets at 10 and 50 Mb/s, on every link of a path, in the best of six windows.

    A machine that gives others its CPUs makes links slower, by a few percent; how exact they are on
    this one is for `testbed bench rate`.
    """
    tiny = Topology(
        name="x", planes=1, t0_per_plane=2, t1_per_plane=1, hosts_per_t0=1, dilation=dilation
    )
    one, other = tiny.hosts
    path = ("h0>p0_t0_0", "p0_t0_0>p0_t1_0", "p0_t1_0>p0_t0_1", "p0_t0_1>h1")

    def measure() -> list[list[float]]:
        with Fabric(tiny) as fabric:
            counters = fabric.counters()
            data, to = encapsulated(tiny, one, other, Path(0, 0), bytes(tiny.wire_bytes - 94))
            with raw_socket(one, socket.IPPROTO_RAW) as sender:
                for _ in range(round(2.8 * tiny.port_rate_bps / 8 / tiny.wire_bytes)):
                    sender.sendto(data, (to, 0))
            rates = []
            time.sleep(0.1)
            for _ in range(3):
                start, before = sample(counters)
                time.sleep(0.4)
                end, after = sample(counters)
                rates.append(
                    [(after[way].bytes - before[way].bytes) * 8e9 / (end - start) for way in path]
                )
            return rates

    for windows in zip(*run_in_sandbox(measure), strict=True):
        assert 0 < max(windows) / tiny.port_rate_bps < 1.02


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_the_kernel_has_the_rate_the_burst_and_the_size_table(tiny: Topology) -> None:
    """As iproute2 reads them: 10 Mb/s, 1 ms of it, and packets charged as long as they are."""
    with Fabric(tiny) as fabric:
        node = fabric.net["p0_t0_0"]
        qdiscs, classes = (
            node.pexec(f"tc -d {what} show dev p0_t0_0-u0")[0] for what in ("qdisc", "class")
        )
    assert "qdisc htb 1: root" in qdiscs
    assert "linklayer ethernet" in qdiscs
    deeper = 1 if link_model.missing() else DEEPER
    assert f"qdisc bfifo 20: parent 1:20 limit {deeper * 4 * tiny.bdp_bytes}b" in qdiscs
    assert f"qdisc bfifo 10: parent 1:10 limit {deeper * 4 * tiny.bdp_bytes}b" in qdiscs
    lines = {line.split()[2]: line for line in classes.splitlines()}
    for number in ("1:1", "1:10"):
        assert "rate 10Mbit ceil 10Mbit linklayer ethernet burst 1250b" in lines[number]
    assert "prio 0" in lines["1:10"]
    assert "prio 1" in lines["1:20"]
    assert "rate 8Kbit ceil 10Mbit" in lines["1:20"]


@pytest.mark.root
@pytest.mark.kernel
@pytest.mark.parametrize("modelled", [True, False])
@in_sandbox
def test_a_full_switch_queue_drops_the_tail_and_counts_it(
    modelled: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath
) -> None:
    """Two hosts send at once to a third: the last link drops about half of what is too much."""
    if not modelled:
        monkeypatch.setattr(link_model, "OBJECT", tmp_path / "none.bpf.o")
    topology = Topology(name="x", planes=1, t0_per_plane=1, t1_per_plane=1, hosts_per_t0=3)
    dst = topology.hosts[2]
    count = 400
    with Fabric(topology) as fabric:
        counters = fabric.counters()
        for src in topology.hosts[:2]:
            data, to = encapsulated(topology, src, dst, Path(0, None), bytes(4000))
            with raw_socket(src, socket.IPPROTO_RAW) as sender:
                for _ in range(count):
                    sender.sendto(data, (to, 0))
        last = None
        while (now := counters.directions()) != last:
            last = now
            time.sleep(0.3)
        found = now["p0_t0_0>h2"]
        sent = now["h0>p0_t0_0"].packets + now["h1>p0_t0_0"].packets
    assert sent == 2 * count
    assert found.dropped > 0
    assert found.packets + found.dropped == sent
