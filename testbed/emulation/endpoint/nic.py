"""A host's NIC: sends datagrams on the paths of their EVs, hands over arrivals when they are due.

Propagation delay is modelled here. Each arrival waits until its kernel receive timestamp plus the
delay of its path (the hop limit gives the number of switches) plus what faults add
(`SlowLinks`). So the event loop waits for times only, not for packets, and
wakes a few hundred times a second.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterator
from operator import itemgetter
from typing import Final, Protocol

from testbed.emulation.endpoint.carriers import Carriers
from testbed.emulation.endpoint.clock import STEP_NS, is_stepped, now_ns, realtime_offset_ns
from testbed.emulation.endpoint.sockets import HostSockets, Received
from testbed.emulation.fabric.link_model.link_control import SlowLinks
from testbed.host.rounds import OUTER_BYTES, PortScheduler
from testbed.model.closeable import Closeable
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.units import NS_PER_S
from testbed.mrc import Arrival, Datagram
from testbed.mrc.constants import ECN_MASK, HOP_LIMIT
from testbed.mrc.wire.datagram import new

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
