"""What a packet and hop cost in the simulator."""

import pytest

from testbed.sim import Simulation
from testbed.studies.bench.simulated.growth import cost_of_a_hop
from testbed.studies.bench.simulated.simulator import permutation

pytestmark = pytest.mark.simulated


def test_the_cost_of_a_hop_is_that_of_the_run_over_its_hops() -> None:
    scenario = permutation(2, 2, 1)
    hop_us, cpu_s, megabytes = cost_of_a_hop(scenario)
    assert hop_us * Simulation(scenario).run().packet_hops == pytest.approx(cpu_s * 1e6)
    assert megabytes > 1
