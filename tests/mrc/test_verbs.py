"""The verbs: two contexts joined in virtual time, used as an RDMA program uses a NIC."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import pytest

from testbed.mrc import (
    Arrival,
    CcProfile,
    CompletionStatus,
    EvEntry,
    EvProfile,
    FixedWindow,
    MemoryTable,
    Nscc,
    PortAttributes,
    QpState,
    QpStateError,
    QueuePair,
)
from testbed.mrc.config import Capabilities
from testbed.mrc.message import PayloadError
from testbed.mrc.verbs import (
    CompletionQueue,
    Context,
    Destination,
    PeerPaths,
    QpAttributes,
    VerbsQp,
    WcOpcode,
)

from .harness import ADDRESSES, MS, S

MTU = 1024
DELAY_NS = 65 * MS
NEAR_RTT_NS = 90 * MS
ENTRIES = tuple(EvEntry(plane, plane, plane, active=True) for plane in range(4))


class Wire:
    """Two contexts and what is on its way between them; `lose` says what does not arrive."""

    def __init__(
        self, lose: Callable[[bytes], bool] = lambda _: False, *, trimming: bool = True
    ) -> None:
        self.now_ns = 0
        self.contexts = tuple(
            Context(
                PortAttributes(address, MTU, 130 * MS, 40_000_000, 1e4, trimming=trimming),
                self._reach,
                Random(side),
            )
            for side, address in enumerate(ADDRESSES)
        )
        self._lose = lose
        self._ties = count()
        self._flying: list[tuple[int, int, int, bytes, int]] = []

    @staticmethod
    def _reach(address: bytes) -> PeerPaths:
        if address not in ADDRESSES:
            raise ValueError("no such NIC")
        return PeerPaths(ENTRIES, NEAR_RTT_NS)

    def run(self, until: Callable[[], bool], limit_ns: int = 1000 * S) -> None:
        while not until():
            for side, context in enumerate(self.contexts):
                for packet in context.transmit(self.now_ns, 64):
                    self._launch(side, packet.datagram.join(), packet.datagram.dscp)
                context.events_by_qp()
            times = [t for c in self.contexts if (t := c.next_deadline()) is not None]
            times += [self._flying[0][0]] if self._flying else []
            assert times, "nothing will ever happen"
            self.now_ns = max(self.now_ns, min(times))
            assert self.now_ns < limit_ns
            while self._flying and self._flying[0][0] <= self.now_ns:
                at_ns, _, side, data, dscp = heappop(self._flying)
                answer = self.contexts[side].receive(data, Arrival(2, dscp, at_ns))
                if answer is not None:
                    self._launch(side, answer.datagram.join(), answer.datagram.dscp)

    def _launch(self, side: int, data: bytes, dscp: int) -> None:
        if not self._lose(data):
            at_ns = self.now_ns + DELAY_NS
            heappush(self._flying, (at_ns, next(self._ties), 1 - side, data, dscp))


def connected(wire: Wire, cqs: tuple[CompletionQueue, CompletionQueue]) -> tuple[VerbsQp, VerbsQp]:
    a, b = (context.create_qp(cq) for context, cq in zip(wire.contexts, cqs, strict=True))
    a.connect(b.local)
    b.connect(a.local)
    return a, b


def queues(wire: Wire) -> tuple[CompletionQueue, CompletionQueue]:
    a, b = (context.create_cq() for context in wire.contexts)
    return a, b


def test_a_write_with_immediate_arrives_and_completes_at_both_ends() -> None:
    wire = Wire()
    cqs = queues(wire)
    a, b = connected(wire, cqs)
    b.post_recv(9)
    region = wire.contexts[1].reg_mr(bytearray(5000))
    body = Random(1).randbytes(5000)
    a.post_write(1, body[:3000], region.va, region.rkey)
    a.post_write_imm(2, body[3000:], region.va + 3000, region.rkey, 77)
    done = []
    received = []

    def both() -> bool:
        done.extend(cqs[0].poll())
        received.extend(cqs[1].poll())
        return len(done) == 2 and bool(received)

    wire.run(both)
    assert region.buffer == body
    assert [(wc.wr_id, wc.opcode, wc.byte_len, wc.qp_num) for wc in done] == [
        (1, WcOpcode.RDMA_WRITE, 3000, a.qp_num),
        (2, WcOpcode.RDMA_WRITE, 2000, a.qp_num),
    ]
    (wc,) = received
    assert (wc.opcode, wc.imm_data, wc.byte_len) == (WcOpcode.RECV_RDMA_WITH_IMM, 77, 2000)
    assert wc.wr_id == 9
    assert (wc.status, wc.qp_num) == (CompletionStatus.SUCCESS, b.qp_num)


def test_one_completion_queue_serves_many_queue_pairs() -> None:
    wire = Wire()
    cqs = queues(wire)
    pairs = [connected(wire, cqs) for _ in range(5)]
    region = wire.contexts[1].reg_mr(bytearray(5 * 100))
    for number, (a, _) in enumerate(pairs):
        a.post_write(number, bytes([number + 1]) * 100, region.va + 100 * number, region.rkey)
    entries = []

    def done() -> bool:
        entries.extend(cqs[0].poll(2))
        return len(entries) == 5

    wire.run(done)
    assert {wc.qp_num: wc.wr_id for wc in entries} == {
        a.qp_num: number for number, (a, _) in enumerate(pairs)
    }
    assert bytes(region.buffer) == b"".join(bytes([n + 1]) * 100 for n in range(5))


def test_nothing_can_be_posted_before_rts_and_states_go_one_by_one() -> None:
    wire = Wire()
    a, _ = connected(wire, queues(wire))
    qp = wire.contexts[0].create_qp(CompletionQueue())
    assert qp.state is QpState.RESET
    with pytest.raises(QpStateError):
        qp.modify(QpState.RTR, a.local)
    qp.modify(QpState.INIT)
    for state in (QpState.RESET, QpState.INIT):
        with pytest.raises(QpStateError, match="nothing can be posted"):
            qp.post_write(0, b"x", 0, 0)
        qp.modify(state)
    with pytest.raises(ValueError, match="destination"):
        qp.modify(QpState.RTR)
    with pytest.raises(ValueError, match="no such NIC"):
        qp.modify(QpState.RTR, Destination(bytes(16), 99, 0))
    assert str(qp.state) == "INIT"
    qp.modify(QpState.RTR, a.local)
    with pytest.raises(QpStateError):
        qp.post_write(0, b"x", 0, 0)


def test_memory_that_was_deregistered_is_out_of_reach() -> None:
    wire = Wire()
    cqs = queues(wire)
    a, _ = connected(wire, cqs)
    context = wire.contexts[1]
    gone, kept = context.reg_mr(bytearray(64)), context.reg_mr(bytearray(64))
    assert gone.rkey != kept.rkey
    assert gone.va + len(gone.buffer) < kept.va
    context.dereg_mr(gone)
    a.post_write(0, b"x", gone.va, gone.rkey)
    a.post_write(1, b"y", kept.va, kept.rkey)
    entries = []

    def done() -> bool:
        entries.extend(cqs[0].poll())
        return len(entries) == 2

    wire.run(done)
    assert [wc.status for wc in entries] == [
        CompletionStatus.REMOTE_ACCESS_ERROR,
        CompletionStatus.FLUSHED,
    ]
    assert not any(gone.buffer)
    assert context.refused()["unknown_rkey"] == 1
    assert a.state is QpState.ERROR
    a.post_write(2, b"z", kept.va, kept.rkey)
    (flushed,) = cqs[0].poll()
    assert (flushed.wr_id, flushed.status) == (2, CompletionStatus.FLUSHED)


def test_a_queue_pair_that_was_destroyed_is_unknown_to_late_packets() -> None:
    wire = Wire()
    cqs = queues(wire)
    a, b = connected(wire, cqs)
    region = wire.contexts[1].reg_mr(bytearray(64))
    a.post_write(0, b"x", region.va, region.rkey)
    wire.contexts[1].destroy_qp(b)
    wire.run(lambda: wire.contexts[1].refused()["unknown_qp"] > 0)
    assert not any(region.buffer)
    assert wire.contexts[1].next_deadline() is None


def test_profiles_have_the_words_of_the_control_api() -> None:
    wire = Wire()
    context, other = wire.contexts
    profile = replace(context.port.cc_profile(context.port.base_rtt_ns), gamma=0.5)
    assert profile.base_rtt == 130 * MS
    qp = context.create_qp(
        CompletionQueue(),
        ev_profile=partial(EvProfile, ev_min_active=2, probe_successes=5),
        cc_profile=profile,
    )
    qp.connect(other.create_qp(CompletionQueue()).local)
    assert qp.core is not None
    assert isinstance(qp.core.congestion.controller, Nscc)
    assert qp.core.congestion.controller.profile is profile
    assert qp.core.config.ev_profile.probe_successes == 5
    assert qp.core.active_evs() == {0, 1, 2, 3}


def core_of(wire: Wire, **options: Any) -> QueuePair:
    """The protocol of a queue pair that was made with these options."""
    a, b = wire.contexts
    qp = a.create_qp(CompletionQueue(), **options)
    qp.connect(b.create_qp(CompletionQueue()).local)
    assert qp.core is not None
    return qp.core


@pytest.mark.parametrize("trimming", [True, False])
def test_without_a_profile_nscc_has_the_defaults_for_the_peers_paths(trimming: bool) -> None:
    congestion = core_of(Wire(trimming=trimming)).congestion.controller
    assert isinstance(congestion, Nscc)
    assert congestion.profile == CcProfile.derive(
        base_rtt_ns=130 * MS,
        path_rtt_ns=NEAR_RTT_NS,
        rate_bps=40_000_000,
        mss=MTU,
        trimming=trimming,
        dilation=1e4,
    )


def test_a_fixed_window_is_had_by_name() -> None:
    core = core_of(Wire(), cc_profile=FixedWindow(7 * MTU))
    assert isinstance(core.congestion.controller, FixedWindow)
    assert core.congestion.window == 7 * MTU


def test_responder_window_and_retries_can_be_chosen() -> None:
    chosen = QpAttributes(Capabilities(2), linear_retries=1, exponential_retries=0)
    config = core_of(Wire(), attributes=chosen).config
    assert (config.capabilities.mpr, config.linear_retries, config.exponential_retries) == (2, 1, 0)
    default = core_of(Wire()).config
    assert (default.linear_retries, default.exponential_retries) == (7, 7)
    assert default.capabilities == default.peer_capabilities == Capabilities()
    with pytest.raises(ValueError, match="linear_retries must be 0 to 7, not 8"):
        core_of(Wire(), attributes=QpAttributes(linear_retries=8))


def test_a_lost_port_is_left_by_every_queue_pair_at_both_ends_and_used_again() -> None:
    wire = Wire()
    cqs = queues(wire)
    before = connected(wire, cqs)
    here = wire.contexts[0]

    def planes(*qps: VerbsQp) -> list[frozenset[int]]:
        return [qp.core.active_evs() for qp in qps if qp.core is not None]

    here.port_changed(2, up=False, now_ns=wire.now_ns)
    assert planes(*before) == [{0, 1, 3}, {0, 1, 2, 3}]
    after = connected(wire, cqs)
    assert planes(*after) == [{0, 1, 3}, {0, 1, 2, 3}]
    wire.run(lambda: planes(*before, *after) == [{0, 1, 3}] * 4)
    here.port_changed(2, up=True, now_ns=wire.now_ns)
    wire.run(lambda: planes(*before, *after) == [{0, 1, 2, 3}] * 4)


def test_queue_pairs_take_turns_where_there_is_little_room() -> None:
    wire = Wire()
    cqs = queues(wire)
    pairs = [connected(wire, cqs) for _ in range(3)]
    region = wire.contexts[1].reg_mr(bytearray(MTU))
    for a, _ in pairs:
        for wr_id in range(20):
            a.post_write(wr_id, bytes(MTU), region.va, region.rkey)
    first = [wire.contexts[0].transmit(0, 1) for _ in range(3)]
    qpns = {int.from_bytes(one.datagram.header[53:56], "big") for (one,) in first}
    assert qpns == {b.qp_num for _, b in pairs}


def test_psns_and_the_mtu_are_those_of_the_state_changes() -> None:
    """As ibv_modify_qp brings them; PSNs that wrap at 2^24."""
    wire = Wire()
    cqs = queues(wire)
    a, b = (context.create_qp(cq) for context, cq in zip(wire.contexts, cqs, strict=True))
    psns = 0xFFFFFE, 5
    for qp, peer, own in ((a, b, 0), (b, a, 1)):
        qp.attributes = QpAttributes(mtu=256)
        qp.modify(QpState.INIT)
        qp.modify(QpState.RTR, replace(peer.local, psn=psns[1 - own]))
        qp.attributes = replace(qp.attributes, linear_retries=2)
        qp.modify(QpState.RTS, first_psn=psns[own])
        assert qp.core is not None
        assert qp.core.config.first_psn == psns[own]
        assert (qp.core.config.mtu, qp.core.config.linear_retries) == (256, 2)
    region = wire.contexts[1].reg_mr(bytearray(3000))
    a.post_write(1, b"x" * 3000, region.va, region.rkey)
    done: list[Any] = []

    def ended() -> bool:
        done.extend(cqs[0].poll())
        return bool(done)

    wire.run(ended)
    assert done[0].status is CompletionStatus.SUCCESS
    assert region.buffer == b"x" * 3000
    assert a.core is not None
    assert a.core.counters.data_sent == 12


class Unreadable:
    """A message that can be read up to a byte."""

    def __len__(self) -> int:
        return 4 * MTU

    def __getitem__(self, part: slice, /) -> bytes:
        if part.start >= 2 * MTU:
            raise PayloadError("gone")
        return bytes(part.stop - part.start)


def test_a_message_that_cannot_be_read_fails_and_what_is_behind_it_is_flushed() -> None:
    wire = Wire()
    cqs = queues(wire)
    a, _ = connected(wire, cqs)
    region = wire.contexts[1].reg_mr(bytearray(4 * MTU))
    a.post_write(1, Unreadable(), region.va, region.rkey)
    a.post_write(2, b"x", region.va, region.rkey)
    done: list[Any] = []

    def both() -> bool:
        done.extend(cqs[0].poll())
        return len(done) == 2

    wire.run(both)
    assert [(wc.wr_id, wc.status) for wc in done] == [
        (1, CompletionStatus.LOCAL_PROTECTION_ERROR),
        (2, CompletionStatus.FLUSHED),
    ]
    assert a.state is QpState.ERROR


def test_queue_pairs_that_send_have_equal_turns_whatever_stands_between_them() -> None:
    """Those that only receive do not give their turn to the one behind them."""
    wire = Wire()
    cqs = queues(wire)
    pairs = [connected(wire, cqs) for _ in range(6)]
    region = wire.contexts[1].reg_mr(bytearray(8 * MTU))
    busy = [pairs[0][0], pairs[1][0], pairs[5][0]]
    for qp in busy:
        for number in range(40):
            qp.post_write(number, bytes(8 * MTU), region.va, region.rkey)
    sent = dict.fromkeys([qp.qp_num for qp in busy], 0)
    for _ in range(60):
        for core, datagram in wire.contexts[0].transmit_by_qp(0, 1):
            sent[core.config.qpn] += datagram.is_data
    assert max(sent.values()) - min(sent.values()) <= 1
    assert sum(sent.values()) == 60


def test_what_the_peer_may_write_to_can_be_less_than_all() -> None:
    """A queue pair of another protection domain."""
    wire = Wire()
    cqs = queues(wire)
    a, b = (context.create_qp(cq) for context, cq in zip(wire.contexts, cqs, strict=True))
    b.memory = MemoryTable()
    a.connect(b.local)
    b.connect(a.local)
    region = wire.contexts[1].reg_mr(bytearray(10))
    a.post_write(1, b"x", region.va, region.rkey)
    done: list[Any] = []

    def ended() -> bool:
        done.extend(cqs[0].poll())
        return bool(done)

    wire.run(ended)
    assert done[0].status is CompletionStatus.REMOTE_ACCESS_ERROR
