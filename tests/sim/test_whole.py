"""Packets handed over whole, and packets that travel as bytes with their iCRC: the same results."""

import os
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc, Roce
from testbed.model.workload import Permutation
from testbed.sim import Outcome, Simulation

pytestmark = pytest.mark.simulated

FABRICS = 1000 if os.environ.get("TESTBED_SOAK") else 12
MS = 1_000_000


@dataclass(frozen=True)
class Fault:
    """What happens to one direction of a link, from when to when."""

    direction: int
    state: Impairment
    at_ns: int
    length_ns: int


states = st.one_of(
    st.just(Impairment(cut=True)),
    st.just(Impairment(blackhole=True)),
    st.builds(Impairment, loss=st.floats(0.01, 0.3), corrupt=st.floats(0.01, 0.5)),
    st.builds(Impairment, rate=st.floats(0.1, 0.9)),
)
times = st.integers(0, 600).map(lambda ms: ms * MS)
fabrics = st.builds(
    Topology,
    name=st.just("drawn"),
    planes=st.integers(1, 3),
    t0_per_plane=st.integers(1, 3),
    t1_per_plane=st.integers(1, 3),
    hosts_per_t0=st.integers(2, 3),
)
transports = st.sampled_from(
    [Mrc(congestion="nscc"), Mrc(), Mrc(entropy="port-label", udp_port=4971), Roce()]
)


def _impair(_now_ns: int, act: tuple[Simulation, str, Impairment]) -> None:
    simulation, name, state = act
    simulation.fabric.impair(name, state)


def outcome_of(
    scenario: Scenario, faults: list[Fault], *, sealed: bool
) -> tuple[Outcome, dict[str, object]]:
    simulation = Simulation(scenario, sealed=sealed)
    links = sorted(scenario.topology.links.values(), key=lambda link: link.name)
    directions = [direction for link in links for direction in link.directions]
    for fault in faults:
        name = directions[fault.direction % len(directions)]
        for at_ns, state in ((fault.at_ns, fault.state), (fault.at_ns + fault.length_ns, HEALTHY)):
            simulation.engine.at(at_ns, _impair, (simulation, name, state))
    return simulation.run(), dict(simulation.reports())


@settings(
    max_examples=FABRICS, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(
    fabrics,
    transports,
    st.lists(st.builds(Fault, st.integers(0, 200), states, times, times), max_size=4),
    st.integers(0, 1000),
    st.integers(1, 20_001),
)
def test_both_ways_give_equal_results(
    topology: Topology, transport: Mrc | Roce, faults: list[Fault], seed: int, size: int
) -> None:
    scenario = Scenario(
        name="drawn",
        topology=topology,
        seed=seed,
        duration="600 ms",
        workload=Permutation(message_size=f"{size} B"),
        transport=transport,
    )
    whole, sealed = (outcome_of(scenario, faults, sealed=sealed) for sealed in (False, True))
    assert whole == sealed
