"""A responder that cannot keep up, and what its sender makes of it."""

from itertools import groupby

import pytest

from testbed.mrc import NOT_BUSY, BusyState, EvChanged, EvState, NackReason, Window

from .harness import RKEY, VA, Network, S, make_profile
from .test_qp import BODY, RTT_NS, RecordingController, check_success, write_all


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize(
    "reason", [NackReason.NO_BITMAP, NackReason.NO_PKT_BUFFER, NackReason.NO_RESOURCE]
)
def test_refused_packets_are_sent_again_until_all_are_there(
    reason: NackReason, share: float
) -> None:
    network = Network(make_profile(), port_bps=10e6)
    sender, receiver = network.qps
    receiver.set_busy(BusyState(refusal=reason, share=share))
    write_all(network, 20)
    check_success(network, 20)
    new = receiver.counters.data_received - receiver.counters.duplicates
    assert receiver.refused_busy == pytest.approx(share * new, abs=1)
    assert sender.counters.retransmitted >= receiver.refused_busy
    assert {*sender.ev_states().values()} == {EvState.GOOD}


def test_what_is_not_busy_refuses_nothing() -> None:
    network = Network(make_profile())
    network.qps[1].set_busy(BusyState(refusal=NackReason.NO_RESOURCE))
    network.qps[1].set_busy(NOT_BUSY)
    write_all(network, 5)
    check_success(network, 5)
    assert network.qps[1].refused_busy == 0


def test_restore_is_asked_for_from_the_end_of_a_penalty_to_the_next() -> None:
    told = RecordingController()
    network = Network(make_profile(), congestion=lambda: Window(lambda: told))
    sender, receiver = network.qps
    for penalty, restores in (
        (0, True),
        (64, False),
        (32, True),
        (0, True),
        (64, False),
        (0, True),
    ):
        receiver.set_busy(BusyState(penalty=penalty, restores=restores))
        sender.post_write(0, memoryview(BODY), VA, RKEY)
        network.run(network.now_ns + S)
    assert [report for report, _ in groupby(told.penalties)] == [
        (0, False),
        (64, False),
        (32, False),
        (0, True),
        (64, False),
        (0, False),
    ]


def test_an_ev_that_the_peer_asks_to_leave_carries_nothing_until_it_no_longer_does() -> None:
    network = Network(make_profile(), port_bps=10e6)
    sender, receiver = network.qps
    left = min(sender.active_evs())
    receiver.set_busy(BusyState(skips=lambda ev: ev == left))
    write_all(network, 20)
    assert sender.ev_states()[left] is EvState.ASSUMED_BAD
    assert left not in sender.active_evs()
    check_success(network, 20)


def test_an_ev_that_the_peer_asks_to_leave_does_not_return_however_many_probes_it_answers() -> None:
    """The answers to its probes ask for it, too. When they no longer do, it returns.

    It answers its probes, so it counts as a grey path: it needs as many answers.
    """
    network = Network(make_profile(grey_probe_successes=20), port_bps=10e6)
    sender, receiver = network.qps
    left = min(sender.active_evs())
    receiver.set_busy(BusyState(skips=lambda ev: ev == left))

    def use(seconds: int) -> list[EvChanged]:
        for _ in range(5 * seconds):
            sender.post_write(0, memoryview(BODY), VA, RKEY)
            network.run(network.now_ns + S // 5)
        changes = [event for event in network.events[0] if isinstance(event, EvChanged)]
        network.events[0].clear()
        return [change for change in changes if change.ev == left]

    assert [change.new for change in use(20)] == [EvState.ASSUMED_BAD]
    receiver.set_busy(NOT_BUSY)
    free_ns = network.now_ns
    (change,) = use(20)
    assert change.new is EvState.GOOD
    assert change.time_ns - free_ns > 15 * RTT_NS


@pytest.mark.parametrize("share", [0.0, 1.1])
def test_a_share_is_above_0_up_to_1(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        BusyState(share=share)
