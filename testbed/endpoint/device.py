"""An RDMA device for programs that run in a host of the fabric: the verbs, with sockets.

    with open_device() as device:
        cq = device.context.create_cq()
        ...
        device.wait(cq)

There is no hardware behind it: the device works while the program is in `poll` or `wait`, as with
manual progress in libfabric. A program that does something else for long is, to its peers, a NIC
that does not answer.
"""

import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv6Address
from random import SystemRandom

from testbed.endpoint.clock import now_ns
from testbed.endpoint.nic import Nic
from testbed.endpoint.port_monitor import PortMonitor
from testbed.host.mrc_config import ev_entries, port_attributes
from testbed.model.closeable import Closeable
from testbed.model.errors import MachineError
from testbed.model.fabric.addressing import host_of_nic
from testbed.model.fabric.ev_set import choose_evs
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.mrc import NEVER
from testbed.mrc.verbs import CompletionQueue, Context, Reach, WorkCompletion
from testbed.sandbox.namespaces import NICENESS, TOPOLOGY_FILE

TICKS_PER_RTT = 256
"""A device wakes at most this often per base RTT: often enough to measure latency by it."""

LATE_RTTS = 0.02
"""An arrival that is seen more base RTTs than this after it was due is late. Ours."""


class Device(Closeable):
    """One host's NIC, opened by a program. Use it as a context manager.

    Attributes:
        context: its memory regions, completion queues and queue pairs.
        topology: the fabric.
        host: the host that this is.
        arrived: packets so far.
        late: of these, what was seen `LATE_RTTS` after it was due: how well the machine keeps up.
    """

    def __init__(self, topology: Topology, host: Node) -> None:
        """Open it; the process must be in the host's network namespace."""
        self.topology = topology
        self.host = host
        rng = SystemRandom()
        self._seed = rng.randrange(1 << 32)
        self.context = Context(port_attributes(topology, host), self._reach, rng)
        self._tick_ns = topology.propagation_rtt_ns // TICKS_PER_RTT
        self._late_ns = round(topology.propagation_rtt_ns * LATE_RTTS)
        self._nic = Nic(topology, host, self._tick_ns)
        self._monitor = PortMonitor.of(topology, host)
        self._told_ns = 0
        self._full_until_ns = 0
        self.arrived = self.late = 0

    def close(self) -> None:
        """Close the sockets."""
        self._nic.close()
        self._monitor.close()

    def poll(self) -> None:
        """Do what is due and return at once: take in arrivals, send what there is room for.

        A port that has lost its carrier since the last call, or has it again, is no longer used, or
        used again, and the peers are told.
        """
        now = now_ns()
        for packet, arrival, late_ns in self._nic.arrivals(now, self._told_ns):
            self.arrived += 1
            if late_ns > self._late_ns:
                self.late += 1
            answer = self.context.receive(packet, arrival)
            if answer is not None:
                self._nic.send(answer.datagram, answer.peer, now)
        for plane, up in self._monitor.changes():
            self.context.port_changed(plane, up=up, now_ns=now)
        self._send(now)

    def _send(self, now: int) -> None:
        self._told_ns = now
        room = self._nic.room(now)
        sent = self.context.transmit(now, room)
        for one in sent:
            self._nic.send(one.datagram, one.peer, now)
        self._nic.flush()
        self._full_until_ns = (
            self._nic.next_room_ns(now) if sum(one.datagram.is_data for one in sent) >= room else 0
        )
        self.context.take_events()

    def run(
        self,
        until: Callable[[], bool],
        *,
        timeout_s: float | None = None,
        wake: int | None = None,
    ) -> bool:
        """Work until `until` says so, or for `timeout_s`; returns what it said last.

        Args:
            until: asked after every round, some hundred times a second; it may post.
            timeout_s: seconds; as long as it takes if None.
            wake: a descriptor that ends the sleep between two rounds as soon as it is readable.
        """
        end_ns = NEVER if timeout_s is None else now_ns() + round(timeout_s * 1e9)
        watched: list[int | PortMonitor] = [self._monitor]
        if wake is not None:
            watched.append(wake)
        while True:
            self.poll()
            if until():
                return True
            now = now_ns()
            if now >= end_ns:
                return False
            self._send(now)
            at_ns = min(max(self._next_ns(now), now + self._tick_ns), end_ns)
            select.select(watched, [], [], max(at_ns - now_ns(), 0) / 1e9)

    def wait(self, cq: CompletionQueue, timeout_s: float = 60) -> list[WorkCompletion]:
        """Work until a completion queue has entries and take them.

        Raises:
            TimeoutError: it stayed empty for `timeout_s` seconds.
        """
        found: list[WorkCompletion] = []

        def has_entries() -> bool:
            found.extend(cq.poll())
            return bool(found)

        if not self.run(has_entries, timeout_s=timeout_s):
            raise TimeoutError(f"no completion within {timeout_s:g} s")
        return found

    def _next_ns(self, now: int) -> int:
        wake_ns = self._nic.next_arrival_ns(now)
        deadline_ns = self.context.next_deadline()
        if self._full_until_ns:
            return min(wake_ns, self._full_until_ns)
        return wake_ns if deadline_ns is None else min(wake_ns, deadline_ns)

    def _reach(self, peer: bytes) -> Reach:
        topology = self.topology
        dst = host_of_nic(topology, IPv6Address(peer))
        if dst is None or dst == self.host:
            raise ValueError(f"no other NIC of {topology.name} has the address {peer.hex()}")
        evs = choose_evs(topology, self.host, dst, evs=None, backups=None, seed=self._seed)
        return Reach(ev_entries(evs), topology.path_rtt_ns(self.host, dst, serialised=False))


def open_device() -> Device:
    """Open the NIC of the host that this program runs in, such as `testbed shell`'s `h0 python`.

    Raises:
        MachineError: it does not run in a host of a fabric.
    """
    try:
        topology = Topology.model_validate_json(TOPOLOGY_FILE.read_text(encoding="utf-8"))
    except OSError as error:
        raise _nowhere() from error
    names = {name.partition("-")[0] for _, name in socket.if_nameindex()}
    hosts = [host for host in topology.hosts if host.name in names]
    if len(hosts) != 1:
        raise _nowhere()
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    return Device(topology, hosts[0])


def _nowhere() -> MachineError:
    return MachineError(
        "this program does not run in a host of a fabric",
        "testbed shell, and at its prompt: h0 python PROGRAM",
    )
