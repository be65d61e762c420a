"""Whole queue pairs over the toy network: single faults, and what a user of the QP sees of them."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from testbed.mrc import (
    Arrival,
    CompletionStatus,
    Datagram,
    EvChanged,
    EvState,
    LossReport,
    Lost,
    MessageDelivered,
    QpConfig,
    RoundTrip,
    SackReport,
    Spurious,
    Window,
    decode,
    respond,
)
from testbed.mrc.constants import EndpointOp, EvMark
from testbed.mrc.wire.control import EndpointRequest, EndpointResponse, ReliabilityProbe, Sack
from testbed.mrc.wire.kinds import Write

from .harness import ADDRESSES, MS, RKEY, VA, Network, PathModel, S, make_profile

RTT_NS = 130 * MS
BODY = bytes(range(256)) * 128


class RecordingController:
    """Records what it is told. No subclass: the core may be compiled."""

    window = 1 << 20

    def __init__(self) -> None:
        self.rtts_ns: list[int | None] = []
        self.penalties: list[tuple[int, bool]] = []

    def on_sack(self, sack: SackReport) -> None:
        if sack.acked:
            self.rtts_ns.append(sack.rtt_ns)
        if sack.penalty is not None:
            self.penalties.append((sack.penalty, sack.restore))

    def on_nack(self, nack: LossReport) -> None:
        """Change nothing."""

    def on_loss(self, loss: LossReport) -> None:
        """Change nothing."""


def write_all(network: Network, messages: int, until_ns: int = 100 * S) -> None:
    """Post `messages` WRITEs of 32 KiB and run until all have completed."""
    for wr_id in range(messages):
        network.qps[0].post_write(wr_id, memoryview(BODY), VA, RKEY)
    network.run(until_ns, lambda: len(network.completions[0]) == messages)


def check_success(network: Network, messages: int) -> None:
    assert [completion.wr_id for completion in network.completions[0]] == list(range(messages))
    assert {c.status for c in network.completions[0]} == {CompletionStatus.SUCCESS}
    assert network.buffers[1][: len(BODY)] == BODY


def all_paths(network: Network, change: Callable[[PathModel], None]) -> None:
    for path in network.paths.values():
        change(path)


def test_an_idle_fabric_loses_nothing() -> None:
    network = Network(make_profile(), port_bps=10e6)
    write_all(network, 300)
    check_success(network, 300)
    counters = network.qps[0].counters
    assert (counters.data_sent, counters.lost, counters.tail_probes) == (2400, 0, 0)
    assert network.now_ns < 2400 * 4238 * 8 / 40e6 * S + 2 * RTT_NS
    assert network.qps[1].counters.sacks_sent < 2400 / 8 + 30


def test_a_window_of_data_is_sent_and_no_more() -> None:
    network = Network(make_profile(), cwnd=20 * 4096)
    network.qps[0].post_write(0, memoryview(bytes(1 << 20)), VA, RKEY)
    network.run(100 * MS)
    assert len(list(network.data_sent())) == 20
    assert network.qps[0].flight == 20 * 4096
    network.run(10 * S)
    assert network.qps[0].flight == 0


def test_the_peers_window_bounds_what_is_outstanding() -> None:
    network = Network(make_profile(), mtu=64, cwnd=1 << 20, mpr=1)
    network.qps[0].post_write(0, memoryview(bytes(64 * 500)), VA, RKEY)
    network.run(100 * MS)
    assert len(list(network.data_sent())) == 128
    network.run(10 * S)
    assert network.qps[1].counters.out_of_window == 0
    assert len(network.completions[0]) == 1


def test_a_lost_tail_is_found_by_a_probe() -> None:
    network = Network(make_profile(backups=0))
    network.qps[0].post_write(0, memoryview(bytes(4096)), VA, RKEY)
    all_paths(network, lambda path: setattr(path, "dead", [(0, 50 * MS)]))
    network.run(5 * S, lambda: bool(network.completions[0]))
    counters = network.qps[0].counters
    assert (counters.tail_probes, counters.timeouts, counters.retransmitted) == (1, 0, 1)
    assert network.now_ns < 4 * RTT_NS


@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_lost_sacks_condemn_nobody(rate: float) -> None:
    network = Network(make_profile(), port_bps=10e6, seed=3)
    launch = network._launch

    def lossy(side: int, datagram: Datagram) -> None:
        if side == 0 or network.rng.random() >= rate:
            launch(side, datagram)

    network._launch = lossy  # type: ignore[method-assign]
    write_all(network, 300)
    check_success(network, 300)
    assert network.qps[0].counters.lost == 0
    assert len(network.qps[0].active_evs()) == 12


def test_a_path_dead_backwards_only_still_carries_data() -> None:
    network = Network(make_profile(), port_bps=10e6)
    network.paths[9] = PathModel(dead=[(0, 100 * S)], dead_direction=1)
    write_all(network, 300)
    check_success(network, 300)
    assert network.qps[0].counters.lost == 0


def test_jitter_within_an_eighth_of_the_rtt_loses_nothing() -> None:
    network = Network(make_profile(), default=lambda: PathModel(jitter_ns=7 * MS), port_bps=10e6)
    write_all(network, 300)
    check_success(network, 300)
    assert network.qps[0].counters.lost == 0


def test_unequal_paths_are_learned() -> None:
    profile = make_profile()
    paths = {
        entry.ev: PathModel(delay_ns=(65 + 15 * (entry.ev >> 3)) * MS) for entry in profile.entries
    }
    network = Network(profile, paths=paths, port_bps=10e6)
    write_all(network, 600)
    check_success(network, 600)
    spurious = [event for event in network.events[0] if isinstance(event, Spurious)]
    assert len(spurious) == network.qps[0].counters.lost <= 40
    assert sum(event.time_ns > 1 * S for event in spurious) <= 8
    assert len(network.qps[0].active_evs()) == 12


def test_a_dead_plane_leaves_the_others_equally_loaded() -> None:
    network = Network(make_profile(), port_bps=10e6)
    for ev, path in network.paths.items():
        if ev & 7 == 2:
            path.dead = [(1 * S, 100 * S)]
    write_all(network, 600)
    check_success(network, 600)
    delivered = [e.time_ns for e in network.events[1] if isinstance(e, MessageDelivered)]
    assert max(after - before for before, after in pairwise(delivered)) < 2 * RTT_NS
    late = [s.datagram for s in network.data_sent() if s.time_ns > 2 * S]
    planes = [sum(1 for datagram in late if datagram.ev & 7 == plane) for plane in range(4)]
    assert planes[2] == 0
    assert max(planes) - min(planes[0], planes[1], planes[3]) < 0.05 * len(late)
    assert network.qps[0].counters.retransmitted < 150


def test_a_healed_path_is_used_again() -> None:
    network = Network(make_profile(), port_bps=10e6)
    network.paths[9].dead = [(1 * S, 2 * S)]
    write_all(network, 600)
    changes = [
        event for event in network.events[0] if isinstance(event, EvChanged) and event.ev == 9
    ]
    assert [event.new for event in changes] == [EvState.ASSUMED_BAD, EvState.GOOD]
    assert 2 * S < changes[1].time_ns < 2 * S + 6 * RTT_NS
    assert any(s.datagram.ev == 9 for s in network.data_sent() if s.time_ns > changes[1].time_ns)


def test_a_lossy_ev_is_replaced_and_goodput_held() -> None:
    network = Network(make_profile(planes=4, active=3, backups=1), port_bps=10e6, seed=5)
    network.paths[9].loss = 0.2
    write_all(network, 600)
    check_success(network, 600)
    assert network.now_ns < 1.05 * 4800 * 4238 * 8 / 40e6 * S + 2 * RTT_NS
    assert all(event.ev == 9 for event in network.events[0] if isinstance(event, Lost))


@pytest.mark.parametrize("seed", range(3))
def test_a_lossy_ev_comes_back_a_handful_of_times_and_no_more(seed: int) -> None:
    network = Network(make_profile(planes=2), port_bps=10e6, seed=seed, cwnd=80 * 4096)
    network.paths[9].loss = 0.2
    write_all(network, 1500)
    assert network.now_ns > 20 * S
    condemned = [
        event
        for event in network.events[0]
        if isinstance(event, EvChanged) and event.new is EvState.ASSUMED_BAD
    ]
    assert {event.ev for event in condemned} == {9}
    assert len(condemned) <= 6


def test_a_total_outage_is_survived() -> None:
    network = Network(make_profile(), port_bps=10e6)
    all_paths(network, lambda path: setattr(path, "dead", [(1 * S, 4 * S)]))
    write_all(network, 300)
    check_success(network, 300)
    during = [s for s in network.data_sent() if 1.5 * S < s.time_ns < 4 * S]
    assert len(during) < 20
    delivered = [e.time_ns for e in network.events[1] if isinstance(e, MessageDelivered)]
    assert min(time for time in delivered if time > 4 * S) < 4 * S + 10 * RTT_NS


def test_when_retries_are_spent_the_qp_fails_and_flushes() -> None:
    network = Network(make_profile(), linear_retries=2, exponential_retries=1)
    all_paths(network, lambda path: setattr(path, "dead", [(0, 1000 * S)]))
    write_all(network, 3, until_ns=1000 * S)
    assert [completion.status for completion in network.completions[0]] == [
        CompletionStatus.RETRY_EXCEEDED,
        CompletionStatus.FLUSHED,
        CompletionStatus.FLUSHED,
    ]
    qp = network.qps[0]
    assert qp.failed
    assert qp.next_deadline() is None
    qp.post_write(9, memoryview(b"late"), VA, RKEY)
    (completion,) = qp.poll_cq()
    assert (completion.wr_id, completion.status) == (9, CompletionStatus.FLUSHED)
    assert qp.transmit(network.now_ns, 10) == []


@pytest.mark.parametrize(("va", "rkey"), [(VA - 1, RKEY), (VA + 1, RKEY), (VA, RKEY + 1)])
def test_remote_access_errors_fail_the_qp_and_touch_nothing(va: int, rkey: int) -> None:
    network = Network(make_profile(), memory_bytes=4096)
    network.qps[0].post_write(5, memoryview(bytes([7]) * 4096), va, rkey)
    network.run(5 * S)
    (completion,) = network.completions[0]
    assert completion.status is CompletionStatus.REMOTE_ACCESS_ERROR
    assert not any(network.buffers[1])
    assert network.qps[0].failed


def test_the_write_that_was_refused_bears_the_error_though_an_older_one_is_in_flight() -> None:
    network = Network(make_profile(planes=2, active=1, backups=0), memory_bytes=4096)
    network.paths[0].delay_ns *= 3  # the first WRITE goes here, the second overtakes it
    for wr_id, rkey in enumerate((RKEY, RKEY + 1, RKEY)):
        network.qps[0].post_write(wr_id, memoryview(bytes(100)), VA, rkey)
    network.run(5 * S)
    first, refused, last = network.completions[0]
    assert [completion.wr_id for completion in network.completions[0]] == [0, 1, 2]
    assert first.status is CompletionStatus.SUCCESS
    assert refused.status is CompletionStatus.REMOTE_ACCESS_ERROR
    assert last.status is CompletionStatus.FLUSHED


@pytest.mark.parametrize(("linear", "exponential"), [(0, 0), (2, 1), (7, 4)])
def test_retries_are_spent_even_where_probes_are_answered(linear: int, exponential: int) -> None:
    """As where full packets do not fit some link: all data dies, all that is small passes."""
    network = Network(make_profile(), linear_retries=linear, exponential_retries=exponential)
    all_paths(network, lambda path: setattr(path, "most_bytes", 1000))
    write_all(network, 2, until_ns=10_000 * S)
    qp = network.qps[0]
    assert [completion.status for completion in network.completions[0]] == [
        CompletionStatus.RETRY_EXCEEDED,
        CompletionStatus.FLUSHED,
    ]
    assert qp.failed
    waits = [1] * linear + [2**n for n in range(1, exponential + 2)]
    assert sum(waits) < network.now_ns / (2 * RTT_NS) < sum(waits) + 3
    assert qp.counters.tail_probes > linear + exponential
    packets = 2 * len(BODY) // 4096
    assert qp.counters.retransmitted < 5 * packets + network.now_ns / RTT_NS


def test_no_timeout_strikes_data_that_waits_while_probes_are_answered() -> None:
    """In a queue that control packets pass by, for longer than all tail probes take."""
    network = Network(make_profile())
    all_paths(network, lambda path: setattr(path, "queued_ns", RTT_NS))
    network.qps[0].post_write(0, memoryview(bytes(4096)), VA, RKEY)
    network.run(60 * S, lambda: bool(network.completions[0]))
    assert network.completions[0][0].status is CompletionStatus.SUCCESS
    assert network.qps[0].counters.timeouts == 0


def test_trimmed_packets_come_again_within_an_rtt_and_condemn_nobody() -> None:
    network = Network(make_profile(), default=lambda: PathModel(trim=0.03), port_bps=10e6)
    write_all(network, 300)
    check_success(network, 300)
    counters = network.qps[0].counters
    assert counters.trimmed_nacks == counters.retransmitted > 40
    assert counters.lost == 0
    assert len(network.qps[0].active_evs()) == 12
    delivered = [e.time_ns for e in network.events[1] if isinstance(e, MessageDelivered)]
    assert max(after - before for before, after in pairwise(delivered)) < 3 * RTT_NS


def test_marks_move_load_off_the_marked_path() -> None:
    network = Network(make_profile(), port_bps=10e6)
    network.paths[9].mark = 1.0
    write_all(network, 300)
    check_success(network, 300)
    loads = dict.fromkeys(network.qps[0].active_evs(), 0)
    for sent in network.data_sent():
        loads[sent.datagram.ev] += 1
    other = min(load for ev, load in loads.items() if ev != 9)
    assert loads[9] < 0.7 * other


def test_corrupted_packets_never_reach_memory() -> None:
    network = Network(make_profile(), default=lambda: PathModel(corrupt=0.2), seed=2)
    write_all(network, 20)
    check_success(network, 20)
    assert network.refused("bad_icrc", "bad_length", "not_ipv6", "wrong_port") > 20
    placed = network.qps[1].counters.bytes_placed
    assert placed == 20 * len(BODY)


def test_sequence_numbers_wrap() -> None:
    network = Network(make_profile(), first_psn=(1 << 24) - 10, mtu=256)
    network.qps[0].post_write(0, memoryview(BODY), VA, RKEY)
    network.run(5 * S, lambda: bool(network.completions[0]))
    check_success(network, 1)
    seqs = [s.datagram.seq for s in network.data_sent()]
    assert seqs == list(range((1 << 24) - 10, (1 << 24) - 10 + 128))


def test_message_numbers_wrap() -> None:
    network = Network(make_profile(planes=1, active=1, backups=0), base_rtt_ns=2 * MS)
    network.paths[0].delay_ns = MS
    count = (1 << 16) + 20
    one = memoryview(b"x")
    for wr_id in range(count):
        network.qps[0].post_write(wr_id, one, VA, RKEY)
    network.run(1000 * S, lambda: len(network.completions[0]) == count)
    delivered = [e.message for e in network.events[1] if isinstance(e, MessageDelivered)]
    assert delivered == list(range(count))


def test_empty_writes_complete() -> None:
    network = Network(make_profile())
    network.qps[0].post_write(4, memoryview(b""), 0, 0)
    network.run(1 * S, lambda: bool(network.completions[0]))
    (completion,) = network.completions[0]
    assert (completion.wr_id, completion.status) == (4, CompletionStatus.SUCCESS)


def test_the_payload_is_released_on_completion() -> None:
    network = Network(make_profile())
    payload = bytearray(8192)
    network.qps[0].post_write(0, memoryview(payload), VA, RKEY)
    network.run(1 * S, lambda: bool(network.completions[0]))
    network.sent.clear()
    payload.append(0)  # BufferError while anybody holds a view


def test_transmit_heeds_its_limit_of_data_and_lets_control_packets_go() -> None:
    network = Network(make_profile())
    qp = network.qps[0]
    qp.post_write(0, memoryview(bytes(1 << 16)), VA, RKEY)
    first = [datagram.is_data for datagram in qp.transmit(0, 3)]
    assert first == [False] * 4 + [True] * 3  # the probes of the backups
    assert qp.next_deadline() == 0
    assert [datagram.is_data for datagram in qp.transmit(0, 100)] == [True] * (16 - 3)


@pytest.mark.parametrize("wait_ns", [0, 7 * MS])
def test_congestion_control_hears_of_round_trips_from_the_wire_on(wait_ns: int) -> None:
    """What a packet waits for its own port is no delay of the fabric, but delays its answer."""
    window = RecordingController()
    network = Network(make_profile(backups=0), congestion=lambda: Window(lambda: window))
    sender, receiver = network.qps
    base_ns = sender.rtt.base_ns
    sender.post_write(0, memoryview(b"data"), VA, RKEY)
    (data,) = sender.transmit(0, 10)
    assert data.transmission is not None
    data.transmission.set_port_wait(wait_ns)
    receiver.receive(decode(data.join()), Arrival(0, 0, wait_ns + base_ns))
    for answer in receiver.transmit(wait_ns + base_ns, 0):
        if isinstance(sack := decode(answer.join()), Sack):
            sender.receive(sack, Arrival(0, 0, wait_ns + 3 * base_ns))
    assert window.rtts_ns == [3 * base_ns]
    assert sender.rtt.smoothed_ns == base_ns + (2 * base_ns + wait_ns) // 8


def test_packets_of_another_peer_are_ignored() -> None:
    network = Network(make_profile())
    network.qps[0].post_write(0, memoryview(b"data"), VA, RKEY)
    datagrams = network.qps[0].transmit(0, 10)
    (data,) = [datagram for datagram in datagrams if datagram.is_data]
    network.qps[0].receive(decode(data.join()), Arrival(0, 0, 0))
    assert network.qps[0].counters.not_a_peer == 1
    assert network.qps[0].counters.data_received == 0


def test_endpoint_requests_are_answered_on_their_ev() -> None:
    network = Network(make_profile())
    request = EndpointRequest(*ADDRESSES, 9, EndpointOp.EV_PROBE, 77, 0, 5)
    answer = respond(request, network.dscp)
    assert (answer.ev, answer.dscp, answer.is_data) == (9, network.dscp.control, False)
    response = decode(answer.join())
    assert response == EndpointResponse(ADDRESSES[1], ADDRESSES[0], 9, EndpointOp.EV_PROBE, 77, 5)
    with pytest.raises(TypeError, match="endpoint"):
        network.qps[1].receive(request, Arrival(0, 0, 0))


def test_a_denied_ev_carries_nothing() -> None:
    network = Network(make_profile(), port_bps=10e6)
    network.qps[0].deny_ev(9, 0)
    write_all(network, 50)
    check_success(network, 50)
    assert all(s.datagram.ev != 9 for s in network.sent if s.side == 0)
    assert network.qps[0].ev_states()[9] is EvState.DENIED
    network.qps[0].allow_ev(9, network.now_ns)
    write_all(network, 300)
    assert any(s.datagram.ev == 9 for s in network.data_sent())


def test_retransmissions_take_another_path() -> None:
    network = Network(
        make_profile(planes=1), default=lambda: PathModel(trim=0.1, trim_last_hop=True)
    )
    write_all(network, 100)
    check_success(network, 100)
    tried: dict[int | None, int] = {}
    repeated = 0
    for sent in network.data_sent():
        datagram = sent.datagram
        if datagram.retransmitted:
            repeated += 1
            assert datagram.ev != tried[datagram.seq]
        tried[datagram.seq] = datagram.ev
    assert repeated > 10


@pytest.mark.parametrize("outage_s", [2, 4, 7, 9])
def test_the_end_of_an_outage_is_noticed_at_once(outage_s: int) -> None:
    network = Network(make_profile(planes=1, active=2, backups=0), port_bps=10e6, cwnd=40 * 4096)
    healed_ns = (1 + outage_s) * S
    network.paths[0].dead = [(1 * S, 100 * S)]
    network.paths[8].dead = [(1 * S, healed_ns)]
    write_all(network, 50)
    check_success(network, 50)
    delivered = [e.time_ns for e in network.events[1] if isinstance(e, MessageDelivered)]
    assert min(time for time in delivered if time > healed_ns) < healed_ns + 10 * RTT_NS


def sack(network: Network, cack: int, bitmap: int, trigger: Datagram) -> Sack:
    """What side 1 would say about data sent by side 0 so far, on the arrival of `trigger`."""
    packet = decode(trigger.join())
    assert isinstance(packet, Write)
    return Sack(
        source=ADDRESSES[1],
        destination=ADDRESSES[0],
        ev=trigger.ev,
        qpn=network.qps[0].config.qpn,
        retransmitted=packet.retransmitted,
        spdcid=17,
        cc_type=0,
        mark=EvMark.NONE,
        probe_reply=False,
        ack_psn_offset=packet.psn - cack,
        reflected_ev=trigger.ev,
        cack_psn=cack & 0xFFFFFF,
        mpr=0,
        sack_offset=1,
        bitmap=bitmap,
        tx_timestamp=packet.tx_timestamp or 0,
        ooo_count=0,
        restore_cwnd=False,
        rcv_cwnd_pen=0,
        rcvd_bytes=0,
    )


@pytest.mark.parametrize("repeated_already", [False, True])
@pytest.mark.parametrize("told", [False, True])
def test_a_loss_proved_spurious_restores_the_ev(repeated_already: bool, told: bool) -> None:
    network = Network(make_profile(planes=1, backups=0), mtu=256)
    qp = network.qps[0]
    qp.post_write(0, memoryview(bytes(512)), VA, RKEY)
    first, second = qp.transmit(0, 10)
    qp.receive(sack(network, -1, 0b10, second), Arrival(2, 46, RTT_NS))
    now_ns = RTT_NS * 3 // 2
    sent = qp.transmit(now_ns, 10 if repeated_already else 0)
    assert len([datagram for datagram in sent if datagram.is_data]) == repeated_already
    assert qp.ev_states()[first.ev] is EvState.ASSUMED_BAD
    trigger = first if told else second
    qp.receive(sack(network, 1, 0, trigger), Arrival(2, 46, now_ns + 1))
    assert qp.ev_states()[first.ev] is EvState.GOOD
    events = qp.events()
    assert Spurious(0, first.ev, 0, 0, now_ns + 1) in events
    assert qp.counters.spurious == 1
    assert qp.flight == 0
    assert not any(datagram.is_data for datagram in qp.transmit(now_ns + 2, 10))


def test_an_original_arriving_after_its_repetition_restores_the_ev() -> None:
    network = Network(make_profile(planes=1, backups=0), mtu=256)
    qp = network.qps[0]
    qp.post_write(0, memoryview(bytes(512)), VA, RKEY)
    first, second = qp.transmit(0, 10)
    qp.receive(sack(network, -1, 0b10, second), Arrival(2, 46, RTT_NS))
    now_ns = RTT_NS * 3 // 2
    (repeated,) = [datagram for datagram in qp.transmit(now_ns, 10) if datagram.is_data]
    qp.receive(sack(network, 1, 0, repeated), Arrival(2, 46, now_ns + RTT_NS))
    assert qp.ev_states()[first.ev] is EvState.ASSUMED_BAD
    qp.receive(sack(network, 1, 0, first), Arrival(2, 46, now_ns + RTT_NS + 1))
    assert qp.ev_states()[first.ev] is EvState.GOOD


def test_sacks_about_packets_never_sent_are_ignored() -> None:
    network = Network(make_profile(planes=1, backups=0), mtu=256)
    qp = network.qps[0]
    qp.post_write(0, memoryview(bytes(512)), VA, RKEY)
    first, _ = qp.transmit(0, 10)
    qp.receive(sack(network, 5, 0, first), Arrival(2, 46, RTT_NS))
    qp.receive(sack(network, -1, 0b11100, first), Arrival(2, 46, RTT_NS))
    assert qp.poll_cq() == []
    assert qp.flight == 512


def test_what_an_overtaken_sack_asks_of_the_window_is_not_heeded() -> None:
    window = RecordingController()
    network = Network(
        make_profile(planes=1, backups=0), mtu=256, congestion=lambda: Window(lambda: window)
    )
    qp = network.qps[0]
    qp.post_write(0, memoryview(bytes(512)), VA, RKEY)
    first, second = qp.transmit(0, 10)
    older = replace(sack(network, 0, 0, first), rcv_cwnd_pen=64, restore_cwnd=True)
    newer = replace(sack(network, 1, 0, second), rcv_cwnd_pen=3)
    for packet in (newer, older, newer):
        qp.receive(packet, Arrival(2, 46, RTT_NS))
    assert window.penalties == [(3, False), (3, False)]


def test_classes_of_traffic() -> None:
    network = Network(make_profile(), default=lambda: PathModel(loss=0.1), seed=1)
    write_all(network, 20)
    dscp = network.dscp
    for sent in network.sent:
        datagram = sent.datagram
        expected = dscp.trimmable_retx if datagram.retransmitted else dscp.trimmable
        probe = isinstance(decode(datagram.join()), ReliabilityProbe)
        assert datagram.dscp == (expected if datagram.is_data or probe else dscp.control)
    assert any(sent.datagram.retransmitted for sent in network.sent)


@pytest.mark.parametrize(
    ("payload", "va", "rkey"),
    [
        (memoryview(b"x"), 1 << 64, 1),
        (memoryview(b"x"), -1, 1),
        (memoryview(b"xx"), (1 << 64) - 1, 1),
        (memoryview(b"x"), 0, 1 << 32),
        (memoryview(bytes(8)).cast("I"), 0, 1),
    ],
)
def test_writes_that_do_not_fit_the_wire_are_refused(
    payload: memoryview, va: int, rkey: int
) -> None:
    with pytest.raises(ValueError, match=r"must|shorter"):
        Network(make_profile()).qps[0].post_write(0, payload, va, rkey)


@pytest.mark.parametrize(
    "wrong",
    [
        {"qpn": 1 << 24},
        {"local_address": b"short"},
        {"cwnd": 100},
        {"sack_bytes": 0},
        {"tail_probes": 0},
        {"linear_retries": -1},
        {"linear_retries": 8},
        {"exponential_retries": 26},
    ],
)
def test_configurations_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    good: dict[str, object] = {
        "qpn": 1,
        "peer_qpn": 2,
        "local_address": ADDRESSES[0],
        "peer_address": ADDRESSES[1],
        "ev_profile": make_profile(),
        "base_rtt_ns": RTT_NS,
        "cwnd": 1 << 20,
    }
    with pytest.raises(ValueError, match=r"must|IPv6"):
        QpConfig(**{**good, **wrong})  # type: ignore[arg-type]


def test_round_trips_are_measured_on_each_ev_and_not_by_retransmissions() -> None:
    profile = make_profile(planes=2, active=2, backups=0)
    slow, lossy = (entry.ev for entry in profile.entries[:2])
    paths = {slow: PathModel(delay_ns=80 * MS), lossy: PathModel(loss=1)}
    network = Network(profile, paths=paths, sack_bytes=4096)
    write_all(network, 4)
    trips = [event for event in network.events[0] if isinstance(event, RoundTrip)]
    there_ns = {entry.ev: network.paths[entry.ev].delay_ns for entry in profile.entries}
    delays_ns = set(there_ns.values())  # a SACK may come back on any path
    assert len({trip.ev for trip in trips}) > 1
    assert lossy not in {trip.ev for trip in trips}
    assert all(trip.rtt_ns - there_ns[trip.ev] in delays_ns for trip in trips)
    data = [sent for sent in network.sent if sent.side == 0 and sent.datagram.is_data]
    first = {(s.time_ns, s.datagram.ev) for s in data if not s.datagram.retransmitted}
    assert {(trip.time_ns - trip.rtt_ns, trip.ev) for trip in trips} <= first
    assert any(sent.datagram.retransmitted for sent in data)
