"""NSCC: each rule by itself, and then windows that meet in a port."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.mrc import NOT_BUSY, BusyState, CcProfile, LossReport, Nscc, SackReport, Window
from testbed.results.analysis.metrics import jain

from .harness import MS, Network, S, make_profile
from .star import Star
from .test_path_death import DEATH_NS
from .test_qp import check_success, write_all

RTT_NS = 130 * MS
PORT_BPS = 10e6
MSS = 4096
PROFILE = CcProfile.derive(base_rtt_ns=RTT_NS, rate_bps=2 * PORT_BPS, dilation=10_000)
BDP = 2 * PORT_BPS * 0.13 / 8
ATTAINABLE_BPS = 2 * PORT_BPS * 4096 / 4238


def sack(nscc: Nscc, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
    nscc.on_sack(SackReport(acked, rtt_ns, False, ecn, None, False, 0, now_ns))


def lose(nscc: Nscc, lost: int, *, trimmed: bool, now_ns: int) -> None:
    if trimmed:
        nscc.on_nack(LossReport(lost, "TRIMMED", trimmed, None, 0, now_ns))
    else:
        nscc.on_loss(LossReport(lost, "late", trimmed, None, 0, now_ns))


def penalise(nscc: Nscc, penalty: int, *, restore: bool) -> None:
    nscc.on_sack(SackReport(0, None, False, False, penalty, restore, 0, 0))


def window_at(window: int, profile: CcProfile = PROFILE) -> Nscc:
    """A window brought down to `window` by trims, long before time 0, its average delay zero."""
    nscc = Nscc(replace(profile, disable_qa=True))
    lose(nscc, nscc.window - window, trimmed=True, now_ns=-100 * S)
    nscc.average_delay_ns = 0.0
    return nscc


def feed(nscc: Nscc, delay_ns: int, *, rtts: float, ecn: bool = False, start_ns: int = 0) -> None:
    """A window of packets each RTT, in SACKs of 8."""
    now_ns, end_ns = start_ns, start_ns + int(rtts * RTT_NS)
    while now_ns < end_ns:
        sack(nscc, 8 * MSS, RTT_NS + delay_ns, ecn=ecn, now_ns=now_ns)
        now_ns += 8 * MSS * RTT_NS // nscc.window


def test_the_defaults_are_those_of_uet_htsim_but_for_three() -> None:
    """At its reference network, 100 Gbit/s and 12 us, every scaling factor is known.

    Its eta is 0.15 * mss, its quick adapt gate 3, and its fi_scale grows with the network.
    """
    profile = CcProfile.derive(base_rtt_ns=12_000, rate_bps=100e9, mss=4096)
    assert profile.target_delay == 9000
    assert profile.max_cwnd == 225_000
    assert profile.alpha == pytest.approx(4 * 4096 * 0.75 / 9000)
    assert profile.eta == pytest.approx(0.3 * 4096)
    assert profile.fi == pytest.approx(5 * 4096)
    assert profile.fi_scale == pytest.approx(0.25)
    assert (profile.gamma, profile.max_md_jump, profile.qa_gate) == (0.8, 0.5, 2)
    assert profile.qa_threshold == 4 * 9000
    assert profile.adjust_bytes_threshold == 8 * 4096
    assert profile.adjust_period_threshold == 12_000
    untrimmed = CcProfile.derive(base_rtt_ns=12_000, rate_bps=100e9, trimming=False)
    assert untrimmed.target_delay == 12_000


def test_dilation_changes_times_and_nothing_else() -> None:
    real = CcProfile.derive(base_rtt_ns=12_000, rate_bps=100e9)
    slow = CcProfile.derive(base_rtt_ns=120_000_000, rate_bps=10e6, dilation=10_000)
    assert slow.max_cwnd == real.max_cwnd
    assert slow.fi == pytest.approx(real.fi)
    assert slow.alpha * slow.target_delay == pytest.approx(real.alpha * real.target_delay)


@pytest.mark.parametrize(
    "broken",
    [
        {"target_delay": 0},
        {"max_cwnd": 1},
        {"gamma": -1.0},
        {"max_md_jump": 0.0},
        {"delay_alpha": 2.0},
        {"qa_gate": -1},
    ],
)
def test_profiles_that_cannot_work_are_refused(broken: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        replace(PROFILE, **broken)  # type: ignore[arg-type]


def test_it_begins_at_its_maximum() -> None:
    assert Nscc(PROFILE).window == PROFILE.max_cwnd == int(1.5 * BDP)


def test_below_target_the_window_grows_in_proportion_to_what_is_left() -> None:
    growth = []
    for delay_ns in (PROFILE.target_delay * 3 // 4, PROFILE.target_delay // 4):
        nscc = window_at(200_000)
        feed(nscc, delay_ns, rtts=2)
        growth.append(nscc.window - 200_000)
    assert growth[0] > 0
    assert 2 < growth[1] / growth[0] < 4


def test_without_a_queue_the_window_grows_by_a_quarter_each_rtt() -> None:
    nscc = window_at(50_000)
    feed(nscc, 0, rtts=5)
    assert 150_000 < nscc.window < 260_000
    feed(nscc, 0, rtts=9, start_ns=5 * RTT_NS)
    assert nscc.window == PROFILE.max_cwnd


def test_a_high_sample_before_the_average_follows_is_fair_increase() -> None:
    nscc = window_at(200_000)
    feed(nscc, PROFILE.target_delay, rtts=0.9)
    assert 200_000 < nscc.window < 200_000 + 2 * PROFILE.fi


@pytest.mark.parametrize("ecn", [False, True])
def test_an_average_above_target_halves_at_most_and_once_a_round_trip(ecn: bool) -> None:
    nscc = window_at(400_000)
    nscc.average_delay_ns = 100.0 * PROFILE.target_delay
    sack(nscc, MSS, 5 * RTT_NS, ecn=ecn, now_ns=0)
    assert nscc.window == 200_000
    sack(nscc, MSS, 5 * RTT_NS, ecn=ecn, now_ns=5 * RTT_NS)
    assert 200_000 <= nscc.window < 205_000
    sack(nscc, MSS, 5 * RTT_NS, ecn=ecn, now_ns=5 * RTT_NS + 1)
    assert 100_000 <= nscc.window < 105_000


def test_a_decrease_is_in_proportion_to_the_excess() -> None:
    nscc = window_at(400_000)
    nscc.average_delay_ns = 1.25 * PROFILE.target_delay
    sack(nscc, MSS, RTT_NS + int(1.25 * PROFILE.target_delay), ecn=True, now_ns=0)
    assert nscc.window == pytest.approx(400_000 * (1 - 0.8 * 0.2), rel=0.01)


def test_a_mark_without_delay_leaves_the_window_to_the_spray() -> None:
    nscc = window_at(200_000)
    feed(nscc, PROFILE.target_delay // 2, rtts=0.5, ecn=True)
    assert nscc.window == 200_000


def test_a_trim_takes_its_bytes_and_a_broken_path_nothing() -> None:
    nscc = window_at(200_000)
    lose(nscc, MSS, trimmed=True, now_ns=0)
    assert nscc.window == 200_000 - MSS
    lose(nscc, MSS, trimmed=False, now_ns=0)
    assert nscc.window == 200_000 - MSS


def test_without_trimming_a_drop_takes_its_bytes() -> None:
    nscc = window_at(200_000, replace(PROFILE, trimming=False))
    lose(nscc, MSS, trimmed=False, now_ns=0)
    assert nscc.window == 200_000 - MSS


def test_quick_adapt_takes_what_was_achieved_and_forgives_what_was_in_flight() -> None:
    nscc = Nscc(PROFILE)
    sack(nscc, MSS, RTT_NS, ecn=False, now_ns=1)
    sack(nscc, 9 * MSS, RTT_NS, ecn=False, now_ns=2)
    lose(nscc, MSS, trimmed=True, now_ns=1 + 2 * RTT_NS)
    assert nscc.window == 9 * MSS
    nscc.average_delay_ns = 4.0 * PROFILE.target_delay
    sack(nscc, MSS, 4 * RTT_NS, ecn=True, now_ns=4 * RTT_NS)
    assert nscc.window == 9 * MSS


def test_a_path_that_lost_a_packet_does_not_start_quick_adapt() -> None:
    """Of a sender that waits for others little has arrived in any RTT."""
    for trimming, reason, window in (
        (True, "late", PROFILE.max_cwnd),
        (True, "timeout", 9 * MSS),
        (False, "late", 9 * MSS),
    ):
        nscc = Nscc(replace(PROFILE, trimming=trimming))
        sack(nscc, MSS, RTT_NS, ecn=False, now_ns=1)
        sack(nscc, 9 * MSS, RTT_NS, ecn=False, now_ns=2)
        nscc.on_loss(LossReport(MSS, reason, False, None, 0, 1 + 2 * RTT_NS))
        assert nscc.window == window, (trimming, reason)


def test_what_was_in_flight_asks_for_no_other_quick_adapt() -> None:
    """Trims of a window sent before it come for round trips: each adapt would take less of less."""
    nscc = Nscc(PROFILE)
    sack(nscc, MSS, RTT_NS, ecn=False, now_ns=1)
    sack(nscc, 9 * MSS, RTT_NS, ecn=False, now_ns=2)
    in_flight = nscc.window
    lose(nscc, MSS, trimmed=True, now_ns=1 + 2 * RTT_NS)
    assert nscc.window == 9 * MSS
    for trim in range(in_flight // MSS):
        lose(nscc, MSS, trimmed=True, now_ns=(4 + trim) * RTT_NS)
        assert nscc.window == 9 * MSS


def test_quick_adapt_keeps_out_when_enough_was_achieved_or_it_is_off() -> None:
    for profile, achieved in ((PROFILE, PROFILE.max_cwnd // 4), (None, MSS)):
        nscc = Nscc(profile or replace(PROFILE, disable_qa=True))
        sack(nscc, MSS, RTT_NS, ecn=False, now_ns=1)
        sack(nscc, achieved, RTT_NS, ecn=False, now_ns=2)
        lose(nscc, MSS, trimmed=True, now_ns=1 + 2 * RTT_NS)
        assert nscc.window == PROFILE.max_cwnd - MSS


def test_a_penalty_takes_its_share_and_stops_growth() -> None:
    nscc = window_at(200_000)
    penalise(nscc, 32, restore=False)
    assert nscc.window == 150_000
    feed(nscc, 0, rtts=4)
    assert nscc.window == 150_000
    penalise(nscc, 127, restore=False)
    assert nscc.window == MSS
    penalise(nscc, 0, restore=False)
    assert nscc.window == 200_000


def test_restore_brings_back_what_was_before_the_penalty_once() -> None:
    nscc = window_at(200_000)
    penalise(nscc, 64, restore=False)
    lose(nscc, 100_000, trimmed=True, now_ns=0)
    assert nscc.window == 50_000
    penalise(nscc, 0, restore=True)
    assert nscc.window == 200_000
    lose(nscc, 100_000, trimmed=True, now_ns=0)
    penalise(nscc, 0, restore=True)
    assert nscc.window == 100_000


def test_restore_waits_until_the_penalty_is_over() -> None:
    nscc = window_at(200_000)
    for restore in (False, True):
        penalise(nscc, 64, restore=restore)
        lose(nscc, 100_000, trimmed=True, now_ns=0)
        penalise(nscc, 0, restore=True)
        assert nscc.window == 200_000


def test_of_packets_trimmed_one_at_a_time_the_window_falls_below_one() -> None:
    """To 1/16; each that arrives doubles it, and a short round trip makes it whole."""
    nscc = window_at(MSS)
    assert nscc.window == MSS
    windows = []
    for _ in range(6):
        lose(nscc, MSS, trimmed=True, now_ns=0)
        windows.append(nscc.window)
    assert windows == [MSS // 2, MSS // 4, MSS // 8, MSS // 16, MSS // 16, MSS // 16]
    sack(nscc, MSS, None, ecn=False, now_ns=0)
    assert nscc.window == MSS // 8
    sack(nscc, MSS, 4 * RTT_NS, ecn=False, now_ns=0)
    assert nscc.window == MSS // 4
    sack(nscc, MSS, RTT_NS, ecn=False, now_ns=0)
    assert nscc.window == MSS


def test_a_window_with_other_packets_in_flight_stays_a_packet() -> None:
    nscc = window_at(MSS)
    nscc.on_nack(LossReport(MSS, "TRIMMED", True, None, MSS, 0))
    assert nscc.window == MSS


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["sack", "loss", "penalty"]),
            st.integers(0, 1 << 20),
            st.one_of(st.none(), st.integers(0, 10 * S)),
            st.booleans(),
            st.integers(0, RTT_NS),
        ),
        max_size=60,
    )
)
def test_the_window_stays_within_its_bounds(
    steps: list[tuple[str, int, int | None, bool, int]],
) -> None:
    nscc = Nscc(PROFILE)
    now_ns = 0
    for step, size, rtt_ns, flag, elapsed_ns in steps:
        now_ns += elapsed_ns
        if step == "sack":
            sack(nscc, size, rtt_ns, ecn=flag, now_ns=now_ns)
        elif step == "loss":
            lose(nscc, size, trimmed=flag, now_ns=now_ns)
        else:
            penalise(nscc, size & 127, restore=flag)
        assert MSS >> 4 <= nscc.window <= PROFILE.max_cwnd


def star(flows: int) -> Star:
    """That many hosts writing to host 0."""
    return Star(
        make_profile(planes=2),
        [(host, 0) for host in range(1, flows + 1)],
        lambda: Window(lambda: Nscc(PROFILE)),
        port_bps=PORT_BPS,
    )


def goodputs(network: Star, start_s: float, end_s: float) -> list[float]:
    """Of each flow, as a share of what the receiver's ports attain."""
    return [
        flow.goodput_bps(int(start_s * S), int(end_s * S)) / ATTAINABLE_BPS
        for flow in network.flows
    ]


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


