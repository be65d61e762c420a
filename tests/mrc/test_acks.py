"""The two layers: SACKs free packets, transport ACKs complete messages."""

from dataclasses import replace

import pytest

from testbed.mrc import Arrival, CompletionStatus, ReceiveCompletion, decode
from testbed.mrc.constants import NakCode
from testbed.mrc.wire.control import Ack, Sack
from testbed.mrc.wire.kinds import Write

from .bad_input import control_bytes
from .harness import ADDRESSES, MS, RKEY, VA, Network, S, make_profile
from .test_qp import RTT_NS

MTU = 256
ENDS = ADDRESSES[1], ADDRESSES[0], 0, 16


class Deaf(Network):
    """No transport ACK reaches the requester before `until_ns`."""

    until_ns = 0

    def arrive(self, at_ns: int, flying: tuple[int, bytes, Arrival]) -> None:
        if at_ns < self.until_ns and isinstance(decode(flying[1]), Ack):
            return
        super().arrive(at_ns, flying)


def acks(network: Network) -> int:
    return sum(
        isinstance(decode(sent.datagram.join()), Ack) for sent in network.sent if sent.side == 1
    )


def test_nothing_completes_without_acks_and_all_when_they_are_repeated() -> None:
    network = Deaf(make_profile(), mtu=MTU)
    network.until_ns = 3 * S
    for wr_id in range(5):
        network.qps[0].post_write(wr_id, memoryview(bytes(3 * MTU)), VA, RKEY)
    network.run(3 * S - MS)
    qp = network.qps[0]
    assert qp.counters.sacks_received > 0
    assert (qp.flight, network.completions[0]) == (0, [])
    network.run(10 * S, lambda: len(network.completions[0]) == 5)
    assert {completion.status for completion in network.completions[0]} == {
        CompletionStatus.SUCCESS
    }
    assert (qp.counters.lost, qp.counters.retransmitted) == (0, 0)
    assert 3 < qp.counters.acks_missed < 14


@pytest.mark.parametrize("asks", [False, True])
def test_a_full_window_asks_for_an_acknowledgement_where_that_is_chosen(*, asks: bool) -> None:
    """By default only the last of 100 packets does."""
    network = Network(
        make_profile(), mtu=MTU, cwnd=40 * MTU, sack_bytes=16 * MTU, ask_when_full=asks
    )
    network.qps[0].post_write(0, memoryview(bytes(100 * MTU)), VA, RKEY)
    network.run(10 * S, lambda: len(network.completions[0]) == 1)
    packets = [decode(sent.datagram.join()) for sent in network.sent if sent.side == 0]
    asking = [packet.psn for packet in packets if isinstance(packet, Write) and packet.ack_request]
    assert (len(asking) > 1) is asks
    assert asking[-1] == 99


def test_sacks_complete_messages_where_that_is_chosen() -> None:
    network = Deaf(make_profile(), mtu=MTU, complete_on_sack=True)
    network.until_ns = 100 * S
    for wr_id in range(5):
        network.qps[0].post_write(wr_id, memoryview(bytes(3 * MTU)), VA, RKEY)
    network.run(10 * S, lambda: len(network.completions[0]) == 5)
    assert [completion.wr_id for completion in network.completions[0]] == [*range(5)]
    assert {completion.status for completion in network.completions[0]} == {
        CompletionStatus.SUCCESS
    }
    assert network.qps[0].counters.acks_missed == 0


def test_a_peer_that_never_acknowledges_fails_the_queue_pair() -> None:
    network = Deaf(make_profile(), mtu=MTU, linear_retries=2, exponential_retries=1)
    network.until_ns = 100 * S
    network.qps[0].post_write(0, memoryview(bytes(MTU)), VA, RKEY)
    network.run(100 * S, lambda: bool(network.completions[0]))
    assert network.completions[0][0].status is CompletionStatus.RETRY_EXCEEDED
    assert network.qps[0].counters.acks_missed == 4


