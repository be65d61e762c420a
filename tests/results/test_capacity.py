"""What flows keep when links die, worked out by hand."""

import numpy as np
import pytest

from testbed.model.topology import Topology
from testbed.results.capacity import AttainableRate, surviving_fractions
from testbed.results.run_data import FlowRecord

FABRIC = Topology(name="x", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4)


def flows(*pairs: tuple[int, int]) -> list[FlowRecord]:
    return [
        FlowRecord(flow=i, src=f"h{a}", dst=f"h{b}", transport="mrc", attainable_bps=1e6)
        for i, (a, b) in enumerate(pairs)
    ]


PERMUTATION = flows((0, 4), (1, 5), (2, 6), (3, 7))


def test_one_flow_does_not_need_every_uplink() -> None:
    assert surviving_fractions(FABRIC, flows((0, 4)), {"p0_t0_0--p0_t1_1"}) == [1.0]


def test_a_dead_nic_link_takes_its_plane() -> None:
    assert surviving_fractions(FABRIC, flows((0, 4), (4, 0)), {"h0--p0_t0_0"}) == [0.75, 0.75]
    assert surviving_fractions(FABRIC, flows((0, 4), (1, 5)), {"h0--p0_t0_0"}) == [0.75, 1.0]


def test_when_every_uplink_is_needed_all_share_the_loss() -> None:
    lost = surviving_fractions(FABRIC, PERMUTATION, {"p0_t0_0--p0_t1_1"})
    assert lost == pytest.approx([15 / 16] * 4)


def test_it_matters_at_the_far_rack_too() -> None:
    lost = surviving_fractions(FABRIC, PERMUTATION, {"p2_t0_1--p2_t1_3"})
    assert lost == pytest.approx([15 / 16] * 4)


def test_neighbours_of_a_rack_do_not_use_uplinks() -> None:
    assert surviving_fractions(FABRIC, flows((0, 1)), {"p0_t0_0--p0_t1_1"}) == [1.0]
    assert surviving_fractions(FABRIC, flows((0, 1)), {"h1--p0_t0_0"}) == [0.75]


def test_nothing_survives_the_death_of_every_port() -> None:
    assert surviving_fractions(FABRIC, flows((0, 4)), {f"h0--p{p}_t0_0" for p in range(4)}) == [0]


def test_a_rate_integrates_over_its_steps() -> None:
    rate = AttainableRate((-np.inf, 4.0, 7.0), (100.0, 75.0, 100.0))
    assert [rate.at(t) for t in (0, 4, 6.99, 7)] == [100, 75, 75, 100]
    bits = rate.bits(np.array([0.0, 3.0, 5.0, 6.0]), np.array([1.0, 5.0, 6.0, 8.0]))
    assert bits.tolist() == [100, 175, 75, 175]
