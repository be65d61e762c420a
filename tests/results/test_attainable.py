"""What flows keep when links die, worked out by hand."""

from collections.abc import Mapping

import numpy as np
import pytest

from testbed.model.fabric.names import directions_of
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.run_files.content import FlowRecord
from testbed.model.transport import Mrc, Roce
from testbed.results.analysis.attainable import AttainableRate, Routes

FABRIC = Topology(name="x", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4)
PERMUTATION = ((0, 4), (1, 5), (2, 6), (3, 7))
DEAD = Impairment(blackhole=True)


def routes(
    pairs: tuple[tuple[int, int], ...],
    topology: Topology = FABRIC,
    transport: Mrc | Roce | None = None,
) -> Routes:
    nodes = topology.nodes
    flows = [FlowRecord(i, f"h{a}", f"h{b}", "mrc", 1e6) for i, (a, b) in enumerate(pairs)]
    evs = [
        (flow.flow, ev.value, ev.active)
        for flow in flows
        for ev in (transport or Mrc()).choose_evs(
            topology, nodes[flow.src], nodes[flow.dst], lane=0, seed=1
        )
    ]
    return Routes(topology, flows, evs)


def kept(of_flows: Routes, impaired: Mapping[str, Impairment]) -> tuple[list[float], list[float]]:
    """The shares of their undamaged rates that flows keep: with the even split, and the ideal."""
    whole = of_flows.rates_bps(lambda _place: HEALTHY)

    def at(place: str) -> Impairment:
        return impaired.get(place, HEALTHY)

    return (
        (of_flows.rates_bps(at) / whole).tolist(),
        (of_flows.ideal_rates_bps(at) / whole).tolist(),
    )


def without(*links: str) -> dict[str, Impairment]:
    return {direction: DEAD for link in links for direction in directions_of(link)}


def test_the_other_evs_of_the_plane_carry_what_one_link_did() -> None:
    even, ideal = kept(routes(((0, 4),)), without("p0_t0_0--p0_t1_1"))
    assert even == pytest.approx([1.0])
    assert ideal == pytest.approx([1.0])


def test_a_dead_nic_link_takes_its_plane() -> None:
    dead = without("h0--p0_t0_0")
    for shares in kept(routes(((0, 4), (4, 0))), dead):
        assert shares == pytest.approx([0.75, 0.75])
    for shares in kept(routes(((0, 4), (1, 5))), dead):
        assert shares == pytest.approx([0.75, 1.0])


def test_a_plane_short_of_an_uplink_slows_all_planes_of_an_even_split() -> None:
    for dead in ("p0_t0_0--p0_t1_1", "p2_t0_1--p2_t1_3"):
        even, ideal = kept(routes(PERMUTATION), without(dead))
        assert even == pytest.approx([0.75] * 4)
        assert ideal == pytest.approx([15 / 16] * 4)


def test_neighbours_of_a_rack_do_not_use_uplinks() -> None:
    assert kept(routes(((0, 1),)), without("p0_t0_0--p0_t1_1"))[0] == pytest.approx([1.0])
    assert kept(routes(((0, 1),)), without("h1--p0_t0_0"))[0] == pytest.approx([0.75])


def test_nothing_is_attainable_without_a_port() -> None:
    dead = without(*(f"h0--p{plane}_t0_0" for plane in range(4)))
    assert kept(routes(((0, 4),)), dead) == ([0.0], [0.0])


def test_two_flows_share_what_three_dead_planes_leave_of_an_oversubscribed_fabric() -> None:
    fabric = Topology(name="x", planes=8, t0_per_plane=2, t1_per_plane=1, hosts_per_t0=4)
    of_flows = routes(((0, 4), (1, 5)), fabric)
    line_bps = fabric.port_rate_bps
    assert of_flows.rates_bps(lambda _place: HEALTHY) == pytest.approx([4 * line_bps] * 2)
    dead = without(*(f"p{plane}_t0_0--p{plane}_t1_0" for plane in range(3)))
    even = of_flows.rates_bps(lambda place: dead.get(place, HEALTHY))
    assert even == pytest.approx([2.5 * line_bps] * 2)


def test_a_single_path_is_limited_by_its_links_and_those_it_shares_them_with() -> None:
    rates = routes(((0, 4), (1, 4)), transport=Roce()).rates_bps(lambda _place: HEALTHY)
    assert rates.max() <= FABRIC.port_rate_bps
    assert routes(((0, 4),), transport=Roce()).rates_bps(lambda _place: HEALTHY) == pytest.approx(
        [FABRIC.port_rate_bps]
    )


