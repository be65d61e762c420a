"""A host's NIC without an outer header: the EV in each packet selects the path, not an address.

The NIC selects the port of an EV, and the switches the rest of the path. There is a sending socket
for each port, since the destination is the same on all paths. Arrivals are read below the kernel's
UDP, which refuses packets without a UDP checksum and hands over no headers.
"""

import socket
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from testbed.emulation.endpoint.mmsg import Inbox, Outbox
from testbed.emulation.endpoint.nic import Nic
from testbed.emulation.endpoint.sockets import (
    BATCH,
    BUFFER_BYTES,
    MAX_PACKET,
    SO_RXQ_OVFL,
    SO_TIMESTAMPNS,
    Received,
)
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import ETHERNET_HEADER, Topology
from testbed.model.units import NS_PER_S
from testbed.mrc import Datagram, EvEntry
from testbed.mrc.constants import HOP_LIMIT_BYTE, IPV6_BYTES
from testbed.mrc.wire.kinds import UDP_PORTS, WireOptions
from testbed.sandbox.system_calls import SO_RCVBUFFORCE, SO_SNDBUFFORCE, attach_filter

ETH_P_IPV6: Final = 0x86DD
_CONTROL: Final = struct.Struct("@Nii")
_TIME: Final = struct.Struct("@qq")
_COUNT: Final = struct.Struct("@I")
_CONTROL_BYTES: Final = socket.CMSG_SPACE(_TIME.size) + socket.CMSG_SPACE(_COUNT.size)

_FILTER: Final = (
    (0x30, 0, 0, 6),  # load the next header
    (0x15, 0, 4, socket.IPPROTO_UDP),
    (0x28, 0, 0, IPV6_BYTES + 2),  # load the UDP destination port
    *((0x15, len(UDP_PORTS) - i, 0, port) for i, port in enumerate(sorted(UDP_PORTS))),
    (0x06, 0, 0, 0),  # none of them: drop
    (0x06, 0, 0, 0xFFFF),  # take the whole packet
)
"""Classic BPF: only packets to MRC's UDP ports (linux/filter.h)."""


class PlainSockets:
    """The raw sockets of the network namespace that this process is in.

    Attributes:
        send_errors: packets that the kernel refused.
        overflowed: arrivals that the socket had no room for.
    """

    def __init__(self, topology: Topology, host: Node) -> None:
        self.send_errors = self.overflowed = 0
        self._out = [self._sender(topology, host, plane) for plane in range(topology.planes)]
        self._in = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IPV6))
        self._in.setblocking(False)
        self._in.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self._in.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._in.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        attach_filter(self._in, _FILTER)
        # The kernel would answer packets to a closed port. It drops those to an open one for want
        # of a checksum.
        self._taken = [socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) for _ in UDP_PORTS]
        for taken, port in zip(self._taken, sorted(UDP_PORTS), strict=True):
            taken.bind(("::", port))
        self._inbox = Inbox(BATCH, MAX_PACKET, _CONTROL_BYTES)

    @staticmethod
    def _sender(topology: Topology, host: Node, plane: int) -> tuple[socket.socket, Outbox]:
        opened = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
        opened.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
        port = topology.port_of(host, plane).name
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, port.encode())
        opened.bind((str(nic_address(topology, host)), 0))
        return opened, Outbox(BATCH, MAX_PACKET)

    def send(self, plane: int, header: bytes, payload: bytes | memoryview, trailer: bytes) -> None:
        """Queue a packet for the next `flush`; if the port's queue is full, flush that first."""
        sender, outbox = self._out[plane]
        if outbox.full:
            self.send_errors += outbox.flush(sender.fileno())
        outbox.add(header, payload, trailer)

    def flush(self) -> None:
        """Hand the queued packets to the kernel; a port without carrier loses them."""
        for sender, outbox in self._out:
            self.send_errors += outbox.flush(sender.fileno())

    def receive(self) -> Iterator[Received]:
        """Yield every packet that waits in the socket, without blocking."""
        inbox, fd = self._inbox, self._in.fileno()
        count = inbox.room
        while count == inbox.room:
            count = inbox.fill(fd)
            for packet, offset, length in inbox.packets(count):
                traffic_class = int.from_bytes(packet[:2], "big") >> 4 & 0xFF
                received_ns = self._read_control(inbox.control, offset, length)
                yield Received(packet, traffic_class, packet[HOP_LIMIT_BYTE], received_ns)

    def _read_control(self, control: bytearray, offset: int, length: int) -> int:
        """Note the count of overflows; return when the kernel received the packet."""
        received_ns, position = 0, 0
        while position < length:
            size, _, kind = _CONTROL.unpack_from(control, offset + position)
            data = offset + position + _CONTROL.size
            if kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIME.unpack_from(control, data)
                received_ns = seconds * NS_PER_S + nanoseconds
            elif kind == SO_RXQ_OVFL:
                self.overflowed = _COUNT.unpack_from(control, data)[0]
            position += socket.CMSG_SPACE(size - _CONTROL.size)
        return received_ns

    def close(self) -> None:
        for opened in (self._in, *self._taken, *(sender for sender, _ in self._out)):
            opened.close()


@dataclass(frozen=True)
class PlainEvs:
    """The EVs of a host whose packets have no outer header, as packets carry them.

    Attributes:
        entries: the EVs, each with the plane of the port that it leaves by.
        wire: how packets are written.
        sent: packets sent so far, by EV; counted here.
    """

    entries: tuple[EvEntry, ...]
    wire: WireOptions
    sent: Counter[int] = field(default_factory=Counter)

    @cached_property
    def planes(self) -> dict[int, int]:
        return {entry.ev: entry.plane for entry in self.entries}


class PlainNic(Nic):
    """The ports of a host whose packets have no outer header."""

    def __init__(self, topology: Topology, host: Node, round_ns: int, evs: PlainEvs) -> None:
        self._plain = PlainSockets(topology, host)
        super().__init__(topology, host, round_ns, sockets=self._plain)
        self._evs = evs

    def send(self, datagram: Datagram, peer: bytes, now: int) -> int:
        """Queue a packet for the sockets' next `flush`; returns the plane that it goes through.

        Raises:
            KeyError: the EV is none of the host's.
        """
        del peer  # the packet has its address
        plane = self._evs.planes[datagram.ev]
        header, payload, trailer = datagram.header, datagram.payload, datagram.trailer
        size = ETHERNET_HEADER + len(header) + len(payload) + len(trailer)
        wait_ns = self.ports.sent(plane, size, now)
        if datagram.transmission is not None:
            datagram.transmission.set_port_wait(wait_ns)
        self._plain.send(plane, header, payload, trailer)
        self._evs.sent[datagram.ev] += 1
        return plane
