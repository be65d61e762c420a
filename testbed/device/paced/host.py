"""The hosts of a simulated fabric in real time: those of programs, and those that send a workload.

A host of programs has a device, and gets a turn when that has something to do. Hosts that send a
workload of the scenario are the simulator's, in time that keeps step with the clock, but for those
in which programs run as well.

On this machine the hosts are addresses of its loopback. All of 127.0.0.0/8 is local on Linux, and
needs no set-up. Each run claims a network of its own there, so that several go side by side, and
each host has an address with all its ports. The library in the programs makes names resolve to them
(device/c/names.c).
"""

import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

from testbed.device.protocol import ADDRESS_VARIABLE, HOSTS_VARIABLE, SOCKET, SOCKET_VARIABLE
from testbed.device.server import NicServer
from testbed.emulation.endpoint.base_device import BaseDevice, BesideWorkload, Send, VerbsTransport
from testbed.emulation.experiment.programs import MASTER_PORT
from testbed.host.operator import Answer
from testbed.host.plan import EndpointPlan, plan_endpoints
from testbed.host.queue_pairs import sans_io_stack
from testbed.host.recording import Tables
from testbed.host.rounds import PortScheduler, Rounds
from testbed.host.traffic import SAMPLES_PER_RTT, Traffic, slot_bytes
from testbed.host.workloads.messages import Block
from testbed.model.closeable import Closeable
from testbed.model.errors import MachineError, Problem, as_answer
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.operator.commands import Command
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.model.units import NEVER_NS
from testbed.mrc import NEVER, Arrival
from testbed.mrc.wire.datagram import new
from testbed.mrc.wire.kinds import WireOptions
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric
from testbed.sim.host import SIMULATED_ROUNDS_PER_RTT, Egress, Host, Receiver
from testbed.sim.link import Packet

_NETWORKS: Final = range(64, 255)
"""The second byte of a run's addresses; others use the lower ones by hand."""


class Loopback(Closeable):
    """A network of the loopback that this run alone uses, as long as it is open."""

    def __init__(self, hosts: Sequence[Node]) -> None:
        """Claim one for these hosts, the first of which has the port at which programs meet.

        Raises:
            MachineError: all are taken, the machine has no loopback, or no port is free.
        """
        self._claim = socket.socket(socket.AF_UNIX)
        self._network = _claimed(self._claim)
        self._hosts = hosts
        try:
            self.master_port = _free_port(str(self.address_of(hosts[0])))
        except MachineError:
            self.close()
            raise

    def address_of(self, host: Node) -> IPv4Address:
        """The address of a host."""
        return IPv4Address((127 << 24) + (self._network << 16) + 1 + host.index)

    def nic_of(self, host: Node) -> str:
        """The name of the socket of a host's NIC."""
        return f"{SOCKET}-{self.address_of(host)}"

    def variables(self, name: str) -> dict[str, str]:
        """What programs in a host have in their environment."""
        own = next(host for host in self._hosts if host.name == name)
        names = ",".join(f"{host.name}={self.address_of(host)}" for host in self._hosts)
        return {
            SOCKET_VARIABLE: self.nic_of(own).lstrip("\0"),
            HOSTS_VARIABLE: names,
            ADDRESS_VARIABLE: str(self.address_of(own)),
        }

    def close(self) -> None:
        """Give it back."""
        self._claim.close()


def _claimed(claim: socket.socket) -> int:
    """Bind a socket to the name of the first network that nobody has claimed; return its number."""
    for network in _NETWORKS:
        try:
            claim.bind(f"\0mrc-loopback-127.{network}")
        except OSError:
            continue
        return network
    claim.close()
    raise MachineError(
        f"{len(_NETWORKS)} runs of programs are under way in this network namespace, and more have "
        "no addresses",
        "wait until one of them has ended",
    )


def _free_port(address: str) -> int:
    """The port of torchrun if it is free at an address, else any that is.

    Raises:
        MachineError: none is, or the address is not there.
    """
    for port in (MASTER_PORT, 0):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((address, port))
                trial.listen()
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                raise MachineError(
                    f"no loopback here: {address}: {error.strerror}", "ip link set lo up"
                ) from error
            found: int = trial.getsockname()[1]
            return found
    raise MachineError(
        f"no TCP port is free at {address}", "end what listens on all addresses of this machine"
    )


Workload = Callable[[PortScheduler, Send], Traffic]
"""Makes a host's part in a workload, given its ports and what sends its packets."""