def test_a_slow_link_is_kept_or_avoided_whichever_gives_more() -> None:
    slow = {"h0>p0_t0_0": Impairment(rate=0.5)}
    even, ideal = kept(routes(((0, 4),)), slow)
    assert even == pytest.approx([0.75]), "three planes whole, rather than four at half rate"
    assert ideal == pytest.approx([3.5 / 4])
    barely = {"h0>p0_t0_0": Impairment(rate=0.9)}
    assert kept(routes(((0, 4),)), barely)[0] == pytest.approx([0.9])


def test_what_a_lossy_link_loses_is_sent_again_on_the_next_ev() -> None:
    """All links are full; of a quarter of what is sent a hundredth is lost."""
    lossy = {"h0>p0_t0_0": Impairment(loss=0.01)}
    for shares in kept(routes(((0, 4),)), lossy):
        assert shares == pytest.approx([3.99 / 4])


def test_a_plane_that_loses_a_part_is_better_kept_than_avoided() -> None:
    """In both directions of its hops: what the first hop loses does not load the second."""
    plane = {f"p0_t0_0>p0_t1_{i}": Impairment(loss=0.05) for i in range(4)}
    plane |= {f"p0_t1_{i}>p0_t0_1": Impairment(loss=0.05) for i in range(4)}
    for shares in kept(routes(((0, 4),)), plane):
        assert shares == pytest.approx([(3 + 0.95**2) / 4])


def test_a_single_path_sends_again_on_itself() -> None:
    of_flow = routes(((0, 4),), transport=Roce())
    lossy = {d: Impairment(loss=0.1) for d in of_flow.directions}
    assert kept(of_flow, lossy)[0] == pytest.approx([0.9**4])


def test_loss_on_one_path_is_avoided_by_the_others() -> None:
    lossy = {"p0_t0_0>p0_t1_1": Impairment(path_loss=0.2, path_bits=8)}
    assert kept(routes(((0, 4),)), lossy)[0] == pytest.approx([1.0])


def test_a_host_that_stands_still_gets_and_sends_nothing() -> None:
    still = {"h4": Impairment(frozen=True)}
    even, _ = kept(routes(((0, 4), (4, 1), (0, 5))), still)
    assert even[:2] == [0.0, 0.0]
    assert even[2] == pytest.approx(2.0), "it has the port of its host to itself"


@pytest.mark.parametrize("of_port", [0.0, 0.5, 1.0, 1.5, 30.0])
def test_more_control_packets_than_a_port_carries_leave_little_and_not_less_than_nothing(
    of_port: float,
) -> None:
    nodes = FABRIC.nodes
    flows = [FlowRecord(0, "h0", "h4", "mrc", 1e6), FlowRecord(1, "h1", "h5", "mrc", 1e6)]
    evs = [
        (flow.flow, ev.value, ev.active)
        for flow in flows
        for ev in Mrc().choose_evs(FABRIC, nodes[flow.src], nodes[flow.dst], lane=0, seed=1)
    ]
    host_bps = FABRIC.planes * FABRIC.port_rate_bps
    of_flows = Routes(FABRIC, flows, evs, {"h0": of_port * host_bps})
    for rates in (
        of_flows.rates_bps(lambda _: HEALTHY),
        of_flows.ideal_rates_bps(lambda _: HEALTHY),
        of_flows.most_rates_bps(lambda _: HEALTHY),
    ):
        assert rates / host_bps == pytest.approx([max(1 - of_port, 0.01), 1])


def test_a_rate_integrates_over_its_steps() -> None:
    rate = AttainableRate((-np.inf, 4.0, 7.0), (100.0, 75.0, 100.0))
    assert [rate.at(t) for t in (0, 4, 6.99, 7)] == [100, 75, 75, 100]
    bits = rate.bits(np.array([0.0, 3.0, 5.0, 6.0]), np.array([1.0, 5.0, 6.0, 8.0]))
    assert bits.tolist() == [100, 175, 75, 175]


def test_rates_of_flows_that_come_and_go_add_up() -> None:
    always = AttainableRate((-np.inf, 4.0), (100.0, 75.0))
    brief = AttainableRate((-np.inf, 4.0, 7.0), (10.0, 20.0, 30.0)).between(2.0, 5.0)
    assert [brief.at(t) for t in (1, 2, 4, 4.9, 5, 8)] == [0, 10, 20, 20, 0, 0]
    both = AttainableRate.together([always, brief])
    assert [both.at(t) for t in (1, 2, 4, 6)] == [100, 110, 95, 75]
    assert both.undamaged_bps == 110
