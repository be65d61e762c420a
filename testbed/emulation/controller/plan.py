"""The plan of a controller: the faults, and the links that are OpenFlow wires."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from testbed.emulation.fabric.layout import Layout
from testbed.emulation.fabric.openvswitch import (
    MAX_USERSPACE_WIRES,
    RUN_DIRECTORY,
    OpenFlowWire,
    wires_of,
)
from testbed.model.fabric.names import link_of
from testbed.model.fabric.topology import Topology
from testbed.model.faults.schedule import ScheduledFault

OPENFLOW_PORT = 6653
"""TCP port of OpenFlow (IANA). Each run has a loopback of its own, so all runs use the same one."""


WIRE_PRIORITY = 100
DROP_PRIORITY = 200
"""Priorities of flows: that of a wire, and that of a blackhole, which overrides it."""


@dataclass(frozen=True, slots=True)
class ControllerPlan:
    """The plan of one controller process.

    Attributes:
        topology: the fabric.
        faults: the faults of the timeline, in the order of their numbers.
        wires: names of the links that run through Open vSwitch, in the order of their numbers.
        run_directory: the directory of `faults.jsonl`.
        switch_directory: Open vSwitch's run directory.
        transport: the kind of the run's transport.
        flows: the run's flows: sender, receiver and lane of each.
        port: TCP port on the loopback on which the controller listens for the switch.
    """

    topology: Topology
    faults: tuple[ScheduledFault, ...]
    wires: tuple[str, ...]
    run_directory: Path
    switch_directory: Path = RUN_DIRECTORY
    transport: str = "mrc"
    flows: tuple[tuple[str, str, int], ...] = ()
    port: int = OPENFLOW_PORT

    @property
    def openflow_wires(self) -> tuple[OpenFlowWire, ...]:
        """The wires with their interfaces and OpenFlow ports."""
        return wires_of(Layout.of(self.topology, self.wires))

    def to_json(self) -> bytes:
        return TypeAdapter(ControllerPlan).dump_json(self, by_alias=True, indent=1)


WIRE_KINDS = ("cut", "blackhole", "flap")
"""The kinds that OpenFlow can play alone, by ports and flows."""


def choose_wires(
    faults: Sequence[ScheduledFault], *, openvswitch: bool, limit: int = MAX_USERSPACE_WIRES
) -> tuple[str, ...]:
    """The links that are to be OpenFlow wires: the first `limit` that a fault strikes alone.

    A fault that strikes many links at once, such as a switch's death, acts on the links: that is
    quicker, and a bridge between all of them would carry the whole fabric.

    Args:
        faults: the faults.
        openvswitch: whether Open vSwitch runs here; without it there are none.
        limit: how many its datapath carries.
    """
    struck = (
        {link_of(place) for place in fault.places} for fault in faults if fault.kind in WIRE_KINDS
    )
    alone = dict.fromkeys(link for links in struck if len(links) == 1 for link in links)
    return tuple(alone)[: limit if openvswitch else 0]
