"""Metrics of synthetic runs, against the truth known by construction and computed naively."""

import itertools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from testbed.model.run_files.content import FlowRecord
from testbed.model.scenario import Expect
from testbed.model.summary import FlowFault, Summary
from testbed.model.summary.unit import NEVER
from testbed.results.analysis.delivery import Span, returned
from testbed.results.analysis.metrics import flow_tables, integrity_of, summarise
from testbed.results.records import ARRIVALS
from testbed.results.run_data import RunData, load_run

from .synthetic import LINK, PAYLOAD, Failure, Plan, Truth, generate

RTT = 0.131
ONE_WAY = 0.0654
Run = tuple[Summary, dict[int, Truth]]
Measure = Callable[[Plan], Run]


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    """Generate a run and summarise it."""

    def run(plan: Plan) -> Run:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        truths = generate(tmp_path / "run", plan)
        data = load_run(tmp_path / "run")
        return summarise(data, flow_tables(data)), truths

    return run


@pytest.fixture(scope="module")
def one_fault(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that ships: one link dark for three seconds."""
    directory = tmp_path_factory.mktemp("run") / "run"
    truths = generate(directory, Plan())
    data = load_run(directory)
    return summarise(data, flow_tables(data)), truths


def through(truth: Truth, plan: Plan, flow: FlowFault, target: str = LINK) -> set[int]:
    return truth.through(plan.topology, flow.src, flow.dst, target)


def naive_gap(moments: list[float], start: float, end: float, last: float) -> float:
    """The longest gap that begins in [start, end]."""
    points = [start, *sorted(t for t in moments if t > start)]
    points.append(max(last, end))
    return max(b - a for a, b in itertools.pairwise(points) if a <= end)


def naive_advances(truth: Truth) -> list[float]:
    """When a receiver that keeps a set of what arrived moves its in-order point."""
    seen: set[int] = set()
    following, moments = 0, []
    for t, seq, _ in truth.arrived:
        seen.add(seq)
        if seq == following:
            moments.append(t)
        while following in seen:
            following += 1
    return moments


# --- one fault --------------------------------------------------------------------------------


def test_detection_is_when_the_ev_leaves(one_fault: Run) -> None:
    (fault,) = one_fault[0].faults
    assert fault.flows_affected == 2
    assert fault.values["detection_ms"] == pytest.approx(183.4)
    assert fault.values["detection_last_ms"] == pytest.approx(183.4)
    assert fault.values["detection_rtt"] == pytest.approx(1.4)
    assert fault.values["detection_real_us"] == pytest.approx(18.34)


def test_the_timeline_is_in_seconds_of_the_run(one_fault: Run) -> None:
    (fault,) = one_fault[0].faults
    assert fault.requested_s == pytest.approx(3.996)
    assert fault.effective_s == pytest.approx(4.0)
    assert fault.effective_uncertainty_ms == pytest.approx(1.2)
    assert fault.healed_s == pytest.approx(7.0)
    assert (fault.kind, fault.target, fault.actuator) == ("blackhole", LINK, "openflow")


def test_exposure_and_losses_are_those_of_the_link(one_fault: Run) -> None:
    summary, truths = one_fault
    (fault,) = summary.faults
    last = []
    for flow in fault.flows:
        truth = truths[flow.flow]
        through_it = through(truth, Plan(), flow)
        into = [t for t, ev, *_ in truth.sent if 4 <= t < 7 and ev in through_it]
        assert flow.packets_exposed == len(into) == flow.packets_lost > 10
        assert flow.values["exposure_ms"] == pytest.approx((max(into) - 4) * 1e3, abs=1e-3)
        last.append(flow.values["exposure_ms"])
    assert fault.values["exposure_ms"] == max(filter(None, last))
    assert fault.packets_lost == sum(flow.packets_lost for flow in fault.flows)


def test_residual_loss_is_what_is_lost_after_the_detection(one_fault: Run) -> None:
    summary, truths = one_fault
    (fault,) = summary.faults
    detected = 4.0 + 0.1834
    sent = lost = sent_late = lost_late = 0
    for flow in fault.flows:
        truth = truths[flow.flow]
        through_it = through(truth, Plan(), flow)
        times = [t for t, *_ in truth.sent if 4 - RTT <= t <= 7]
        into = [t for t, ev, *_ in truth.sent if 4 <= t <= 7 and ev in through_it]
        assert flow.packets_sent == len(times)
        assert flow.loss_share == pytest.approx(len(into) / len(times))
        sent, lost = sent + len(times), lost + len(into)
        sent_late += sum(t >= detected for t in times)
        lost_late += sum(t >= detected for t in into)
    assert fault.loss_share == pytest.approx(lost / sent)
    assert fault.packets_sent_after_detection == sent_late
    assert fault.packets_lost_after_detection == lost_late
    assert fault.residual_loss == pytest.approx(lost_late / sent_late)


def test_there_is_no_residual_loss_where_nobody_noticed(measure: Measure) -> None:
    summary, _ = measure(Plan(failures=(Failure(detect=None),)))
    (fault,) = summary.faults
    assert fault.loss_share
    assert fault.residual_loss is None


def test_stall_is_the_longest_gap_of_a_receiver(one_fault: Run) -> None:
    summary, truths = one_fault
    for flow in summary.faults[0].flows:
        truth = truths[flow.flow]
        end = truth.arrived[-1][0]
        stall = naive_gap(naive_advances(truth), 4.0, 7.0, min(end, 10.0))
        assert flow.values["stall_ms"] == pytest.approx(stall * 1e3, abs=1e-3)
        assert flow.values["stall_ms"] is not None
        assert 150 < flow.values["stall_ms"] < 250
        placements = [t for t, _, new in truth.arrived if new]
        gap = naive_gap(placements, 4.0, 7.0, min(end, 10.0))
        assert flow.values["placement_gap_ms"] == pytest.approx(gap * 1e3, abs=1e-3)


def test_recovery_is_late_by_no_more_than_its_averaging(one_fault: Run) -> None:
    """One of twelve paths is missing from 0 to detection, seen half an RTT later."""
    (fault,) = one_fault[0].faults
    back = 0.1834 + ONE_WAY
    assert fault.values["recovery_ms"] is not None
    assert back < fault.values["recovery_ms"] / 1e3 <= back + RTT + 0.01
    assert fault.surviving_fraction == 1.0


def test_the_deficit_is_what_was_lost_and_never_made_up(one_fault: Run) -> None:
    """Every lost packet costs its slot, and the sender runs at 99%, so nothing is made up."""
    summary, truths = one_fault
    for flow in summary.faults[0].flows:
        truth = truths[flow.flow]
        cost = flow.packets_lost * PAYLOAD * 8 / (truth.ports_bps * 0.99)
        assert flow.values["deficit_baseline_rtt"] == pytest.approx(cost / RTT, abs=0.03)
        length = 3 / RTT + 10  # until healing, and 10 RTT longer
        assert flow.values["deficit_rtt"] == pytest.approx(
            cost / RTT * 0.99 + 0.01 * length, abs=0.03
        )


def test_evs_return_after_healing(one_fault: Run) -> None:
    summary, truths = one_fault
    (fault,) = summary.faults
    assert fault.values["return_first_ms"] == pytest.approx(500)
    assert fault.values["return_last_ms"] == pytest.approx(500)
    for flow in fault.flows:
        truth = truths[flow.flow]
        through_it = through(truth, Plan(), flow)
        again = min(t for t, ev, *_ in truth.sent if t >= 7 and ev in through_it)
        assert flow.values["return_data_ms"] == pytest.approx((again - 7) * 1e3, abs=1e-3)


def test_an_ev_that_is_back_before_healing_has_returned_by_then() -> None:
    """As between two dark times of a flap."""
    good = Span(0.0, 3.0, "GOOD", active=True, reason="start")
    bad = Span(3.0, 5.0, "ASSUMED_BAD", active=False, reason="timeout")
    back = Span(5.0, 9.0, "GOOD", active=True, reason="probes answered")
    assert returned((good, bad, back), healed=7.0) == 7.0
    assert returned((good, bad, back), healed=4.0) == 5.0
    assert returned((good, bad), healed=4.0) is None


def test_the_three_ways_agree(one_fault: Run) -> None:
    summary = one_fault[0]
    (fault,) = summary.faults
    for name in ("detection", "exposure", "stall", "recovery", "return_data"):
        time = getattr(fault, name)
        assert time.rtt * summary.base_rtt_us / 1e3 == pytest.approx(time.ms)
        assert time.real_us * summary.dilation / 1e3 == pytest.approx(time.ms)


def test_steady_goodput_is_what_the_sender_offers(one_fault: Run) -> None:
    summary, truths = one_fault
    for flow in summary.flows:
        assert flow.before_fraction == pytest.approx(0.99, abs=0.001)
        assert flow.goodput_before_bps == pytest.approx(
            truths[flow.flow].ports_bps * 0.99, rel=1e-3
        )
        assert sum(flow.goodput_by_plane_bps.values()) == pytest.approx(flow.goodput_before_bps)
        assert sum(ev.goodput_bps for ev in flow.evs) == pytest.approx(flow.goodput_before_bps)
        assert sum(ev.packets_sent for ev in flow.evs) == flow.packets_sent
        assert sum(ev.packets_lost for ev in flow.evs) == flow.packets_lost
        assert flow.packets_lost_elsewhere == 0
        assert {ev.ev for ev in flow.evs} == {ev for _, ev, *_ in truths[flow.flow].sent}


def test_the_goodput_while_a_fault_lasts_is_weighed_against_what_it_leaves(one_fault: Run) -> None:
    summary, _ = one_fault
    (fault,) = summary.faults
    for flow, effect in zip(summary.flows, fault.flows, strict=True):
        assert flow.in_force_fraction == pytest.approx(effect.attainable_fraction)
        assert (flow.in_force_fraction or 1.0) < (flow.before_fraction or 0.0)


def test_message_latency_is_the_time_of_its_packets_and_half_a_round_trip(one_fault: Run) -> None:
    summary, truths = one_fault
    for flow in summary.flows:
        assert flow.latency is not None
        expected = 255 * truths[flow.flow].spacing + ONE_WAY
        assert flow.latency.median.ms == pytest.approx(expected * 1e3, abs=10)
        assert flow.latency.max.ms > flow.latency.median.ms + 100
        assert flow.latency.messages == truths[flow.flow].arrived[-1][1] // 256


def test_the_level_is_what_goodput_settles_at(one_fault: Run) -> None:
    (fault,) = one_fault[0].faults
    for level in (fault.level, fault.level_even, fault.level_healed, fault.level_healed_even):
        assert level == pytest.approx(0.99, abs=0.002)
    assert fault.ideal_fraction is not None
    assert fault.level is not None
    assert fault.ideal_fraction < fault.level, "the fall is a part of the time in force"
    assert fault.run is not None
    assert fault.run.level == pytest.approx(0.99, abs=0.002)


def test_recovery_is_to_the_own_level(measure: Measure) -> None:
    """A transport that leaves no path settles below 95%; it has not fallen from that."""
    (never,) = measure(Plan(failures=(Failure(detect=None),)))[0].faults
    assert never.level is not None
    assert never.level < 0.92
    assert never.values["recovery_ms"] == 0
    assert (never.below_share or 0) > 0.9


def test_capacity_lost_does_not_depend_on_what_notices_the_fault(measure: Measure) -> None:
    """The port of a host is a quarter of its rate, for three seconds."""
    (noticed,), (unseen,) = (
        measure(Plan(failures=(Failure("h0--p2_t0_0", detect=detect),)))[0].faults
        for detect in (0.2, None)
    )
    for fault in (noticed, unseen):
        assert fault.values["capacity_lost_rtt"] == pytest.approx(0.25 * 3 / RTT, rel=0.01)
    assert noticed.deficit is not None
    assert unseen.deficit is not None
    assert unseen.deficit.rtt > noticed.deficit.rtt + 1


# --- other runs -------------------------------------------------------------------------------


def test_without_a_fault_there_is_only_goodput(measure: Measure) -> None:
    summary, _ = measure(Plan(failures=(), duration=4.0))
    assert summary.faults == ()
    assert summary.flows[0].in_force_fraction is None
    assert summary.verdict == "trusted"
    assert summary.flows[0].before_fraction == pytest.approx(0.99, abs=0.001)


def test_a_link_that_only_backups_cross_hurts_nobody(measure: Measure) -> None:
    plan = Plan(failures=(), duration=4.0)
    _, truths = measure(plan)
    spare = next(ev.path for ev in truths[0].evs if not ev.active)
    link = f"p{spare.plane}_t0_0--p{spare.plane}_t1_{spare.t1}"
    pair = (("h0", "h4"),)
    summary, _ = measure(
        Plan(failures=(Failure(link, at=2.0, until=3.0),), duration=4.0, pairs=pair)
    )
    (fault,) = summary.faults
    assert fault.flows_affected == 0
    assert fault.values["detection_ms"] is None
    assert fault.values["exposure_ms"] is None
    assert fault.packets_exposed == fault.packets_lost == 0
    shown = ("stall_ms", "recovery_ms", "deficit_rtt", "in_order_delay_ms", "attainable_fraction")
    assert [fault.values[key] for key in shown] == [None] * len(shown)
    assert fault.affected_in_words == "no flow used a path through it: 0 of 1 affected"
    (flow,) = fault.flows
    assert flow.values["stall_rtt"] is not None
    assert flow.values["stall_rtt"] < 0.1


@pytest.mark.parametrize("noticed_s", [0.0, -0.0011])
def test_a_fault_that_is_noticed_as_it_takes_effect_counts(
    measure: Measure, noticed_s: float
) -> None:
    """A host's own port goes dark: its EVs are out at once, or within the interval of effect."""
    summary, _ = measure(Plan(failures=(Failure("h0--p2_t0_0", detect=noticed_s),)))
    (fault,) = summary.faults
    assert fault.flows_affected == 2
    assert [flow.evs_active for flow in fault.flows] == [3, 3]
    assert [flow.evs_detected for flow in fault.flows] == [3, 3]
    assert fault.values["detection_ms"] == pytest.approx(max(noticed_s, 0), abs=1e-6)
    assert fault.values["detection_last_ms"] == pytest.approx(noticed_s * 1e3 + 20, abs=1e-6)
    assert fault.values["recovery_ms"] is not None
    assert fault.values["return_last_ms"] == pytest.approx(520)


def test_an_ev_that_was_out_before_the_fault_is_not_concerned(measure: Measure) -> None:
    summary, _ = measure(Plan(failures=(Failure(detect=-0.01),)))
    (fault,) = summary.faults
    assert fault.flows_affected == 0
    assert [flow.evs_active for flow in fault.flows] == [0, 0]
    assert fault.values["detection_ms"] is None


def test_a_dead_nic_link_is_measured_against_what_survives(measure: Measure) -> None:
    """The load of the dead plane moves to the others, which the toy model carries."""
    plan = Plan(failures=(Failure("h0--p2_t0_0", at=2.0, until=None),), duration=5.0)
    summary, _ = measure(plan)
    (fault,) = summary.faults
    assert fault.surviving_fraction == pytest.approx(0.75)
    assert [flow.evs_active for flow in fault.flows] == [3, 3]
    assert [flow.evs_detected for flow in fault.flows] == [3, 3]
    assert fault.values["detection_ms"] == pytest.approx(183.4)
    assert fault.values["detection_last_ms"] == pytest.approx(203.4)
    assert fault.healed_s is None
    assert fault.values["return_first_ms"] is None
    assert fault.values["recovery_ms"] is not None


def test_nothing_is_recovered_while_nothing_is_in_service(measure: Measure) -> None:
    """A host without any port: no goodput of nothing is not full goodput."""
    ports = [f"h0--p{plane}_t0_0" for plane in range(4)]
    failures = tuple(Failure(port, at=4.0, until=7.0, detect=None) for port in ports)
    summary, _ = measure(Plan(failures=failures))
    for fault in summary.faults:
        for flow in fault.flows:
            assert flow.surviving_fraction == 0
            assert flow.values["recovery_ms"] is None or flow.values["recovery_ms"] > 3000


def test_two_faults_do_not_share_their_figures(measure: Measure) -> None:
    first = Failure(at=2.0, until=4.0)
    second = Failure("p3_t0_1--p3_t1_0", at=6.0, until=8.0, detect=0.262)
    summary, _ = measure(Plan(failures=(first, second)))
    earlier, later = summary.faults
    assert earlier.values["detection_ms"] == pytest.approx(183.4)
    struck = [flow for flow in later.flows if flow.affected]
    assert struck
    assert later.values["detection_ms"] == pytest.approx(262)
    assert later.flows_affected == len(struck)
    assert earlier.packets_lost + later.packets_lost == sum(f.packets_lost for f in summary.flows)


def test_overlapping_faults_end_each_others_deficit(measure: Measure) -> None:
    first = Failure(at=2.0, until=5.0)
    second = Failure("p1_t0_0--p1_t1_2", at=2.5, until=5.0)
    summary, _ = measure(Plan(failures=(first, second), duration=6.0))
    earlier, later = summary.faults
    assert earlier.values["deficit_baseline_rtt"] is not None
    alone, _ = measure(Plan(failures=(first,), duration=6.0))
    assert earlier.values["deficit_baseline_rtt"] == pytest.approx(
        alone.faults[0].values["deficit_baseline_rtt"] or 0, abs=0.05
    )
    assert later.index == 1


def test_faults_that_begin_at_once_have_one_time_to_settle(measure: Measure) -> None:
    """An emulated run breaks two links a few ms after each other, at one time of its timeline."""
    first, second = Failure(at=2.0, until=5.0), Failure("p1_t0_0--p1_t1_2", at=2.004, until=5.0)
    summary, _ = measure(Plan(failures=(first, second), duration=7.0))
    for fault in summary.faults:
        assert fault.level == pytest.approx(0.99, abs=0.005)
        assert fault.level_healed == pytest.approx(0.99, abs=0.005)
    earlier, later = (fault.values["recovery_ms"] for fault in summary.faults)
    assert earlier == pytest.approx(later, abs=5)
    assert earlier is not None
    assert earlier > 183, "not before the EVs left"


def test_what_is_too_short_to_settle_has_no_level(measure: Measure) -> None:
    """It healed 4 ms before the run ended, in which three packets came or none."""
    summary, _ = measure(Plan(failures=(Failure(at=2.0, until=4.996),), duration=5.0))
    (fault,) = summary.faults
    assert fault.level == pytest.approx(0.99, abs=0.005)
    assert (fault.level_healed, fault.level_healed_even) == (None, None)
    brief, _ = measure(Plan(failures=(Failure(at=2.0, until=2.2),), duration=5.0))
    assert (brief.faults[0].level, brief.faults[0].level_even) == (None, None)
    assert brief.faults[0].level_healed == pytest.approx(0.99, abs=0.005)


def test_a_fault_at_the_end_has_no_recovery_to_see(measure: Measure) -> None:
    """It took effect a tenth of an RTT before the end: 0 would say that goodput never fell."""
    summary, _ = measure(Plan(failures=(Failure(at=4.99, until=None),), duration=5.0))
    (fault,) = summary.faults
    assert fault.flows_affected == 2
    assert (fault.recovery, fault.below_share, fault.level) == (None, None, None)


def test_a_fault_that_nobody_noticed_was_never_detected(measure: Measure) -> None:
    summary, _ = measure(Plan(failures=(Failure(detect=None, until=None),), duration=6.0))
    (fault,) = summary.faults
    assert fault.flows_affected == 2
    assert fault.values["detection_ms"] == NEVER
    assert fault.level == pytest.approx(0.99 * 11 / 12, abs=0.01)
    assert fault.values["recovery_ms"] == 0, "from this level"
    assert fault.values["exposure_ms"] == pytest.approx(2000, abs=20)
    assert fault.values["deficit_baseline_rtt"] is not None
    assert fault.values["deficit_baseline_rtt"] > 1


def test_a_fault_that_never_took_effect_invalidates(measure: Measure) -> None:
    summary, _ = measure(Plan(failures=(Failure(effective=False),), duration=5.0))
    (fault,) = summary.faults
    assert fault.effective_s is None
    assert fault.flows == ()
    assert fault.values["detection_ms"] is None
    assert summary.verdict == "invalid"
    assert "never took effect" in summary.reasons[0]


def test_a_run_that_ends_early_says_so(measure: Measure) -> None:
    summary, _ = measure(Plan(stops_at=8.0))
    assert summary.verdict == "invalid"
    assert "before the planned end" in summary.reasons[0]
    assert summary.faults[0].values["detection_ms"] == pytest.approx(183.4)


def test_a_run_that_ends_within_a_fault_is_measured_so_far(measure: Measure) -> None:
    plan = Plan(failures=(Failure(until=None),), duration=4.2, declare=1.0)
    summary, truths = measure(plan)
    (fault,) = summary.faults
    assert fault.values["detection_ms"] == pytest.approx(183.4)
    assert fault.healed_s is None
    last = naive_advances(truths[0])[-1]
    assert fault.flows[0].values["stall_ms"] == pytest.approx((4.2 - last) * 1e3, abs=1)


def test_a_fault_after_which_nothing_arrives_stalls_a_flow_until_the_planned_end(
    measure: Measure,
) -> None:
    stuck = Plan(stops_at=4.0, duration=6.0, declare=3.0, bytes_under_way=PAYLOAD)
    summary, _ = measure(stuck)
    assert summary.faults[0].flows[0].values["stall_ms"] == pytest.approx(
        2000 - ONE_WAY * 1e3, abs=10
    )


def test_the_time_in_which_a_sender_waits_for_an_acknowledgement_counts(measure: Measure) -> None:
    finished, waiting = (
        measure(Plan(failures=(), stops_at=4.0, duration=8.0, bytes_unacknowledged=size))[0]
        for size in (0, PAYLOAD)
    )
    for done, waited in zip(finished.flows, waiting.flows, strict=True):
        assert waited.goodput_run_bps == pytest.approx(done.goodput_run_bps / 2, rel=0.05)


def test_spurious_losses_are_told_apart(measure: Measure) -> None:
    summary, _ = measure(Plan(spurious=(2.0, 2.1, 3.0)))
    for flow in summary.flows:
        assert flow.packets_spurious == 3
        assert flow.packets_lost_elsewhere == 0
    assert summary.faults[0].packets_lost == measure(Plan())[0].faults[0].packets_lost


def test_goodput_that_settles_at_nothing_recovers_with_the_healing(measure: Measure) -> None:
    dark = tuple(
        Failure(f"p{plane}_t0_0--p{plane}_t1_{t1}", at=3.0, until=4.0, detect=None)
        for plane in range(4)
        for t1 in range(4)
    )
    summary, _ = measure(Plan(failures=dark, duration=7.0))
    recovered = summary.faults[0].values["recovery_ms"]
    assert recovered is not None
    assert recovered > 1000


def test_the_seed_alone_decides_a_run(measure: Measure) -> None:
    plan = Plan(duration=5.0)
    assert measure(plan)[0] == measure(plan)[0]
    assert measure(replace(plan, seed=2))[0] != measure(plan)[0]


def test_a_stumble_before_the_fault_can_show_is_not_the_dip(
    measure: Measure, tmp_path: Path
) -> None:
    """Arrivals held up for 15 ms just after the fault are the machine's doing, not recovery."""
    measure(Plan())
    held = _held(load_run(tmp_path / "run"), 4.0, 4.015)
    summary = summarise(held, flow_tables(held))
    for flow in summary.faults[0].flows:
        assert flow.values["recovery_ms"] is not None
        assert flow.values["recovery_ms"] > 200


def _held(data: RunData, since: float, until: float) -> RunData:
    """A run in which an event loop stood still: all of that time arrives at its end."""
    t = pl.col("t")
    held = data.tables[ARRIVALS].with_columns(
        t=pl.when(t.is_between(since, until)).then(until).otherwise(t)
    )
    return replace(data, tables={**data.tables, ARRIVALS: held})


@pytest.mark.parametrize(
    ("late_s", "held_s", "simulated", "others", "opens"),
    [
        (0.3, 0.1, False, "", True),
        (1.0, 0.3, False, "", False),
        (1.0, 0.3, True, "", True),
        (1.0, 0.1, True, "", False),
        (1.0, 0.3, True, "moments", False),
        (1.0, 0.3, True, "healing", False),
    ],
)
def test_what_falls_soon_after_the_fault_or_a_loss_or_in_virtual_time_is_its_dip(
    measure: Measure,
    tmp_path: Path,
    *,
    late_s: float,
    held_s: float,
    simulated: bool,
    others: str,
    opens: bool,
) -> None:
    """A late moment, in a fault that goodput did not feel at once: of a NIC's own port.

    It is the machine's, but in a simulation, unless it is brief, such moments came before the
    fault, too, or another fault has just healed.
    """
    failure = Failure("h0--p2_t0_0", at=2.0, until=4.0, detect=0.0)
    before = replace(failure, target="h0--p3_t0_0", at=0.5, until=1.9 + late_s)
    failures = (before, failure) if others == "healing" else (failure,)
    summary, _ = measure(Plan(failures=failures, duration=7.0))
    since = 2.0 + late_s
    data = load_run(tmp_path / "run")
    data = replace(data, manifest=data.manifest.model_copy(update={"simulated": simulated}))
    if others == "moments":
        data = _held(data, 1.4, 1.5)
    held = _held(data, since, since + held_s)
    late = summarise(held, flow_tables(held))
    assert summary.faults[-1].values["recovery_ms"] == 0
    assert late.faults[-1].values["recovery_ms"] is not None
    assert (late.faults[-1].values["recovery_ms"] > late_s * 1e3) is opens


def test_a_dip_after_healing_is_not_the_fault_s_recovery(measure: Measure, tmp_path: Path) -> None:
    """A dead NIC link leaves goodput at what survives; it lags only when the link is back."""
    failure = Failure("h0--p2_t0_0", at=2.0, until=4.0)
    summary, _ = measure(Plan(failures=(failure,), duration=7.0))
    data = load_run(tmp_path / "run")
    t = pl.col("t")
    kept = data.tables[ARRIVALS].filter(~t.is_between(4.1, 4.6) | (pl.col("plane") != 0))
    lagging = replace(data, tables={**data.tables, ARRIVALS: kept})
    lagged = summarise(lagging, flow_tables(lagging))
    assert lagged.faults[0].values["recovery_ms"] == summary.faults[0].values["recovery_ms"] == 0


@pytest.mark.parametrize(
    ("expected", "lost", "unaccounted"),
    [({}, 300, 0), ({"qps_in_error": 0}, 300, 0), ({"qps_in_error": 1}, 130, 170)],
)
def test_payload_of_messages_that_fail_is_lost_unless_the_scenario_expects_it(
    expected: dict[str, int], lost: int, unaccounted: int
) -> None:
    """100 B of a message that was complete are lost in any case; 30 B are still under way."""
    record = FlowRecord(
        flow=0,
        src="h0",
        dst="h4",
        transport="mrc",
        ports_bps=1e6,
        bytes_sent=1000,
        bytes_completed=830,
        bytes_verified=700,
        bytes_lost=300,
        bytes_under_way=30,
    )
    failed = replace(record, errors=("transport retry counter exceeded",))
    integrity = integrity_of([failed], Expect.model_validate({"run": expected}))
    assert (integrity.bytes_lost, integrity.bytes_unaccounted) == (lost, unaccounted)
    alive = integrity_of([record], Expect.model_validate({"run": expected}))
    assert (alive.bytes_lost, alive.bytes_unaccounted) == (300, 0)
