"""QP states, the changing responder window, and numbers that wrap."""

from random import Random

import pytest

from testbed.mrc import (
    Arrival,
    CcProfile,
    CompletionStatus,
    LossReport,
    MemoryTable,
    MessageDelivered,
    Nscc,
    QpState,
    QpStateError,
    QueuePair,
    Window,
)
from testbed.mrc.wire.kinds import Opcode, Write

from .harness import ADDRESSES, MS, RKEY, VA, Network, PathModel, S, make_profile
from .test_qp import BODY, check_success, write_all

UP = (QpState.INIT, QpState.RTR, QpState.RTS)


def a_qp(state: QpState) -> QueuePair:
    return QueuePair(Network(make_profile()).qps[0].config, MemoryTable(), state=state)


def a_packet() -> Write:
    local, peer = ADDRESSES
    return Write(peer, local, 1, 16, 0, Opcode.WRITE_ONLY, True, False, 0, 0, 0, 0, 0, 0, b"")


def test_it_comes_up_step_by_step() -> None:
    qp = a_qp(QpState.RESET)
    for state in UP:
        qp.modify(state)
        assert qp.state is state
    qp.post_write(0, memoryview(b"x"), VA, RKEY)
    assert any(datagram.is_data for datagram in qp.transmit(0, 10))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (QpState.RESET, QpState.RTR),
        (QpState.RESET, QpState.RTS),
        (QpState.INIT, QpState.RTS),
        (QpState.RTR, QpState.INIT),
        (QpState.RTS, QpState.RTR),
        (QpState.RTS, QpState.RTS),
        (QpState.ERROR, QpState.RTS),
        (QpState.ERROR, QpState.INIT),
    ],
)
def test_other_ways_are_refused(old: QpState, new: QpState) -> None:
    qp = a_qp(old)
    with pytest.raises(QpStateError, match=new):
        qp.modify(new)
    assert qp.state is old


@pytest.mark.parametrize("state", [QpState.RESET, QpState.INIT, QpState.RTR])
def test_nothing_is_posted_before_rts(state: QpState) -> None:
    with pytest.raises(QpStateError, match="posted"):
        a_qp(state).post_write(0, memoryview(b"x"), VA, RKEY)


@pytest.mark.parametrize(
    ("state", "answers"),
    [
        (QpState.RESET, False),
        (QpState.INIT, False),
        (QpState.RTR, True),
        (QpState.RTS, True),
        (QpState.ERROR, False),
    ],
)
def test_arrivals_are_taken_in_rtr_and_rts_only(state: QpState, answers: bool) -> None:
    qp = a_qp(QpState.RTS)
    if state is QpState.ERROR:
        qp.modify(state)
    else:
        qp = a_qp(state)
    qp.receive(a_packet(), Arrival(2, 10, 5))
    assert bool(qp.transmit(5, 10)) is answers
    assert qp.counters.data_received == answers
    assert qp.counters.wrong_state == (not answers)


def test_error_flushes_everything() -> None:
    network = Network(make_profile())
    qp = network.qps[0]
    for wr_id in range(30):
        qp.post_write(wr_id, memoryview(BODY), VA, RKEY)
    network.run(100 * MS)
    assert qp.flight > 0
    qp.modify(QpState.ERROR)
    completions = qp.poll_cq()
    assert [entry.wr_id for entry in completions] == list(range(30))
    assert {entry.status for entry in completions} == {CompletionStatus.FLUSHED}
    assert qp.failed
    assert qp.flight == 0
    assert qp.next_deadline() is None
    assert qp.transmit(network.now_ns, 10) == []


def test_after_reset_of_both_ends_the_connection_works_again() -> None:
    network = Network(make_profile(), port_bps=10e6)
    write_all(network, 20)
    for qp in network.qps:
        qp.modify(QpState.ERROR)
        qp.modify(QpState.RESET)
        for state in UP:
            qp.modify(state)
    assert network.qps[0].counters.data_sent == 0
    network.completions[0].clear()
    write_all(network, 20)
    check_success(network, 20)


def test_reset_opens_the_congestion_window() -> None:
    profile = CcProfile.derive(base_rtt_ns=130 * MS, rate_bps=40e6, dilation=1e4)
    window = Window(lambda: Nscc(profile))
    qp = QueuePair(Network(make_profile()).qps[0].config, MemoryTable(), window)
    window.on_nack(LossReport(100_000, "TRIMMED", True, None, 0, 0))
    assert window.window < profile.max_cwnd
    qp.modify(QpState.RESET)
    assert window.window == profile.max_cwnd


def outstanding(network: Network) -> int:
    scoreboard = network.qps[0]._requester._scoreboard
    return scoreboard.next_seq - scoreboard.oldest_seq


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1)])
def test_a_changed_window_is_heeded(before: int, after: int) -> None:
    network = Network(make_profile(), mtu=64, cwnd=1 << 20, mpr=before)
    network.qps[0].post_write(0, memoryview(bytes(64 * 6000)), VA, RKEY)
    network.run(100 * MS)
    assert outstanding(network) == before * 128
    network.qps[1].set_mpr(after)
    seen = 0
    while network.now_ns < 2 * S:
        network.run(network.now_ns + MS)
        if network.now_ns > S:
            seen = max(seen, outstanding(network))
    assert seen == after * 128
    network.run(60 * S, lambda: bool(network.completions[0]))
    assert network.qps[1].counters.out_of_window == 0
    assert len(network.completions[0]) == 1


@pytest.mark.parametrize("mpr", [0, 256])
def test_a_window_of_no_size_is_refused(mpr: int) -> None:
    network = Network(make_profile(), mpr=8)
    with pytest.raises(ValueError, match="255"):
        network.qps[0].set_mpr(mpr)


def test_a_window_changes_only_where_both_ends_have_agreed() -> None:
    with pytest.raises(ValueError, match="dynamic MPR"):
        a_qp(QpState.RTS).set_mpr(4)


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_psns_and_msns_wrap(loss: float) -> None:
    """Both numbers pass their end in the middle of the run, with losses and reordering."""
    network = Network(
        make_profile(),
        seed=4,
        default=lambda: PathModel(loss=loss, jitter_ns=20 * MS),
        mtu=64,
        cwnd=100 * 64,
        first_psn=(1 << 24) - 150,
    )
    first = (1 << 16) - 50
    network.qps[0]._requester.queue._posted = first
    network.qps[1]._responder.delivery.delivered = first
    rng = Random(7)
    expected = bytearray()
    for wr_id in range(100):
        payload = rng.randbytes(200)
        network.qps[0].post_write(wr_id, memoryview(payload), VA + len(expected), RKEY)
        expected += payload
    network.run(100 * S, lambda: len(network.completions[0]) == 100)
    assert [entry.message for entry in network.completions[0]] == list(range(first, first + 100))
    assert network.buffers[1][: len(expected)] == expected
    delivered = [event for event in network.events[1] if isinstance(event, MessageDelivered)]
    assert [event.message for event in delivered] == list(range(first, first + 100))
