"""What arrives finds its queue pair; what is for none, or must not be acted on, is counted."""

import pytest

from testbed.mrc import (
    NEVER,
    Arrival,
    CompletionStatus,
    Demux,
    DscpClasses,
    EvChanged,
    MemoryRegion,
    MemoryTable,
    QpState,
    QueuePair,
    decode,
)
from testbed.mrc.constants import EndpointOp
from testbed.mrc.wire.packets import Ack, EndpointRequest, EndpointResponse

from .bad_input import Bad, bad_packets, control_bytes, good_write
from .harness import ADDRESSES, RKEY, VA, Network, PathModel, S, make_profile
from .test_wire import write_bytes

REGION = 4096
GUARD = 64
MTU = 256
STRANGER = b"\xfd" + bytes(15)
ARRIVAL = Arrival(0, DscpClasses().trimmable, 1)


class Target:
    """A queue pair of side 1 behind a demultiplexer, over guarded memory full of zeros."""

    def __init__(self, state: QpState = QpState.RTS) -> None:
        self.buffer = bytearray(GUARD + REGION + GUARD)
        memory = MemoryTable()
        view = memoryview(self.buffer)[GUARD : GUARD + REGION]
        memory.register(MemoryRegion(RKEY, VA, view))
        config = Network(make_profile(planes=2), mtu=MTU).qps[1].config
        self.qp = QueuePair(config, memory, state=state)
        self.demux = Demux(config.local_address, config.dscp)
        self.demux.add(self.qp)

    def counted(self) -> dict[str, int]:
        return {reason: count for reason, count in self.demux.refused().items() if count}


WRITE = good_write(*ADDRESSES, qpn=17, psn=0, va=VA, rkey=RKEY)
ENDLESS = WRITE._replace(payload=bytes(9001), dma_length=9001)
BAD = (
    *bad_packets(WRITE, region_end=VA + REGION, mtu=MTU, stranger=STRANGER),
    Bad("longer than a link's packets", write_bytes(ENDLESS), "invalid_request"),
    Bad("that, cut by the socket", write_bytes(ENDLESS)[:9000], "bad_length"),
)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.what)
def test_bad_input_is_counted_by_its_reason_and_touches_nothing(bad: Bad) -> None:
    target = Target()
    answer = target.demux.receive(memoryview(bad.data), ARRIVAL._replace(dscp=bad.dscp))
    assert target.counted() == {bad.reason: 1}
    assert not any(target.buffer)
    assert not target.qp.failed
    assert not any(isinstance(event, EvChanged) for event in target.qp.events())
    assert answer is None
    target.demux.receive(write_bytes(WRITE), ARRIVAL)
    assert target.qp.counters.bytes_placed == len(WRITE.payload)
    assert target.counted() == {bad.reason: 1}


def test_a_replayed_write_is_not_placed_again() -> None:
    target = Target()
    for _ in range(3):
        target.demux.receive(write_bytes(WRITE), ARRIVAL)
        target.buffer[:] = bytes(len(target.buffer))
    assert target.counted() == {"duplicates": 2}
    assert not any(target.buffer)


def test_after_error_arrivals_are_counted_as_such() -> None:
    target = Target()
    bad = next(one for one in BAD if one.reason == "unknown_rkey")
    target.demux.receive(bad.data, ARRIVAL)
    target.qp._requester.fail(CompletionStatus.FLUSHED)
    target.demux.receive(write_bytes(WRITE), ARRIVAL)
    assert target.counted() == {"unknown_rkey": 1, "wrong_state": 1}
    assert not any(target.buffer)


def test_every_reason_is_named_even_where_nothing_happened() -> None:
    assert set(Target().demux.refused()) >= {bad.reason for bad in BAD} | {"duplicates"}
    assert not any(Target().demux.refused().values())


def test_a_number_is_given_once() -> None:
    target = Target()
    with pytest.raises(ValueError, match="17"):
        target.demux.add(target.qp)


