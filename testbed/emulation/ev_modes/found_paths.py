"""Which path each EV takes: found by a packet with that EV, and the switches' counters."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model.counters import LinkCounters
from testbed.emulation.fabric.probe_packets import IPV6_HEADER
from testbed.model.errors import RunFailedError
from testbed.model.fabric.addressing import (
    Path,
    flow_label_of_ev,
    nic_address,
    source_port_of_ev,
)
from testbed.model.fabric.nodes import Node
from testbed.mrc import EvEntry
from testbed.mrc.constants import HOP_LIMIT, ROCE_UDP_PORT

_UDP: Final = struct.Struct("!HHHH")
_PAYLOAD: Final = b"a probe "
_POLL_S: Final = 0.0005
_PATIENCE_S: Final = 5.0


def up_directions(fabric: Fabric, src: Node) -> dict[str, Path]:
    """The directions from a host's T0s to the T1s, by name, each with the path that it is of."""
    topology = fabric.topology
    rack = topology.rack(src)
    return {
        topology.fabric_link(plane, rack, t1).directions[0]: Path(plane, t1)
        for plane in range(topology.planes)
        for t1 in range(topology.t1_per_plane)
    }


def offered(counters: LinkCounters, directions: dict[str, Path]) -> dict[Path, int]:
    """The packets of each direction so far, those that a fault or a full queue took included."""
    samples = counters.directions()
    return {
        path: samples[name].packets + samples[name].dropped for name, path in directions.items()
    }


def find_paths(
    fabric: Fabric, src: Node, dst: Node, entries: tuple[EvEntry, ...]
) -> dict[int, Path]:
    """Send a packet with each EV; return the path that it took, by EV. Needs an idle fabric.

    Raises:
        RunFailedError: a packet took no path, or more than one.
    """
    directions, counters = up_directions(fabric, src), fabric.counters()
    topology = fabric.topology
    found: dict[int, Path] = {}
    with ExitStack() as stack:
        with fabric.namespaces[dst.name].entered():  # an open port is answered by no ICMP message
            taken = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        stack.enter_context(taken)
        taken.bind(("::", ROCE_UDP_PORT))
        senders = []
        for plane in range(topology.planes):
            with fabric.namespaces[src.name].entered():
                sender = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
            stack.enter_context(sender)
            port = topology.port_of(src, plane).name.encode()
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, port)
            senders.append(sender)
        before = offered(counters, directions)
        for entry in entries:
            packet = _packet(fabric, src, dst, entry.ev)
            senders[entry.plane].sendto(packet, (str(nic_address(topology, dst)), 0))
            for after in _samples(counters, directions):
                risen = [path for path, count in after.items() if count != before[path]]
                if risen:
                    break
            if len(risen) != 1 or after[risen[0]] != before[risen[0]] + 1:
                taken_paths = ", ".join(path.name for path in risen) or "none"
                raise RunFailedError(f"the EV {entry.ev:#010x} took the paths: {taken_paths}")
            found[entry.ev] = risen[0]
            before = after
    return found


def _samples(counters: LinkCounters, directions: dict[str, Path]) -> Iterator[dict[Path, int]]:
    """Sample until the patience is at its end."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        yield offered(counters, directions)
        if time.monotonic() > end:
            return
        time.sleep(_POLL_S)


def _packet(fabric: Fabric, src: Node, dst: Node, ev: int) -> bytes:
    """A UDP packet that carries an EV as MRC's packets do."""
    size = _UDP.size + len(_PAYLOAD)
    own, peer = (nic_address(fabric.topology, host).packed for host in (src, dst))
    first_word = 6 << 28 | flow_label_of_ev(ev)
    ip = IPV6_HEADER.pack(first_word, size, socket.IPPROTO_UDP, HOP_LIMIT, own, peer)
    return ip + _UDP.pack(source_port_of_ev(ev), ROCE_UDP_PORT, size, 0) + _PAYLOAD
