"""One host's device, whatever carries its packets: queue pairs, EVs, records, and orders.

The emulation's device (device.py) has sockets in the host's network namespace. That of a simulated
fabric (device/paced/host.py) hands its packets to the links themselves.
"""

from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path
from random import SystemRandom

from testbed.emulation.endpoint.device_records import DeviceRecords
from testbed.host.plan import ev_entries, port_attributes
from testbed.host.rounds import HostTransport
from testbed.host.traffic import Traffic
from testbed.model.closeable import Closeable
from testbed.model.fabric.addressing import host_of_nic
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.transport import Mrc
from testbed.mrc import NEVER, Arrival, Datagram, Demux, Event, EvEntry, EvProfile, QueuePair
from testbed.mrc.constants import FIRST_QPN
from testbed.mrc.verbs import Context, EvProfileOf, PeerPaths
from testbed.mrc.wire.datagram import Outbound
from testbed.mrc.wire.kinds import DEFAULT_OPTIONS, WireOptions

_QPNS = 1 << 23
"""A device numbers its queue pairs from a random one of so many numbers on: several on a host, and
one opened after another, do not take each other's packets."""

_OF_WORKLOADS = 1 << 16
"""Numbers below are for the queue pairs of a host's own workload."""


Observer = Callable[[Sequence[tuple[QueuePair, list[Event]]]], None]
"""Sees what the queue pairs report."""

Send = Callable[[Datagram, bytes, int], int]
"""Sends a packet to the NIC of an address, at a time in ns; returns the plane that it takes."""


class VerbsTransport:
    """The queue pairs of a verbs context, as a host's rounds drive them."""

    def __init__(self, context: Context, send: Send, records: DeviceRecords | None) -> None:
        """Drive the queue pairs of `context`; their packets go to `send`."""
        self._context = context
        self._send = send
        self._records = records
        self.observer: Observer | None = None

    def receive(self, packet: memoryview, arrival: Arrival) -> None:
        """Take in an inner packet and answer it, if that is due at once."""
        if self._records is not None:
            self._records.arrived(packet, arrival.rx_ns)
        self._answer(self._context.receive(packet, arrival), arrival)

    def receive_undamaged(self, datagram: Datagram, arrival: Arrival) -> None:
        """Take in a packet that arrived undamaged; only a simulated fabric knows that."""
        if self._records is not None and datagram.seq is None:
            self._records.arrived(memoryview(datagram.join()), arrival.rx_ns)
        self._answer(self._context.receive_undamaged(datagram, arrival), arrival)

    def _answer(self, answer: Outbound | None, arrival: Arrival) -> None:
        if answer is not None:
            plane = self._send(answer.datagram, answer.peer, arrival.rx_ns)
            if self._records is not None:
                self._records.answered(answer, plane, arrival.rx_ns)

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """Have every queue pair leave the plane, or return to it, and tell its peer."""
        self._context.port_changed(plane, up=up, now_ns=now_ns)

    def transmit(self, now_ns: int, room: int) -> int:
        """Send what is due; returns the room that is left."""
        records = self._records
        if records is not None:
            records.work(now_ns)
        for core, datagram in self._context.transmit_by_qp(now_ns, room):
            plane = self._send(datagram, core.config.peer_address, now_ns)
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


class BesideWorkload:
    """The queue pairs of a host's workload and of its programs, as the host's rounds drive them.

    They have the ports in turn. The demultiplexer is the workload's.

    Attributes:
        driven: those of the programs, while one has the device open.
    """

    def __init__(self, workload: Traffic) -> None:
        self._workload = workload
        self._programs_first = False
        self._down: set[int] = set()
        self.driven: VerbsTransport | None = None
        self.receive = workload.receive
        self.receive_undamaged = workload.receive_undamaged

    def begin_programs(self, driven: VerbsTransport, now_ns: int) -> None:
        """Drive the queue pairs of programs as well, which learn of ports without carrier."""
        self.driven = driven
        for plane in self._down:
            driven.port_changed(plane, up=False, now_ns=now_ns)

    def _turns(self) -> list[HostTransport]:
        return [self._workload] if self.driven is None else [self._workload, self.driven]

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """Have both act on the loss or the return of the carrier of the port of a plane."""
        (self._down.discard if up else self._down.add)(plane)
        for each in self._turns():
            each.port_changed(plane, up=up, now_ns=now_ns)

    def transmit(self, now_ns: int, room: int) -> int:
        """Send what is due; the other begins each time. Returns the room that is left."""
        self._programs_first = not self._programs_first
        turns = self._turns()
        for each in reversed(turns) if self._programs_first else turns:
            room = each.transmit(now_ns, room)
        return room

    def deadline_ns(self, now_ns: int, *, full: bool) -> int:
        """When `transmit` must be called even if nothing arrives."""
        return min(each.deadline_ns(now_ns, full=full) for each in self._turns())