def test_a_single_flow_has_the_line_rate() -> None:
    network = star(1)
    network.load(network.flows[0])
    network.run(5 * S)
    assert goodputs(network, 1, 5)[0] >= 0.97
    assert network.trimmed == network.dropped == 0


@pytest.mark.parametrize("late_s", [0, 4])
def test_two_flows_share_a_port_fairly(late_s: int) -> None:
    network = star(2)
    network.load(network.flows[0])
    network.run(late_s * S)
    network.load(network.flows[1])
    network.run((late_s + 8) * S)
    shares = goodputs(network, late_s + 4, late_s + 8)
    assert jain(shares) >= 0.98
    assert sum(shares) >= 0.97
    assert network.dropped == 0


@pytest.mark.simulated
@pytest.mark.long
def test_a_sevenfold_incast_loses_nothing_and_keeps_the_queue_short() -> None:
    network = star(7)
    for flow in network.flows:
        network.load(flow)
    network.run(3 * S)
    start = len(network.backlog)
    network.run(13 * S)
    assert network.dropped == 0
    assert sum(flow.sender.counters.lost for flow in network.flows) == 0
    assert quantile(network.backlog, 0.99) <= 1.55
    assert quantile(network.backlog[start:], 0.99) <= 1.5
    shares = goodputs(network, 3, 13)
    assert sum(shares) >= 0.97
    assert jain(shares) >= 0.98


