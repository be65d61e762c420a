"""Ordinary traffic takes as long as the model says, on the path that it is told to take."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.emulation.fabric.ordinary import DelayProcess, OrdinaryTraffic
from testbed.model.fabric.addressing import (
    Path,
    directions_of_path,
    ev_for_path,
    flow_label_of_ev,
    ordinary_address,
    ordinary_carrier_address,
)
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import Impairment
from tests.sandbox import in_sandbox

from .packets import raw_socket
from .test_ordinary import ordinary_fabric, ping, stream

IPPROTO_NONE = 59


@contextmanager
def delayed_fabric(
    topology: Topology,
) -> Iterator[tuple[Fabric, OrdinaryTraffic, DelayProcess]]:
    with (
        ordinary_fabric(topology) as (fabric, ordinary),
        DelayProcess(topology, fabric.namespaces) as delay,
    ):
        yield fabric, ordinary, delay


def round_trip_ns(src: Node, topology: Topology, dst: Node, plane: int) -> int:
    """The time from one echo request to its answer."""
    start = time.monotonic_ns()
    assert ping(src, ordinary_address(topology, dst, plane))
    return time.monotonic_ns() - start


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_a_ping_takes_the_propagation_delay_of_its_path() -> None:
    """Over a T1, and within a rack, which is shorter; the shortest of some: others compute too."""
    topology = Topology(name="x", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=2)
    near, far = topology.hosts[1], topology.hosts[2]
    with delayed_fabric(topology):
        src = topology.hosts[0]
        took = {
            dst.name: min(round_trip_ns(src, topology, dst, n % 2) for n in range(6))
            for dst in (near, far)
        }
    for dst, switches in ((near, 1), (far, 3)):
        expected = 2 * topology.one_way_ns(switches)
        assert took[dst.name] > expected
    assert took[near.name] < took[far.name]


@pytest.mark.root
@pytest.mark.kernel
@pytest.mark.usefixtures("has_link_model")
@in_sandbox
def test_a_slow_link_delays_what_crosses_it_and_nothing_else(tiny: Topology) -> None:
    """The path is in the outer flow label, as MRC's is: another path of the plane is as before."""
    src, dst = tiny.hosts
    slow, other = Path(1, 0), Path(1, 1)
    extra_ns = 200_000_000
    took = {}
    with delayed_fabric(tiny) as (fabric, ordinary, _):
        control = LinkControl(tiny, fabric.namespaces)
        climb = directions_of_path(tiny, src, dst, slow)[1]
        control.impair(climb, Impairment(delay_ns=extra_ns))
        for path in (slow, other):
            ordinary.use_path(src, dst, path)
            took[path.name] = min(round_trip_ns(src, tiny, dst, 1) for _ in range(3))
    base_ns = tiny.propagation_rtt_ns
    assert base_ns + extra_ns < took[slow.name]
    assert base_ns < took[other.name] < took[slow.name]


@pytest.mark.root
@pytest.mark.kernel
@pytest.mark.usefixtures("has_link_model")
@in_sandbox
def test_loss_on_a_path_hits_the_packets_of_that_path_only(tiny: Topology) -> None:
    """All of a path's packets are lost on a link that two paths share, and counted as always."""
    src, dst = tiny.hosts
    struck, other = Path(0, 1), Path(0, 0)
    with ordinary_fabric(tiny) as (fabric, ordinary):
        control = LinkControl(tiny, fabric.namespaces)
        nic = directions_of_path(tiny, src, dst, struck)[0]
        control.impair(
            nic, Impairment(path_loss=1.0, path_bits=flow_label_of_ev(ev_for_path(struck)))
        )
        arrived = []
        for path in (struck, other):
            ordinary.use_path(src, dst, path)
            arrived.append(ping(src, ordinary_address(tiny, dst, 0)))
        assert fabric.link_model is not None
        counts = fabric.link_model.counts(nic)
        assert (arrived, counts.path_lost, counts.offered - counts.packets) == ([False, True], 1, 1)


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_tcp_fills_a_port_with_the_delay_in_its_round_trip(tiny: Topology) -> None:
    """Whole, and at most at the port's rate; what the switches and ports count is as without it."""
    src, dst = tiny.hosts
    size = 2 << 20
    with delayed_fabric(tiny) as (fabric, ordinary, delay):
        ordinary.use_path(src, dst, Path(1, 0))
        start = time.monotonic()
        sent, received = stream(src, dst, ordinary_address(tiny, dst, 1), size)
        took = time.monotonic() - start
        crossed = fabric.counters().directions()["p1_t1_0>p1_t0_1"]
        assert delay.lost() == 0
    assert sent == received
    assert size < crossed.bytes < 1.2 * size
    least_s = size * 8 / tiny.port_rate_bps + 2 * tiny.propagation_rtt_ns / 1e9
    assert took > least_s


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_an_end_of_the_process_is_known_and_nothing_arrives_undelayed(tiny: Topology) -> None:
    """Packets are lost rather than early."""
    src, dst = tiny.hosts
    with delayed_fabric(tiny) as (_, _, delay):
        assert not delay.ended()
        delay.kill()
        assert delay.ended()
        assert not ping(src, ordinary_address(tiny, dst, 0))


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_what_is_not_ordinary_traffic_does_not_end_the_process(tiny: Topology) -> None:
    """Packets for End.DT6 with nothing or half a header in them."""
    src, dst = tiny.hosts
    carrier = ordinary_carrier_address(tiny, src, dst, Path(0, 0))
    with delayed_fabric(tiny) as (_, _, delay):
        for protocol in (socket.IPPROTO_IPV6, IPPROTO_NONE):
            with raw_socket(src, protocol) as sender:
                for size in (0, 7, 20):
                    sender.sendto(bytes(size), (str(carrier), 0))
        assert ping(src, ordinary_address(tiny, dst, 0))
        assert not delay.ended()
