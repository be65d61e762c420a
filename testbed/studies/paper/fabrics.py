"""Fabrics of the paper, and the paths that flows use there.

Those for RoCE are with priority flow control, which only the simulator has, and without it.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from testbed.model.fabric.addressing import Path
from testbed.model.fabric.topology import Topology
from testbed.model.files.topologies import load_topology
from testbed.model.transport import Transport
from testbed.runs.job import Form

XOFF_BDP = 1.0
"""How much of what came over one link may wait in a switch until that link is paused, in BDP."""

PFC: Mapping[str, Any] = {
    "base": "clos-1plane-roce",
    "name": "clos-16host-pfc",
    "description": "",
    "t0_per_plane": 4,
    "pause": {"xoff": f"{XOFF_BDP:g} BDP", "xon": "0.5 BDP"},
}
"""The paper's cluster D for RoCE: 16 hosts in four racks; a full queue pauses who fills it."""

ONLY_SIMULATED: Mapping[Form, str] = {
    "emulated": "Linux has no priority flow control, which holds RoCE's senders back"
}


def without_pause(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fabric of a scenario without flow control: its queues hold all that is outstanding."""
    topology = {**data["topology"], "name": "clos-16host-roce"}
    del topology["pause"]
    return {"topology": topology}


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
