"""What a packet and hop cost in small and large fabrics: 8 to 4,096 hosts, simulated.

Every host sends 2 MB to another one over a leaf-spine, and nothing is recorded. Each size is
measured in a process of its own, one size after the other in each repeat, so that a machine that
becomes slower does so for all; a small fabric is simulated until it has taken some seconds. Time is
CPU time with the transport's, without the building of the fabric.
"""

from testbed.model.scenario import Scenario
from testbed.sim import Simulation
from testbed.studies.bench.measure import Measurement, Setting, at_most, no_target
from testbed.studies.bench.simulated.cost import FABRICS, Stages, in_new_process
from testbed.studies.bench.simulated.simulator import permutation

LARGEST = {4096: (64, 64)}
"""Leaves, and hosts of a leaf, by the number of hosts."""

GROWTH = 1.5
"""Most cost of a packet-hop in the largest fabric, of that in the smallest."""


LEAST_S = 2.0
"""CPU seconds that a size is simulated for at least."""


def simulator_growth(setting: Setting) -> list[Measurement]:
    """Measure four sizes; takes several minutes and some gigabytes of memory."""
    sizes = FABRICS | LARGEST
    samples = setting.repeat(
        f"{', '.join(map(str, sizes))} hosts",
        lambda: [
            in_new_process(cost_of_a_hop, permutation(*fabric, seed=1)) for fabric in sizes.values()
        ],
    )
    figures = []
    for hosts, of_size in zip(sizes, zip(*samples, strict=True), strict=True):
        hop_us, cpu_s, megabytes = zip(*of_size, strict=True)
        figures += [
            no_target(f"{hosts} hosts: a packet-hop", "us", hop_us),
            no_target(f"{hosts} hosts: simulating", "s", cpu_s),
            no_target(f"{hosts} hosts: peak memory", "MB", megabytes),
        ]
    ratios = tuple(repeat[-1][0] / repeat[0][0] for repeat in samples)
    return [*figures, at_most("a packet-hop in the largest / smallest fabric", "", ratios, GROWTH)]


def cost_of_a_hop(scenario: Scenario) -> tuple[float, float, float]:
    """CPU microseconds of a packet-hop, CPU seconds of a run, peak memory in megabytes."""
    total_s, hops, runs, megabytes = 0.0, 0, 0, 0.0
    while total_s < LEAST_S:
        simulation = Simulation(scenario)
        stages = Stages()
        hops += simulation.run().packet_hops
        stages.end("run")
        cpu_s, peak = stages.costs["run"]
        total_s, runs, megabytes = total_s + cpu_s, runs + 1, max(megabytes, peak)
    return total_s / hops * 1e6, total_s / runs, megabytes
