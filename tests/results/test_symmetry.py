"""What is alike in a fabric is solved once; test_fair_share.py asserts that the rates are right."""

from collections.abc import Mapping
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, tuples

from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.run_files.content import FlowRecord
from testbed.model.transport import Mrc
from testbed.results.analysis import fair_share
from testbed.results.analysis.attainable import Routes
from testbed.results.analysis.fair_share import Numbers, Split, reduced

FABRIC = Topology(name="x", planes=4, t0_per_plane=4, t1_per_plane=4, hosts_per_t0=2)


def all_to_all(
    impaired: Mapping[str, Impairment], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[float], Split]:
    """The ideal rates of all flows between eight hosts, and the problem that was solved."""
    solved: list[Split] = []

    def reduce(split: Split) -> tuple[Split, Numbers]:
        alike, flows = reduced(split)
        solved.append(alike)
        return alike, flows

    monkeypatch.setattr(fair_share, "reduced", reduce)
    pairs = permutations((node.name for node in FABRIC.hosts), 2)
    flows = [FlowRecord(i, src, dst, "mrc", 1.0) for i, (src, dst) in enumerate(pairs)]
    nodes = FABRIC.nodes
    evs = [
        (flow.flow, ev.value, ev.active)
        for flow in flows
        for ev in Mrc().choose_evs(FABRIC, nodes[flow.src], nodes[flow.dst], lane=0, seed=1)
    ]
    routes = Routes(FABRIC, flows, evs)
    rates = routes.ideal_rates_bps(lambda place: impaired.get(place, HEALTHY))
    (split,) = solved
    return rates.tolist(), split


def test_a_healthy_fabric_has_two_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    """One within a rack, and one between racks."""
    rates, split = all_to_all({}, monkeypatch)
    assert rates == pytest.approx([4 * FABRIC.port_rate_bps / 7] * 56)
    assert (split.flows, len(split.path_flow)) == (2, 2)


def test_so_has_one_that_loses_everywhere_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy = {f"p{p}_t0_{h // 2}>h{h}": Impairment(loss=0.01) for p in range(4) for h in range(8)}
    rates, split = all_to_all(lossy, monkeypatch)
    assert rates == pytest.approx([0.99 * 4 * FABRIC.port_rate_bps / 7] * 56)
    assert (split.flows, len(split.path_flow)) == (2, 2)


def test_a_dead_port_tells_flows_and_planes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flows between h0 and h1, h0 and others, h1 and others, and two others of a rack or of two.

    Those of h0 have three planes alike, all others the plane of the dead port and three.
    """
    dead = {direction: Impairment(cut=True) for direction in FABRIC.links["h0--p0_t0_0"].directions}
    rates, split = all_to_all(dead, monkeypatch)
    of_h0 = 3 * FABRIC.port_rate_bps / 7
    assert min(rates) == pytest.approx(of_h0)
    assert sum(rate == pytest.approx(of_h0) for rate in rates) == 14
    assert sorted(np.bincount(split.path_flow)) == [1, 1, 2, 2, 2]


@given(
    colours=lists(integers(0, 3), min_size=1, max_size=12),
    neighbours=lists(tuples(integers(0, 11), integers(0, 4)), max_size=40),
)
def test_what_has_the_same_neighbours_keeps_its_colour(
    colours: list[int], neighbours: list[tuple[int, int]]
) -> None:
    """Against the definition: sorted lists of neighbours are compared as they are."""
    known = [(owner, colour) for owner, colour in neighbours if owner < len(colours)]
    naive = [
        (colour, sorted(of for owner, of in known if owner == i))
        for i, colour in enumerate(colours)
    ]
    owners, of = np.array(known, dtype=np.intp).reshape(-1, 2).T
    split = fair_share._split_up(np.array(colours), owners, of)
    for i, j in combinations(range(len(colours)), 2):
        assert bool(split[i] == split[j]) is (naive[i] == naive[j])
