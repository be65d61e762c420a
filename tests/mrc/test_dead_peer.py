"""No EV may carry data, and the peer may never answer again: what is posted ends all the same."""

from collections.abc import Callable

import pytest

from testbed.mrc import CompletionStatus
from testbed.mrc.constants import NEVER

from .harness import MS, RKEY, VA, Network, S, make_profile

RTT_NS = 130 * MS
PLANES = 2


def die(network: Network) -> None:
    """Nothing passes any more."""
    for path in network.paths.values():
        path.dead = [(network.now_ns, NEVER)]


def heal(network: Network) -> None:
    for path in network.paths.values():
        path.dead = []


def unplug(network: Network) -> None:
    for plane in range(PLANES):
        network.qps[0].port_changed(plane, up=False, now_ns=network.now_ns)


def plug_in(network: Network) -> None:
    for plane in range(PLANES):
        network.qps[0].port_changed(plane, up=True, now_ns=network.now_ns)


def deny(network: Network) -> None:
    qp = network.qps[0]
    for ev in qp.ev_states():
        qp.deny_ev(ev, network.now_ns)


def allow(network: Network) -> None:
    qp = network.qps[0]
    for ev in qp.ev_states():
        qp.allow_ev(ev, network.now_ns)


def condemn(network: Network) -> None:
    """Every EV lost its port, and answers no probe since it has it again."""
    unplug(network)
    plug_in(network)


def nothing(_network: Network) -> None:
    """Probes bring EVs back by themselves."""


def ladder_ns(network: Network) -> int:
    """How long silence lasts before the queue pair fails, but for the probes before the timeouts.

    1 + 2 + ... + 7 timeouts of linear length and the last one's 2, 4, 8 and 16 times, and once
    more the last step: the one in which nothing is sent again.
    """
    timeouts = 7 + (2 + 4 + 8 + 16 + 32)
    return timeouts * network.qps[0].rtt.timeout_ns


Act = Callable[[Network], None]

OUT = pytest.mark.parametrize(
    ("take_out", "bring_back"), [(unplug, plug_in), (deny, allow), (condemn, nothing)]
)


def post(network: Network, messages: int = 2) -> None:
    first = len(network.completions[0])
    for wr_id in range(first, first + messages):
        network.qps[0].post_write(wr_id, memoryview(bytes(20_000)), VA, RKEY)


def network_after_a_write(exponential_retries: int = 4) -> Network:
    """Two queue pairs that have talked, and have been idle for a while since."""
    network = Network(make_profile(PLANES), exponential_retries=exponential_retries)
    post(network, 1)
    network.run(10 * S)
    assert len(network.completions[0]) == 1
    return network


def statuses(network: Network) -> list[CompletionStatus]:
    return [completion.status for completion in network.completions[0][1:]]


FAILED = [CompletionStatus.RETRY_EXCEEDED, CompletionStatus.FLUSHED]
DONE = [CompletionStatus.SUCCESS, CompletionStatus.SUCCESS]


@OUT
@pytest.mark.parametrize("in_flight", [False, True])
def test_what_waits_fails_when_the_retries_are_spent(
    take_out: Act, bring_back: Act, in_flight: bool
) -> None:
    """Whether a packet of it was sent or not, it takes as long."""
    network = network_after_a_write()
    if in_flight:
        post(network)
    network.run(network.now_ns + MS)
    die(network)
    take_out(network)
    if not in_flight:
        post(network)
    begin_ns, expected_ns = network.now_ns, ladder_ns(network)
    network.run(begin_ns + 10 * expected_ns, lambda: network.qps[0].failed)
    assert 1.0 <= (network.now_ns - begin_ns) / expected_ns < 1.02
    assert statuses(network) == FAILED
    assert network.qps[0].next_deadline() is None
    bring_back(network)
    assert network.qps[0].next_deadline() is None


@OUT
@pytest.mark.parametrize("share", [0.01, 0.5, 0.95])
def test_what_comes_back_in_time_carries_it(take_out: Act, bring_back: Act, share: float) -> None:
    """And the ladder is there in full for the next time."""
    network = network_after_a_write()
    for _ in range(2):
        die(network)
        take_out(network)
        post(network)
        network.run(network.now_ns + int(share * ladder_ns(network)))
        assert not network.qps[0].failed
        heal(network)
        bring_back(network)
        network.run(network.now_ns + 100 * RTT_NS)
    assert statuses(network) == DONE + DONE


@OUT
def test_retries_that_never_end_wait_for_ever(take_out: Act, bring_back: Act) -> None:
    network = network_after_a_write(exponential_retries=25)
    die(network)
    take_out(network)
    post(network)
    network.run(network.now_ns + 5 * ladder_ns(network))
    assert statuses(network) == []
    heal(network)
    bring_back(network)
    network.run(network.now_ns + 100 * RTT_NS)
    assert statuses(network) == DONE


def test_a_queue_pair_with_nothing_to_send_waits_for_ever() -> None:
    network = network_after_a_write()
    die(network)
    condemn(network)
    network.run(network.now_ns + 5 * ladder_ns(network))
    assert not network.qps[0].failed
    heal(network)
    post(network)
    network.run(network.now_ns + 20 * RTT_NS)
    assert statuses(network) == DONE


def test_a_denied_peer_that_lives_is_no_reason_to_wait_longer() -> None:
    """It could answer, but nothing may be asked on an EV that is denied."""
    network = network_after_a_write()
    deny(network)
    post(network)
    sent = len(network.sent)
    network.run(network.now_ns + 10 * ladder_ns(network))
    assert statuses(network) == FAILED
    assert len(network.sent) == sent
