"""Random faults on all links but those of one path: everything arrives, byte for byte."""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.model.fabric.addressing import Path, links_of_path, paths
from testbed.model.fabric.names import directions_of
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Scenario
from testbed.model.workload import WriteBw
from testbed.sim import Simulation
from tests.drawn import schedules

MS = 1_000_000
TINY = load_topology("clos-tiny")
WAYS = paths(TINY, TINY.host(0), TINY.host(1))


@dataclass(frozen=True)
class Trouble:
    """What happens to one link, from when to when (None: for good)."""

    kind: str
    amount: float
    at_ns: int
    until_ns: int | None


def troubles() -> st.SearchStrategy[Trouble]:
    times = st.integers(0, 1500).map(lambda ms: ms * MS)
    lengths = st.one_of(st.none(), st.integers(1, 1200).map(lambda ms: ms * MS))
    return st.builds(
        lambda kind, amount, at_ns, length: Trouble(
            kind, amount, at_ns, None if length is None else at_ns + length
        ),
        st.sampled_from(["blackhole", "cut", "loss", "path_loss", "corruption", "rate"]),
        st.floats(0.01, 1.0),
        times,
        lengths,
    )


def _switch(simulation: Simulation, link: str, trouble: Trouble) -> None:
    state = {
        "blackhole": Impairment(blackhole=True),
        "cut": Impairment(cut=True),
        "loss": Impairment(loss=trouble.amount),
        "path_loss": Impairment(path_loss=trouble.amount, path_bits=1 << 3),
        "corruption": Impairment(corrupt=trouble.amount),
        "rate": Impairment(rate=trouble.amount),
    }[trouble.kind]

    def act(state: Impairment) -> None:
        for direction in directions_of(link):
            simulation.fabric.impair(direction, state)

    simulation.engine.at(trouble.at_ns, lambda _now, _: act(state))
    if trouble.until_ns is not None:
        simulation.engine.at(trouble.until_ns, lambda _now, _: act(HEALTHY))


@pytest.mark.simulated
@settings(max_examples=schedules(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), spared=st.sampled_from(WAYS), seed=st.integers(0, 1 << 16))
def test_everything_arrives_over_the_path_that_is_left(
    data: st.DataObject, spared: Path, seed: int
) -> None:
    safe = {link.name for link in links_of_path(TINY, TINY.host(0), TINY.host(1), spared)}
    targets = sorted(set(TINY.links) - safe)
    schedule = data.draw(st.dictionaries(st.sampled_from(targets), troubles(), min_size=1))
    scenario = Scenario(
        name="drawn",
        topology=TINY,
        seed=seed,
        duration="1.5 s",
        workload=WriteBw(pairs=(("h0", "h1"),), message_size="64 KiB"),
    )
    simulation = Simulation(scenario)
    for link, trouble in schedule.items():
        _switch(simulation, link, trouble)
    outcome = simulation.run()
    for flow in outcome.flows:
        assert flow.errors == ()
        assert flow.bytes_sent > 0
        assert (flow.bytes_verified, flow.bytes_corrupted) == (flow.bytes_sent, 0)
    for counts in outcome.counts.values():
        assert counts.offered == (counts.packets + counts.dropped + counts.queued + counts.on_wire)
