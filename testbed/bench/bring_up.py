"""How long a fabric takes to be built, verified and taken down."""

import json
import os
import time
from collections.abc import Callable

from testbed.bench.figure import Figure, at_most
from testbed.fabric.fabric import Fabric
from testbed.fabric.namespaces import start_sandbox
from testbed.model.errors import RunFailedError
from testbed.model.topology import Topology

UP_S = 3.0
DOWN_S = 0.5


def bring_up(topology: Topology, repeats: int, progress: Callable[[str], None]) -> list[Figure]:
    """Build, verify and sweep a fabric and take it down again, each time in a new sandbox."""
    up, down = [], []
    for repeat in range(repeats):
        progress(f"bring-up {repeat + 1}/{repeats}")
        seconds = _once(topology)
        up.append(seconds[0])
        down.append(seconds[1])
    name = topology.name
    return [
        at_most(f"{name} up, routed, verified, swept", "s", up, UP_S),
        at_most(f"{name} down", "s", down, DOWN_S),
    ]


def _once(topology: Topology) -> tuple[float, float]:
    reader, writer = os.pipe()

    def build() -> int:
        began = time.monotonic()
        with Fabric(topology) as fabric:
            fabric.verify()
            fabric.sweep()
            done = time.monotonic()
            os.write(writer, json.dumps([done - began, done]).encode())
        return 0

    waiter = start_sandbox(build)
    os.close(writer)
    with os.fdopen(reader) as report:
        said = report.read()
    os.waitpid(waiter, 0)
    gone = time.monotonic()
    if not said:
        raise RunFailedError("the fabric could not be built: see the messages above")
    up_s, done = json.loads(said)
    return up_s, gone - done