class BaseDevice(Closeable):
    """One host's NIC, as programs and controllers see it.

    Attributes:
        context: its memory regions, completion queues and queue pairs.
        topology: the fabric.
        host: the host that it belongs to.
        records: what it records, if somebody watches the fabric.
        ev_profile: makes the EV profiles of its queue pairs, unless a program brings its own.
        driven: its queue pairs, as rounds drive them.
        arrived: packets that it has received, if it counts them.
        late: how many of them it saw long after they were due: how well the machine keeps up.
    """

    arrived = late = 0

    def __init__(
        self,
        topology: Topology,
        host: Node,
        send: Send,
        clock: Callable[[], int],
        records: Path | None = None,
        *,
        entries: tuple[EvEntry, ...] | None = None,
        wire: WireOptions = DEFAULT_OPTIONS,
        transport: Mrc | None = None,
        seed: int | None = None,
        beside: Traffic | None = None,
    ) -> None:
        """Open it.

        Args:
            topology: the fabric.
            host: whose NIC it is.
            send: takes its packets.
            clock: the time of the fabric, in ns.
            records: the directory in which it records, if somebody watches the fabric.
            entries: its EVs to every peer; if None, those of the paths to each.
            wire: how packets are written.
            transport: how its EVs are chosen and judged; if None, as by default.
            seed: chooses EVs where there are more paths than EVs; if None, a random one.
            beside: the workload that the host sends as well.
        """
        self.topology = topology
        self.host = host
        self._clock = clock
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
        self._entries = entries
        self._shares_demux = beside is not None
        demux = None if beside is None else beside.demux
        assert demux is None or isinstance(demux, Demux)  # noqa: S101 - programs have MRC only
        self.context = Context(
            port_attributes(topology, host),
            self._paths_to,
            rng,
            wire,
            FIRST_QPN + _OF_WORKLOADS + rng.randrange(_QPNS),
            demux,
        )
        self.records: DeviceRecords | None = None
        if records is not None:
            operator = None if beside is None else beside.operator
            self.records = DeviceRecords(
                records, topology, host, self._evs, operator, self._transport
            )
            self.records.port_switched = self._port_switched
            for plane in self.records.disabled_ports():
                self._port_switched(plane, True, clock())
        self.driven = VerbsTransport(self.context, send, self.records)

    def close(self) -> None:
        if self.records is not None:
            self.records.end_round(self.context.events_by_qp(), self._clock())
            self.records.refused = {} if self._shares_demux else self.context.refused()
            self.records.close()

    # --- orders of a controller --------------------------------------------------------------

    def observe(self, observer: Observer) -> None:
        """Have the events of all queue pairs seen, each round."""
        self.driven.observer = observer

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
        if records is not None and records.operator.order_ev(core, ev, deny=deny, now_ns=now_ns):
            return
        (core.deny_ev if deny else core.allow_ev)(ev, now_ns)

    def replace_ev(self, core: QueuePair, ev: int, new: EvChoice, now_ns: int) -> None:
        """Have a queue pair use another EV of the same plane in the place of one."""
        (entry,) = ev_entries([new])
        core.replace_ev(ev, entry, now_ns)
        if self.records is not None:
            self.records.operator.replaced_ev(core, ev, new)

    # -----------------------------------------------------------------------------------------

    def _paths_to(self, peer: bytes) -> PeerPaths:
        topology = self.topology
        dst = host_of_nic(topology, IPv6Address(peer))
        if dst is None:
            raise ValueError(f"no NIC of {topology.name} has the address {peer.hex()}")
        if dst == self.host:  # out to a T1 and back, as `paths` has it
            rtt_ns = topology.propagation_rtt_ns
        else:
            rtt_ns = topology.path_rtt_ns(self.host, dst, serialised=False)
        return PeerPaths(self._entries or ev_entries(self._evs(dst)), rtt_ns)

    def _evs(self, peer: Node) -> tuple[EvChoice, ...]:
        """The EVs to a peer, always the same."""
        return self._transport.choose_evs(self.topology, self.host, peer, lane=0, seed=self._seed)
