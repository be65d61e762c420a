"""The agents on the hosts: sockets that send probes along their ways and hear which come out.

One process holds the sockets of all hosts, each opened in its host's network namespace. A probe is
an IPv6 packet with the uSIDs of its way as destination, in the control class, so that the fabric's
queues never drop it; its flow label is none that an EV has. UDP needs no checksum here (RFC 6935),
as the destination changes on the way; the probe carries one of its own.
"""

import socket
import struct
import zlib
from collections.abc import Iterator
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

from testbed.mapper.prober import Probe
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.topology import Topology
from testbed.mrc import DscpClasses
from testbed.mrc.constants import HOP_LIMIT
from testbed.sandbox import namespaces

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node

PORT = 49_573
"""UDP port of the probes: of the dynamic range, ours to choose."""

FLOW_LABEL = 0xF_F000
"""Outside the path bits of every EV, so that a fault on an EV's path does not hit probes."""

_UDP_NO_CHECK6_RX = 102
_IPV6 = struct.Struct("!IHBB16s16s")
_UDP = struct.Struct("!HHHH")
_BODY = struct.Struct("!4sQI")
_MARK = b"MRCp"
_MAX_PROBE = 256


class Agents:
    """The sending and receiving sockets of every host."""

    def __init__(self, topology: Topology) -> None:
        """Open them all; the hosts' namespaces must be there."""
        self._topology = topology
        self._senders: dict[Node, socket.socket] = {}
        self._receivers: list[socket.socket] = []
        self._destinations: dict[str, IPv6Address] = {}
        self._class = 6 << 28 | DscpClasses().control << 22 | FLOW_LABEL
        self.send_errors = 0
        for host in topology.hosts:
            with namespaces.entered_by_name(host.name):
                self._senders[host] = socket.socket(
                    socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW
                )
                receiver = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
                receiver.setsockopt(socket.IPPROTO_UDP, _UDP_NO_CHECK6_RX, 1)
                receiver.setblocking(False)
                receiver.bind(("::", PORT))
            self._receivers.append(receiver)

    def send(self, probe: Probe) -> None:
        """Send a probe from its host; a port without carrier loses it, as a NIC would."""
        path = probe.path
        to = self._destinations.get(path.name)
        if to is None:
            to = self._destinations[path.name] = path.destination(self._topology)
        packet = self._packet(nic_address(self._topology, path.sender), to, probe.number)
        try:
            self._senders[path.sender].sendto(packet, (str(to), 0))
        except OSError:
            self.send_errors += 1

    def _packet(self, own: IPv6Address, to: IPv6Address, number: int) -> bytes:
        size = _UDP.size + _BODY.size
        check = zlib.crc32(number.to_bytes(8, "big"))
        return (
            _IPV6.pack(self._class, size, socket.IPPROTO_UDP, HOP_LIMIT, own.packed, to.packed)
            + _UDP.pack(PORT, PORT, size, 0)
            + _BODY.pack(_MARK, number, check)
        )

    def arrivals(self) -> Iterator[int]:
        """The numbers of all probes that wait, undamaged, at any host."""
        for receiver in self._receivers:
            yield from _waiting(receiver)

    def close(self) -> None:
        """Close every socket."""
        for one in (*self._senders.values(), *self._receivers):
            one.close()


def _waiting(receiver: socket.socket) -> Iterator[int]:
    while True:
        try:
            body = receiver.recv(_MAX_PROBE)
        except BlockingIOError:
            return
        if len(body) != _BODY.size:
            continue
        mark, number, check = _BODY.unpack(body)
        if mark == _MARK and check == zlib.crc32(number.to_bytes(8, "big")):
            yield number
