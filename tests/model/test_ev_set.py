from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.host.plan import ev_entries
from testbed.model.fabric.addressing import path_of_ev, paths
from testbed.model.fabric.ev_set import EvChoice, choose_evs, ev_count
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology

from .fabrics import ODD, REAL, host_pairs, topologies

counts = st.none() | st.integers(1, 200)
shares = st.floats(0, 0.99)
seeds = st.integers(0, 2**31 - 1)


def _evs(
    topology: Topology, src: int, dst: int, *, evs: int | None = None, seed: int = 1
) -> tuple[EvChoice, ...]:
    a, b = topology.host(src), topology.host(dst)
    return choose_evs(topology, a, b, evs=evs, backups=0.25, seed=seed)


@given(host_pairs(topologies()), counts, shares, seeds)
def test_every_plane_gets_the_same(
    drawn: tuple[Topology, Node, Node], evs: int | None, backups: float, seed: int
) -> None:
    topology, src, dst = drawn
    chosen = choose_evs(topology, src, dst, evs=evs, backups=backups, seed=seed)
    per_plane, rest = divmod(len(chosen), topology.planes)
    assert rest == 0
    assert len(chosen) == ev_count(topology, src, dst, evs)
    assert [ev.path.plane for ev in chosen] == list(range(topology.planes)) * per_plane
    active = Counter(ev.path.plane for ev in chosen if ev.active)
    assert set(active.values()) == {per_plane - int(per_plane * backups)}
    assert min(active.values()) >= 1


@given(host_pairs(topologies()), counts, seeds)
def test_evs_are_distinct_and_take_the_path_that_they_say(
    drawn: tuple[Topology, Node, Node], evs: int | None, seed: int
) -> None:
    topology, src, dst = drawn
    chosen = choose_evs(topology, src, dst, evs=evs, backups=0.25, seed=seed)
    assert len({ev.value for ev in chosen}) == len(chosen)
    for ev in chosen:
        assert path_of_ev(topology, src, dst, ev.value) == ev.path
    of_path = Counter(ev.path for ev in chosen)
    assert max(of_path.values()) - min(of_path.values()) <= 1, "paths are shared evenly"
    if evs is None:
        assert set(of_path) == set(paths(topology, src, dst))


def test_a_seed_repeats_the_choice_and_others_differ() -> None:
    first = _evs(ODD, 0, 5, seed=7)
    assert _evs(ODD, 0, 5, seed=7) == first
    others = [_evs(ODD, 0, 5, seed=seed) for seed in range(8, 12)]
    assert len({first, *others}) > 1
    assert {ev.path for ev in first} == {ev.path for ev in others[0]}


def test_pairs_choose_independently() -> None:
    choices = {tuple(ev.path for ev in _evs(REAL, 0, 1000 + i)) for i in range(8)}
    assert len(choices) == 8


def test_at_the_real_size_a_qp_gets_256_evs_on_different_paths() -> None:
    chosen = _evs(REAL, 0, 131_071)
    assert len(chosen) == 256
    assert len({ev.path for ev in chosen}) == 256
    assert Counter(ev.path.plane for ev in chosen) == dict.fromkeys(range(8), 32)
    assert sum(ev.active for ev in chosen) == 192


@pytest.mark.parametrize(("asked", "got"), [(1, 3), (3, 3), (4, 3), (16, 15), (65536, 65535)])
def test_the_number_is_a_multiple_of_the_planes(asked: int, got: int) -> None:
    assert ev_count(ODD, ODD.host(0), ODD.host(5), asked) == got


def test_more_evs_than_paths_share_them() -> None:
    chosen = _evs(ODD, 0, 1, evs=12)  # T0-local: one path a plane
    assert Counter(ev.path.name for ev in chosen) == {"p0": 4, "p1": 4, "p2": 4}
    assert sorted(ev.value for ev in chosen) == sorted(
        plane << 16 | entropy for entropy in range(4) for plane in range(3)
    )


@given(host_pairs(topologies()), counts, seeds)
def test_hashed_evs_are_distinct_and_equally_many_in_each_plane(
    drawn: tuple[Topology, Node, Node], evs: int | None, seed: int
) -> None:
    topology, src, dst = drawn
    chosen = choose_evs(topology, src, dst, evs=evs, backups=0.25, seed=seed, hashed=True)
    assert len({ev.value for ev in chosen}) == len(chosen) == ev_count(topology, src, dst, evs)
    assert all(path_of_ev(topology, src, dst, ev.value) == ev.path for ev in chosen)
    assert len(set(Counter(ev.path.plane for ev in chosen).values())) == 1
    assert all(ev.hashed for ev in chosen)


def test_a_hash_spreads_evs_unevenly_over_the_paths_of_a_plane() -> None:
    src, dst = REAL.host(0), REAL.host(REAL.hosts_per_t0)
    chosen = choose_evs(REAL, src, dst, evs=4096, backups=0.0, seed=1, hashed=True)
    of_path = Counter(ev.path for ev in chosen)
    assert max(of_path.values()) - min(of_path.values()) > 1


def test_a_sender_does_not_know_which_hashed_evs_share_a_path() -> None:
    src, dst = REAL.host(0), REAL.host(REAL.hosts_per_t0)
    many = 2 * len(paths(REAL, src, dst))
    for hashed, keys in ((False, many // 2), (True, many)):
        chosen = choose_evs(REAL, src, dst, evs=many, backups=0.0, seed=1, hashed=hashed)
        assert len({entry.path_key for entry in ev_entries(chosen)}) == keys
