"""The NIC's egress: no packet is handed to a port before the port is almost ready to send it.

A NIC schedules its queue pairs at line rate and keeps no deep queue of its own. Without this, a
window of data would wait in the host's transmit queue, and a retransmission behind it.
"""

from math import ceil
from typing import Final

from testbed.model.fabric.topology import ETHERNET_HEADER
from testbed.model.units import NS_PER_S
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
