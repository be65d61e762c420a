"""DCQCN's reaction point, against the paper's rules."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.host.roce.dcqcn import (
    ALPHA_TIMER_NS,
    FAST_RECOVERY,
    TUNINGS,
    Dcqcn,
    DcqcnProfile,
)

RTT_NS = 13_080
TIMER_NS = 55_000
LINE = 40e9


def dcqcn() -> Dcqcn:
    return Dcqcn(DcqcnProfile(LINE, RTT_NS))


def test_it_begins_at_line_rate_and_the_first_cnp_halves_it() -> None:
    cc = dcqcn()
    assert cc.rate_bps == LINE
    assert cc.window == int(LINE * RTT_NS / 8e9)
    cc.on_cnp(1000)
    assert cc.rate_bps == LINE / 2
    assert cc.target_bps == LINE


def test_fast_recovery_halves_the_way_back_then_the_target_rises() -> None:
    cc = dcqcn()
    cc.on_cnp(0)
    cc.advance(1)
    cc.on_cnp(1)
    assert cc.target_bps == LINE / 2
    missing = cc.target_bps - cc.rate_bps
    for step in range(1, FAST_RECOVERY + 1):
        cc.advance(1 + step * TIMER_NS)
        assert cc.target_bps == LINE / 2
        assert cc.target_bps - cc.rate_bps == pytest.approx(missing / 2**step)
    cc.advance(1 + (FAST_RECOVERY + 1) * TIMER_NS)
    assert cc.target_bps == LINE / 2 + 40e6  # R_AI of the paper, at the paper's rate


def test_bytes_raise_it_as_the_timer_does_and_both_together_hyperactively() -> None:
    cc = dcqcn()
    cc.on_cnp(0)
    cc.on_cnp(1)
    for _ in range(FAST_RECOVERY + 1):
        cc.on_sent(10_000_000)
    before = cc.target_bps
    assert before == LINE / 2 + 40e6
    cc.advance(1 + (FAST_RECOVERY + 1) * TIMER_NS)
    assert cc.target_bps >= before + 400e6


def test_alpha_sinks_while_no_cnp_comes_so_that_a_rare_one_cuts_little() -> None:
    rare, frequent = dcqcn(), dcqcn()
    for cc, pause_ns in ((rare, 400 * ALPHA_TIMER_NS), (frequent, ALPHA_TIMER_NS // 2)):
        now_ns = 0
        for _ in range(3):
            cc.on_cnp(now_ns)
            now_ns += pause_ns
        cc.advance(now_ns)
        before = cc.rate_bps
        cc.on_cnp(now_ns)
        cut = 1 - cc.rate_bps / before
        assert cut < 0.15 if cc is rare else cut > 0.45


def test_it_returns_to_line_rate_in_the_end() -> None:
    cc = dcqcn()
    for now_ns in range(10):
        cc.on_cnp(now_ns)
    cc.advance(10**12)
    assert cc.rate_bps == LINE


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**7)), max_size=200))
@example([(0, 0), (0, 1_628_000), (0, 0), (2, 165_000)])  # back at line rate, from just below it
def test_the_rate_stays_between_least_and_line(steps: list[tuple[int, int]]) -> None:
    cc, now_ns = dcqcn(), 0
    for what, amount in steps:
        now_ns += amount
        if what == 0:
            cc.on_cnp(now_ns)
        elif what == 1:
            cc.on_sent(amount)
        else:
            cc.advance(now_ns)
        assert LINE / 1000 <= cc.rate_bps <= LINE
        assert cc.rate_bps <= cc.target_bps <= LINE
        assert 0 < cc.alpha <= 1


def test_a_more_aggressive_tuning_leaves_less_of_the_rate_after_marks_in_a_row() -> None:
    """Marks for 200 us: each tuning gets the CNPs that a receiver sends in that time."""
    left = []
    for name in ("default", "aggressive", "most-aggressive"):
        tuning = TUNINGS[name]
        assert tuning.cnp_interval_ns is not None
        cc = Dcqcn(
            DcqcnProfile.derive(line_rate_bps=LINE, base_rtt_ns=RTT_NS, dilation=1, tuning=tuning)
        )
        for now_ns in range(0, 200_000, tuning.cnp_interval_ns):
            cc.on_cnp(now_ns)
        left.append(cc.rate_bps)
    assert left == sorted(left, reverse=True)
    assert left[0] > left[1] > 0
    assert TUNINGS["off"].cnp_interval_ns is None
