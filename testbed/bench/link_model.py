"""What the link model costs: CPU time of a packet on a link, with the model and without it."""

import json
import os
import socket
import time
from collections.abc import Callable

from testbed.bench.figure import Figure, at_most
from testbed.endpoint.carriers import Carriers
from testbed.fabric import namespaces, shaping
from testbed.fabric.fabric import Fabric
from testbed.fabric.namespaces import start_sandbox
from testbed.fabric.netlink import SO_RCVBUFFORCE, Netlink
from testbed.model.addressing import nic_address
from testbed.model.errors import RunFailedError
from testbed.model.topology import Node, Topology
from testbed.mrc.constants import DscpClasses

TARGET_NS = 600
PAYLOAD = bytes(1000)
PACKETS = 1000
BATCHES = 20
BUFFER_BYTES = 1 << 27


def link_model(repeats: int, progress: Callable[[str], None]) -> list[Figure]:
    """Send packets over four links as fast as one CPU can, with the model and without it.

    Sender and every hop share one CPU, so that the time that passes is the CPU time of all; of
    several batches the quickest counts, which nothing else has disturbed.
    """
    with_model, without = [], []
    for repeat in range(repeats):
        progress(f"link model {repeat + 1}/{repeats}")
        modelled, plain = _once()
        with_model.append(modelled)
        without.append(plain)
    cost = [modelled - plain for modelled, plain in zip(with_model, without, strict=True)]
    return [
        Figure("a packet on a link, without the link model", "ns", tuple(without)),
        Figure("a packet on a link, with it", "ns", tuple(with_model)),
        at_most("the link model, per packet and link", "ns", cost, TARGET_NS),
    ]


def _topology() -> Topology:
    """Two hosts with a T1 between them, so fast that nothing ever waits."""
    return Topology(
        name="line", planes=1, t0_per_plane=2, t1_per_plane=1, hosts_per_t0=1, dilation=1
    )


def _once() -> tuple[float, float]:
    reader, writer = os.pipe()

    def measure() -> int:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        topology = _topology()
        with Fabric(topology) as fabric:
            fabric.verify()
            if fabric.link_model_missing is not None:
                raise fabric.link_model_missing
            found = [_per_link_ns(topology)]
            for name, node in topology.nodes.items():
                with Netlink.at(name) as netlink:
                    ports = [port for port, _, _ in topology.adjacency[node]]
                    netlink.send(shaping.detach_model(port.ifindex) for port in ports)
            found.append(_per_link_ns(topology))
        os.write(writer, json.dumps(found).encode())
        return 0

    waiter = start_sandbox(measure)
    os.close(writer)
    with os.fdopen(reader) as report:
        said = report.read()
    os.waitpid(waiter, 0)
    if not said:
        raise RunFailedError("the link model could not be measured: see the messages above")
    with_model, without = json.loads(said)
    return with_model, without


def _per_link_ns(topology: Topology) -> float:
    src, dst = topology.hosts
    destination = nic_address(topology, dst).packed
    carrier = Carriers(topology, src).to(destination, 0, DscpClasses().trimmable)
    packet = carrier.outer_header(len(PAYLOAD)) + PAYLOAD
    links = 4
    with _socket(src, socket.IPPROTO_RAW) as sender, _socket(dst, socket.IPPROTO_IPV6) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        return min(_batch_ns(sender, receiver, packet, carrier.address) for _ in range(BATCHES)) / (
            PACKETS * links
        )


def _batch_ns(
    sender: socket.socket, receiver: socket.socket, packet: bytes, to: tuple[str, int]
) -> int:
    send = sender.sendto
    start = time.perf_counter_ns()
    for _ in range(PACKETS):
        send(packet, to)
    took = time.perf_counter_ns() - start
    receiver.settimeout(1)
    for _ in range(PACKETS):
        receiver.recv(len(packet))  # TimeoutError: one was lost, and the figure means nothing
    return took


def _socket(node: Node, protocol: int) -> socket.socket:
    fd = namespaces.open_netns(node.name)
    try:
        with namespaces.entered(fd):
            return socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol)
    finally:
        os.close(fd)
