"""Targets of faults that affect a flow, whatever EVs the seed gives the flow."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from testbed.model.fabric.addressing import Path
from testbed.model.fabric.topology import Topology
from testbed.model.files.topologies import load_topology
from testbed.model.transport import Transport


def paths_in_use(
    data: Mapping[str, Any], src: str, dst: str, seed: int
) -> tuple[Topology, list[Path]]:
    """The paths of a flow's active EVs at the start, and the topology that they lead through.

    Args:
        data: the content of a scenario's file, with the topology as a name.
        src: the sending host.
        dst: the receiving host.
        seed: the run's seed.
    """
    topology = load_topology(data["topology"])
    transport: Transport = TypeAdapter[Transport](Transport).validate_python(data["transport"])
    nodes = topology.nodes[src], topology.nodes[dst]
    evs = transport.choose_evs(topology, *nodes, lane=0, seed=seed)
    return topology, [ev.path for ev in evs if ev.active]
