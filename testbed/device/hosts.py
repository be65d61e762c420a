"""The device in the hosts of a fabric: a NIC process for each, and the environment of programs."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.device import library
from testbed.device.nic import NicProcess
from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.endpoint.device import Device
from testbed.emulation.endpoint.health import HealthLog
from testbed.emulation.fabric.fabric import Fabric
from testbed.model.errors import MachineError
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.run_files.layout import HEALTH
from testbed.model.transport import Mrc
from testbed.sandbox.channel import Channel
from testbed.sandbox.namespaces import enter_netns
from testbed.sandbox.processes import Child, spawn
from testbed.sandbox.system_calls import raise_priority

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