@pytest.mark.parametrize("op", EndpointOp)
def test_a_peers_requests_are_answered_to_it(op: EndpointOp) -> None:
    target = Target()
    request = EndpointRequest(*ADDRESSES, 9, op, 77, 16, 0b10)
    answer = target.demux.receive(control_bytes(request), ARRIVAL)
    assert answer is not None
    assert answer.peer == ADDRESSES[0]
    response = decode(answer.datagram.join())
    assert isinstance(response, EndpointResponse)
    assert (response.request_id, response.qpn, response.destination) == (77, 16, ADDRESSES[0])
    down = {target.qp._engine[ev].plane for ev in target.qp.ev_states()} - {
        target.qp._engine[ev].plane for ev in target.qp.active_evs()
    }
    assert down == ({1} if op is EndpointOp.PORT_STATUS_UPDATE else set())


@pytest.mark.parametrize("state", [QpState.RESET, QpState.INIT, QpState.ERROR])
def test_a_port_status_that_is_not_taken_in_is_not_answered(state: QpState) -> None:
    """Else the peer would stop repeating it."""
    target = Target(state)
    update = EndpointRequest(*ADDRESSES, 9, EndpointOp.PORT_STATUS_UPDATE, 77, 16, 0b10)
    assert target.demux.receive(control_bytes(update), ARRIVAL) is None
    assert target.counted() == {"wrong_state": 1}


def test_a_port_status_sent_before_the_queue_pair_is_ready_reaches_it_in_the_end() -> None:
    network = Network(make_profile(planes=2))
    asking, asked = network.qps
    for state in (QpState.RESET, QpState.INIT):
        asked.modify(state)
    asking.port_changed(1, up=False, now_ns=network.now_ns)
    network.run(2 * S)
    assert asked.counters.wrong_state > 2
    for state in (QpState.RTR, QpState.RTS):
        asked.modify(state)
    network.run(4 * S)
    assert asked._ports.down == frozenset({1})
    assert asking._ports.deadline_ns == NEVER


def test_a_transport_ack_completes_what_it_covers_and_blames_no_path() -> None:
    """All up to its PSN, cumulatively; no EV is judged by it, as it names none."""
    network = Network(make_profile(), mtu=MTU)
    qp = network.qps[0]
    for wr_id in range(3):
        qp.post_write(wr_id, memoryview(bytes(2 * MTU)), VA, RKEY)
    assert len([datagram for datagram in qp.transmit(0, 64) if datagram.is_data]) == 6
    ack = decode(control_bytes(Ack(ADDRESSES[1], ADDRESSES[0], 0, 16, 4, 2)))
    for _ in range(2):
        qp.receive(ack, Arrival(0, 46, 1000))
    assert [(one.wr_id, one.status) for one in qp.poll_cq()] == [
        (0, CompletionStatus.SUCCESS),
        (1, CompletionStatus.SUCCESS),
    ]
    assert qp.flight == MTU
    assert qp.rtt.smoothed_ns == qp.config.base_rtt_ns
    assert not [event for event in qp.events() if isinstance(event, EvChanged)]
    assert qp.counters.implausible == 0


def test_a_connection_whose_sacks_all_fail_lives_on_transport_acks() -> None:
    """A peer that answered with nothing else would still be heard."""
    network = Network(make_profile(), mtu=MTU, default=lambda: PathModel(delay_ns=S))
    qp = network.qps[0]
    qp.post_write(0, memoryview(bytes(20 * MTU)), VA, RKEY)
    done = 0
    while done < 20:
        done += sum(datagram.is_data for datagram in qp.transmit(done, 1))
        ack = Ack(ADDRESSES[1], ADDRESSES[0], 0, 16, done - 1, 0)
        qp.receive(ack, Arrival(0, 46, done))
    assert [one.status for one in qp.poll_cq()] == [CompletionStatus.SUCCESS]
    assert qp.counters.retransmitted == 0
