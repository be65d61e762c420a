"""The rounds of a host: when its queue pairs send, and when they do so next."""

from typing import Protocol

from testbed.host.port_scheduler import PortScheduler
from testbed.mrc import NEVER, Arrival


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