def test_acks_are_coalesced() -> None:
    network = Network(make_profile(), mtu=MTU)
    for wr_id in range(200):
        network.qps[0].post_write(wr_id, memoryview(bytes(MTU)), VA, RKEY)
    network.run(10 * S, lambda: len(network.completions[0]) == 200)
    assert 0 < acks(network) < 20


def test_an_ack_names_the_messages_completed() -> None:
    network = Network(make_profile(), mtu=MTU)
    for wr_id in range(3):
        network.qps[0].post_write(wr_id, memoryview(bytes(MTU)), VA, RKEY)
    network.run(S)
    packets = [decode(sent.datagram.join()) for sent in network.sent if sent.side == 1]
    last = [packet for packet in packets if isinstance(packet, Ack)][-1]
    assert (last.psn, last.msn, last.error) == (2, 3, None)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (NakCode.INVALID_REQUEST, CompletionStatus.REMOTE_INVALID_REQUEST),
        (NakCode.REMOTE_ACCESS_ERROR, CompletionStatus.REMOTE_ACCESS_ERROR),
        (NakCode.REMOTE_OPERATION_ERROR, CompletionStatus.REMOTE_OPERATION_ERROR),
    ],
)
def test_a_nak_completes_what_is_before_it_and_fails_the_message(
    code: NakCode, status: CompletionStatus
) -> None:
    network = Network(make_profile(), mtu=MTU)
    qp = network.qps[0]
    for wr_id in range(3):
        qp.post_write(wr_id, memoryview(bytes(2 * MTU)), VA, RKEY)
    qp.transmit(0, 64)
    qp.receive(decode(control_bytes(Ack(*ENDS, 3, 1, code))), Arrival(0, 46, RTT_NS))
    assert [completion.status for completion in qp.poll_cq()] == [
        CompletionStatus.SUCCESS,
        status,
        CompletionStatus.FLUSHED,
    ]
    assert qp.failed


def test_a_nak_of_a_completed_request_is_counted_and_changes_nothing() -> None:
    network = Network(make_profile(), mtu=MTU)
    qp = network.qps[0]
    qp.post_write(0, memoryview(bytes(MTU)), VA, RKEY)
    network.run(S)
    assert len(network.completions[0]) == 1
    nak = Ack(*ENDS, 0, 1, NakCode.REMOTE_ACCESS_ERROR)
    qp.receive(decode(control_bytes(nak)), Arrival(0, 46, network.now_ns))
    assert (qp.failed, qp.counters.nak_of_completed, qp.poll_cq()) == (False, 1, [])


@pytest.mark.parametrize(("offset", "bitmap"), [(1, 1 << 2), (2, 1 << 1), (0, 1 << 3)])
def test_a_sack_beyond_what_was_sent_is_counted_and_frees_nothing(offset: int, bitmap: int) -> None:
    """Of PSNs 0 and 1 sent, it claims PSN 2."""
    network = Network(make_profile(), mtu=MTU)
    qp = network.qps[0]
    qp.post_write(0, memoryview(bytes(2 * MTU)), VA, RKEY)
    first = next(one for one in qp.transmit(0, 64) if one.is_data)
    network._launch(0, first)
    network.run(RTT_NS - MS)
    honest = next(
        packet for sent in network.sent if isinstance(packet := decode(sent.datagram.join()), Sack)
    )
    assert honest.cack_psn == 0
    forged = replace(honest, sack_offset=offset - 1, cack_psn=0, bitmap=bitmap)
    flight = qp.flight
    qp.receive(decode(control_bytes(forged)), Arrival(0, 46, network.now_ns))
    assert (qp.counters.implausible, qp.flight) == (1, flight)


def test_receives_are_flushed_in_error() -> None:
    network = Network(make_profile(), mtu=MTU, receives=0)
    qp = network.qps[0]
    qp.post_receive(3)
    qp.modify(type(qp.state).ERROR)
    qp.post_receive(4)
    assert qp.poll_recv_cq() == [
        ReceiveCompletion(0, 0, 0, wr_id, CompletionStatus.FLUSHED) for wr_id in (3, 4)
    ]
