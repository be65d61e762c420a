"""Damaged and forged packets by the thousand: nothing raises, nothing is written where it must not.

`TESTBED_SOAK=1 pytest tests/mrc/test_fuzz.py` throws a million instead of fifty thousand.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from testbed.mrc import (
    Arrival,
    CcProfile,
    CompletionStatus,
    Datagram,
    Demux,
    DscpClasses,
    EndpointRequest,
    MemoryRegion,
    MemoryTable,
    Nscc,
    QpState,
    QueuePair,
    Window,
    decode,
    respond,
)
from testbed.mrc.constants import OTHER_UDP_PORT, NackReason, NakCode
from testbed.mrc.wire.codec import WRITE_HEADER_BYTES, icrc
from testbed.mrc.wire.control import Ack, EndpointResponse, Nack
from testbed.mrc.wire.kinds import TRIMMED_BYTES, WireOptions, Write, kept_bytes

from .bad_input import control_bytes
from .harness import MS, RKEY, VA, Network, PathModel, make_profile

GUARD = 4096
REGION = 1 << 16
MTU = 256
DSCP = DscpClasses()


def real_packets(**options: object) -> tuple[list[bytes], list[bytes]]:
    """What the two ends of a bad network send each other: what side 0 gets, what side 1 gets."""
    network = Network(
        make_profile(planes=2),
        default=lambda: PathModel(loss=0.1, trim=0.1, mark=0.1),
        mtu=MTU,
        cwnd=64 * MTU,
        **options,  # type: ignore[arg-type]
    )
    for qp in network.qps:
        for wr_id in range(8):
            qp.post_write(wr_id, memoryview(bytes(1000)), VA, RKEY)
            qp.post_write(wr_id, memoryview(bytes(700)), VA, RKEY, 0)
    network.run(3000 * MS)
    packets: tuple[list[bytes], list[bytes]] = ([], [])
    for sent in network.sent:
        data = sent.datagram.join()
        packets[1 - sent.side].append(data)
        if sent.datagram.is_data:
            packets[1 - sent.side].append(data[: kept_bytes(data)])
        elif isinstance(packet := decode(data), EndpointRequest):
            packets[sent.side].append(respond(packet, DSCP).join())
    return packets


def mutate(rng: Random, packet: bytes, *, sealed: bool) -> bytearray:
    """Change some bits, bytes or the length; `sealed`: headers only, under an iCRC that fits."""
    damaged = bytearray(packet)
    end = min(len(damaged), WRITE_HEADER_BYTES) if sealed else len(damaged)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        position = rng.randrange(48 if sealed and rng.random() < 0.9 else 0, end)
        if rng.random() < 0.5:
            damaged[position] ^= 1 << rng.randrange(8)
        else:
            damaged[position] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    if not sealed:
        if rng.random() < 0.1:
            del damaged[rng.randrange(len(damaged)) :]
        elif rng.random() < 0.05:
            damaged += rng.randbytes(rng.randrange(1, 64))
    elif len(damaged) > TRIMMED_BYTES:
        damaged[-4:] = icrc(damaged[:-4], b"").to_bytes(4, "little")
    return damaged


REFUSED = {
    CompletionStatus.REMOTE_ACCESS_ERROR,
    CompletionStatus.REMOTE_INVALID_REQUEST,
    CompletionStatus.REMOTE_OPERATION_ERROR,
}


class Target:
    """A live queue pair behind a demultiplexer, over guarded memory full of zeros.

    Attributes:
        thrown: packets so far.
        refused: of these, what was counted as not acted on.
        accepted: of these, what was not.
        denied: how often one made the queue pair believe that the peer's memory refused a WRITE.
        reasons: how many were refused for which reason.
        bystander: a queue pair with another peer, at the same NIC.
        fitting: what the peer might say about the last packet sent: an ACK, a NAK or NACK of each
            reason.
    """

    def __init__(self, seed: int) -> None:
        self.buffer = bytearray(b"\xa5" * GUARD + bytes(REGION) + b"\xa5" * GUARD)
        memory = MemoryTable()
        view = memoryview(self.buffer)[GUARD : GUARD + REGION]
        memory.register(MemoryRegion(RKEY, VA, view))
        # With few retries: a forged port status that no EV survives must not end the attack.
        network = Network(
            make_profile(planes=2), mtu=MTU, seed=seed, linear_retries=1, exponential_retries=0
        )
        config = network.qps[0].config
        profile = CcProfile.derive(base_rtt_ns=config.base_rtt_ns, rate_bps=20e6, dilation=1e4)
        self.qp = QueuePair(config, memory, Window(lambda: Nscc(profile)))
        self.demux = Demux(config.local_address, DSCP)
        self.demux.add(self.qp)
        other = replace(config, qpn=config.peer_qpn, peer_qpn=99, peer_address=bytes(16))
        self.bystander = QueuePair(other, memory)
        self.demux.add(self.bystander)
        self.bystander.post_write(7, memoryview(bytes(10)), VA, RKEY)
        self.now_ns = 0
        self.thrown = self.refused = self.accepted = self.denied = 0
        self.fitting: list[bytes] = []
        self.reasons: Counter[str] = Counter()
        self._counted: dict[str, int] = {}

    def _count(self) -> list[str]:
        """Return why packets were refused since the last call, one reason for each."""
        before, self._counted = self._counted, self.demux.refused()
        if before == self._counted:
            return []
        rises = {reason: count - before.get(reason, 0) for reason, count in self._counted.items()}
        return [reason for reason, rise in rises.items() for _ in range(rise)]

    def throw(self, packet: bytearray, dscp: int) -> None:
        """Every packet is counted once, or is one that may be acted on."""
        self.now_ns += MS // 4
        self.thrown += 1
        arrival = Arrival(self.now_ns & 3, dscp, self.now_ns)
        answer = self.demux.receive(memoryview(packet), arrival)
        refused = self._count()
        assert len(refused) <= 1
        self.refused += len(refused)
        self.reasons.update(refused)
        if refused:
            assert answer is None
            return
        self.accepted += 1
        decoded = decode(packet, trimmed=dscp in (DSCP.trimmed, DSCP.trimmed_lasthop))
        config = self.qp.config
        assert (decoded.source, decoded.destination) == (config.peer_address, config.local_address)
        if isinstance(decoded, EndpointRequest):
            assert answer is not None
            assert decode(answer.datagram.join())
        else:
            assert answer is None
            assert isinstance(decoded, EndpointResponse) or decoded.qpn == config.qpn

    def live(self) -> None:
        """Send, poll, and come back from ERROR as a user would."""
        qp = self.qp
        data = [packet for packet in qp.transmit(self.now_ns, 64) if packet.is_data]
        assert len(data) <= 64
        if data:
            self.fitting = list(answers(data[-1]))
        deadline = qp.next_deadline()
        assert deadline is None or deadline >= 0
        qp.events()
        ended = {completion.status for completion in qp.poll_cq()}
        self.denied += not ended.isdisjoint(REFUSED)
        qp.poll_recv_cq()
        if qp.failed:
            for state in (QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS):
                qp.modify(state)
            for wr_id in range(64):
                qp.post_receive(wr_id)
            self._count()  # the queue pair's counters begin anew
        if qp.flight == 0:
            qp.post_write(0, memoryview(bytes(20 * MTU)), VA, RKEY)
            qp.post_write(0, memoryview(bytes(10)), VA, RKEY, 1)

    def bystander_is_untouched(self) -> bool:
        """Whether no packet has reached the other queue pair, nor ended what it has to send."""
        qp = self.bystander
        counts = qp.counters
        reached = counts.data_received + counts.sacks_received + counts.bytes_placed
        return not (reached or qp.failed or qp.poll_cq() or qp.poll_recv_cq() or qp.events())

    def guards_hold(self) -> bool:
        guard = b"\xa5" * GUARD
        return self.buffer[:GUARD] == guard == self.buffer[-GUARD:]


def answers(datagram: Datagram) -> Iterator[bytes]:
    """What the peer might say about a packet of data."""
    write = decode(datagram.join())
    assert isinstance(write, Write)
    ends = write.destination, write.source, write.ev, 16
    yield control_bytes(Ack(*ends, write.psn, write.msn))
    for error in NakCode:
        yield control_bytes(Ack(*ends, write.psn, write.msn, error))
    for reason in NackReason:
        yield control_bytes(Nack(*ends, 17, reason, write.ev, write.psn, write.tx_timestamp or 0))


def classes() -> Iterator[int]:
    while True:
        yield from (DSCP.trimmable, DSCP.control, DSCP.trimmed, DSCP.trimmable_retx)
        yield from (DSCP.trimmable, DSCP.control, DSCP.trimmed_lasthop)


def fuzz(packets: int, *, sealed: bool, seed: int) -> Target:
    rng = Random(seed)
    target = Target(seed)
    corpus = real_packets()[0]
    corpus += real_packets(timestamps=False, wire=WireOptions(OTHER_UDP_PORT))[0]
    for number, dscp in zip(range(packets), classes(), strict=False):
        like = target.fitting if target.fitting and rng.random() < 0.2 else corpus
        target.throw(mutate(rng, rng.choice(like), sealed=sealed), dscp)
        if number % 8 == 0:
            target.live()
    assert target.refused + target.accepted == target.thrown == packets
    assert target.reasons.total() == target.refused
    assert target.bystander_is_untouched()
    return target


def check(packets: int) -> None:
    """Throw so many."""
    damaged = fuzz(packets // 2, sealed=False, seed=1)
    assert 0 < damaged.accepted < packets // 4
    assert damaged.guards_hold()
    assert not any(damaged.buffer[GUARD:-GUARD])
    forged = fuzz(packets // 2, sealed=True, seed=2)
    assert forged.accepted > packets // 20
    assert forged.denied > 0, "a NACK of a packet in flight can fail a queue pair"
    assert forged.guards_hold()
    reasons = damaged.reasons + forged.reasons
    assert set(reasons) == set(damaged.demux.refused()), "there was a packet for each reason"


def test_mutated_packets() -> None:
    check(50_000)


@pytest.mark.skipif("TESTBED_SOAK" not in os.environ, reason="a soak: set TESTBED_SOAK=1")
def test_a_million_mutated_packets() -> None:
    check(1_000_000)
