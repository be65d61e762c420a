"""By how much a scenario is slowed down until a machine carries it, and how much it is."""

from typing import Protocol

from testbed.model.scenario import Scenario


class Machine(Protocol):
    """What is known of a machine."""

    def load(self, scenario: Scenario) -> float:
        """The share of its CPUs that a scenario takes, 1.0 being all of them."""
        ...

    def lateness(self, scenario: Scenario) -> float:
        """How late its event loops run, as a share of a scenario's round trip."""
        ...


MAX_LOAD = 0.85
"""Emulated runs are slowed down until they take no more: what they really take is a tenth less."""

MAX_LATENESS = 0.025
"""And until event loops are no later than that: of twice as much a run is degraded."""

AT_FAULTS = 2.0
"""So much is an emulated run slowed down at least where faults are measured. There a single late
second makes it degraded, and virtual machines stand still for 5 to 15 ms now and then: with a base
RTT of 130 ms that is 4% to 12% of it, where 5% are allowed."""

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0)
"""By how much. Few of them, so that a machine measured again asks for the same runs again."""

MAX_PACKET_HOPS = 20e6
"""Of all simulated runs of a figure together, with one seed."""


def factor_for(scenario: Scenario, machine: Machine, least: float = 1.0) -> float:
    """The factor by which a scenario is slowed down, the largest where none is enough.

    Args:
        scenario: which.
        machine: what is known of the machine that is to carry it.
        least: what it must not be below.
    """
    least = max(least, AT_FAULTS if scenario.timeline else 1.0)
    fitting = max(machine.load(scenario) / MAX_LOAD, machine.lateness(scenario) / MAX_LATENESS)
    needed = max(least, fitting)
    return next((factor for factor in FACTORS if factor >= needed), FACTORS[-1])
