"""The NIC's egress: no packet is handed to a port before the port could nearly send it.

A NIC schedules its queue pairs at line rate and keeps no deep queue of its own; without this, a
window of data would wait in the host's transmit queue, and a retransmission behind it.
"""

from math import ceil

from testbed.model.units import NS_PER_S


class PortScheduler:
    """What the ports of one host have been given to send and when they will be done with it."""

    def __init__(self, ports: int, rate_bps: int, packet_bytes: int, round_ns: int) -> None:
        """Start idle.

        Args:
            ports: ports of the host, all of one rate.
            rate_bps: their rate.
            packet_bytes: a full data packet on the wire.
            round_ns: how far apart the rounds are in which the ports are given packets. As many
                as they send in that time may wait at each, and one more.
        """
        self._ns_per_byte = 8 * NS_PER_S / rate_bps
        self._packet_ns = packet_bytes * self._ns_per_byte
        self._lead_ns = (1 + ceil(round_ns / self._packet_ns)) * self._packet_ns
        self._free_ns = [0.0] * ports

    def sent(self, port: int, wire_bytes: int, now_ns: int) -> int:
        """Account for a packet handed to `port`; return how long it waits there, in ns.

        Args:
            port: which port.
            wire_bytes: its size on the wire.
            now_ns: the time.
        """
        begins_ns = max(self._free_ns[port], now_ns)
        self._free_ns[port] = begins_ns + wire_bytes * self._ns_per_byte
        return int(begins_ns - now_ns)

    def room(self, now_ns: int) -> int:
        """How many full packets the ports together may still be given."""
        lead_ns = self._lead_ns
        spare = 0.0
        for free in self._free_ns:
            wait = free - now_ns
            spare += lead_ns - wait if wait > 0 else lead_ns
        return int(spare / self._packet_ns) if spare > 0 else 0

    def next_room_ns(self, now_ns: int) -> int:
        """When each port will have sent one more packet than now."""
        return now_ns + int(self._packet_ns)
