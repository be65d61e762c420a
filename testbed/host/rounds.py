"""The rounds of a host: when its queue pairs send, and when they do so next.

No packet is handed to a port before the port is almost ready to send it. A NIC schedules its queue
pairs at line rate and keeps no deep queue of its own. Without this, a window of data would wait in
the host's transmit queue, and a retransmission behind it.
"""

from math import ceil
from typing import Final, Protocol

from testbed.model.fabric.topology import ETHERNET_HEADER
from testbed.model.units import NS_PER_S
from testbed.mrc import NEVER, Arrival
from testbed.mrc.constants import IPV6_BYTES

OUTER_BYTES: Final = ETHERNET_HEADER + IPV6_BYTES
"""Bytes on the wire in front of an inner packet."""


class PortScheduler:
    """When the ports of one host will have sent what they have been given."""

    def __init__(self, ports: int, rate_bps: int, packet_bytes: int, round_ns: int) -> None:
        """Begin with idle ports.

        Args:
            ports: the number of ports, all of one rate.
            rate_bps: the rate of a port.
            packet_bytes: the size of a full data packet on the wire.
            round_ns: the time between the rounds in which the ports are given packets. Each port
                may hold as many packets as it sends in that time, and one more.
        """
        self._ns_per_byte = 8 * NS_PER_S / rate_bps
        self._packet_ns = packet_bytes * self._ns_per_byte
        self._lead_ns = (1 + ceil(round_ns / self._packet_ns)) * self._packet_ns
        self._free_ns = [0.0] * ports

    def sent(self, port: int, wire_bytes: int, now_ns: int) -> int:
        """Account for a packet of `wire_bytes` handed to `port`; returns its wait there in ns."""
        begins_ns = max(self._free_ns[port], now_ns)
        self._free_ns[port] = begins_ns + wire_bytes * self._ns_per_byte
        return int(begins_ns - now_ns)

    def room(self, now_ns: int) -> int:
        """How many more full packets the ports together may be given."""
        lead_ns = self._lead_ns
        spare = 0.0
        for free in self._free_ns:
            wait = free - now_ns
            spare += lead_ns - wait if wait > 0 else lead_ns
        return int(spare / self._packet_ns) if spare > 0 else 0

    def state(self, now_ns: int, picked: dict[int, int]) -> tuple[list[bool], list[int]]:
        """Which ports have room for one more full packet, and the bytes that each has yet to send.

        Args:
            now_ns: the time.
            picked: full packets by port that are about to be handed over.
        """
        room, queued = list[bool](), list[int]()
        for port, free in enumerate(self._free_ns):
            wait = max(free - now_ns, 0.0) + picked.get(port, 0) * self._packet_ns
            room.append(wait + self._packet_ns <= self._lead_ns)
            queued.append(round(wait / self._ns_per_byte))
        return room, queued

    def next_room_ns(self, now_ns: int) -> int:
        """When each port will have sent one more packet than now."""
        return now_ns + int(self._packet_ns)


class HostTransport(Protocol):
    """The queue pairs of one host, as its rounds drive them.

    A protocol, not a base class: this module may be compiled, and what implements it may not.
    """

    def receive(self, packet: memoryview, arrival: Arrival) -> None:
        """Process the bytes of an inner packet, valid or not."""
        ...

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """Act on the loss or the return of the carrier of this host's port in a plane."""
        ...

    def transmit(self, now_ns: int, room: int) -> int:
        """Send what is due, at most `room` full data packets; returns the room that is left."""
        ...

    def deadline_ns(self, now_ns: int, *, full: bool) -> int:
        """When `transmit` must be called even if nothing arrives; `NEVER` if not at all.

        With `full` ports, data that could be sent at once does not count.
        """
        ...


class Rounds:
    """One host's loop over its queue pairs, ports and timers, a round at a time.

    The emulation's endpoint, the RDMA device and the simulated host run it. They differ in where
    packets come from and go to, and in who keeps the time.

    A round costs as much as a packet, so rounds are at least `round_ns` apart.

    Attributes:
        round_ns: the shortest time between two rounds.
        ready_ns: when the next round may be, at the earliest.
    """

    def __init__(self, transport: HostTransport, ports: PortScheduler, round_ns: int) -> None:
        """Begin with idle ports, ready for a round at any time."""
        self.round_ns = round_ns
        self._transport = transport
        self._ports = ports
        self.ready_ns = 0
        self._full_until_ns = NEVER

    def send(self, now_ns: int) -> None:
        """Have the queue pairs send what is due and what the ports have room for."""
        self.ready_ns = now_ns + self.round_ns
        room = self._transport.transmit(now_ns, self._ports.room(now_ns))
        self._full_until_ns = self._ports.next_room_ns(now_ns) if room <= 0 else NEVER

    def next_ns(self, now_ns: int) -> int:
        """When the next round must be even if nothing arrives; `NEVER` if not at all."""
        full = self._full_until_ns < NEVER
        due_ns = min(self._full_until_ns, self._transport.deadline_ns(now_ns, full=full))
        return due_ns if due_ns >= NEVER else max(due_ns, now_ns + self.round_ns)
