"""By how much a scenario is slowed down until a machine carries it, and how much it is."""

from typing import Protocol

from testbed.model.flows import fair_shares_bps, flows_of, links_crossed
from testbed.model.scenario import Scenario


class Machine(Protocol):
    """What is known of a machine."""

    def load(self, scenario: Scenario) -> float:
        """The share of its CPUs that a scenario takes, 1.0 being all of them."""
        ...

    def lateness(self, scenario: Scenario) -> float:
        """How late its event loops run, as a share of a scenario's round trip."""
        ...


MAX_LOAD = 0.65
"""Emulated runs are slowed down until they take no more: below it they can be trusted."""

MAX_LATENESS = 0.025
"""And until event loops are no later than that: of twice as much a run is degraded."""

MAX_LATENESS_AT_FAULTS = 0.01
"""The same where faults are measured: there a single late second counts, and now and then one is
five times as late as they are as a rule (5 to 15 ms where that was 1.3, on a virtual machine)."""

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0)
"""By how much. Few of them, so that a machine measured again asks for the same runs again."""

MAX_PACKET_HOPS = 20e6
"""Of all simulated runs of a figure together, with one seed."""

_ACKNOWLEDGED = 1.3
"""Packets for each data packet: acknowledgements, and what is sent again."""


def factor_for(scenario: Scenario, machine: Machine) -> float:
    """The factor by which a scenario is slowed down, the largest where none is enough."""
    latest = MAX_LATENESS_AT_FAULTS if scenario.timeline else MAX_LATENESS
    needed = max(machine.load(scenario) / MAX_LOAD, machine.lateness(scenario) / latest)
    return next((factor for factor in FACTORS if factor >= needed), FACTORS[-1])


def packet_hops(scenario: Scenario) -> float:
    """Packets times links crossed, if every flow takes all that it may: no less than come to be."""
    topology = scenario.topology
    shares_bps = fair_shares_bps(scenario)
    links = sum(
        shares_bps[flow.number] * links_crossed(topology, flow) for flow in flows_of(scenario)
    )
    return _ACKNOWLEDGED * links / (8 * topology.wire_bytes) * scenario.duration / 1e9
