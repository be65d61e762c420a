"""Over a whole fabric, to the packet: what is sent is delivered, trimmed or dropped for a cause."""

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.emulation.fabric.link_model.link_model import LinkModel
from testbed.model.fabric.addressing import Path, ev_for_path, paths
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import Impairment
from testbed.mrc.constants import ECN_CE, DscpClasses
from testbed.mrc.wire.codec import decode
from testbed.mrc.wire.kinds import DecodeError
from tests.sandbox import in_sandbox, run_in_sandbox

from .flood import Receiver, Stream, in_background, send
from .packets import set_blackhole

pytestmark = [pytest.mark.root, pytest.mark.kernel, pytest.mark.usefixtures("has_link_model")]

DSCP = DscpClasses()
TRIMMED = (DSCP.trimmed, DSCP.trimmed_lasthop)


@in_sandbox
def test_every_packet_of_a_faulty_and_overloaded_fabric_is_accounted_for() -> None:
    """Three hosts send to a fourth over all paths: a lossy, a corrupting and a dead link."""
    topology = Topology.model_validate(
        {
            "name": "small",
            "planes": 2,
            "t0_per_plane": 2,
            "t1_per_plane": 2,
            "hosts_per_t0": 2,
            "fabric_rate": "50 Gbit/s",
            "dilation": 20_000,  # a busy machine, too, sends faster than its links carry
        }
    )
    *sources, sink = topology.hosts
    count, size = 3000, 1000

    def packets(number: int) -> Iterator[tuple[bytes, tuple[str, int]]]:
        stream = Stream(topology, sources[number], sink)
        evs = [ev_for_path(path) for path in paths(topology, sources[number], sink)]
        for psn in range(number * count, (number + 1) * count):
            dscp = DSCP.no_trim if psn % 5 == 0 else DSCP.trimmable
            yield stream.packet(psn, dscp, size, evs[psn % len(evs)])

    with (
        Fabric(topology) as fabric,
        Receiver(sink) as receiver,
    ):
        model = fabric.link_model
        assert model is not None
        control = LinkControl(topology, fabric.namespaces)
        control.impair("p0_t0_0>p0_t1_0", Impairment(loss=0.1))
        control.impair("p0_t0_0>p0_t1_1", Impairment(corrupt=0.2))
        set_blackhole(control, "p1_t0_0--p1_t1_0", on=True)
        got: Counter[str] = Counter()

        def receive() -> None:
            for arrival in receiver.arrivals():
                trimmed = arrival.traffic_class >> 2 in TRIMMED
                got["trimmed" if trimmed else "whole"] += 1
                got["marked"] += arrival.traffic_class & 3 == ECN_CE
                got["broken"] += not trimmed and broken(arrival.packet)

        jobs = [lambda n=n: send(sources[n], packets(n)) for n in range(len(sources))]
        with in_background(*jobs):
            pass  # its end waits for them; the socket's buffer holds all that arrives
        while model.backlog_bytes().any():
            receive()
        receive()
        _compare(topology, model, got, len(sources) * count, sink)


def broken(packet: bytes) -> bool:
    """Whether the iCRC says that a packet is not as it was sent."""
    try:
        decode(packet)
    except DecodeError:
        return True
    return False


