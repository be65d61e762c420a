"""NSCC as Ultra Ethernet defines it: a test for each rule of docs/congestion.md, by its number."""

from dataclasses import replace

import pytest

from testbed.mrc import LossReport, QpState, ReceiverWindow, SackReport, UecNscc, UecProfile
from testbed.mrc.congestion.control import Flight
from testbed.mrc.constants import RCVD_BYTES_UNIT, EvMark
from testbed.mrc.entropy import Ev
from testbed.mrc.message import Message
from testbed.mrc.transmission import Packer, Transmission
from testbed.mrc.wire.control import Sack

from .harness import Network, S, make_profile
from .star import Star
from .test_qp import check_success, write_all

RTT = 12_000
MTU = 4184
PROFILE = UecProfile.derive(base_rtt_ns=RTT, rate_bps=100e9, mtu=MTU)
UNTRIMMED = UecProfile.derive(base_rtt_ns=RTT, rate_bps=100e9, mtu=MTU, trimming=False)
TARGET = PROFILE.target_delay
SACK = Sack(b"", b"", 7, 0, False, 0, 0, EvMark.NONE, False, 0, 7, 0, 0, 0, 0, 0, 0, False, 0, 0)


def transmission(order: int = 0, previous: Transmission | None = None) -> Transmission:
    """A packet of 4 KiB of payload, sent on EV 7 at 10 ns times its order."""
    message = Message(0, 0, memoryview(bytes(4096)), 0, 0)
    return Transmission(0, message, 0, 4096, Ev(7, 0, 0), order, 10 * order, previous)


def report(
    received: int = 0,
    delay: int | None = 0,
    *,
    ecn: bool = False,
    penalty: int | None = 0,
    restore: bool = False,
    flight: int = 0,
    now: int = 1,
) -> SackReport:
    """A SACK that measured this queueing delay, or (None) no round trip."""
    rtt = None if delay is None else RTT + delay
    return SackReport(received, rtt, False, ecn, penalty, restore, flight, now)


def window_of(size: int, profile: UecProfile = PROFILE) -> UecNscc:
    """A window brought down to `size` by inferred losses."""
    nscc = UecNscc(profile)
    lose(nscc, nscc.window - size)
    return nscc


def lose(nscc: UecNscc, size: int) -> None:
    nscc.on_loss(LossReport(size, "late", False, None, 0, 1))


def trim(nscc: UecNscc, size: int, now: int = 1, flight: int = 0) -> None:
    nscc.on_nack(LossReport(size, "TRIMMED", True, None, flight, now))


