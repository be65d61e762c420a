"""What a packet and hop cost in small and large fabrics: 8 to 4,096 hosts, simulated.

Every host sends 2 MB to another one over a leaf-spine, and nothing is recorded. Each run is made in
a process of its own; time is CPU time with the transport's, without the building of the fabric.
"""

from functools import partial

from testbed.bench.measure import Figure, Setting, at_most, no_target
from testbed.bench.simulated.cost import FABRICS, Stages, in_new_process
from testbed.bench.simulated.simulator import permutation
from testbed.model.scenario import Scenario
from testbed.sim import Simulation

LARGEST = {4096: (64, 64)}
"""Leaves, and hosts of a leaf, by the number of hosts."""

GROWTH = 1.5
"""Most cost of a packet-hop in the largest fabric, of that in the smallest."""


def simulator_growth(setting: Setting) -> list[Figure]:
    """Measure four sizes; takes several minutes and some gigabytes of memory."""
    figures = []
    by_size = []
    for hosts, (leaves, hosts_per_leaf) in (FABRICS | LARGEST).items():
        run = partial(in_new_process, cost_of_a_hop, permutation(leaves, hosts_per_leaf, 1))
        hop_us, cpu_s, megabytes = zip(*setting.repeat(f"{hosts} hosts", run), strict=True)
        figures += [
            no_target(f"{hosts} hosts: a packet-hop", "us", hop_us),
            no_target(f"{hosts} hosts: simulating", "s", cpu_s),
            no_target(f"{hosts} hosts: peak memory", "MB", megabytes),
        ]
        by_size.append(hop_us)
    ratios = tuple(large / small for small, large in zip(by_size[0], by_size[-1], strict=True))
    return [*figures, at_most("a packet-hop in the largest / smallest fabric", "", ratios, GROWTH)]


def cost_of_a_hop(scenario: Scenario) -> tuple[float, float, float]:
    """CPU microseconds of a packet-hop, CPU seconds of the run, peak memory in megabytes."""
    simulation = Simulation(scenario)
    stages = Stages()
    outcome = simulation.run()
    stages.end("run")
    cpu_s, megabytes = stages.costs["run"]
    return cpu_s / outcome.packet_hops * 1e6, cpu_s, megabytes
