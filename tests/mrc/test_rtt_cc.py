import pytest

from testbed.mrc import FixedWindow, LossReport, SackReport
from testbed.mrc.congestion.control import RttEstimator

from .harness import MS


def test_rtt_starts_at_the_base_and_follows_the_samples() -> None:
    rtt = RttEstimator(100 * MS)
    assert rtt.timeout_ns == 200 * MS
    for number in range(100):
        rtt.sample(150 * MS, number)
    assert abs(rtt.smoothed_ns - 150 * MS) < MS
    assert rtt.variation_ns < MS
    assert rtt.minimum_ns == 100 * MS
    rtt.sample(80 * MS, 100)
    assert rtt.minimum_ns == 80 * MS
    assert rtt.sampled_ns == 100


def test_the_timeout_covers_the_variation() -> None:
    rtt = RttEstimator(100 * MS)
    for number in range(100):
        rtt.sample((100 + 150 * (number % 2)) * MS, number)
    assert rtt.timeout_ns > rtt.smoothed_ns + 200 * MS


def test_a_fixed_window_stays() -> None:
    window = FixedWindow(4096)
    window.on_loss(LossReport(4096, "late", False, None, 0, 1))
    window.on_nack(LossReport(4096, "TRIMMED", True, None, 0, 1))
    window.on_sack(SackReport(4096, 5, False, True, None, False, 0, 2))
    assert window.window == 4096


def test_nothing_starts_from_zero() -> None:
    with pytest.raises(ValueError, match="window"):
        FixedWindow(0)
    with pytest.raises(ValueError, match="RTT"):
        RttEstimator(0)
