"""A host of the simulated fabric in which programs run: its device, and when that gets a turn."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from testbed.device.server import NicServer
from testbed.emulation.endpoint.base_device import (
    BaseDevice,
    BesideWorkload,
    Send,
    VerbsTransport,
)
from testbed.host.operator import Answer
from testbed.host.rounds import PortScheduler, Rounds
from testbed.host.traffic import Traffic
from testbed.model.errors import Problem, as_answer
from testbed.model.fabric.nodes import Node
from testbed.model.operator.commands import Command
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.mrc import NEVER, Arrival
from testbed.mrc.wire.datagram import new
from testbed.mrc.wire.kinds import WireOptions
from testbed.sim.egress import Egress, Receiver
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric
from testbed.sim.host import SIMULATED_ROUNDS_PER_RTT
from testbed.sim.packet import Packet

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