def test_a_dead_path_costs_nothing_that_lasts() -> None:
    network = star(1)
    network.load(network.flows[0])
    network.dead[9] = (DEATH_NS, 100 * S)
    network.run(5 * S)
    assert network.swallowed > 0
    assert goodputs(network, 3, 5)[0] >= 0.97
    assert network.flows[0].sender.congestion.window > BDP


def test_after_an_outage_of_every_path_the_window_recovers() -> None:
    network = star(1)
    network.load(network.flows[0])
    for entry in make_profile(planes=2).entries:
        network.dead[entry.ev] = (2 * S, 4 * S)
    network.run(10 * S)
    assert goodputs(network, 7, 10)[0] >= 0.97


def test_of_two_windows_in_one_queue_the_smaller_may_keep_more_delay() -> None:
    small, large = window_at(40_000), window_at(400_000)
    assert PROFILE.target_delay < large.target_ns < small.target_ns
    assert window_at(MSS).target_ns == pytest.approx(PROFILE.target_delay * 4 / 3)
    assert Nscc(PROFILE).target_ns == PROFILE.target_delay
    delay_ns = int((large.target_ns + small.target_ns) / 2)
    for nscc in (small, large):
        nscc.average_delay_ns = float(delay_ns)
        feed(nscc, delay_ns, rtts=5)
    assert small.window > 40_000
    assert large.window < 400_000


