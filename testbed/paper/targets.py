"""Where a fault strikes so that a flow feels it, whatever EVs the seed gives it."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from testbed.files.topologies import load_topology
from testbed.model.fabric.addressing import Path
from testbed.model.fabric.topology import Topology
from testbed.model.transport import Transport


def paths_in_use(
    data: Mapping[str, Any], src: str, dst: str, seed: int
) -> tuple[Topology, list[Path]]:
    """The paths of a flow's active EVs at the start, and the topology that they lead through.

    Args:
        data: a scenario, as its file has it, with its topology by name.
        src: who sends.
        dst: who receives.
        seed: the run's.
    """
    topology = load_topology(data["topology"])
    transport: Transport = TypeAdapter[Transport](Transport).validate_python(data["transport"])
    nodes = topology.nodes[src], topology.nodes[dst]
    evs = transport.choose_evs(topology, *nodes, lane=0, seed=seed)
    return topology, [ev.path for ev in evs if ev.active]