def begin_epoch(nscc: UecNscc) -> int:
    """Begin an epoch of quick adapt; returns a time just after its end."""
    nscc.on_sack(report(1, TARGET // 2, now=0))
    return RTT + TARGET + 1


def test_rule_1_parameters() -> None:
    a, b = 1.0, TARGET / RTT
    assert (PROFILE.target_delay, UNTRIMMED.target_delay) == (9_000, 12_000)
    assert UecNscc(PROFILE).window == PROFILE.max_window(RTT) == 225_000
    assert PROFILE.alpha == pytest.approx(4 * a * b * MTU / TARGET)
    assert PROFILE.fi == pytest.approx(5 * MTU)
    assert PROFILE.eta == pytest.approx(0.15 * MTU)
    assert (PROFILE.fast, PROFILE.gamma) == (0.25, 0.8)
    assert (PROFILE.max_md_jump, PROFILE.qa_gate) == (0.5, 3)
    slow = UecProfile.derive(base_rtt_ns=RTT * 100, rate_bps=1e9, mtu=MTU, dilation=100)
    assert slow.alpha * slow.target_delay == pytest.approx(PROFILE.alpha * TARGET)


@pytest.mark.parametrize("broken", [{"mtu": 0}, {"rate_bps": 1.0}, {"target_delay": 0}])
def test_parameters_that_cannot_work_are_refused(broken: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        replace(PROFILE, **broken)  # type: ignore[arg-type]


def test_rule_2_the_responders_count_clocks_what_is_in_flight() -> None:
    window = ReceiverWindow(lambda: UecNscc(PROFILE))
    window.count_sent(4096, MTU)
    window.count_delivered(4096)
    assert window.flight == MTU, "an acknowledgement alone frees nothing"
    assert window.count_received(4096, 2 * MTU) == 2 * MTU
    assert window.flight == -MTU
    window.flight = window.window - MTU
    assert window.has_room(4096, MTU)
    assert not window.has_room(4096, MTU + 1)
    assert window.count_lost(4096, MTU) == MTU
    assert window.flight == window.window - 2 * MTU


def test_rule_2_on_a_network_nothing_stays_in_flight() -> None:
    network = Network(make_profile(), port_bps=10e6, congestion=lambda: _network_window(10e6))
    write_all(network, 30)
    check_success(network, 30)
    network.run(network.now_ns + S)  # the last SACK comes after the ACK
    assert -256 <= network.qps[0].congestion.flight <= 0, "but for the unit of the counter"


def _network_window(rate_bps: float) -> ReceiverWindow:
    base_rtt_ns = S * 13 // 100
    profile = UecProfile.derive(
        base_rtt_ns=base_rtt_ns, rate_bps=rate_bps, mtu=MTU, dilation=10_000
    )
    return ReceiverWindow(lambda: UecNscc(profile))


def test_rule_3_the_base_rtt_falls_and_the_largest_window_with_it() -> None:
    nscc = UecNscc(PROFILE)
    nscc.on_sack(report(MTU, -RTT // 3))
    assert nscc.base_rtt_ns == 8_000
    assert nscc.window == PROFILE.max_window(8_000)
    nscc.on_sack(report(MTU, 500))
    assert nscc.base_rtt_ns == 8_000


def test_rule_4_a_round_trip_of_a_packet_sent_twice_counts() -> None:
    nscc = UecNscc(PROFILE)
    nscc.on_sack(report(MTU, -2_000)._replace(repeated=True))
    assert nscc.base_rtt_ns == 10_000
    nscc.on_sack(report(MTU, None))
    assert nscc.base_rtt_ns == 10_000


def test_rule_4_a_round_trip_must_be_of_one_transmission() -> None:
    """Never sent again and no echo of that, or sent again once and the echo."""
    packer = Packer(Network(make_profile()).qps[0].config)
    first = transmission()
    second = transmission(1, first)
    third = transmission(2, second)
    for sent, echo, counts in (
        (first, False, True),
        (first, True, False),
        (second, True, True),
        (second, False, False),
        (third, True, False),
    ):
        sack = replace(SACK, cc_type=1, retransmitted=echo)
        of_it = packer.answers(sack, sent) and not sent.ambiguous
        assert of_it is counts


def test_rule_5_a_delay_without_a_mark_is_fair_increase() -> None:
    nscc = window_of(100_000)
    nscc.average_delay_ns = 4.0 * TARGET
    nscc.on_sack(report(8 * MTU, 2 * TARGET))
    assert nscc.window == pytest.approx(100_000 + 5 * MTU * 8 * MTU / 100_000, abs=1)


def test_rule_6_below_target_the_increase_is_proportional() -> None:
    grown = []
    for delay in (TARGET // 2, TARGET * 3 // 4):
        nscc = window_of(100_000)
        nscc.on_sack(report(8 * MTU, delay))
        grown.append(nscc.window - 100_000)
    assert grown[0] == pytest.approx(PROFILE.alpha * 8 * MTU * TARGET / 2 / 100_000, abs=1)
    assert grown[0] == pytest.approx(2 * grown[1], abs=2)


def test_rule_6_after_a_window_without_delay_the_increase_is_fast() -> None:
    nscc = window_of(8 * MTU)
    nscc.on_sack(report(8 * MTU, 0))
    before = nscc.window
    nscc.on_sack(report(4 * MTU, 0))
    nscc.on_sack(report(4 * MTU, 0))
    middle = nscc.window
    nscc.on_sack(report(4 * MTU, 0))
    assert nscc.window - middle == pytest.approx(MTU, abs=1), "a quarter of what was received"
    assert middle > before
    nscc.on_sack(report(MTU, RTT // 4))
    later = nscc.window
    nscc.on_sack(report(MTU, 0))
    assert nscc.window == later, "a delay ends it"


def test_rule_7_a_mark_without_delay_changes_nothing() -> None:
    nscc = window_of(100_000)
    nscc.on_sack(report(9 * MTU, TARGET - 1, ecn=True))
    assert nscc.window == 100_000


def test_rule_8_a_mark_with_delay_decreases_once_a_base_rtt() -> None:
    nscc = window_of(100_000)
    nscc.average_delay_ns = 2.0 * TARGET
    nscc.on_sack(report(0, 2 * TARGET, ecn=True))
    assert nscc.window == 60_000, "by 0.8 of half the delay"
    nscc.on_sack(report(0, 2 * TARGET, ecn=True, now=RTT))
    assert nscc.window == int(60_000 + PROFILE.eta)
    nscc.average_delay_ns = 100.0 * TARGET
    nscc.on_sack(report(0, 2 * TARGET, ecn=True, now=1 + RTT))
    assert 30_000 <= nscc.window < 30_700, "never below half (and eta)"


def test_rule_8_an_average_below_target_decreases_nothing() -> None:
    nscc = window_of(100_000)
    nscc.on_sack(report(0, 2 * TARGET, ecn=True))
    assert nscc.window == 100_000


def test_rule_9_increases_are_applied_after_8_packets_or_a_base_rtt() -> None:
    nscc = window_of(100_000)
    nscc.on_sack(report(7 * MTU, TARGET))
    assert nscc.window == 100_000
    nscc.on_sack(report(MTU, TARGET))
    gained = 5 * MTU * 8 * MTU / 100_000
    assert nscc.window == pytest.approx(100_000 + gained, abs=1)
    nscc.on_sack(report(0, TARGET, now=RTT))
    assert nscc.window == pytest.approx(100_000 + gained + PROFILE.eta, abs=1)
    full = UecNscc(PROFILE)
    full.on_sack(report(9 * MTU, TARGET))
    assert full.window == PROFILE.max_window(RTT)


def test_rule_10_the_average_follows_in_one_window() -> None:
    nscc = window_of(20 * MTU)
    for _ in range(20):
        nscc.on_sack(report(MTU, 1_000))
    assert 600 < nscc.average_delay_ns < 700
    nscc.on_sack(report(40 * MTU, 3_000))
    assert nscc.average_delay_ns == 3_000


def test_rule_11_quick_adapt_takes_what_was_achieved() -> None:
    nscc = UecNscc(PROFILE)
    end = begin_epoch(nscc)
    nscc.on_sack(report(5 * MTU, TARGET // 2))
    trim(nscc, MTU, now=end, flight=44 * MTU)
    assert nscc.window == 5 * MTU
    trim(nscc, MTU, now=2 * end)
    assert nscc.window == 5 * MTU, "44 packets were in flight"


def test_rule_11_quick_adapt_needs_a_trim_and_few_bytes() -> None:
    nscc = UecNscc(PROFILE)
    end = begin_epoch(nscc)
    nscc.on_sack(report(MTU, TARGET // 2, now=end))
    assert nscc.window == 225_000
    nscc = UecNscc(PROFILE)
    end = begin_epoch(nscc)
    nscc.on_sack(report(225_000 // 8, TARGET // 2))
    trim(nscc, MTU, now=end)
    assert nscc.window == 225_000 - MTU


def test_rule_12_an_extreme_delay_counts_only_without_trimming() -> None:
    for profile, adapted in ((PROFILE, False), (UNTRIMMED, True)):
        nscc = UecNscc(profile)
        end = begin_epoch(nscc)
        nscc.on_sack(report(2 * MTU, 5 * profile.target_delay, now=2 * end))
        assert (nscc.window == 2 * MTU) is adapted


def test_rule_13_what_was_in_flight_is_ignored_where_it_is_marked() -> None:
    nscc = UecNscc(PROFILE)
    end = begin_epoch(nscc)
    nscc.on_sack(report(20_000, TARGET // 2))
    trim(nscc, MTU, now=end, flight=50 * MTU - 20_000 - MTU)
    nscc.average_delay_ns = 4.0 * TARGET
    nscc.on_sack(report(MTU, 4 * TARGET, ecn=True, now=3 * end))
    assert nscc.window == 20_000
    nscc.on_sack(report(8 * MTU, 2 * TARGET, now=3 * end))
    assert nscc.window > 20_000, "an unmarked one increases"


def test_rule_14_a_trim_takes_its_bytes_and_counts_as_a_delay() -> None:
    nscc = window_of(100_000)
    trim(nscc, MTU)
    assert nscc.window == 100_000 - MTU
    assert nscc.average_delay_ns == pytest.approx(RTT * MTU / 100_000)


def test_rule_15_a_refusal_leaves_the_window() -> None:
    nscc = window_of(100_000)
    nscc.on_nack(LossReport(MTU, "NO_PKT_BUFFER", False, 11_000, 0, 1))
    assert (nscc.window, nscc.base_rtt_ns) == (100_000, 11_000)


@pytest.mark.parametrize("profile", [PROFILE, UNTRIMMED])
def test_rule_16_an_inferred_loss_takes_its_bytes_and_arms_nothing(profile: UecProfile) -> None:
    nscc = UecNscc(profile)
    end = begin_epoch(nscc)
    before = nscc.window
    lose(nscc, MTU)
    assert nscc.window == before - MTU
    nscc.on_sack(report(MTU, profile.target_delay // 2, now=2 * end))
    assert nscc.window >= before - MTU
    for _ in range(100):
        lose(nscc, MTU)
    assert nscc.window == MTU


def test_rule_17_half_a_penalty_for_a_round_trip_halves_the_window() -> None:
    nscc = UecNscc(PROFILE)
    for _ in range(10):
        nscc.on_sack(report(22_500, 0, penalty=64, flight=nscc.window - 22_500))
    assert nscc.window == pytest.approx(112_500, rel=0.01)


def test_rule_17_a_penalty_begins_with_what_is_in_flight() -> None:
    nscc = UecNscc(PROFILE)
    for flight in (3 * MTU, MTU):
        nscc.on_sack(report(0, TARGET, penalty=1, flight=flight))
        assert nscc.window == 3 * MTU, "the sender has not sent again"
    nscc.on_sack(report(0, TARGET))
    nscc.on_sack(report(0, TARGET, penalty=1, flight=2 * MTU))
    assert nscc.window == 2 * MTU


@pytest.mark.parametrize("penalty", [1, 16, 64, 127])
def test_rule_17_a_penalty_takes_its_share_of_what_arrives(penalty: int) -> None:
    """A sender that always has data: every SACK of a round trip reports two of its packets."""
    window = ReceiverWindow(lambda: UecNscc(PROFILE))
    flight = Flight(window, Network(make_profile()).qps[0].config)
    first, received = window.window, 0
    while received < first:
        while flight.has_room(4096, probing=False):
            flight.sent(transmission())
        received += 2 * MTU
        flight.delivered(2 * 4096)
        sack = replace(SACK, rcv_cwnd_pen=penalty, rcvd_bytes=received // RCVD_BYTES_UNIT)
        flight.report(sack, 2 * 4096, transmission(), RTT, newest=True)
    assert window.window == pytest.approx(first * (1 - penalty / 128), abs=2 * MTU)


def test_rule_17_a_penalty_stops_increases_and_no_decrease() -> None:
    nscc = window_of(100_000)
    nscc.on_sack(report(0, TARGET, penalty=1, flight=100_000))
    nscc.average_delay_ns = 2.0 * TARGET
    nscc.on_sack(report(0, 2 * TARGET, ecn=True, penalty=1, flight=100_000))
    assert nscc.window == 60_000


def test_rule_18_restore_brings_the_saved_window_back_once_the_penalty_is_over() -> None:
    nscc = window_of(100_000)
    nscc.on_sack(report(50_000, TARGET, penalty=127, flight=50_000))
    reduced = nscc.window
    assert reduced < 60_000
    nscc.on_sack(report(0, TARGET, penalty=1, restore=True, flight=50_000))
    assert nscc.window <= reduced, "not while it is penalised"
    nscc.on_sack(report(0, TARGET))
    assert nscc.window <= reduced, "not without restore"
    nscc.on_sack(report(0, TARGET, restore=True))
    assert nscc.window == 100_000
    lose(nscc, 50_000)
    nscc.on_sack(report(0, TARGET, restore=True))
    assert nscc.window == 50_000, "only once"


def test_one_controller_serves_two_queue_pairs() -> None:
    """Together they have one window, and both get their data through."""
    shared = _network_window(20e6)
    star = Star(make_profile(planes=2), [(1, 0), (1, 0)], lambda: shared)
    for flow in star.flows:
        star.load(flow)
    star.run(3 * S)
    assert shared.flight <= shared.window + 2 * MTU
    flows = [flow.goodput_bps(S, 3 * S) for flow in star.flows]
    assert sum(flows) > 0.9 * 20e6 * 4096 / 4238
    sender = star.flows[0].sender
    sender.modify(QpState.RESET)
    assert shared.flight <= star.flows[1].sender.flight * 1.1 + 2 * MTU