def test_a_flow_that_had_nothing_to_send_is_not_adapted_to_it() -> None:
    nscc = Nscc(PROFILE)
    sack(nscc, MSS, RTT_NS, ecn=False, now_ns=0)
    lose(nscc, MSS, trimmed=True, now_ns=4 * RTT_NS)
    assert nscc.window == PROFILE.max_cwnd - MSS


def test_a_penalised_sender_slows_down_and_comes_back() -> None:
    network = star(1)
    flow = network.flows[0]
    network.load(flow)
    network.run(3 * S)
    flow.receiver.set_busy(BusyState(penalty=96))
    network.run(6 * S)
    flow.receiver.set_busy(NOT_BUSY)
    network.run(9 * S)
    before, during, after = (goodputs(network, at, at + 2)[0] for at in (1, 4, 7))
    assert before >= 0.97
    assert 0.3 < during < 0.4
    assert after >= 0.97


@pytest.mark.parametrize("penalty", [-1, 128])
def test_a_penalty_has_seven_bits(penalty: int) -> None:
    with pytest.raises(ValueError, match="127"):
        BusyState(penalty=penalty)


def test_a_fixed_window_does_not_heed_a_penalty() -> None:
    network = Network(make_profile(), port_bps=10e6)
    network.qps[1].set_busy(BusyState(penalty=127))
    write_all(network, 30)
    check_success(network, 30)
    assert network.qps[0].congestion.window == 160 * 4096