class PacedHost:
    """One host. Times in ns, of the fabric.

    It has as many rounds as a simulated host, but what a program posts does not wait for one.

    Attributes:
        node: which one it is.
        server: serves its programs.
        traffic: the workload that it sends as well, if any.
        refused_busy: always 0: no host is made busy where programs run.
    """

    refused_busy = 0

    def __init__(
        self,
        node: Node,
        scenario: Scenario,
        raw: Path,
        engine: Engine,
        fabric: Fabric,
        hosts: Mapping[bytes, Receiver],
        worked: "Callable[[PacedHost], object]",
        name: str,
        user: int,
        workload: Workload | None = None,
    ) -> None:
        """Begin without programs.

        Args:
            node: which host it is.
            scenario: what is run.
            raw: where its device records.
            engine: the time.
            fabric: the links.
            hosts: finds each host by its NIC address.
            worked: told that programs may have something to learn: a completion, a port.
            name: of the socket at which its programs find the device.
            user: whose programs these are.
            workload: makes its part in a workload; None: it has none.
        """
        topology = scenario.topology
        self.node = node
        self.deliver = self.receive
        self._scenario = scenario
        self._raw = raw
        self._engine = engine
        self._worked = worked
        self._round_ns = max(topology.propagation_rtt_ns // SIMULATED_ROUNDS_PER_RTT, 1)
        self._egress = Egress(topology, node, engine, fabric, hosts, self._round_ns)
        self._rounds: Rounds | None = None
        self._dark: set[int] = set()
        self.traffic = None if workload is None else workload(self._egress.ports, self._egress.send)
        self._both = None if self.traffic is None else BesideWorkload(self.traffic)
        self._driven: VerbsTransport | BesideWorkload | None = None
        if self._both is not None:
            self._drive(self._both)
        self._wake_ns = NEVER
        self.server = NicServer(self._open, lambda: engine.now_ns, name=name, user=user)

    @property
    def device(self) -> BaseDevice | None:
        """Its device, while a program uses it."""
        return self.server.device

    def _open(self) -> BaseDevice:
        """Open the device, for the first program that asks for it."""
        transport = self._scenario.transport
        assert isinstance(transport, Mrc)  # noqa: S101 - programs have no other
        device = BaseDevice(
            self._scenario.topology,
            self.node,
            self._egress.send,
            lambda: self._engine.now_ns,
            self._raw,
            wire=WireOptions(sealed=False),
            transport=transport,
            seed=self._scenario.seed,
            beside=self.traffic,
        )
        if self._both is not None:
            self._both.begin_programs(device.driven, self._engine.now_ns)
            return device
        for plane in self._dark:
            device.driven.port_changed(plane, up=False, now_ns=self._engine.now_ns)
        self._drive(device.driven)
        return device

    def _drive(self, driven: VerbsTransport | BesideWorkload) -> None:
        """Have rounds of these queue pairs."""
        self._driven = driven
        self._rounds = Rounds(driven, self._egress.ports, self._round_ns)

    # --- programs -----------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer the programs, take what they have posted, and send it at once."""
        self.server.serve(0)
        if self.server.device is None:
            return
        if self.server.is_used:
            self.server.take_posted()
            self._worked(self)
            self._wake_at(self._engine.now_ns)
        else:
            self._end_programs()
            self.server.release()

    def _end_programs(self) -> None:
        if self._both is None:
            self._driven = self._rounds = None
        else:
            self._both.driven = None

    def begin(self, now_ns: int, _: object) -> None:
        """Start its part in the workload."""
        if self.traffic is not None:
            self.traffic.begin(now_ns)
            self._wake_at(now_ns)

    def end(self, now_ns: int, _: object) -> None:
        """End it: post no more messages, and carry out no more commands."""
        if self.traffic is not None:
            self.traffic.operator.end_at(now_ns)
            self.traffic.end()
            self._wake_at(now_ns)

    # --- the fabric ---------------------------------------------------------------------------

    def receive(self, now_ns: int, packet: Packet) -> None:
        """Receive a packet at the end of its route."""
        driven = self._driven
        if driven is None:
            return
        arrival = new(Arrival, (packet.ecn, packet.dscp, now_ns))
        if packet.trimmed or packet.flips:
            driven.receive(memoryview(packet.inner()), arrival)
        else:
            driven.receive_undamaged(packet.datagram, arrival)
        self._worked(self)
        self.wake(now_ns)

    def wake(self, now_ns: int) -> None:
        """Have a round as soon as one may be."""
        if self._rounds is not None and self._rounds.ready_ns < self._wake_ns:
            self._wake_at(max(now_ns, self._rounds.ready_ns))

    def _wake_at(self, at_ns: int) -> None:
        if at_ns < self._wake_ns:
            self._wake_ns = at_ns
            self._engine.at(at_ns, self._round)

    def _round(self, now_ns: int, _: object) -> None:
        """Have a round: send what is due, record."""
        if now_ns != self._wake_ns:
            return  # an earlier round has been scheduled since this one was
        self._wake_ns = NEVER
        if self._rounds is not None:
            if self.traffic is not None:
                self.traffic.work(now_ns)
            self._rounds.send(now_ns)
            self._worked(self)
            self._wake_at(self._rounds.next_ns(now_ns))

    def port_changed(self, now_ns: int, plane: int, *, up: bool) -> None:
        """Act on the loss or the return of the carrier of the port of a plane."""
        (self._dark.discard if up else self._dark.add)(plane)
        if self._driven is not None:
            self._driven.port_changed(plane, up=up, now_ns=now_ns)
            self._worked(self)
            self._wake_at(now_ns)

    def set_busy(self, state: Mapping[str, Any]) -> None:
        """Do nothing: no such fault is allowed where programs send, so this is its end."""

    # --- orders -------------------------------------------------------------------------------

    def deny(self, directions: frozenset[str]) -> None:
        """Avoid the EVs that cross these link directions."""
        if self.traffic is not None:
            operator = self.traffic.operator
        elif self.device is not None and self.device.records is not None:
            operator = self.device.records.operator
        else:
            return
        operator.deny_crossing(directions, self._engine.now_ns)
        self._wake_at(self._engine.now_ns)

    def operate(self, command: Command, answer: Answer) -> None:
        """Carry out an operator's command; `answer` is called when it has taken effect."""
        now_ns = self._engine.now_ns
        if self.device is not None and self.device.records is not None:
            self.device.records.handle(command, answer, now_ns)
        elif self.traffic is not None:
            self.traffic.operator.handle(command, now_ns, answer)
        else:
            answer(
                as_answer(Problem("command", self.node.name, "a host whose program has a device"))
            )
            return
        self._wake_at(now_ns)

    def close(self) -> None:
        """Let go of all programs, and finish the records."""
        self._rounds = None
        self.server.close()


class Workloads:
    """These hosts. Times in ns.

    Attributes:
        hosts: they; none if all jobs are programs.
        parts: what makes the parts of hosts in which programs run as well; `add` adds such a host.
    """

    def __init__(
        self,
        scenario: Scenario,
        raw: Path,
        engine: Engine,
        fabric: Fabric,
        receivers: dict[bytes, Receiver],
        stack: ExitStack,
    ) -> None:
        """Set them up.

        Args:
            scenario: what is run.
            raw: where they record.
            engine: the time.
            fabric: the links.
            receivers: finds each host by its NIC address; these are added.
            stack: closes their records.
        """
        self._engine = engine
        self._topology = scenario.topology
        self._sample_ns = max(scenario.topology.propagation_rtt_ns // SAMPLES_PER_RTT, 1)
        self._end_ns = NEVER_NS
        self._tables: list[Tables] = []
        self._traffic: dict[str, Traffic] = {}
        self.hosts: dict[Node, Host | PacedHost] = {}
        self.parts: dict[Node, Workload] = {}
        block = Block(scenario.seed, slot_bytes(scenario.longest_bytes))
        for node, plan in plan_endpoints(scenario.planned, raw, sealed=False).items():
            tables = stack.enter_context(Tables(raw, node.name, stay_open=False))
            self._tables.append(tables)
            for mailbox in plan.mailboxes:
                mailbox.tell(self._wake)
            if node.name in scenario.hosts_of_programs:
                self.parts[node] = partial(_part_of, plan, block, tables, engine)
                continue
            host = Host(plan, block, engine, fabric, receivers, tables)
            receivers[nic_address(scenario.topology, node).packed] = host
            self._add(host, host.traffic)

    def add(self, host: PacedHost) -> None:
        """Have a host of programs take part, if it has a part in a workload."""
        if host.traffic is not None:
            self._add(host, host.traffic)

    def _add(self, host: Host | PacedHost, traffic: Traffic) -> None:
        self.hosts[host.node] = host
        self._traffic[host.node.name] = traffic

    def _wake(self, host: str) -> None:
        self.hosts[self._topology.host_named(host)].wake(self._engine.now_ns)

    def begin_at(self, t0_ns: int) -> None:
        """Have them begin at a time, and be sampled from now on."""
        for host in self.hosts.values():
            self._engine.at(t0_ns, host.begin)
        if self.hosts:
            self._engine.at(self._engine.now_ns, self._sample)

    def end(self) -> None:
        """Have them post no more messages."""
        now_ns = self._end_ns = self._engine.now_ns
        for host in self.hosts.values():
            host.end(now_ns, None)

    @property
    def idle(self) -> bool:
        """Whether all of their messages have completed."""
        return all(traffic.idle for traffic in self._traffic.values())

    def _sample(self, now_ns: int, _: object) -> None:
        for traffic in self._traffic.values():
            traffic.sample(now_ns)
        if self._end_ns == NEVER_NS:
            self._engine.at(now_ns + self._sample_ns, self._sample)

    def flush(self) -> None:
        """Hand all records so far to the kernel, for those who read them meanwhile."""
        for tables in self._tables:
            tables.flush()

    def reports(self) -> Mapping[str, dict[str, Any]]:
        """The report of each host, by its name."""
        return {host: traffic.report() for host, traffic in self._traffic.items()}


def _part_of(
    plan: EndpointPlan,
    block: Block,
    tables: Tables,
    engine: Engine,
    ports: PortScheduler,
    launch: Send,
) -> Traffic:
    return Traffic(plan, sans_io_stack(plan, ports, tables), block, tables, launch, engine.now_ns)
