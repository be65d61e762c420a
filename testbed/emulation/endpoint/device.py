"""An RDMA device for programs that run in a host of the fabric: the verbs over sockets.

    with open_device() as device:
        cq = device.context.create_cq()
        ...
        device.wait(cq)

There is no hardware: the device works while the program is in `poll` or `wait`, as with manual
progress in libfabric. To its peers, a program that does something else for long is a NIC that does
not answer.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path
from random import SystemRandom

from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.endpoint.device_records import DeviceRecords
from testbed.emulation.endpoint.event_loop import EventLoop
from testbed.emulation.endpoint.health import HealthLog
from testbed.emulation.endpoint.nic import Nic
from testbed.emulation.endpoint.plain_nic import PlainEvs, PlainNic
from testbed.emulation.endpoint.port_monitor import PortMonitor
from testbed.host.plan import ev_entries, port_attributes
from testbed.model.closeable import Closeable
from testbed.model.errors import ExitStatus, MachineError, TestbedError
from testbed.model.fabric.addressing import host_of_nic
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.transport import Mrc
from testbed.model.units import NS_PER_S
from testbed.mrc import NEVER, Arrival, Event, EvProfile, QueuePair
from testbed.mrc.constants import FIRST_QPN
from testbed.mrc.verbs import (
    CompletionQueue,
    Context,
    EvProfileOf,
    PeerPaths,
    WorkCompletion,
)
from testbed.mrc.wire.kinds import DEFAULT_OPTIONS
from testbed.sandbox.namespaces import RECORDS_FILE, TOPOLOGY_FILE
from testbed.sandbox.system_calls import NICENESS

DEVICE_ROUNDS_PER_RTT = 256
"""Rounds of a device per base RTT, at most: often enough to measure latency."""

LATE_RTTS = 0.02
"""An arrival is late if the program sees it this many base RTTs after it was due. Ours."""


_QPNS = 1 << 23
"""A device numbers its queue pairs from a random one of so many numbers on: several on a host, and
one opened after another, do not take each other's packets."""


Observer = Callable[[Sequence[tuple[QueuePair, list[Event]]]], None]
"""Sees what the queue pairs report."""


class _VerbsTransport:
    """The queue pairs of a verbs context, on a NIC."""

    def __init__(self, context: Context, nic: Nic, records: DeviceRecords | None) -> None:
        self._context = context
        self._nic = nic
        self._records = records
        self.observer: Observer | None = None

    def receive(self, packet: memoryview, arrival: Arrival) -> None:
        """Take in an inner packet and answer it, if that is due at once."""
        records = self._records
        if records is not None:
            records.arrived(packet, arrival.rx_ns)
        answer = self._context.receive(packet, arrival)
        if answer is not None:
            plane = self._nic.send(answer.datagram, answer.peer, arrival.rx_ns)
            if records is not None:
                records.answered(answer, plane, arrival.rx_ns)

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """Have every queue pair leave the plane, or return to it, and tell its peer."""
        self._context.port_changed(plane, up=up, now_ns=now_ns)

    def transmit(self, now_ns: int, room: int) -> int:
        """Send what is due; returns the room that is left."""
        records = self._records
        if records is not None:
            records.work(now_ns)
        for core, datagram in self._context.transmit_by_qp(now_ns, room):
            plane = self._nic.send(datagram, core.config.peer_address, now_ns)
            room -= datagram.is_data
            if records is not None:
                records.sent(core, datagram, plane, now_ns)
        events = self._context.events_by_qp()
        if self.observer is not None:
            self.observer(events)
        if records is not None:
            records.end_round(events, now_ns)
        return room

    def deadline_ns(self, now_ns: int, *, full: bool) -> int:
        """When `transmit` must be called even if nothing arrives."""
        deadline_ns = self._context.next_deadline()
        if self._records is not None:
            deadline_ns = min(deadline_ns or NEVER, self._records.deadline_ns)
        if deadline_ns is None or (full and deadline_ns <= now_ns):
            return NEVER
        return deadline_ns


