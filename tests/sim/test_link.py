"""One direction of a link: rate, queues, marks, trimming, priority, faults, and its books."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from testbed.model.fabric.topology import Shape
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.run_files.content import LinkCounts
from testbed.mrc.constants import ECN_CE, ECT0
from testbed.sim.engine import Engine
from testbed.sim.link import LinkDirection, Packet

from .links import BYTE_A_NS, DSCP, TRIMMED_WIRE_BYTES, OneLink, offer_over


def test_a_packet_takes_its_serialisation_and_the_delays() -> None:
    harness = OneLink(Shape(BYTE_A_NS, before_ns=30, behind_ns=200))
    harness.offer_all([1000, 500])
    harness.run()
    assert [a.at_ns for a in harness.arrived] == [1230, 1730]


def test_an_idle_link_forgets_when_it_was_free() -> None:
    harness = OneLink(Shape(BYTE_A_NS))
    harness.offer(1000)
    harness.run(5000)
    harness.offer(1000)
    harness.run()
    assert [a.at_ns for a in harness.arrived] == [1000, 6000]


def test_what_leaves_at_once_keeps_the_rate() -> None:
    harness = OneLink(Shape(BYTE_A_NS, behind_ns=200, at_once=True))
    harness.offer_all([1000] * 4)
    harness.run()
    assert [a.at_ns for a in harness.arrived] == [200, 1200, 2200, 3200]


@pytest.mark.parametrize("rate_bps", [7_000_000_000, 3_333_333_333, 640_000_000_001])
def test_the_rate_is_kept_where_a_packet_does_not_take_whole_ns(rate_bps: int) -> None:
    harness = OneLink(Shape(rate_bps))
    harness.offer_all([1001] * 5000)
    harness.run()
    assert harness.arrived[-1].at_ns == pytest.approx(5000 * 1001 * 8e9 / rate_bps, abs=1)


def test_the_rate_is_kept_where_packets_come_at_line_rate() -> None:
    """As over a chain of equal links, where each packet comes as the one before has left."""
    harness = OneLink(Shape(3_000_000_000))
    for number in range(3000):
        harness.engine.at(int(number * 1000 * 8 / 3), lambda _now, _: harness.offer(1000))
    harness.run()
    assert harness.arrived[-1].at_ns == pytest.approx(3000 * 1000 * 8 / 3, abs=2)


def test_what_does_not_fit_is_dropped() -> None:
    """The one in service counts as well: three fit, to the byte."""
    harness = OneLink(Shape(BYTE_A_NS, limit_bytes=3000))
    harness.offer_all([1000] * 5)
    harness.run()
    counts = harness.link.counts
    assert harness.numbers == [0, 1, 2]
    assert (counts.full, counts.full_priority, counts.peak_bytes) == (2, 0, 3000)


def test_the_queue_drains_as_a_fluid() -> None:
    harness = OneLink(Shape(BYTE_A_NS, limit_bytes=3000))
    harness.offer_all([1000] * 3)
    harness.run(999)
    harness.offer(1000)
    harness.run(1)
    harness.offer(1000)
    harness.run()
    assert harness.numbers == [0, 1, 2, 4]


# --- trimming ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last_hop", "dscp"), [(False, DSCP.trimmed), (True, DSCP.trimmed_lasthop)]
)
def test_overflow_loses_its_payload_and_goes_first(last_hop: bool, dscp: int) -> None:
    shape = Shape(BYTE_A_NS, limit_bytes=9000, trim_bytes=3000, ecn_min_bytes=0, ecn_max_bytes=0)
    harness = OneLink(replace(shape, last_hop=last_hop))
    harness.offer_all([1000] * 4)
    harness.run()
    assert harness.numbers == [0, 3, 1, 2]
    trimmed = harness.arrived[1]
    assert (trimmed.size, trimmed.dscp, trimmed.ecn) == (TRIMMED_WIRE_BYTES, dscp, 0)
    assert trimmed.at_ns == 1000 + TRIMMED_WIRE_BYTES
    counts = harness.link.counts
    assert (counts.trimmed, counts.trimmed_off_bytes) == (1, 1000 - TRIMMED_WIRE_BYTES)


def test_less_is_left_of_a_write_without_tseth() -> None:
    harness = OneLink(Shape(BYTE_A_NS, limit_bytes=9000, trim_bytes=3000))
    harness.offer_all([1000] * 3)
    harness.offer(timed=False)
    harness.run()
    left = TRIMMED_WIRE_BYTES - 4
    assert [a.size for a in harness.arrived] == [1000, left, 1000, 1000]
    assert harness.link.counts.trimmed_off_bytes == 1000 - left


@pytest.mark.parametrize("dscp", [DSCP.no_trim, DSCP.control])
def test_other_classes_are_never_trimmed(dscp: int) -> None:
    harness = OneLink(Shape(BYTE_A_NS, limit_bytes=4000, trim_bytes=2000))
    harness.offer_all([1000] * 5, dscp)
    harness.run()
    counts = harness.link.counts
    assert (counts.trimmed, counts.full + counts.full_priority) == (0, 1)
    assert all(a.size == 1000 for a in harness.arrived)


def test_retransmissions_are_trimmed_by_their_own_queue() -> None:
    harness = OneLink(Shape(BYTE_A_NS, limit_bytes=9000, trim_bytes=3000))
    harness.offer_all([1000] * 3)
    harness.offer_all([1000] * 4, DSCP.trimmable_retx)
    harness.run()
    assert harness.numbers == [0, 3, 4, 5, 6, 1, 2]
    assert [a.number for a in harness.arrived if a.dscp == DSCP.trimmed] == [6]


def test_a_full_priority_queue_drops_headers() -> None:
    harness = OneLink(Shape(BYTE_A_NS, limit_bytes=3000, trim_bytes=2000))
    harness.offer_all([1000] * 40)
    harness.run()
    counts = harness.link.counts
    fit = 3000 // TRIMMED_WIRE_BYTES
    assert (counts.trimmed, counts.full, counts.full_priority) == (38, 0, 38 - fit)
    assert len(harness.arrived) == 2 + fit


# --- marks ------------------------------------------------------------------------------------


def test_a_step_marks_from_its_threshold_on() -> None:
    harness = OneLink(Shape(BYTE_A_NS, ecn_min_bytes=2000, ecn_max_bytes=2000))
    harness.offer_all([1000] * 4)
    harness.run()
    assert [a.ecn for a in harness.arrived] == [ECT0, ECT0, ECN_CE, ECN_CE]
    assert harness.link.counts.marked == 2


def test_a_ramp_marks_in_proportion() -> None:
    """At a quarter of the way from min to max a quarter is marked."""
    harness = OneLink(Shape(BYTE_A_NS, ecn_min_bytes=1000, ecn_max_bytes=5000))
    for _ in range(4000):
        harness.offer_all([1000] * 3)
        harness.run(4000)
    by_place = [[a.ecn == ECN_CE for a in harness.arrived[place::3]] for place in range(3)]
    assert sum(by_place[0]) == 0
    assert sum(by_place[1]) == 0
    assert sum(by_place[2]) / 4000 == pytest.approx(0.25, abs=0.03)


def test_no_thresholds_no_marks() -> None:
    harness = OneLink(Shape(BYTE_A_NS))
    harness.offer_all([1000] * 100)
    harness.run()
    assert {a.ecn for a in harness.arrived} == {ECT0}


# --- priority ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dscp", [DSCP.control, DSCP.trimmable_retx, DSCP.trimmed, DSCP.trimmed_lasthop]
)
def test_priority_goes_before_all_that_waits_but_not_before_what_is_sent(dscp: int) -> None:
    harness = OneLink(Shape(BYTE_A_NS))
    harness.offer_all([1000] * 3)
    harness.run(100)
    harness.offer_all([200, 200], dscp)
    harness.run()
    assert harness.numbers == [0, 3, 4, 1, 2]
    assert [a.at_ns for a in harness.arrived] == [1000, 1200, 1400, 2400, 3400]


def test_the_priority_queue_does_not_count_the_other() -> None:
    harness = OneLink(Shape(BYTE_A_NS, limit_bytes=2000))
    harness.offer_all([1000] * 2)
    harness.offer_all([1000] * 2, DSCP.control)
    harness.run()
    assert harness.numbers == [0, 2, 3, 1]


# --- faults -----------------------------------------------------------------------------------


def test_a_blackhole_swallows_what_leaves_while_it_lasts() -> None:
    """What has left is delivered, what is being sent and what waits is lost as it leaves."""
    harness = OneLink(Shape(BYTE_A_NS, behind_ns=500))
    harness.offer_all([1000] * 6)
    harness.run(1000 + 1)
    harness.impair(Impairment(blackhole=True))
    harness.run(2999)
    harness.impair(HEALTHY)
    harness.run()
    assert harness.numbers == [0, 3, 4, 5]
    assert harness.arrived[1].at_ns == 4500
    assert harness.link.counts.blackholed == 2


def test_blackholes_that_come_in_quick_succession() -> None:
    harness = OneLink(Shape(BYTE_A_NS, behind_ns=100_000))
    for start in (1500, 3500):
        harness.engine.at(start, lambda _now, _: harness.impair(Impairment(blackhole=True)))
        harness.engine.at(start + 1000, lambda _now, _: harness.impair(HEALTHY))
    harness.offer_all([1000] * 6)
    harness.run()
    assert harness.numbers == [0, 2, 4, 5]


def test_a_cut_takes_what_waits_and_what_is_sent() -> None:
    harness = OneLink(Shape(BYTE_A_NS, behind_ns=500))
    harness.offer_all([1000] * 4)
    harness.run(1200)
    harness.impair(Impairment(cut=True))
    assert harness.link.counts.queued == 0
    harness.offer(1000)
    harness.run(10_000)
    harness.impair(HEALTHY)
    harness.offer(1000)
    harness.run()
    assert harness.numbers == [0, 5]
    assert harness.link.counts.cut == 4


def test_loss_is_random_and_repeated_by_its_seed() -> None:
    def survivors(seed: int) -> list[int]:
        harness = OneLink(Shape(BYTE_A_NS), seed)
        harness.impair(Impairment(loss=0.2))
        harness.offer_all([200] * 5000)
        harness.run()
        assert harness.link.counts.lost == 5000 - len(harness.arrived)
        return harness.numbers

    assert survivors(1) == survivors(1)
    assert survivors(1) != survivors(2)
    assert len(survivors(1)) / 5000 == pytest.approx(0.8, abs=0.02)


def test_loss_does_not_move_the_marks() -> None:
    def marked(loss: float) -> list[int]:
        harness = OneLink(Shape(BYTE_A_NS, ecn_min_bytes=1000, ecn_max_bytes=90_000))
        harness.impair(Impairment(loss=loss))
        harness.offer_all([1000] * 80)
        harness.run()
        return [a.number for a in harness.arrived if a.ecn == ECN_CE]

    assert set(marked(0.3)) < set(marked(0.0))


def test_corruption_flips_one_bit() -> None:
    harness = OneLink(Shape(BYTE_A_NS))
    harness.impair(Impairment(corrupt=0.5))
    harness.offer_all([1000] * 1000)
    harness.run()
    assert {a.flips for a in harness.arrived} == {0, 1}
    assert harness.link.counts.corrupted == sum(a.flips for a in harness.arrived)


def test_degradation_holds_from_the_next_packet_on() -> None:
    harness = OneLink(Shape(BYTE_A_NS))
    harness.offer_all([1000] * 3)
    harness.run(10)
    harness.impair(Impairment(rate=0.1))
    harness.run()
    assert [a.at_ns for a in harness.arrived] == [1000, 11_000, 21_000]


# --- the books --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_every_packet_is_accounted_for_at_any_time(seed: int) -> None:
    rng = Random(seed)
    shape = Shape(BYTE_A_NS, 8000, 5000, 1000, 4000, behind_ns=700)
    harness = OneLink(shape, seed)
    link = harness.link
    classes = (DSCP.trimmable, DSCP.trimmable, DSCP.trimmable_retx, DSCP.control, DSCP.no_trim)
    state = HEALTHY
    for _ in range(3000):
        change: dict[str, Any] = {}
        match rng.randrange(60):
            case 0:
                change = {"blackhole": rng.random() < 0.5}
            case 1:
                change = {"cut": rng.random() < 0.4}
            case 2:
                change = {"loss": rng.choice((0, 0.1))}
            case 3:
                change = {"corrupt": rng.choice((0, 0.1))}
            case 4:
                change = {"rate": rng.choice((1, 1 / 3))}
        if change:
            state = replace(state, **change)
            harness.impair(state)
        harness.offer(rng.randrange(150, 1500), rng.choice(classes))
        _check_books(harness, link)
        harness.run(rng.randrange(1200))
        _check_books(harness, link)
    harness.run()
    counts = link.counts
    assert (counts.queued, counts.on_wire) == (0, 0)
    assert counts.offered == counts.packets + counts.dropped
    assert min(counts.marked, counts.trimmed, counts.full, counts.blackholed, counts.cut) > 0
    assert all(a.at_ns <= b.at_ns for a, b in pairwise(harness.arrived))


def _check_books(harness: OneLink, link: LinkDirection) -> None:
    counts = link.counts
    due = [event for events in harness.engine._due.values() for event in events]
    under_way = sum(isinstance(event, Packet) for event in due)
    assert counts.on_wire == under_way
    assert counts.packets == len(harness.arrived)
    assert counts.offered == harness.offered
    assert counts.offered == counts.packets + counts.dropped + counts.queued + counts.on_wire


def test_a_full_port_pauses_who_sends_to_it_and_stops_others_behind() -> None:
    """Two ports behind one link, one of them slow: what is for the fast one waits as well."""
    counts, arrived = _through_a_switch(Shape(BYTE_A_NS, xoff_bytes=5000, xon_bytes=2000))
    assert counts["in"].paused > 1
    assert counts["slow"].peak_bytes < 10_000
    assert counts["in"].peak_bytes > 20_000  # it waits where it came from
    assert arrived["fast"][-1] > 200_000  # hardly sooner than the slow ones: head-of-line blocking


def test_without_pause_the_full_port_keeps_it_all_and_nobody_waits_for_it() -> None:
    counts, arrived = _through_a_switch(Shape(BYTE_A_NS))
    assert counts["in"].paused == 0
    assert counts["slow"].peak_bytes > 20_000
    assert arrived["fast"][-1] < 100_000


def test_a_pause_stops_data_and_lets_priority_go() -> None:
    engine = Engine()
    shape = Shape(BYTE_A_NS, xoff_bytes=1000, xon_bytes=0)
    into = LinkDirection("in", shape, engine, DSCP, 1)
    slow = LinkDirection("slow", replace(shape, rate_bps=BYTE_A_NS // 100), engine, DSCP, 1)
    fast = LinkDirection("fast", shape, engine, DSCP, 1)
    order: list[str] = []
    for _ in range(12):
        offer_over(engine, (into, slow), DSCP.no_trim, lambda _now, _: order.append("data"))
    engine.run(5000)
    assert into.counts.paused == 1
    assert into.counts.queued > 0
    offer_over(engine, (into, fast), DSCP.control, lambda _now, _: order.append("control"))
    engine.run(50_000)
    assert order == ["control"]
    engine.run(10**9)
    assert order == ["control", *["data"] * 12]


def _noting(times: list[int]) -> Callable[[int, Packet], None]:
    return lambda now_ns, _: times.append(now_ns)


def _through_a_switch(shape: Shape) -> tuple[dict[str, LinkCounts], dict[str, list[int]]]:
    """Thirty packets to a slow port and thirty to a fast one, in turn, over one link."""
    engine = Engine()
    into = LinkDirection("in", shape, engine, DSCP, 1)
    outs = {
        "slow": LinkDirection("slow", replace(shape, rate_bps=BYTE_A_NS // 10), engine, DSCP, 1),
        "fast": LinkDirection("fast", shape, engine, DSCP, 1),
    }
    arrived: dict[str, list[int]] = {name: [] for name in outs}
    for _ in range(30):
        for name, out in outs.items():
            offer_over(engine, (into, out), DSCP.no_trim, _noting(arrived[name]))
    engine.run(10**9)
    assert all(len(times) == 30 for times in arrived.values())
    return {"in": into.counts, **{name: out.counts for name, out in outs.items()}}, arrived