def _compare(
    topology: Topology, model: LinkModel, got: Counter[str], sent: int, sink: Node
) -> None:
    accounts = model.all_counts()
    total: Counter[str] = Counter()
    for account in accounts.values():
        full = account.full + account.full_priority
        total.update(
            full=full, lost=account.lost, blackholed=account.blackholed, trimmed=account.trimmed
        )
        total.update(marked=account.marked, corrupted=account.corrupted, dropped=account.dropped)
        assert account.offered == account.packets + account.dropped, "each link is a closed account"
    assert (
        sent
        == got["whole"] + got["trimmed"] + total["full"] + total["lost"] + (total["blackholed"])
    )
    assert total["dropped"] == total["full"] + total["lost"] + total["blackholed"]
    for name, switch in topology.nodes.items():
        came = sum(n.packets for way, n in accounts.items() if way.endswith(f">{name}"))
        went = sum(n.offered for way, n in accounts.items() if way.startswith(f"{name}>"))
        if switch in topology.switches:
            assert came == went, f"{name} passed on all that came"
    assert sent == sum(n.offered for way, n in accounts.items() if way.startswith("h"))
    arrived = sum(n.packets for way, n in accounts.items() if way.endswith(f">{sink.name}"))
    assert arrived == got["whole"] + got["trimmed"]
    assert accounts["p0_t0_0>p0_t1_0"].lost == total["lost"] > 0
    assert accounts["p1_t0_0>p1_t1_0"].blackholed == total["blackholed"] > 0
    assert accounts["p0_t0_0>p0_t1_1"].corrupted == total["corrupted"] > 0
    # A trimmed packet has lost its iCRC, and a mark it may have got before is still counted.
    assert 0 < got["broken"] <= total["corrupted"]
    assert 0 < got["trimmed"] <= total["trimmed"]
    assert 0 < got["marked"] <= total["marked"]


@pytest.mark.parametrize(
    ("flows", "shared"),
    [
        ((("h0", "h4"), ("h1", "h5")), "p0_t0_0>p0_t1_0"),
        ((("h0", "h4"), ("h2", "h5")), "p0_t1_0>p0_t0_2"),
    ],
    ids=["from one rack", "from two racks"],
)
def test_marks_appear_on_exactly_the_link_that_two_flows_overload(
    flows: tuple[tuple[str, str], ...], shared: str
) -> None:
    """Each is paced to 80% of a link, both take one T1; all other paths idle.

    On a machine that cannot keep the pace, at four times the dilation.
    """
    for dilation in (20_000, 80_000):
        topology = Topology(
            name="racks",
            planes=1,
            t0_per_plane=3,
            t1_per_plane=2,
            hosts_per_t0=2,
            dilation=dilation,
        )
        counts, paced = run_in_sandbox(partial(_counts_of_paced, topology, flows))
        if paced:
            break
    assert paced, "no machine is so slow"
    assert {direction for direction, (_, marked) in counts.items() if marked} == {shared}
    offered, marked = counts[shared]
    assert offered == 2 * PACED_PACKETS
    assert marked > offered / 4
    used = {direction for direction in counts if "h" not in direction}
    assert used == set(_fabric_links(topology, flows))


PACED_SHARE = 0.8
"""Of a link's rate, for each flow."""

PACED_PACKETS = 300
"""Of each flow."""

LATE_SHARE = 0.1
"""A flow that took longer than planned by more than this share did not keep the pace."""


def _counts_of_paced(
    topology: Topology, flows: tuple[tuple[str, str], ...]
) -> tuple[dict[str, tuple[int, int]], bool]:
    """Offered and marked packets by link direction, and whether all flows kept their pace."""
    gap_s = topology.wire_bytes * 8 / (PACED_SHARE * topology.port_rate_bps)

    def send_paced(src: Node, dst: Node) -> None:
        data = Stream(topology, src, dst).packet(0, DSCP.trimmable, 4096, ev_for_path(Path(0, 0)))
        for _ in range(PACED_PACKETS):
            time.sleep(gap_s)  # who is late must not catch up: a burst fills other queues too
            send(src, [data])

    with Fabric(topology) as fabric:
        model = fabric.link_model
        assert model is not None
        nodes = [(topology.nodes[src], topology.nodes[dst]) for src, dst in flows]
        began = time.monotonic()
        with in_background(*(lambda ends=ends: send_paced(*ends) for ends in nodes)):
            pass  # its end waits for both
        kept_pace = time.monotonic() - began < (1 + LATE_SHARE) * PACED_PACKETS * gap_s
        counts = model.all_counts()
    return {name: (n.offered, n.marked) for name, n in counts.items() if n.offered}, kept_pace


def _fabric_links(topology: Topology, flows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for src, dst in flows:
        up, down = (topology.rack(topology.nodes[name]) for name in (src, dst))
        yield f"p0_t0_{up}>p0_t1_0"
        yield f"p0_t1_0>p0_t0_{down}"
