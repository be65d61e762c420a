"""What arrives finds its queue pair; what is for none, or must not be acted on, is counted."""

from dataclasses import replace

import pytest

from testbed.mrc import (
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
from testbed.mrc.endpoint import Endpoint
from testbed.mrc.wire.control import Ack, EndpointRequest, EndpointResponse

from .bad_input import FAILED_OPERATIONS, Bad, bad_packets, control_bytes, good_write
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
    next_psn = WRITE.psn + (bad.reason in FAILED_OPERATIONS)
    target.demux.receive(write_bytes(WRITE._replace(psn=next_psn)), ARRIVAL)
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
    request = EndpointRequest(*ADDRESSES, 9, op, 77, 0xFFFFFFFD, 5)
    answer = target.demux.receive(control_bytes(request), ARRIVAL)
    assert answer is not None
    assert answer.peer == ADDRESSES[0]
    response = decode(answer.datagram.join())
    assert isinstance(response, EndpointResponse)
    assert (response.request_id, response.op, response.tx_timestamp) == (77, op, 5)
    assert response.destination == ADDRESSES[0]
    target.qp.transmit(1, 0)
    down = {target.qp._engine[ev].plane for ev in target.qp.ev_states()} - {
        target.qp._engine[ev].plane for ev in target.qp.active_evs()
    }
    assert down == ({1} if op is EndpointOp.PORT_STATUS_UPDATE else set())


def test_a_port_status_sent_before_the_queue_pair_is_ready_reaches_it_in_the_end() -> None:
    network = Network(make_profile(planes=2))
    asking, asked = network.qps
    for state in (QpState.RESET, QpState.INIT):
        asked.modify(state)
    asking.port_changed(1, up=False, now_ns=network.now_ns)
    network.run(2 * S)
    for state in (QpState.RTR, QpState.RTS):
        asked.modify(state)
    network.run(4 * S)
    assert {ev & 7 for ev in asked.active_evs()} == {0}
    assert asking.next_deadline() is None


def test_one_port_status_holds_for_every_queue_pair_with_that_peer() -> None:
    target = Target()
    others = []
    for qpn, peer in ((18, ADDRESSES[0]), (19, STRANGER)):
        other = QueuePair(replace(target.qp.config, qpn=qpn, peer_address=peer), MemoryTable())
        target.demux.add(other)
        others.append(other)
    update = EndpointRequest(*ADDRESSES, 9, EndpointOp.PORT_STATUS_UPDATE, 77, 0xFFFFFFFD, 5)
    target.demux.receive(control_bytes(update), ARRIVAL)
    planes = []
    for qp in (target.qp, *others):
        qp.transmit(2, 0)
        planes.append({ev & 7 for ev in qp.active_evs()})
    assert planes == [{0}, {0}, {0, 1}]


def test_the_own_ports_are_told_to_each_peer_once() -> None:
    target = Target()
    other = QueuePair(replace(target.qp.config, qpn=18), MemoryTable())
    stranger = QueuePair(replace(target.qp.config, qpn=19, peer_address=STRANGER), MemoryTable())
    qps = (target.qp, other, stranger)
    for qp in qps[1:]:
        target.demux.add(qp)
    for qp in qps:
        qp.port_changed(1, up=False, now_ns=0)
    packets = [decode(datagram.join()) for qp in qps for datagram in qp.transmit(0, 0)]
    updates = [packet for packet in packets if isinstance(packet, EndpointRequest)]
    assert [update.destination for update in updates] == [ADDRESSES[0], STRANGER]
    assert {update.port_mask for update in updates} == {0xFFFFFFFD}
    assert len({update.request_id for update in updates}) == 2


def test_a_response_is_matched_by_its_id_whatever_op_it_shows() -> None:
    target = Target()
    target.qp.port_changed(1, up=False, now_ns=0)
    (request,) = [decode(datagram.join()) for datagram in target.qp.transmit(0, 0)]
    assert isinstance(request, EndpointRequest)
    response = EndpointResponse(*ADDRESSES, 9, EndpointOp.EV_PROBE, request.request_id, 0)
    target.demux.receive(control_bytes(response), ARRIVAL)
    assert target.demux.endpoint.other_ops == 1
    assert target.qp.next_deadline() is None
    target.demux.receive(control_bytes(response), ARRIVAL)
    assert target.counted() == {"unknown_request": 1}


def test_ids_of_requests_are_those_of_no_other_outstanding_one() -> None:
    endpoint = Endpoint(first_id=0xFFFE)
    ids = [endpoint.ask(STRANGER, EndpointOp.EV_PROBE, lambda _: None) for _ in range(3)]
    assert ids == [0xFFFF, 0, 1]
    again = Endpoint(first_id=0xFFFF)
    taken = [again.ask(STRANGER, EndpointOp.EV_PROBE, lambda _: None) for _ in range(70_000)]
    assert len(set(taken[-8192:])) == 8192


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
    assert [(completion.wr_id, completion.status) for completion in qp.poll_cq()] == [
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
    assert [completion.status for completion in qp.poll_cq()] == [CompletionStatus.SUCCESS]
    assert qp.counters.retransmitted == 0
