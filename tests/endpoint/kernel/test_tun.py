"""Two TUN devices in two namespaces, their packets carried across by hand."""

import socket
import struct
import time

import pytest

from testbed.emulation.endpoint.kernel_tcp import Tun
from testbed.emulation.fabric.netlink import Netlink
from testbed.model.fabric.addressing import ordinary_address
from testbed.model.files.topologies import load_topology
from testbed.sandbox.namespaces import create_netns, enter_netns
from tests.sandbox import run_in_sandbox
from tests.waiting import WATCHDOG_S

pytestmark = [pytest.mark.root, pytest.mark.kernel]

RTO_US = struct.Struct("=8xI")
"""`tcpi_rto`, the first word of `struct tcp_info` (linux/tcp.h)."""

MS = 1_000_000


def _timeout_ms(floor_ns: int | None) -> float:
    """The retransmission timeout of a connection that has been answered at once."""
    topology = load_topology("clos-tiny")
    hosts = topology.hosts[:2]
    addresses = [ordinary_address(topology, host, 0) for host in hosts]
    tuns, sockets = [], []
    for host, own, peer in zip(hosts, addresses, reversed(addresses), strict=True):
        create_netns(host.name)
        enter_netns(host.name)
        tuns.append(Tun(topology, 0))
        with Netlink(host.name) as netlink:
            netlink.send(tuns[-1].requests(own, iter([peer]), floor_ns))
        sockets.append(socket.socket(socket.AF_INET6, socket.SOCK_STREAM))
    caller, listener = sockets
    listener.bind((str(addresses[1]), 20_000))
    listener.listen(1)
    caller.setblocking(False)
    end = time.monotonic() + WATCHDOG_S
    # An address is of no use for a moment after it was given: who is refused calls again.
    while caller.connect_ex((str(addresses[1]), 20_000)):
        if time.monotonic() > end:
            raise TimeoutError("no connection")
        for here, there in (tuns, reversed(tuns)):
            for packet in here.read():
                there.write(packet)
        time.sleep(0.001)
    info = caller.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RTO_US.size)
    return float(RTO_US.unpack(info)[0]) / 1000


def test_tcp_heeds_the_floor_of_its_timeout() -> None:
    assert run_in_sandbox(lambda: _timeout_ms(1500 * MS)) >= 1500


def test_without_one_the_kernels_own_floor_holds() -> None:
    assert 200 <= run_in_sandbox(lambda: _timeout_ms(None)) < 1000
