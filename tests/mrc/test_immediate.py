"""WRITE with immediate: completes at the responder too, in order, after all earlier writes."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.mrc import CompletionStatus, MessageDelivered, ReceiveCompletion, decode
from testbed.mrc.config import Capabilities
from testbed.mrc.wire.kinds import Opcode, Write

from .harness import MS, RKEY, VA, Network, PathModel, S, make_profile
from .test_schedules import path_models

MTU = 256


def post(network: Network, size: int, immediate: int | None, wr_id: int = 0) -> None:
    payload = memoryview(bytes(size))
    network.qps[0].post_write(wr_id, payload, VA, RKEY, immediate)


@pytest.mark.parametrize(
    ("size", "opcodes"),
    [
        (0, [Opcode.WRITE_ONLY_IMMEDIATE]),
        (MTU, [Opcode.WRITE_ONLY_IMMEDIATE]),
        (2 * MTU + 1, [Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST_IMMEDIATE]),
    ],
)
def test_the_last_packet_carries_the_immediate(size: int, opcodes: list[Opcode]) -> None:
    network = Network(make_profile(), mtu=MTU)
    post(network, size, 0xFFFF_FFFF)
    network.run(5 * S, lambda: bool(network.completions[0]))
    packets = [decode(sent.datagram.join()) for sent in network.data_sent()]
    assert all(isinstance(packet, Write) for packet in packets)
    writes = [packet for packet in packets if isinstance(packet, Write)]
    assert [packet.opcode for packet in writes] == opcodes
    assert [packet.immediate for packet in writes] == [None] * (len(opcodes) - 1) + [0xFFFF_FFFF]
    assert network.qps[1].poll_recv_cq() == [ReceiveCompletion(0, 0xFFFF_FFFF, size)]
    assert network.qps[1].poll_recv_cq() == []
    assert network.qps[0].poll_recv_cq() == []


def test_it_completes_only_after_every_earlier_write_is_in_memory() -> None:
    network = Network(make_profile(), mtu=MTU)
    network.qps[0].post_write(0, memoryview(bytes(8 * MTU)), VA, RKEY)
    post(network, 1, 7, wr_id=1)
    first, *others = (sent for sent in network.qps[0].transmit(0, 64) if sent.is_data)
    for datagram in others:
        network._launch(0, datagram)
    network.run(100 * MS)
    assert network.qps[1].counters.data_received == 8
    assert network.qps[1].poll_recv_cq() == []
    network._launch(0, first)
    network.run(1 * S, lambda: bool(network.completions[0]))
    assert network.qps[1].poll_recv_cq() == [ReceiveCompletion(1, 7, 1)]


def test_only_so_many_are_outstanding() -> None:
    network = Network(make_profile(), mtu=MTU, peer_capabilities=Capabilities(immediates=3))
    for wr_id in range(10):
        post(network, MTU, wr_id, wr_id)
    network.run(50 * MS)
    assert len(list(network.data_sent())) == 3
    network.run(10 * S, lambda: len(network.completions[0]) == 10)
    assert [entry.immediate for entry in network.qps[1].poll_recv_cq()] == list(range(10))


def test_the_bound_does_not_count_plain_writes() -> None:
    network = Network(make_profile(), mtu=MTU, peer_capabilities=Capabilities(immediates=1))
    post(network, MTU, 1)
    for _ in range(5):
        post(network, MTU, None)
    network.run(50 * MS)
    assert len(list(network.data_sent())) == 6


@pytest.mark.parametrize("immediate", [-1, 1 << 32])
def test_an_immediate_has_32_bits(immediate: int) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        post(Network(make_profile()), 1, immediate)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    path=path_models(),
    messages=st.lists(
        st.tuples(st.integers(0, 2000), st.one_of(st.none(), st.integers(0, (1 << 32) - 1))),
        min_size=1,
        max_size=12,
    ),
    bound=st.integers(1, 3),
    seed=st.integers(0, 1 << 16),
)
def test_immediates_come_once_and_in_order(
    path: PathModel, messages: list[tuple[int, int | None]], bound: int, seed: int
) -> None:
    profile = make_profile(planes=2)
    paths = {entry.ev: path if entry.ev & 1 else PathModel() for entry in profile.entries}
    network = Network(
        profile,
        seed=seed,
        paths=paths,
        mtu=MTU,
        peer_capabilities=Capabilities(immediates=bound),
        exponential_retries=12,
    )
    rng = Random(seed)
    expected = bytearray(1 << 20)
    va = 0
    for wr_id, (size, immediate) in enumerate(messages):
        payload = rng.randbytes(size)
        expected[va : va + size] = payload
        network.qps[0].post_write(wr_id, memoryview(payload), VA + va, RKEY, immediate)
        va += size
    network.run(300 * S, lambda: len(network.completions[0]) == len(messages))
    assert {entry.status for entry in network.completions[0]} == {CompletionStatus.SUCCESS}
    assert network.buffers[1] == expected
    assert network.qps[1].poll_recv_cq() == [
        ReceiveCompletion(number, immediate, size)
        for number, (size, immediate) in enumerate(messages)
        if immediate is not None
    ]
    delivered = [event for event in network.events[1] if isinstance(event, MessageDelivered)]
    assert len(delivered) == len(messages)


def test_rqmsn_counts_writes_with_immediate_and_stands_on_each_of_their_packets() -> None:
    network = Network(make_profile(), mtu=MTU)
    for wr_id, immediate in enumerate([None, 5, None, None, 6, 7]):
        post(network, 2 * MTU, immediate, wr_id)
    network.run(5 * S, lambda: len(network.completions[0]) == 6)
    writes = [decode(sent.datagram.join()) for sent in network.data_sent()]
    numbers = [(write.msn, write.rqmsn) for write in writes if isinstance(write, Write)]
    messages = [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 2)]
    assert numbers == [pair for pair in messages for _ in range(2)]