class Device(Closeable):
    """One host's NIC, opened by a program. Use it as a context manager.

    Attributes:
        context: its memory regions, completion queues and queue pairs.
        topology: the fabric.
        host: the host that it belongs to.
        arrived: the number of packets received.
        late: how many of them were seen more than `LATE_RTTS` base RTTs after they were due; it
            shows how well the machine keeps up.
        records: what it records, if somebody watches the fabric.
        ev_profile: makes the EV profiles of its queue pairs, unless a program brings its own.
    """

    def __init__(
        self,
        topology: Topology,
        host: Node,
        records: Path | None = None,
        *,
        plain: PlainEvs | None = None,
        transport: Mrc | None = None,
        seed: int | None = None,
        health: HealthLog | None = None,
    ) -> None:
        """Open it; the process must be in the host's network namespace.

        Args:
            topology: the fabric.
            host: whose NIC it is.
            records: the directory in which it records, if somebody watches the fabric.
            plain: its EVs, if its packets have no outer header; if None, they have.
            transport: how its EVs are chosen and judged; if None, as by default.
            seed: chooses EVs where there are more paths than EVs; if None, a random one.
            health: takes how late it is, if a run is judged by that.
        """
        self.topology = topology
        self.host = host
        self.arrived = self.late = 0
        rng = SystemRandom()
        self._transport = transport or Mrc()
        self.ev_profile: EvProfileOf = partial(
            EvProfile,
            probe_successes=self._transport.probe_successes,
            grey_probe_successes=self._transport.grey_probe_successes,
            adaptive=self._transport.spray != "blind",
            compared=self._transport.dialect.judgement == "relative",
        )
        self._seed = rng.randrange(1 << 32) if seed is None else seed
        self._health = health
        self._plain = plain
        wire = DEFAULT_OPTIONS if plain is None else plain.wire
        self.context = Context(
            port_attributes(topology, host),
            self._paths_to,
            rng,
            wire,
            FIRST_QPN + rng.randrange(_QPNS),
        )
        self._late_ns = round(topology.propagation_rtt_ns * LATE_RTTS)
        self._nic = self._open_nic(topology.propagation_rtt_ns // DEVICE_ROUNDS_PER_RTT)
        self.records: DeviceRecords | None = None
        if records is not None:
            self.records = DeviceRecords(records, topology, host, self._evs)
            self.records.port_switched = self._port_switched
            for plane in self.records.disabled_ports():
                self._port_switched(plane, True, now_ns())
        self._driven = _VerbsTransport(self.context, self._nic, self.records)
        self._loop = EventLoop(self._nic, PortMonitor.of(topology, host), self._driven)

    def close(self) -> None:
        """Close the sockets, and finish the records."""
        self._loop.close()
        if self.records is not None:
            self.records.end_round(self.context.events_by_qp(), now_ns())
            self.records.refused = self.context.refused()
            self.records.close()

    # --- orders of a controller --------------------------------------------------------------

    def observe(self, observer: Observer) -> None:
        """Have the events of all queue pairs seen, each round."""
        self._driven.observer = observer

    def switch_port(self, plane: int, *, disabled: bool, now_ns: int) -> None:
        """Take the own port of a plane out of use, or allow it again."""
        if self.records is not None:
            self.records.switch_port(plane, disabled=disabled, now_ns=now_ns)
        self._port_switched(plane, disabled, now_ns)

    def _port_switched(self, plane: int, disabled: bool, now_ns: int) -> None:
        self.context.set_port_disabled(plane, disabled=disabled, now_ns=now_ns)

    def order_ev(self, core: QueuePair, ev: int, *, deny: bool, now_ns: int) -> None:
        """Deny an EV of a queue pair, or allow it again, as the operator does by hand."""
        records = self.records
        if records is not None and records.order_ev(core, ev, deny=deny, now_ns=now_ns):
            return
        (core.deny_ev if deny else core.allow_ev)(ev, now_ns)

    def replace_ev(self, core: QueuePair, ev: int, new: EvChoice, now_ns: int) -> None:
        """Have a queue pair use another EV of the same plane in the place of one."""
        (entry,) = ev_entries([new])
        core.replace_ev(ev, entry, now_ns)
        if self.records is not None:
            self.records.replaced_ev(core, ev, new)

    # -----------------------------------------------------------------------------------------

    @property
    def send_errors(self) -> int:
        """Packets that the kernel refused so far."""
        return self._nic.sockets.send_errors

    def poll(self) -> None:
        """Do what is due and return at once: take in arrivals, send what there is room for.

        A port that has lost its carrier since the last call is no longer used, one that has it
        again is used again; the peers are told.
        """
        self._poll(now_ns(), 0)

    def _poll(self, now: int, behind_ns: int) -> None:
        """The same at a time that is so much later than the loop meant to wake."""
        health = self._health
        if health is not None:
            health.lag(behind_ns)
            if now >= health.due_ns:
                health.write(now, {"raw_socket": self._nic.sockets.overflowed})
        for late_ns in self._loop.receive(now):
            self.arrived += 1
            self.late += late_ns > self._late_ns
            if health is not None:
                health.lag(min(late_ns, behind_ns))
        self._loop.check_ports(now)
        self._loop.send(now)

    def run(
        self, until: Callable[[], bool], *, timeout_s: float | None = None, wake: int | None = None
    ) -> bool:
        """Work until `until` returns true, or for `timeout_s`; returns its last answer.

        Args:
            until: called after every round, some hundred times a second; it may post.
            timeout_s: seconds; no limit if None.
            wake: a descriptor that ends the sleep between two rounds as soon as it is readable.
        """
        end_ns = NEVER if timeout_s is None else now_ns() + round(timeout_s * NS_PER_S)
        watched = () if wake is None else (wake,)
        wake_ns = now_ns()
        while True:
            now = now_ns()
            self._poll(now, max(now - wake_ns, 0))
            if until():
                return True
            now = now_ns()
            if now >= end_ns:
                return False
            self._loop.send(now)
            wake_ns, _ = self._loop.sleep(now, watched, end_ns)

    def wait(self, cq: CompletionQueue, timeout_s: float | None = None) -> list[WorkCompletion]:
        """Work until a completion queue has entries and take them.

        Args:
            cq: the completion queue.
            timeout_s: seconds; no limit if None. 1 GiB at 40 Mbit/s takes almost 4 minutes.

        Raises:
            TimeoutError: it stayed empty for `timeout_s` seconds.
        """
        completions: list[WorkCompletion] = []

        def has_entries() -> bool:
            completions.extend(cq.poll())
            return bool(completions)

        if not self.run(has_entries, timeout_s=timeout_s):
            raise TimeoutError(f"no completion within {timeout_s:g} s")
        return completions

    def _paths_to(self, peer: bytes) -> PeerPaths:
        topology = self.topology
        dst = host_of_nic(topology, IPv6Address(peer))
        if dst is None:
            raise ValueError(f"no NIC of {topology.name} has the address {peer.hex()}")
        if dst == self.host:  # out to a T1 and back, as `paths` has it
            rtt_ns = topology.propagation_rtt_ns
        else:
            rtt_ns = topology.path_rtt_ns(self.host, dst, serialised=False)
        if self._plain is not None:
            return PeerPaths(self._plain.entries, rtt_ns)
        return PeerPaths(ev_entries(self._evs(dst)), rtt_ns)

    def _open_nic(self, round_ns: int) -> Nic:
        if self._plain is None:
            return Nic(self.topology, self.host, round_ns)
        return PlainNic(self.topology, self.host, round_ns, self._plain)

    def _evs(self, peer: Node) -> tuple[EvChoice, ...]:
        """The EVs to a peer, always the same."""
        return self._transport.choose_evs(self.topology, self.host, peer, lane=0, seed=self._seed)


def open_device() -> Device:
    """Open the NIC of the host that this program runs in, such as `testbed shell`'s `h0 python`.

    Raises:
        MachineError: it does not run in a host of a fabric.
    """
    try:
        topology = Topology.model_validate_json(TOPOLOGY_FILE.read_text(encoding="utf-8"))
    except OSError as error:
        raise _not_in_a_host() from error
    names = {name.partition("-")[0] for _, name in socket.if_nameindex()}
    hosts = [host for host in topology.hosts if host.name in names]
    if len(hosts) != 1:
        raise _not_in_a_host()
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    return Device(topology, hosts[0], _watched_records())


@contextmanager
def plain_errors() -> Iterator[None]:
    """End the program with a message instead of a traceback where its user can act on an error.

    Such as a server's name that no host has, or a peer that has ended. The exit status is that of
    the error; 1 if the peer ended or did not answer.

    Raises:
        SystemExit: there was such an error; its message is printed.
    """
    try:
        yield
    except TestbedError as error:
        message, status = str(error), int(error.exit_status)
    except (ConnectionError, TimeoutError) as error:
        message, status = str(error), int(ExitStatus.FAILED)
    except MemoryError:
        message, status = "there is not enough memory", int(ExitStatus.MACHINE_CANNOT)
    else:
        return
    sys.stderr.write(f"error: {message}\n")
    raise SystemExit(status)


def _watched_records() -> Path | None:
    """Where programs record, if somebody watches the fabric."""
    with suppress(FileNotFoundError):
        return Path(RECORDS_FILE.read_text(encoding="utf-8"))
    return None


def _not_in_a_host() -> MachineError:
    return MachineError(
        "this program does not run in a host of a fabric",
        "testbed shell, and at its prompt: h0 python PROGRAM",
    )
