"""When probes go out, and what counts as lost."""

from testbed.mapper.prober import Prober, probes_per_round
from testbed.model.fabric.topology import Topology

PERIOD = 128_000_000
TIMEOUT = 50_000_000
FABRIC = Topology(name="x", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4)


def prober() -> Prober:
    return Prober(FABRIC, period_ns=PERIOD, timeout_ns=TIMEOUT, seed=1, start_ns=0)


def test_a_round_is_spread_evenly_over_its_period() -> None:
    sender = prober()
    counts = [len(sender.take_due(now)) for now in range(0, PERIOD, PERIOD // 8)]
    assert counts == [1, *[16] * 7]
    assert sender.due_ns > PERIOD * 7 // 8


def test_who_comes_late_sends_no_more_than_a_round() -> None:
    sender = prober()
    assert len(sender.take_due(10 * PERIOD)) == probes_per_round(FABRIC) + 1
    assert sender.due_ns > 10 * PERIOD


def test_a_probe_that_is_not_back_in_time_is_lost() -> None:
    sender = prober()
    first, second = sender.take_due(PERIOD // 128)
    sender.arrived(second.number)
    (back,) = sender.outcomes(TIMEOUT // 2)
    assert (back.probe, back.lost) == (second, False)
    assert sender.outcomes(first.sent_ns + TIMEOUT) == []
    (lost,) = sender.outcomes(first.sent_ns + TIMEOUT + 1)
    assert (lost.probe, lost.lost) == (first, True)
    sender.arrived(first.number)
    assert sender.outcomes(10 * TIMEOUT) == []


def test_what_waited_in_the_socket_of_a_late_process_is_not_lost() -> None:
    sender = prober()
    (probe,) = sender.take_due(0)
    sender.arrived(probe.number)
    (outcome,) = sender.outcomes(100 * TIMEOUT)
    assert not outcome.lost


def test_unknown_numbers_are_ignored() -> None:
    sender = prober()
    sender.arrived(99)
    assert sender.outcomes(0) == []
