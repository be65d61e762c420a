"""A host's rounds in real time, over its NIC: shared by a run's endpoints and the RDMA device.

The loop never waits for packets, only for times: the NIC (nic.py) keeps what arrives until it is
due. It wakes a few hundred times a second and does all that has become due.
"""

import select
import socket
from collections.abc import Iterator, Sequence

from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.endpoint.nic import Nic
from testbed.emulation.endpoint.port_monitor import PortMonitor
from testbed.host.rounds import HostTransport, Rounds
from testbed.model.closeable import Closeable
from testbed.model.units import NS_PER_S
from testbed.mrc import NEVER


class EventLoop(Closeable):
    """Hands arrivals, carrier changes and times to a host's queue pairs; sends; sleeps."""

    def __init__(self, nic: Nic, monitor: PortMonitor, transport: HostTransport) -> None:
        """Drive `transport` over a NIC; closing the loop closes NIC and monitor."""
        self._nic = nic
        self._monitor = monitor
        self._transport = transport
        self._rounds = Rounds(transport, nic.ports, nic.round_ns)
        self._core_ns = now_ns()  # the latest time that the queue pairs have been given

    def time_ns(self) -> int:
        """Read the clock for the queue pairs: no later arrival is given an earlier time."""
        self._core_ns = now_ns()
        return self._core_ns

    def receive(self, now: int) -> Iterator[int]:
        """Hand over the arrivals that are due; yield for each how long ago it was due, in ns."""
        for packet, arrival, late_ns in self._nic.arrivals(now, self._core_ns):
            self._transport.receive(memoryview(packet), arrival)
            yield late_ns

    def check_ports(self, now: int) -> None:
        """Hand over the carrier changes since the last call."""
        for plane, up in self._monitor.changes():
            self._transport.port_changed(plane, up=up, now_ns=now)

    def send(self, now: int) -> None:
        """Send what is due and what the ports have room for."""
        self._core_ns = now
        self._rounds.send(now)
        self._nic.sockets.flush()

    def sleep(
        self, now: int, watched: Sequence[socket.socket | int] = (), until_ns: int = NEVER
    ) -> tuple[int, bool]:
        """Sleep until the next round, or until a port changes or a descriptor is readable.

        Args:
            now: when this round began.
            watched: the descriptors.
            until_ns: the latest time to wake.

        Returns:
            When the loop meant to wake, or was woken; and whether a descriptor is readable.
        """
        next_ns = min(self._nic.next_arrival_ns(now), self._rounds.next_ns(now))
        wake_ns = min(max(next_ns, now + self._rounds.round_ns), until_ns)
        timeout_s = max(wake_ns - now_ns(), 0) / NS_PER_S
        ready = select.select([self._monitor, *watched], [], [], timeout_s)[0]
        if ready:
            wake_ns = self.time_ns()
        if self._monitor in ready:
            ready.remove(self._monitor)
            self.check_ports(wake_ns)
        return wake_ns, bool(ready)

    def close(self) -> None:
        """Close the sockets."""
        self._nic.close()
        self._monitor.close()
