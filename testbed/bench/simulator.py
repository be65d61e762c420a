"""How fast the simulator is: packets times links crossed, per minute of one CPU.

python -m testbed.bench.simulator
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from testbed.bench.figure import Figure, at_least
from testbed.model.scenario import Scenario
from testbed.sim import Simulation

MILLION_HOPS = 5.0
"""Per minute."""


def simulator(
    scenarios: list[Scenario], repeats: int, progress: Callable[[str], None]
) -> list[Figure]:
    """Simulate scenarios, with their records and without; the transport's cost is included."""
    figures = []
    for scenario in scenarios:
        for recorded in (False, True):
            samples = []
            for repeat in range(repeats):
                progress(f"simulate {scenario.name} {repeat + 1}/{repeats}")
                samples.append(_once(scenario, recorded=recorded))
            name = f"{scenario.name} simulated, {'recorded' if recorded else 'not recorded'}"
            unit = "million packet-hops/min"
            figures.append(at_least(name, unit, samples, MILLION_HOPS))
    return figures


def _once(scenario: Scenario, *, recorded: bool) -> float:
    with tempfile.TemporaryDirectory() as directory:
        began = time.process_time()
        simulation = Simulation(scenario, Path(directory) if recorded else None)
        outcome = simulation.run()
        simulation.close()
        seconds = time.process_time() - began
    return outcome.packet_hops / seconds * 60 / 1e6


def _main() -> None:
    from testbed.loading import load_scenario  # noqa: PLC0415 - only where this is the program

    scenarios = [load_scenario(name) for name in ("permutation", "link-failure")]
    for figure in simulator(scenarios, 3, lambda _: None):
        low, high = min(figure.samples), max(figure.samples)
        print(f"{figure.name}: {figure.median:.2f} ({low:.2f} to {high:.2f}) {figure.unit}")  # noqa: T201 - a program's result


if __name__ == "__main__":
    _main()
