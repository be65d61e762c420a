"""The NIC processes of the hosts of a fabric: one device each, for any number of programs.

It listens in the host's network namespace. While no program is there it has no device and no timer,
so that an idle host costs nothing. Programs find it by their environment.
"""

import gc
import os
import resource
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from testbed.device import library
from testbed.device.server import NicServer
from testbed.emulation.endpoint.base_device import BaseDevice, BesideWorkload
from testbed.emulation.endpoint.clock import HealthLog, now_ns
from testbed.emulation.endpoint.device import DEVICE_ROUNDS_PER_RTT, Device, open_device
from testbed.emulation.endpoint.process import Endpoint
from testbed.emulation.fabric.fabric import Fabric
from testbed.host.operator import Answer
from testbed.host.plan import EndpointPlan
from testbed.model.errors import MachineError, Problem, as_answer
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.operator.commands import Command
from testbed.model.run_files.layout import HEALTH
from testbed.model.transport import Mrc
from testbed.model.units import NS_PER_S
from testbed.sandbox.channel import Channel
from testbed.sandbox.namespaces import enter_netns
from testbed.sandbox.processes import Child, spawn
from testbed.sandbox.system_calls import raise_priority

_DESCRIPTORS: Final = 1024
"""select(2), which the device sleeps in, takes no more."""


class NicProcess(NicServer):
    """Serves the programs of the host whose network namespace this process is in."""

    def __init__(
        self,
        opened: Callable[[], Device] = open_device,
        run: Channel | None = None,
        health: HealthLog | None = None,
    ) -> None:
        """Listen.

        Args:
            opened: opens the device, when the first program asks for it.
            run: the channel of a run that this host takes part in: it takes the commands of an
                endpoint, as far as they matter to it, and ends with `{"finish": True}`.
            health: where the run looks for how late this process is; the device writes it, too.
        """
        super().__init__(lambda: self._keep(opened()), now_ns)
        self._sockets: Device | None = None
        self._run = run
        self._health = health
        self._finishing = False
        if run is not None:
            self._ready.register(run, select.EPOLLIN)

    def _keep(self, device: Device) -> Device:
        """Keep the device with its sockets, once it has learnt which ports have carrier."""
        device.poll()
        self._sockets = device
        return device

    def run(self) -> None:
        """Serve programs: for ever, or until the run's command to finish."""
        gc.freeze()
        gc.disable()  # a collection would stop the NIC at a bad moment
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_DESCRIPTORS, most), most))
        while not self._finishing:
            if self._sockets is None:
                self.serve(-1 if self._health is None else self._health_due_s(self._health))
            else:
                self._sockets.run(self._round, wake=self.fileno())
                self._sockets = None
                self.release()

    @staticmethod
    def _health_due_s(health: HealthLog) -> float:
        """How long an idle NIC may sleep; it writes a line of its health if that is due."""
        now = now_ns()
        if now >= health.due_ns:
            health.write(now, {})
        return max(health.due_ns - now, 0) / NS_PER_S

    def _round(self) -> bool:
        """Serve all programs once; returns whether none is left that uses the device."""
        self.deliver()
        self.serve(0)
        self.take_posted()
        return self._finishing or not self.is_used

    def _serve_other(self, descriptor: int) -> None:
        if self._run is not None and descriptor == self._run.fileno():
            self._take_commands(self._run)

    def _take_commands(self, run: Channel) -> None:
        """Act on commands of the run.

        Raises:
            ConnectionError: it has ended.
        """
        commands = run.receive()
        if commands is None:
            raise ConnectionError("the run that this NIC belongs to has ended")
        records = None if self.device is None else self.device.records
        for command in commands:
            if "finish" in command:
                self._finishing = True
            elif "deny" in command and records is not None:
                records.operator.deny_crossing(frozenset(command["deny"]), now_ns())
            elif "operate" in command:
                if records is not None and "command" in command:
                    records.carry_out(command, run, now_ns())
                else:
                    problem = Problem("command", "this host", "one in which a program has a device")
                    run.send({"operated": command["operate"], "content": as_answer(problem)})


