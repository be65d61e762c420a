"""A host of the simulated fabric in which programs run: its device, and when that gets a turn."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from testbed.device.server import NicServer
from testbed.emulation.endpoint.base_device import BaseDevice
from testbed.host.operator import Answer
from testbed.host.rounds import Rounds
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


class PacedHost:
    """One host. Times in ns, of the fabric.

    It has as many rounds as a simulated host, but what a program posts does not wait for one.

    Attributes:
        node: which one it is.
        server: serves its programs.
        refused_busy: always 0: only the endpoints of a workload can be busy.
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
        )
        for plane in self._dark:
            device.driven.port_changed(plane, up=False, now_ns=self._engine.now_ns)
        self._rounds = Rounds(device.driven, self._egress.ports, self._round_ns)
        return device

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
            self._rounds = None
            self.server.release()

    # --- the fabric ---------------------------------------------------------------------------

    def receive(self, now_ns: int, packet: Packet) -> None:
        """Receive a packet at the end of its route."""
        device = self.server.device
        if device is None:
            return
        arrival = new(Arrival, (packet.ecn, packet.dscp, now_ns))
        if packet.trimmed or packet.flips:
            device.driven.receive(memoryview(packet.inner()), arrival)
        else:
            device.driven.receive_undamaged(packet.datagram, arrival)
        self._worked(self)
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
            self._rounds.send(now_ns)
            self._worked(self)
            self._wake_at(self._rounds.next_ns(now_ns))

    def port_changed(self, now_ns: int, plane: int, *, up: bool) -> None:
        """Act on the loss or the return of the carrier of the port of a plane."""
        (self._dark.discard if up else self._dark.add)(plane)
        if self.device is not None:
            self.device.driven.port_changed(plane, up=up, now_ns=now_ns)
            self._worked(self)
            self._wake_at(now_ns)

    def set_busy(self, state: Mapping[str, Any]) -> None:
        """Do nothing: no such fault is allowed where programs send, so this is its end."""

    # --- orders -------------------------------------------------------------------------------

    def deny(self, directions: frozenset[str]) -> None:
        """Avoid the EVs that cross these link directions."""
        if self.device is not None and self.device.records is not None:
            self.device.records.deny_crossing(directions, self._engine.now_ns)
            self._wake_at(self._engine.now_ns)

    def operate(self, command: Command, answer: Answer) -> None:
        """Carry out an operator's command; `answer` is called when it has taken effect."""
        if self.device is None or self.device.records is None:
            answer(
                as_answer(Problem("command", self.node.name, "a host whose program has a device"))
            )
            return
        self.device.records.handle(command, answer, self._engine.now_ns)
        self._wake_at(self._engine.now_ns)

    def close(self) -> None:
        """Let go of all programs, and finish the records."""
        self._rounds = None
        self.server.close()
