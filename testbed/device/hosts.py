"""The device in the hosts of a fabric: a NIC process for each, and the environment of programs."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from testbed.device import library
from testbed.device.nic import NicProcess
from testbed.emulation.fabric.fabric import Fabric
from testbed.model.errors import MachineError
from testbed.model.fabric.nodes import Node
from testbed.sandbox.channel import Channel
from testbed.sandbox.namespaces import NETNS_DIR, enter_netns
from testbed.sandbox.processes import Child, spawn

_STARTS_S = 30.0
DIRECTORY = NETNS_DIR.parent / "mrc"
"""In the sandbox's own /run: no space is in this path, wherever the project is."""


@contextmanager
def devices(fabric: Fabric, report: Callable[[str], None]) -> Iterator[Mapping[Node, int]]:
    """Have a device in every host of a fabric while the block runs; yields the NICs' PIDs.

    Args:
        fabric: built, in this sandbox.
        report: prints a line for the user.
    """
    topology = fabric.topology
    try:
        files = library.put_into(DIRECTORY)
    except MachineError as error:
        report(f"no MRC device for other programs: {error}")
        yield {}
        return
    python_path = ":".join(filter(None, (str(files.python), os.environ.get("PYTHONPATH"))))
    with ExitStack() as stack:
        nics = {host: stack.enter_context(_start(host)) for host in topology.hosts}
        for nic in nics.values():
            while not any("ready" in message for message in nic.receive(_STARTS_S)):
                nic.check()
        for host in topology.hosts:
            fabric.net[host.name].environment |= {
                "LD_PRELOAD": str(files.preload),
                "NCCL_IBVERBS_LIB": str(files.ibverbs),
                "PYTHONPATH": python_path,
            }
        yield {host: nic.pid for host, nic in nics.items()}


def _start(host: Node) -> Child:
    def work(channel: Channel) -> None:
        enter_netns(host.name)
        with NicProcess() as nic:
            channel.send({"ready": True})
            nic.run()

    return spawn(work, title=f"the NIC of {host.name}", isolated=False, name=f"nic-{host.name}")
