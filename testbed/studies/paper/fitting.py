"""How much an emulated scenario is slowed down so that a machine carries it."""

from typing import Protocol

from testbed.model.scenario import Scenario


class Machine(Protocol):
    """The measured capacity of a machine."""

    def load(self, scenario: Scenario) -> float:
        """The share of its CPUs that a scenario takes, 1.0 being all of them."""
        ...

    def lateness(self, scenario: Scenario) -> float:
        """How late its event loops run, as a share of a scenario's round trip."""
        ...


MAX_LOAD = 0.85
"""The largest expected share of the CPUs; the real share is a tenth less."""

MAX_LATENESS = 0.025
"""The largest lateness of event loops, as a share of a round trip; twice as much degrades a run."""

AT_FAULTS = 2.0
"""The least factor for runs with faults. A single late second makes them degraded, and virtual
machines stall for 5 to 15 ms now and then: of a base RTT of 130 ms that is 4% to 12%, and 5% are
allowed."""

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0)
"""The possible factors: few, so that a machine that is measured again gets the same runs."""


def factor_for(scenario: Scenario, machine: Machine, least: float = 1.0) -> float:
    """The factor by which a scenario is slowed down; the largest factor if none is enough.

    Args:
        scenario: the scenario.
        machine: the machine that is to carry it.
        least: the least factor.
    """
    least = max(least, AT_FAULTS if scenario.timeline else 1.0)
    fitting = max(machine.load(scenario) / MAX_LOAD, machine.lateness(scenario) / MAX_LATENESS)
    needed = max(least, fitting)
    return next((factor for factor in FACTORS if factor >= needed), FACTORS[-1])
