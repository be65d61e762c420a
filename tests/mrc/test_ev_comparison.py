"""Losses of an EV against those of the others: who stands out, and what the engine makes of it."""

from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.mrc import EvState
from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.entropy import Ev
from testbed.mrc.ev.engine import LossComparison, expected, likelihood

from .harness import make_profile
from .test_ev import RTT_NS, started

EVS = [Ev(value, value % 4, value) for value in range(12)]


def comparison(memory: float = 64.0) -> LossComparison:
    return LossComparison(RttEstimator(RTT_NS), memory, active=len(EVS))


@given(st.floats(0, 20), st.integers(0, 40))
def test_the_likelihood_is_the_tail_of_a_poisson_distribution(mean: float, losses: int) -> None:
    tail = likelihood(losses, mean)
    assert 0 <= tail <= 1
    assert likelihood(losses + 1, mean) <= tail
    assert likelihood(0, mean) == 1
    assert likelihood(1, mean) == pytest.approx(1 - exp(-mean))


def test_the_first_loss_stands_out() -> None:
    compared = comparison()
    compared.record(EVS[0], 0)
    assert compared.stands_out(EVS[0], 0)


def test_one_dead_path_among_the_others_excuses_no_second_one() -> None:
    compared = comparison()
    for _ in range(100):
        compared.record(EVS[0], 0)
    compared.record(EVS[1], 0)
    assert not compared.stands_out(EVS[1], 0), "one loss may be chance: another EV lost as well"
    compared.record(EVS[1], 0)
    assert compared.stands_out(EVS[1], 0)


def test_an_old_loss_excuses_nothing() -> None:
    compared = comparison(memory=2.0)
    compared.record(EVS[1], 0)
    compared.record(EVS[0], 1 * RTT_NS)
    assert not compared.stands_out(EVS[0], 1 * RTT_NS)
    assert compared.stands_out(EVS[0], 2 * RTT_NS)


def test_a_spurious_loss_is_forgotten() -> None:
    compared = comparison()
    compared.record(EVS[1], 0)
    compared.retract(EVS[1])
    compared.record(EVS[0], 0)
    assert compared.stands_out(EVS[0], 0), "nobody else has lost anything"


@pytest.mark.parametrize("a_window", [0.5, 2.0, 8.0])
def test_of_evs_that_all_lose_alike_few_stand_out(a_window: float) -> None:
    """`a_window` losses of each EV within the memory, on average."""
    rng, compared = Random(1), comparison()
    judged = stood_out = now_ns = 0
    gap_ns = 64 * RTT_NS / (a_window * len(EVS))
    for _ in range(4000):
        now_ns += int(rng.expovariate(1) * gap_ns)
        ev = rng.choice(EVS)
        compared.record(ev, now_ns)
        judged += 1
        stood_out += compared.stands_out(ev, now_ns)
    assert stood_out / judged < 0.12


def test_a_dead_path_stands_out_where_all_lose() -> None:
    rng, compared = Random(1), comparison()
    now_ns = 0
    for _ in range(500):
        now_ns += int(rng.expovariate(1) * 64 * RTT_NS / (2 * len(EVS)))
        compared.record(rng.choice(EVS[1:]), now_ns)
    lost = 0
    while not compared.stands_out(EVS[0], now_ns):
        compared.record(EVS[0], now_ns)
        lost += 1
    assert 3 <= lost <= 10


def test_expected_losses_are_the_median_or_what_explains_the_lossless() -> None:
    assert expected([], 11) == 0
    assert expected([100], 11) == pytest.approx(0.0953, abs=1e-4)
    assert expected([4] * 11, 11) == 4
    assert expected([1] * 11, 11) == pytest.approx(3.09, abs=0.01), "half an EV lost nothing"


# --- in the engine ----------------------------------------------------------------------------


def test_the_engine_keeps_an_ev_that_loses_no_more_than_others() -> None:
    bench = started(make_profile(planes=4, active=3, backups=1, compared=True))
    assert bench.blame(1), "nobody else has lost anything"
    assert not bench.blame(2)
    assert 2 in bench.engine.active()
    assert bench.engine.states()[2] is EvState.SKIP
    bench.live(2)
    assert 2 in bench.engine.active(), "it has answered its probe"


def test_the_engine_condemns_an_ev_that_loses_its_probes_too() -> None:
    bench = started(make_profile(planes=4, active=3, backups=1, compared=True))
    bench.blame(1)
    bench.dead.add(2)
    assert not bench.blame(2)
    bench.live(4)
    assert bench.engine.states()[2] is EvState.ASSUMED_BAD
    assert 2 not in bench.engine.active()


def test_the_probe_of_an_ev_in_use_is_one_and_ends() -> None:
    bench = started(make_profile(planes=4, active=3, backups=1, compared=True))
    bench.blame(1)
    bench.blame(2)
    bench.live(1)
    probes = [ev for _, ev in bench.probed].count(2)
    bench.live(50)
    assert [ev for _, ev in bench.probed].count(2) == probes == 1
