"""How fast the simulator is: packets times links crossed, per minute of one CPU."""

import tempfile
import time
from functools import partial
from pathlib import Path

from testbed.bench.figure import Figure, at_least
from testbed.bench.setting import Setting
from testbed.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.sim import Simulation

SCENARIOS = ("permutation", "link-failure")
MILLION_HOPS = 5.0
"""Per minute."""


def simulator(setting: Setting) -> list[Figure]:
    """Simulate scenarios; the transport's cost is included."""
    return [figure for name in SCENARIOS for figure in speeds(load_scenario(name), setting)]


def speeds(scenario: Scenario, setting: Setting) -> list[Figure]:
    """How fast one scenario is simulated, with its records and without."""
    figures = []
    for recorded in (False, True):
        simulate = partial(_million_hops_per_min, scenario, recorded=recorded)
        samples = setting.repeat(f"simulate {scenario.name}", simulate)
        name = f"{scenario.name} simulated, {'recorded' if recorded else 'not recorded'}"
        figures.append(at_least(name, "million packet-hops/min", samples, MILLION_HOPS))
    return figures


def _million_hops_per_min(scenario: Scenario, *, recorded: bool) -> float:
    with tempfile.TemporaryDirectory() as directory:
        began = time.process_time()
        simulation = Simulation(scenario, Path(directory) if recorded else None)
        outcome = simulation.run()
        simulation.close()
        seconds = time.process_time() - began
    return outcome.packet_hops / seconds * 60 / 1e6
