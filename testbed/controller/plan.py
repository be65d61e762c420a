"""What the controller is told: the timeline, and which of its links are OpenFlow wires."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from testbed.fabric.layout import Layout
from testbed.fabric.openvswitch import MAX_USERSPACE_WIRES, RUN_DIRECTORY, Wire, wires_of
from testbed.model.faults import Fault
from testbed.model.topology import Topology

OPENFLOW_PORT = 6653
"""TCP port of OpenFlow (IANA). Each run has a loopback of its own, so one number serves all."""


@dataclass(frozen=True, slots=True)
class ControllerPlan:
    """What one controller process is told.

    Attributes:
        topology: the fabric.
        faults: the timeline, numbered in the records by its order here.
        wires: names of the links that run through Open vSwitch, in the order of their numbers.
        run_directory: where `faults.jsonl` is written.
        switch_directory: Open vSwitch's run directory.
        port: TCP port on the loopback on which the controller listens for the switch.
    """

    topology: Topology
    faults: tuple[Fault, ...]
    wires: tuple[str, ...]
    run_directory: Path
    switch_directory: Path = RUN_DIRECTORY
    port: int = OPENFLOW_PORT

    @property
    def openflow_wires(self) -> tuple[Wire, ...]:
        """The wires with their interfaces and OpenFlow ports."""
        return wires_of(Layout.of(self.topology, self.wires))

    def to_json(self) -> bytes:
        """Write the plan as JSON."""
        return TypeAdapter(ControllerPlan).dump_json(self, by_alias=True, indent=1)

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Read what `to_json` wrote."""
        plan: Self = TypeAdapter(cls).validate_json(text)
        return plan


def choose_wires(
    faults: Sequence[Fault], *, openvswitch: bool, limit: int = MAX_USERSPACE_WIRES
) -> tuple[str, ...]:
    """The links that are to be OpenFlow wires: those the timeline names, the first `limit` of them.

    Args:
        faults: the timeline.
        openvswitch: whether Open vSwitch runs here; without it there are none.
        limit: how many its datapath carries.
    """
    return tuple(dict.fromkeys(fault.target for fault in faults))[: limit if openvswitch else 0]
