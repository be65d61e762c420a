"""What flows keep when links die, worked out by hand."""

from collections.abc import Callable

import numpy as np
import pytest

from testbed.model.fabric.names import directions_of
from testbed.model.fabric.topology import Topology
from testbed.model.run_files.run import FlowRecord
from testbed.results.analysis.capacity import AttainableRate, surviving_fractions

FABRIC = Topology(name="x", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4)


def flows(*pairs: tuple[int, int]) -> list[FlowRecord]:
    return [
        FlowRecord(flow=i, src=f"h{a}", dst=f"h{b}", transport="mrc", attainable_bps=1e6)
        for i, (a, b) in enumerate(pairs)
    ]


def without(*links: str) -> Callable[[str], float]:
    """Everything passes but what goes over these links."""
    dead = {direction for link in links for direction in directions_of(link)}
    return lambda place: 0.0 if place in dead else 1.0


PERMUTATION = flows((0, 4), (1, 5), (2, 6), (3, 7))


def test_one_flow_does_not_need_every_uplink() -> None:
    assert surviving_fractions(FABRIC, flows((0, 4)), without("p0_t0_0--p0_t1_1")) == [1.0]


def test_a_dead_nic_link_takes_its_plane() -> None:
    dead = without("h0--p0_t0_0")
    assert surviving_fractions(FABRIC, flows((0, 4), (4, 0)), dead) == [0.75, 0.75]
    assert surviving_fractions(FABRIC, flows((0, 4), (1, 5)), dead) == [0.75, 1.0]


def test_when_every_uplink_is_needed_all_share_the_loss() -> None:
    lost = surviving_fractions(FABRIC, PERMUTATION, without("p0_t0_0--p0_t1_1"))
    assert lost == pytest.approx([15 / 16] * 4)


def test_it_matters_at_the_far_rack_too() -> None:
    lost = surviving_fractions(FABRIC, PERMUTATION, without("p2_t0_1--p2_t1_3"))
    assert lost == pytest.approx([15 / 16] * 4)


def test_neighbours_of_a_rack_do_not_use_uplinks() -> None:
    assert surviving_fractions(FABRIC, flows((0, 1)), without("p0_t0_0--p0_t1_1")) == [1.0]
    assert surviving_fractions(FABRIC, flows((0, 1)), without("h1--p0_t0_0")) == [0.75]


def test_nothing_survives_the_death_of_every_port() -> None:
    dead = without(*(f"h0--p{plane}_t0_0" for plane in range(4)))
    assert surviving_fractions(FABRIC, flows((0, 4)), dead) == [0]


def test_one_direction_is_that_of_the_data_that_goes_there() -> None:
    dead = {"p0_t0_0>p0_t1_1": 0.0}
    lost = surviving_fractions(FABRIC, [*PERMUTATION, *flows((4, 0))], lambda p: dead.get(p, 1.0))
    assert lost[:4] == pytest.approx([15 / 16] * 4)
    assert lost[4] == 1.0


def test_a_slow_or_lossy_link_leaves_its_share() -> None:
    half = {"h0>p0_t0_0": 0.5}
    (left,) = surviving_fractions(FABRIC, flows((0, 4)), lambda place: half.get(place, 1.0))
    assert left == pytest.approx(3.5 / 4)


def test_a_host_that_stands_still_gets_and_sends_nothing() -> None:
    still = {"h4": 0.0}
    pairs = flows((0, 4), (4, 1), (0, 5))
    left = surviving_fractions(FABRIC, pairs, lambda place: still.get(place, 1.0))
    assert left == [0.0, 0.0, 1.0]


def test_a_rate_integrates_over_its_steps() -> None:
    rate = AttainableRate((-np.inf, 4.0, 7.0), (100.0, 75.0, 100.0))
    assert [rate.at(t) for t in (0, 4, 6.99, 7)] == [100, 75, 75, 100]
    bits = rate.bits(np.array([0.0, 3.0, 5.0, 6.0]), np.array([1.0, 5.0, 6.0, 8.0]))
    assert bits.tolist() == [100, 175, 75, 175]
