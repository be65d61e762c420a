"""When probes go out, and what counts as lost."""

from testbed.mapper.paths import probes_per_round
from testbed.mapper.prober import Prober
from testbed.model.fabric.topology import Topology

PERIOD = 128_000_000
TIMEOUT = 50_000_000
FABRIC = Topology(name="x", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4)


def prober() -> Prober:
    return Prober(FABRIC, period_ns=PERIOD, timeout_ns=TIMEOUT, seed=1, start_ns=0)


def test_a_round_is_spread_evenly_over_its_period() -> None:
    one = prober()
    counts = [len(one.due(now)) for now in range(0, PERIOD, PERIOD // 8)]
    assert counts == [1, *[16] * 7]
    assert one.due_ns > PERIOD * 7 // 8


def test_who_comes_late_sends_no_more_than_a_round() -> None:
    one = prober()
    assert len(one.due(10 * PERIOD)) == probes_per_round(FABRIC) + 1
    assert one.due_ns > 10 * PERIOD


def test_a_probe_that_is_not_back_in_time_is_lost() -> None:
    one = prober()
    first, second = one.due(PERIOD // 128)
    one.arrived(second.number)
    (back,) = one.outcomes(TIMEOUT // 2)
    assert (back.probe, back.lost) == (second, False)
    assert one.outcomes(first.sent_ns + TIMEOUT) == []
    (lost,) = one.outcomes(first.sent_ns + TIMEOUT + 1)
    assert (lost.probe, lost.lost) == (first, True)
    one.arrived(first.number)
    assert one.outcomes(10 * TIMEOUT) == []


def test_what_waited_in_the_socket_of_a_late_process_is_not_lost() -> None:
    one = prober()
    (probe,) = one.due(0)
    one.arrived(probe.number)
    (outcome,) = one.outcomes(100 * TIMEOUT)
    assert not outcome.lost


def test_unknown_numbers_are_ignored() -> None:
    one = prober()
    one.arrived(99)
    assert one.outcomes(0) == []