class EndpointWithPrograms(Endpoint):
    """The process of a host that sends a workload, and in which programs run as well.

    Workload and programs share ports, queue pair numbers and commands.
    """

    rounds_per_rtt = DEVICE_ROUNDS_PER_RTT

    def __init__(self, plan: EndpointPlan, channel: Channel) -> None:
        """Open everything, and listen; arguments as of `Endpoint`."""
        super().__init__(plan, channel)
        self._server = NicServer(self._open, now_ns)

    def _transport(self) -> BesideWorkload:
        self._both = BesideWorkload(self._traffic)
        return self._both

    def _open(self) -> BaseDevice:
        plan = self._plan
        assert isinstance(plan.scenario.transport, Mrc)  # noqa: S101 - programs have no other
        device = BaseDevice(
            plan.scenario.topology,
            plan.host,
            self._nic.send,
            now_ns,
            plan.raw_directory,
            transport=plan.scenario.transport,
            seed=plan.scenario.seed,
            beside=self._traffic,
        )
        self._both.begin_programs(device.driven, now_ns())
        return device

    def _work(self, now: int) -> None:
        super()._work(now)
        server = self._server
        if server.device is not None:
            server.deliver()
        server.serve(0)
        if server.is_used:
            server.take_posted()
        elif server.device is not None:
            self._both.driven = None
            server.release()

    def _watched(self) -> list[int]:
        return [*super()._watched(), self._server.fileno()]

    def _wake_up(self) -> None:
        if select.select([self._channel], [], [], 0)[0]:
            super()._wake_up()

    def _carry_out(self, command: Command, answer: Answer) -> None:
        device = self._server.device
        if device is None or device.records is None:
            super()._carry_out(command, answer)
        else:
            device.records.handle(command, answer, now_ns())

    def _finish(self) -> None:
        self._server.close()
        super()._finish()


_STARTS_S = 30.0


@dataclass(frozen=True, slots=True)
class RunSetting:
    """The run in which devices take part.

    Attributes:
        topology: its fabric.
        raw: where they record.
        transport: how they send.
        seed: of their EVs.
    """

    topology: Topology
    raw: Path
    transport: Mrc
    seed: int

    def open_device(self, host: Node, health: HealthLog) -> Device:
        """Open the device of a host, in its network namespace."""
        return Device(
            self.topology,
            host,
            self.raw,
            transport=self.transport,
            seed=self.seed,
            health=health,
        )


@contextmanager
def devices(fabric: Fabric, report: Callable[[str], None]) -> Iterator[Mapping[Node, int]]:
    """Have a device in every host of a fabric while the block runs; yields the NICs' PIDs.

    Args:
        fabric: built, in this sandbox.
        report: prints a line for the user.
    """
    topology = fabric.topology
    try:
        files = library.put_into(library.IN_HOSTS)
    except MachineError as error:
        report(f"no MRC device for other programs: {error}")
        yield {}
        return
    with ExitStack() as stack:
        nics = {host: stack.enter_context(start_nic(host)) for host in topology.hosts}
        for nic in nics.values():
            while not any("ready" in message for message in nic.receive(_STARTS_S)):
                nic.check()
        for host in topology.hosts:
            environment = fabric.net[host.name].environment
            environment |= files.environment({**os.environ, **environment})
        yield {host: nic.pid for host, nic in nics.items()}


def start_nic(host: Node, log: Path | None = None, setting: RunSetting | None = None) -> Child:
    """Start the NIC process of a host; it sends `{"ready": True}`.

    Args:
        host: the host.
        log: the file of its output.
        setting: the run that it takes part in; it ends on command then.
    """

    def work(channel: Channel) -> None:
        enter_netns(host.name)
        if setting is None:
            with NicProcess() as nic:
                channel.send({"ready": True})
                nic.run()
            return
        with suppress(PermissionError):  # then lag shows in the verdict, if there is any
            raise_priority()
        health = HealthLog(setting.raw.parent / HEALTH, host.name, now_ns())
        with NicProcess(partial(setting.open_device, host, health), channel, health) as nic:
            channel.send({"ready": True})
            nic.run()
        channel.send({"finished": {}})

    title = f"the NIC of {host.name}"
    return spawn(work, title=title, isolated=False, name=f"nic-{host.name}", log=log)
