"""Damaged and forged packets by the thousand: nothing raises, nothing is written where it must not.

`TESTBED_SOAK=1 pytest tests/mrc/test_fuzz.py` throws a million instead of fifty thousand.
"""

import os
from collections.abc import Callable, Iterator
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
    decode,
    respond,
)
from testbed.mrc.constants import NackReason
from testbed.mrc.wire.codec import TRIMMED_BYTES, WRITE_HEADER_BYTES, icrc
from testbed.mrc.wire.packets import Ack, Nack, Write

from .bad_input import control_bytes
from .harness import MS, RKEY, VA, Network, PathModel, make_profile

GUARD = 4096
REGION = 1 << 16
MTU = 256
DSCP = DscpClasses()


def real_packets() -> tuple[list[bytes], list[bytes]]:
    """What the two ends of a bad network send each other: what side 0 gets, what side 1 gets."""
    network = Network(
        make_profile(planes=2),
        default=lambda: PathModel(loss=0.1, trim=0.1, mark=0.1),
        mtu=MTU,
        cwnd=64 * MTU,
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
            packets[1 - sent.side].append(data[:TRIMMED_BYTES])
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


class Target:
    """A live queue pair behind a demultiplexer, over guarded memory full of zeros.

    Attributes:
        thrown: packets so far.
        refused: of these, what was counted as not acted on.
        accepted: of these, what was not.
        denied: how often one made the queue pair believe that the peer's memory refused a WRITE.
        fitting: what the peer might say about the last packet sent: an ACK, a NACK of each reason.
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
        self.qp = QueuePair(config, memory, Nscc(profile))
        self.demux = Demux(config.local_address, DSCP)
        self.demux.add(self.qp)
        self.now_ns = 0
        self.thrown = self.refused = self.accepted = self.denied = 0
        self.fitting: list[bytes] = []
        self._counted = 0

    def _count(self) -> int:
        """Return how many packets were refused since the last call."""
        before, self._counted = self._counted, sum(self.demux.refused().values())
        return self._counted - before

    def throw(self, packet: bytearray, dscp: int) -> None:
        """Every packet is counted once, or is one that may be acted on."""
        self.now_ns += MS // 4
        self.thrown += 1
        arrival = Arrival(self.now_ns & 3, dscp, self.now_ns)
        answer = self.demux.receive(memoryview(packet), arrival)
        refused = self._count()
        assert refused in (0, 1)
        self.refused += refused
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
            assert decoded.qpn == config.qpn

    def live(self) -> None:
        """Send, poll, and come back from ERROR as a user would."""
        qp = self.qp
        data = [one for one in qp.transmit(self.now_ns, 64) if one.is_data]
        assert len(data) <= 64
        if data:
            self.fitting = list(answers(data[-1]))
        deadline = qp.next_deadline()
        assert deadline is None or deadline >= 0
        qp.events()
        ended = {completion.status for completion in qp.poll_cq()}
        self.denied += CompletionStatus.REMOTE_ACCESS_ERROR in ended
        qp.poll_recv_cq()
        if qp.failed:
            for state in (QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS):
                qp.modify(state)
            self._count()  # the queue pair's counters begin anew
        if qp.flight == 0:
            qp.post_write(0, memoryview(bytes(20 * MTU)), VA, RKEY)
            qp.post_write(0, memoryview(bytes(10)), VA, RKEY, 1)

    def guards_hold(self) -> bool:
        guard = b"\xa5" * GUARD
        return self.buffer[:GUARD] == guard == self.buffer[-GUARD:]


def answers(datagram: Datagram) -> Iterator[bytes]:
    """What the peer might say about a packet of data."""
    write = decode(datagram.join())
    assert isinstance(write, Write)
    ends = write.destination, write.source, write.ev, 16
    yield control_bytes(Ack(*ends, write.psn, write.msn))
    for reason in NackReason:
        yield control_bytes(Nack(*ends, reason, write.ev, write.psn, write.tx_timestamp))


def classes() -> Iterator[int]:
    while True:
        yield from (DSCP.trimmable, DSCP.control, DSCP.trimmed, DSCP.trimmable_retx)
        yield from (DSCP.trimmable, DSCP.control, DSCP.trimmed_lasthop)


def fuzz(packets: int, *, sealed: bool, seed: int) -> Target:
    rng = Random(seed)
    target = Target(seed)
    corpus = real_packets()[0]
    for number, dscp in zip(range(packets), classes(), strict=False):
        like = target.fitting if target.fitting and rng.random() < 0.2 else corpus
        target.throw(mutate(rng, rng.choice(like), sealed=sealed), dscp)
        if number % 8 == 0:
            target.live()
    assert target.refused + target.accepted == target.thrown == packets
    return target


def check(packets: int) -> int:
    """Throw so many; returns how many were."""
    damaged = fuzz(packets // 2, sealed=False, seed=1)
    assert 0 < damaged.accepted < packets // 4
    assert damaged.guards_hold()
    assert not any(damaged.buffer[GUARD:-GUARD])
    forged = fuzz(packets // 2, sealed=True, seed=2)
    assert forged.accepted > packets // 20
    assert forged.denied > packets // 2000, "a NACK of a packet in flight can fail a queue pair"
    assert forged.guards_hold()
    return damaged.thrown + forged.thrown


def test_mutated_packets() -> None:
    check(50_000)


@pytest.mark.skipif("TESTBED_SOAK" not in os.environ, reason="a soak: set TESTBED_SOAK=1")
def test_a_million_mutated_packets(record_property: Callable[[str, object], None]) -> None:
    record_property("packets", check(1_000_000))  # which testbed bench robustness adds up
