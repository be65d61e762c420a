"""The simulator and its reference have the same results and records on random fabrics with faults.

The reference is plain: each packet travels as bytes with its iCRC, and the engine is a heap of
events. `TESTBED_SOAK=1 pytest tests/sim/test_whole.py` compares a thousand fabrics.
"""

import os
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed import fast
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc, Roce
from testbed.model.workload import Permutation
from testbed.sim import Simulation, SimulationOutcome
from testbed.sim import run as sim_run
from testbed.sim.engine import Engine, Event

pytestmark = pytest.mark.simulated

FABRICS = 1000 if os.environ.get("TESTBED_SOAK") else 12
MS = 1_000_000


class PlainEngine(Engine):
    """A heap of events, each with its time and the number in which it was scheduled."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[int, int, Event]] = []
        self._scheduled = 0

    def schedule(self, time_ns: int, event: Event) -> None:
        self._scheduled += 1
        heappush(self._heap, (time_ns, self._scheduled, event))

    def step(self) -> None:
        self.now_ns = self._heap[0][0]
        while self._heap and self._heap[0][0] == self.now_ns:
            heappop(self._heap)[2].happen(self.now_ns)

    def run(self, until_ns: int) -> None:
        while self._heap and self._heap[0][0] <= until_ns:
            self.step()
        self.now_ns = max(self.now_ns, until_ns)


# Compiled code takes no engine but its own; then only the packets are plain.
REFERENCE_ENGINE = Engine if fast.is_built() else PlainEngine


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
transports = st.sampled_from([Mrc(congestion="nscc"), Mrc(), Roce()])


def _impair(_now_ns: int, act: tuple[Simulation, str, Impairment]) -> None:
    simulation, name, state = act
    simulation.fabric.impair(name, state)


def outcome_of(
    scenario: Scenario, faults: list[Fault], raw: Path, *, plain: bool
) -> tuple[SimulationOutcome, dict[str, object]]:
    """What a run comes to; `raw` gets its records, in which each packet has its times."""
    engine = REFERENCE_ENGINE if plain else Engine
    with mock.patch.object(sim_run, "Engine", engine):
        simulation = Simulation(scenario, raw, sealed=plain)
    assert type(simulation.engine) is engine
    links = sorted(scenario.topology.links.values(), key=lambda link: link.name)
    directions = [direction for link in links for direction in link.directions]
    for fault in faults:
        name = directions[fault.direction % len(directions)]
        for at_ns, state in ((fault.at_ns, fault.state), (fault.at_ns + fault.length_ns, HEALTHY)):
            simulation.engine.at(at_ns, _impair, (simulation, name, state))
    outcome = simulation.run()
    simulation.close()
    return outcome, dict(simulation.reports())


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
def test_the_plain_reference_has_the_same_results(
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
    with TemporaryDirectory() as directory:
        ours, plain = (Path(directory, name) for name in ("ours", "plain"))
        ours.mkdir()
        plain.mkdir()
        result = outcome_of(scenario, faults, ours, plain=False)
        assert result == outcome_of(scenario, faults, plain, plain=True)
        records = {file.relative_to(ours) for file in ours.rglob("*") if file.is_file()}
        assert records
        for record in records:
            assert (ours / record).read_bytes() == (plain / record).read_bytes(), record
