"""Which path switches hash a flow into, and where routing puts it when links die."""

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from testbed.model.ecmp import HashedFlow, Move, Outage, outages_of
from testbed.model.fabric.addressing import Path, directions_of_path, paths
from testbed.model.faults.kinds import Fault
from testbed.model.faults.schedule import scheduled_faults
from testbed.model.files.topologies import load_topology

TOPOLOGY = load_topology("clos-1plane")
HOSTS = TOPOLOGY.hosts
EVERY = sorted(direction for link in TOPOLOGY.links.values() for direction in link.directions)

flows = st.builds(
    HashedFlow,
    st.sampled_from(HOSTS[:4]),
    st.sampled_from(HOSTS[4:]),
    st.integers(0, 15),
    st.integers(0, 100),
)


def uplink(flow: HashedFlow) -> str:
    return directions_of_path(TOPOLOGY, flow.src, flow.dst, flow.path(TOPOLOGY))[1]


def test_flows_are_spread_over_all_paths_but_not_evenly() -> None:
    chosen = [
        HashedFlow(HOSTS[i % 4], HOSTS[4 + i % 4], i // 4, 1).path(TOPOLOGY) for i in range(64)
    ]
    counts = [chosen.count(path) for path in paths(TOPOLOGY, HOSTS[0], HOSTS[4])]
    assert min(counts) > 0
    assert len(set(counts)) > 1


@given(flows)
def test_another_seed_makes_other_collisions_and_the_same_one_the_same(flow: HashedFlow) -> None:
    others = [HashedFlow(flow.src, flow.dst, flow.lane, seed) for seed in range(200, 264)]
    assert len({other.path(TOPOLOGY) for other in others}) > 1
    assert flow.path(TOPOLOGY) == flow.path(TOPOLOGY)


@given(flows, st.sets(st.sampled_from(EVERY)))
def test_a_flow_moves_only_if_it_must_and_only_to_what_is_alive(
    flow: HashedFlow, dead: set[str]
) -> None:
    def is_alive(path: Path) -> bool:
        return dead.isdisjoint(directions_of_path(TOPOLOGY, flow.src, flow.dst, path))

    own, found = flow.path(TOPOLOGY), flow.path(TOPOLOGY, frozenset(dead))
    alive = [path for path in paths(TOPOLOGY, flow.src, flow.dst) if is_alive(path)]
    if own in alive or not alive:
        assert found == own
    else:
        assert found in alive


@given(flows)
def test_routing_moves_a_flow_off_a_dead_path_and_back_each_so_much_later(flow: HashedFlow) -> None:
    outage = Outage(frozenset({uplink(flow)}), 1000, 5000)
    first, second = flow.moves(TOPOLOGY, [outage], 300)
    assert first.at_ns == 1300
    assert first.path != flow.path(TOPOLOGY)
    assert second == Move(5300, flow.path(TOPOLOGY))


@given(flows)
def test_routing_moves_again_when_the_new_path_dies_too(flow: HashedFlow) -> None:
    one = frozenset({uplink(flow)})
    refuge = flow.path(TOPOLOGY, one)
    other = frozenset({directions_of_path(TOPOLOGY, flow.src, flow.dst, refuge)[1]})
    moves = flow.moves(TOPOLOGY, [Outage(one, 0, 9000), Outage(other, 100, 9000)], 50)
    assert [move.at_ns for move in moves] == [50, 150, 9050]
    assert len({refuge, moves[1].path, flow.path(TOPOLOGY)}) == 3
    assert flow.moves(TOPOLOGY, [], 50) == ()


def test_routing_gets_to_know_of_what_is_dark_not_of_what_is_grey() -> None:
    timeline = TypeAdapter(tuple[Fault, ...]).validate_python(
        [
            {"kind": "cut", "target": "p0_t1_1", "at": "1 s", "for": "2 s"},
            {"kind": "loss", "target": "p0_t1_2", "at": "1 s", "for": "2 s", "probability": 0.5},
        ]
    )
    (outage,) = outages_of(scheduled_faults(TOPOLOGY, timeline, 10**10, 1))
    assert (outage.at_ns, outage.until_ns) == (10**9, 3 * 10**9)
    assert outage.directions == {one for one in EVERY if "p0_t1_1" in one}
