"""Both ends of a measurement, in a fabric that is brought up for it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.fabric.fabric import Fabric
from testbed.fabric.ordinary.routes import OrdinaryTraffic
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.perftest.parameters import Parameters
from testbed.sandbox.processes import call


def measure(
    topology: Topology, pairs: Sequence[tuple[Node, Node]], parameters: Parameters, *extra: str
) -> int:
    """Build the fabric in a sandbox and run the program in two hosts, one pair after the other.

    It prints what it finds. Returns the exit status, the first that is not 0.

    Args:
        topology: the fabric.
        pairs: who calls and who is called.
        parameters: what is measured.
        extra: more options of the program's.
    """
    options = (*parameters.as_options(), *extra)
    return call(lambda: _in_sandbox(topology, pairs, str(parameters.tool), options))


def _in_sandbox(
    topology: Topology, pairs: Sequence[tuple[Node, Node]], tool: str, options: Sequence[str]
) -> int:
    program = str(Path(sys.executable).with_name(tool))
    with Fabric(topology) as fabric:
        fabric.verify()
        fabric.sweep()
        OrdinaryTraffic(topology, fabric.namespaces).install()
        for src, dst in pairs:
            caller, called = (fabric.net[node.name].enter_command for node in (src, dst))
            with subprocess.Popen([*called, program]) as server:  # noqa: S603 - the project's program
                client = subprocess.run(  # noqa: S603 - the project's program
                    [*caller, program, dst.name, *options], check=False
                )
                if client.returncode:
                    server.kill()
                    return client.returncode
            if server.returncode:
                return server.returncode
    return os.EX_OK
