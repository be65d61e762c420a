"""A host's NIC: sends datagrams on the paths of their EVs, hands over arrivals when they are due.

The outer IPv6 header of a packet, its carrier, takes it along the path of its EV.

Propagation delay is modelled here. Each arrival waits until its kernel receive timestamp plus the
delay of its path (the hop limit gives the number of switches) plus what faults add
(`SlowLinks`). So the event loop waits for times only, not for packets, and
wakes a few hundred times a second.

Without an outer header (`PlainNic`) the EV in each packet selects the path, not an address: the NIC
the port of an EV, and the switches the rest. There is a sending socket for each port, since the
destination is the same on all paths. Arrivals are read below the kernel's UDP, which refuses
packets without a UDP checksum and hands over no headers.
"""

import socket
import struct
from bisect import insort
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv6Address
from operator import itemgetter
from typing import Final, Protocol

from testbed.emulation.endpoint.clock import STEP_NS, is_stepped, now_ns, realtime_offset_ns
from testbed.emulation.endpoint.sockets import (
    BATCH,
    BUFFER_BYTES,
    MAX_PACKET,
    SO_RXQ_OVFL,
    SO_TIMESTAMPNS,
    HostSockets,
    Inbox,
    Outbox,
    Received,
)
from testbed.emulation.fabric.link_model.link_control import SlowLinks
from testbed.host.rounds import OUTER_BYTES, PortScheduler
from testbed.model.closeable import Closeable
from testbed.model.fabric import addressing
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import ETHERNET_HEADER, Topology
from testbed.model.units import NS_PER_S
from testbed.mrc import Arrival, Datagram, EvEntry
from testbed.mrc.constants import ECN_MASK, ECT0, HOP_LIMIT, HOP_LIMIT_BYTE, IPV6_BYTES
from testbed.mrc.wire.datagram import new
from testbed.mrc.wire.headers import IPV6
from testbed.mrc.wire.kinds import UDP_PORTS, WireOptions
from testbed.sandbox.system_calls import SO_RCVBUFFORCE, SO_SNDBUFFORCE, attach_filter

_IPV6_IN_IPV6: Final = 41
_OUTER: Final = IPV6.struct()


@dataclass(frozen=True, slots=True)
class Carrier:
    """How to send on one EV to one peer in one traffic class.

    Attributes:
        plane: the port that it leaves by.
        address: the outer destination, as a socket address: the kernel routes by it.
        template: the outer header before the payload length.
        rest: the outer header after the payload length.
    """

    plane: int
    address: tuple[str, int]
    template: bytes
    rest: bytes

    def outer_header(self, inner_bytes: int) -> bytes:
        """The 40 bytes before an inner packet of `inner_bytes`."""
        return self.template + inner_bytes.to_bytes(2, "big") + self.rest


class Carriers:
    """The carriers from one host, computed at first use."""

    def __init__(self, topology: Topology, host: Node) -> None:
        self._topology = topology
        self._host = host
        self._source = addressing.nic_address(topology, host).packed
        self._carriers: dict[tuple[bytes, int, int, int], Carrier] = {}

    def to(self, peer: bytes, ev: int, dscp: int, ecn: int = ECT0) -> Carrier:
        """The carrier to the NIC with the address `peer`.

        Raises:
            LookupError: no host of the fabric has that address.
        """
        key = peer, ev, dscp, ecn
        carrier = self._carriers.get(key)
        if carrier is None:
            carrier = self._carriers[key] = self._compute(peer, ev, dscp << 2 | ecn)
        return carrier

    def _compute(self, peer: bytes, ev: int, traffic_class: int) -> Carrier:
        topology, host = self._topology, self._host
        dst = addressing.host_of_nic(topology, IPv6Address(peer))
        if dst is None:
            raise LookupError(f"no NIC of {topology.name} has the address {peer.hex(':', 2)}")
        path = addressing.path_of_ev(topology, host, dst, ev)
        address = addressing.carrier_address(topology, host, dst, path)
        label = addressing.flow_label_of_ev(ev)
        header = _OUTER.pack(
            6 << 28 | traffic_class << 20 | label,
            0,
            _IPV6_IN_IPV6,
            HOP_LIMIT,
            self._source,
            address.packed,
        )
        return Carrier(path.plane, (str(address), 0), header[:4], header[6:])


POLLS_PER_DELAY: Final = 8
"""The socket is read at least this often per propagation delay, so that no arrival is late."""

MAX_SWITCHES: Final = 3
"""On the longest path. Other hop limits are not of this testbed's packets."""

_OFFSET_INTERVAL_NS: Final = NS_PER_S
_DUE: Final = itemgetter(0)


def delays_ns(topology: Topology) -> list[int]:
    """The propagation delay of a packet by the hop limit that it arrives with, 0 to 255."""
    passed = (HOP_LIMIT - hop_limit for hop_limit in range(256))
    return [topology.one_way_ns(min(max(switches, 0), MAX_SWITCHES)) for switches in passed]


