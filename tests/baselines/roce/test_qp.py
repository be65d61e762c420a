"""RoCE queue pairs in virtual time: in order, go-back-N, one path, a rate."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.mrc import (
    Completion,
    CompletionStatus,
    EvChanged,
    Lost,
    MessageDelivered,
    Placed,
)

from .network import MS, RKEY, VA, Network, S, Way

MTU = 4096


def content(seed: int, size: int) -> memoryview:
    return memoryview(Random(seed).randbytes(size))


def post_all(network: Network, sizes: list[int]) -> bytes:
    """Post messages one behind the other in memory; returns what must stand there."""
    expected = b""
    for number, size in enumerate(sizes):
        payload = content(number, size)
        network.qps[0].post_write(number, payload, VA + len(expected), RKEY)
        expected += bytes(payload)
    return expected


def placed(network: Network, number: int = 1) -> list[Placed]:
    return [event for event in network.events[number] if isinstance(event, Placed)]


def statuses(completions: list[Completion]) -> list[CompletionStatus]:
    return [completion.status for completion in completions]


def test_messages_arrive_and_complete_in_order() -> None:
    network = Network(first_psn=(1 << 24) - 3, peer_first_psn=77)
    sizes = [MTU * 20 + 5, 0, 1, MTU, 3 * MTU]
    expected = post_all(network, sizes)
    network.run(60 * S)
    assert network.buffers[1][: len(expected)] == expected
    assert [c.wr_id for c in network.completions[0]] == list(range(len(sizes)))
    assert set(statuses(network.completions[0])) == {CompletionStatus.SUCCESS}
    delivered = [e for e in network.events[1] if isinstance(e, MessageDelivered)]
    assert [e.length for e in delivered] == sizes
    assert network.qps[0].sample().flight == 0
    assert network.qps[0].next_deadline() is None


def test_an_immediate_completes_at_the_peer_behind_what_came_before() -> None:
    network = Network()
    network.qps[0].post_write(1, content(1, 9 * MTU), VA, RKEY)
    network.qps[0].post_write(2, content(2, 10), VA, RKEY, 0xCAFE)
    network.run(10 * S)
    (completion,) = network.qps[1].poll_recv_cq()
    assert (completion.message, completion.immediate, completion.length) == (1, 0xCAFE, 10)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(0, 12 * MTU), min_size=1, max_size=8),
    st.floats(0, 0.12),
    st.floats(0, 0.05),
    st.floats(0, 0.05),
    st.floats(0, 0.1),
)
def test_whatever_the_path_does_everything_arrives_once_and_in_order(
    seed: int, sizes: list[int], loss: float, duplicate: float, corrupt: float, mark: float
) -> None:
    way = Way(loss=loss, duplicate=duplicate, corrupt=corrupt, mark=mark)
    # A flipped bit of the flow label's low half would name a path that is not there.
    network = Network(seed=seed, ways=dict.fromkeys(range(1 << 16), way), retry_count=1000)
    expected = post_all(network, sizes)
    network.run(10_000 * S)
    assert network.buffers[1][: len(expected)] == expected
    assert statuses(network.completions[0]) == [CompletionStatus.SUCCESS] * len(sizes)
    fresh = [event.seq for event in placed(network) if not event.retransmitted]
    assert fresh == list(range(len(fresh)))
    assert sum(event.size for event in placed(network)) == len(expected)


def test_one_loss_makes_it_send_everything_behind_it_again_after_one_nak() -> None:
    network = Network(ways={0: Way(drop={10})})
    expected = post_all(network, [100 * MTU])
    network.run(60 * S)
    sender, receiver = network.qps[0].counters, network.qps[1].counters
    assert network.buffers[1][: len(expected)] == expected
    assert sender.naks_received == receiver.naks_sent == 1
    assert sender.timeouts == 0
    assert receiver.out_of_order > 50  # a round trip's worth was thrown away
    assert sender.retransmitted == receiver.out_of_order + 1
    assert receiver.duplicates == 0
    lost = [event for event in network.events[0] if isinstance(event, Lost)]
    assert lost[0].seq == 10
    assert len(lost) == sender.retransmitted
    assert {event.reason for event in lost} == {"sequence error"}


def test_a_lost_tail_takes_a_timeout() -> None:
    network = Network(ways={0: Way(drop={4})})
    post_all(network, [5 * MTU])
    network.run(60 * S)
    assert network.qps[0].counters.timeouts == 1
    assert network.completions[0][0].status is CompletionStatus.SUCCESS
    assert network.now_ns > 3 * S


def test_a_second_loss_of_the_same_packet_takes_a_timeout_as_no_second_nak_is_sent() -> None:
    network = Network(ways={0: Way(drop={10})}, memory_bytes=1 << 21)
    post_all(network, [300 * MTU])
    network.run(60 * S, lambda: network.qps[0].counters.naks_received == 1)
    network.ways[0].drop.add(network.data_packets)
    network.run(60 * S)
    assert network.qps[1].counters.naks_sent == 1
    assert network.qps[0].counters.timeouts == 1
    assert network.completions[0][0].status is CompletionStatus.SUCCESS


def test_silence_fails_the_queue_pair_after_its_retries() -> None:
    network = Network(ways={0: Way(dead=(0, 1 << 62))}, retry_count=3)
    post_all(network, [MTU, MTU])
    network.run(1000 * S)
    assert statuses(network.completions[0]) == [
        CompletionStatus.RETRY_EXCEEDED,
        CompletionStatus.FLUSHED,
    ]
    assert network.qps[0].failed
    assert network.qps[0].counters.timeouts == 4
    network.qps[0].post_write(9, content(0, 1), VA, RKEY)
    assert statuses(network.qps[0].poll_cq()) == [CompletionStatus.FLUSHED]
    assert network.qps[0].transmit(2000 * S, 10) == []


@pytest.mark.parametrize(("va", "rkey"), [(VA + (1 << 20), RKEY), (VA, RKEY + 1)])
def test_memory_that_is_not_offered_is_refused(va: int, rkey: int) -> None:
    network = Network()
    network.qps[0].post_write(1, content(0, 3 * MTU), va, rkey)
    network.run(60 * S)
    assert statuses(network.completions[0]) == [CompletionStatus.REMOTE_ACCESS_ERROR]
    assert not any(network.buffers[1])


def test_every_packet_takes_the_one_path_until_it_is_rerouted() -> None:
    network = Network(ways={0: Way(dead=(1 * S, 1 << 62)), 1: Way()}, memory_bytes=1 << 24)
    expected = post_all(network, [4000 * MTU])
    network.run(5 * S)
    assert {datagram.ev for _, _, datagram in network.sent} == {0}
    stalled = len(placed(network))
    for qp in network.qps[:2]:
        qp.reroute(1, 0, network.now_ns)
    network.run(60 * S)
    assert network.buffers[1][: len(expected)] == expected
    assert {event.ev for event in placed(network)[stalled:]} == {1}
    changes = [event for event in network.events[0] if isinstance(event, EvChanged)]
    assert [(event.ev, event.active) for event in changes] == [(0, False), (1, True)]


def test_a_mark_brings_a_cnp_at_most_once_in_an_interval() -> None:
    network = Network(ways={0: Way(mark=1.0)}, memory_bytes=1 << 24)
    post_all(network, [2000 * MTU])
    network.run(2 * S)
    assert 1 <= network.qps[1].counters.cnps_sent <= 4
    assert network.qps[0].counters.cnps_received >= 1
    control = network.qps[0].config.dscp.control
    cnps = [d for number, _, d in network.sent if number == 1 and d.dscp == control]
    assert len(cnps) == network.qps[1].counters.cnps_sent


def test_without_dcqcn_a_mark_brings_nothing() -> None:
    network = Network(ways={0: Way(mark=1.0)}, memory_bytes=1 << 24, cnp_interval_ns=None)
    expected = post_all(network, [200 * MTU])
    network.run(2 * S)
    assert network.buffers[1][: len(expected)] == expected
    assert network.qps[1].counters.cnps_sent == network.qps[0].counters.cnps_received == 0


def test_flows_share_a_bottleneck_and_keep_it_busy() -> None:
    network = Network(2, rate_bps=40e6, mark_bytes=20 * MTU, memory_bytes=1 << 26)
    for number in (0, 2):
        network.qps[number].post_write(0, content(number, 1 << 26), VA, RKEY)
    network.run(12 * S)
    late = [sum(e.size for e in placed(network, n) if e.time_ns > 2 * S) for n in (1, 3)]
    assert sum(late) * 8 / 10 > 0.5 * 40e6  # the first cuts halve, what follows is additive
    assert min(late) > 0.8 * max(late)


def test_the_rate_paces_packets() -> None:
    network = Network(memory_bytes=1 << 24)
    post_all(network, [500 * MTU])
    network.run(300 * MS)
    data = [at_ns for number, at_ns, d in network.sent if number == 0 and d.is_data]
    seconds = (data[-1] - data[0]) / S
    assert len(data) * MTU * 8 / seconds == pytest.approx(40e6, rel=0.1)
