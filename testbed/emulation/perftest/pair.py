"""Both ends of a measurement, in a fabric that is brought up for it."""

import os
from collections.abc import Sequence

from testbed.device import library
from testbed.device.nic import start_nic
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.ordinary import OrdinaryTraffic
from testbed.emulation.perftest import in_host
from testbed.emulation.perftest.parameters import Request
from testbed.limits import available_memory
from testbed.model.fabric.addressing import ordinary_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.sandbox.namespaces import enter_netns
from testbed.sandbox.processes import Child, call, spawn


def measure(topology: Topology, pairs: Sequence[tuple[Node, Node]], request: Request) -> int:
    """Build the fabric in a sandbox and measure in two hosts, one pair after the other.

    It prints what it finds. Returns the exit status, the first that is not 0.

    Raises:
        MachineError: the messages and queue pairs do not fit into the memory, or the device's
            library cannot be compiled.

    Args:
        topology: the fabric.
        pairs: the host that connects, and the host that listens.
        request: what is measured, and how it is printed.
    """
    request.parameters.require_memory(available_memory())
    return call(lambda: _in_sandbox(topology, pairs, request))


def _in_sandbox(topology: Topology, pairs: Sequence[tuple[Node, Node]], request: Request) -> int:
    with Fabric(topology) as fabric:
        fabric.verify()
        fabric.sweep()
        OrdinaryTraffic(topology, fabric.namespaces).install()
        library.put_into(library.IN_HOSTS)
        for src, dst in pairs:
            address = str(ordinary_address(topology, dst, 0))
            with start_nic(src), start_nic(dst), _start(dst, None, request) as server:
                status = _start(src, address, request).result() or server.result()
            if status:
                return int(status)
    return os.EX_OK


def _start(host: Node, server: str | None, request: Request) -> Child:
    """Start an end in a host: the client of a server, by its address, or the server."""

    def work(_: object) -> int:
        enter_netns(host.name)
        return in_host.measure(server, *request)

    return spawn(work, title=f"{request.parameters.tool} in {host.name}", isolated=False)