class Sockets(Protocol):
    """What a NIC sends and receives through; see `HostSockets`."""

    send_errors: int
    overflowed: int

    def flush(self) -> None:
        """Hand the queued packets to the kernel."""

    def receive(self) -> Iterator[Received]:
        """Yield every packet that waits, without blocking."""

    def close(self) -> None:
        """Close them."""


class Nic(Closeable):
    """The ports of one host; the process must be in the host's network namespace.

    Attributes:
        sockets: its sockets, which queue packets until their `flush`, and count those lost.
        ports: the schedule of the ports.
        round_ns: the time from one round of sending to the next.
    """

    def __init__(
        self, topology: Topology, host: Node, round_ns: int, sockets: Sockets | None = None
    ) -> None:
        """Open the sockets.

        Args:
            topology: the fabric.
            host: which of its hosts this is.
            round_ns: the time from one round of sending to the next.
            sockets: those of a NIC that overrides `send`; if None, they are opened here.
        """
        if sockets is None:
            self._srv6 = sockets = HostSockets(nic_address(topology, host))
        self.sockets: Sockets = sockets
        self._carriers = Carriers(topology, host)
        self.round_ns = round_ns
        self.ports = PortScheduler(
            topology.planes, topology.port_rate_bps, topology.wire_bytes, round_ns
        )
        self._delay_ns = delays_ns(topology)
        self._slow_links = SlowLinks(topology, host)
        self._poll_ns = topology.one_way_ns(1) // POLLS_PER_DELAY
        self._held: deque[tuple[int, int, bytes]] = deque()  # in order of when they are due
        self._offset_ns = 0
        self._offset_due_ns = 0

    def arrivals(self, now: int, core_ns: int) -> Iterator[tuple[bytes, Arrival, int]]:
        """Yield the inner packets that are due, each with its `Arrival` and how late it is, in ns.

        A packet arrives when it is due, not when this process handles it: neither the rounds nor
        their delays are part of a round trip. But for the core, time never runs backwards:
        no arrival is earlier than `core_ns`, the last time that it was given.

        Where CLOCK_REALTIME was set meanwhile, the timestamps of what waits are of no use: those
        packets count as received now.
        """
        held, delay_ns = self._held, self._delay_ns
        stepped = self._find_step(now)
        slow = self._slow_links if self._slow_links.any() else None
        offset_ns = self._offset_ns
        latest_ns = now + NS_PER_S  # later than any that was received by the same clock
        for packet, traffic_class, hop_limit, realtime_ns in self.sockets.receive():
            received_ns = realtime_ns - offset_ns
            if stepped or received_ns > latest_ns:
                received_ns = now
            due_ns = received_ns + delay_ns[hop_limit]
            if slow is not None:
                due_ns += slow.extra_ns(packet)
            if not held or due_ns >= held[-1][0]:
                held.append((due_ns, traffic_class, packet))
            else:  # its path is shorter than that of an earlier arrival
                insort(held, (due_ns, traffic_class, packet), key=_DUE)
        while held and held[0][0] <= now:
            due_ns, traffic_class, packet = held.popleft()
            core_ns = max(core_ns, due_ns)
            arrival = new(Arrival, (traffic_class & ECN_MASK, traffic_class >> 2, core_ns))
            yield packet, arrival, now_ns() - due_ns

    def _find_step(self, now: int) -> bool:
        """Measure the clocks' offset again, if it is time; return whether it has jumped."""
        before = self._offset_ns
        if now < self._offset_due_ns and not is_stepped(before):
            return False
        is_first = self._offset_due_ns == 0
        self._offset_ns = realtime_offset_ns()
        self._offset_due_ns = now + _OFFSET_INTERVAL_NS
        return not is_first and abs(self._offset_ns - before) > STEP_NS

    def send(self, datagram: Datagram, peer: bytes, now: int) -> int:
        """Queue a packet for the sockets' next `flush`; returns the plane that it goes through.

        Raises:
            LookupError: no host of the fabric has the address `peer`.
        """
        ev, dscp, header, payload, trailer, _, _, ecn, transmission = datagram
        carrier = self._carriers.to(peer, ev, dscp, ecn)
        inner = len(header) + len(payload) + len(trailer)
        outer = carrier.outer_header(inner)
        size = OUTER_BYTES + inner
        wait_ns = self.ports.sent(carrier.plane, size, now)
        if transmission is not None:
            transmission.set_port_wait(wait_ns)
        self._srv6.send(outer, header, payload, trailer)
        return carrier.plane

    def next_arrival_ns(self, now: int) -> int:
        """When to call `arrivals` next."""
        poll_ns = now + self._poll_ns
        return min(poll_ns, self._held[0][0]) if self._held else poll_ns

    def close(self) -> None:
        self.sockets.close()


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
