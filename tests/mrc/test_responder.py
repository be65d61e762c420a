"""The responder: when it sends SACKs, what they say, what it refuses."""

from random import Random

import pytest

from testbed.mrc import Counters, Event, MemoryRegion, MemoryTable, MessageDelivered, QpConfig
from testbed.mrc.config import Capabilities
from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import ECN_CE, ECT0, DscpClasses, EvMark, NackReason, NakCode
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.ev.reverse import ReversePaths
from testbed.mrc.events import Placed
from testbed.mrc.message import ReceiveCompletion
from testbed.mrc.responder import Responder
from testbed.mrc.wire.control import Ack, Nack, ReliabilityProbe, RequestPacket, Sack
from testbed.mrc.wire.datagram import Arrival
from testbed.mrc.wire.kinds import Opcode, TrimmedWrite, Write, unwrap_psn

from .harness import ADDRESSES, MS, RKEY, VA, make_profile

FIRST = (1 << 24) - 3
DELAY_NS = 10 * MS


class Bench:
    """A responder whose peer writes one-byte packets, one message of `length` bytes."""

    def __init__(
        self, length: int = 1000, mpr: int = 8, immediates: int = 64, **options: bool
    ) -> None:
        self.buffer = bytearray(length)
        memory = MemoryTable()
        memory.register(MemoryRegion(RKEY, VA, memoryview(self.buffer)))
        self.events: list[Event] = []
        self.counters = Counters()
        config = QpConfig(
            1,
            2,
            *ADDRESSES,
            ev_profile=make_profile(),
            base_rtt_ns=16 * DELAY_NS,
            cwnd=4096,
            mtu=1,
            peer_first_psn=FIRST,
            capabilities=Capabilities(mpr, immediates=immediates),
            sack_bytes=8 * 1024,
            **options,  # type: ignore[arg-type]
        )
        rtt = RttEstimator(config.base_rtt_ns)
        engine = EvEngine(config.ev_profile, rtt, Random(1), self.events)
        reverse = ReversePaths(engine, rtt, Random(1))
        self.responder = Responder(config, memory, self.events, self.counters, reverse)
        self.length = length
        self.acks: list[Ack] = []

    def write(
        self,
        index: int,
        *,
        ev: int = 9,
        ecn: bool = False,
        ack_request: bool = False,
        retransmitted: bool = False,
        rkey: int = RKEY,
        now_ns: int = 0,
    ) -> None:
        last = index == self.length - 1
        opcode = Opcode.WRITE_LAST if last else Opcode.WRITE_MIDDLE
        self._write(opcode, index, ev, ecn, ack_request, retransmitted, rkey, now_ns)

    def write_message(self, index: int, *, immediate: int | None = None) -> None:
        """A message of one packet."""
        opcode = Opcode.WRITE_ONLY if immediate is None else Opcode.WRITE_ONLY_IMMEDIATE
        self._write(opcode, index, 9, False, False, False, RKEY, 0, immediate, VA)

    def _write(
        self,
        opcode: Opcode,
        index: int,
        ev: int,
        ecn: bool,
        ack_request: bool,
        retransmitted: bool,
        rkey: int,
        now_ns: int,
        immediate: int | None = None,
        va: int | None = None,
    ) -> None:
        packet = Write(
            ADDRESSES[1],
            ADDRESSES[0],
            ev,
            1,
            (FIRST + index) & 0xFFFFFF,
            opcode,
            ack_request,
            retransmitted,
            0,
            0 if va is None else index,
            index & 0xFFFF,
            VA + index if va is None else va,
            rkey,
            self.length,
            bytes([index % 251 + 1]),
            immediate,
        )
        self.receive(packet, ecn=ecn, now_ns=now_ns)

    def receive(
        self, packet: RequestPacket, *, ecn: bool = False, dscp: int = 0, now_ns: int = 0
    ) -> None:
        self.responder.receive(packet, Arrival(ECN_CE if ecn else ECT0, dscp, now_ns))

    def sacks(self, now_ns: int = 0) -> list[Sack]:
        queue = self.responder.transmit(now_ns)
        sacks = [packet for packet in queue if isinstance(packet, Sack)]
        assert not any(isinstance(packet, Nack) for packet in queue)
        self.acks += [packet for packet in queue if isinstance(packet, Ack)]
        queue.clear()
        return sacks

    def nacks(self) -> list[Nack]:
        queue = self.responder.transmit(0)
        nacks = [packet for packet in queue if isinstance(packet, Nack)]
        queue.clear()
        return nacks


def reported(sack: Sack) -> set[int]:
    """Indexes of the packets that a SACK acknowledges."""
    cack = unwrap_psn(sack.cack_psn, FIRST)
    above = {cack + sack.sack_offset + bit for bit in range(64) if sack.bitmap >> bit & 1}
    return {seq - FIRST for seq in above | set(range(FIRST, cack + 1))}


def test_one_sack_for_eight_packets() -> None:
    bench = Bench()
    for index in range(7):
        bench.write(index)
    assert bench.sacks() == []
    bench.write(7, ev=17)
    (sack,) = bench.sacks()
    assert reported(sack) == set(range(8))
    assert (sack.ev, sack.reflected_ev) == (17, 17)
    assert sack.ack_psn_offset == 0
    assert sack.tx_timestamp == 7
    assert sack.mark is EvMark.NONE


def test_a_sack_after_a_short_delay() -> None:
    bench = Bench()
    bench.write(0, now_ns=5)
    bench.write(1, now_ns=DELAY_NS // 2)
    assert bench.responder.deadline_ns == 5 + DELAY_NS
    assert bench.sacks(5 + DELAY_NS - 1) == []
    (sack,) = bench.sacks(5 + DELAY_NS)
    assert reported(sack) == {0, 1}
    assert bench.sacks(10 * DELAY_NS) == []


@pytest.mark.parametrize("reason", ["ecn", "ack_request", "retransmitted"])
def test_a_sack_at_once(reason: str) -> None:
    bench = Bench()
    bench.write(0, **{reason: True})
    assert bench.responder.deadline_ns == 0
    (sack,) = bench.sacks()
    assert sack.mark is (EvMark.SKIP_ONCE if reason == "ecn" else EvMark.NONE)


def test_every_marked_ev_is_reflected_once() -> None:
    bench = Bench()
    bench.write(0, ev=1, ecn=True)
    bench.write(1, ev=2)
    bench.write(2, ev=3, ecn=True)
    sacks = bench.sacks()
    assert [(sack.reflected_ev, sack.mark) for sack in sacks] == [
        (1, EvMark.SKIP_ONCE),
        (3, EvMark.SKIP_ONCE),
    ]


def test_a_duplicate_is_reported_at_once_and_not_placed_again() -> None:
    bench = Bench()
    for index in (0, 5, 5):
        bench.write(index)
    assert bench.counters.duplicates == 1
    assert bench.counters.bytes_placed == 2
    assert [event.size for event in bench.events if isinstance(event, Placed)] == [1, 1, 0]
    (sack,) = bench.sacks()
    assert reported(sack) == {0, 5}
    assert sack.ack_psn_offset == 5


def test_everything_new_is_reported_however_far_apart() -> None:
    bench = Bench()
    arrived = {0, 70, 75, 200, 201, 400, 463, 900}
    for index in sorted(arrived, key=lambda index: -index % 7):
        bench.write(index)
    sacks = bench.sacks()
    assert set().union(*map(reported, sacks)) == arrived
    assert sacks[-1].ooo_count == len(arrived) - 1


def test_what_was_reported_once_is_reported_again_by_the_sweep() -> None:
    bench = Bench()
    for index in range(1, 300):
        bench.write(index)
        bench.sacks()
    told: set[int] = set()
    for index in range(300, 300 + 8 * 2 * 6):
        bench.write(index)
        for sack in bench.sacks():
            told |= reported(sack)
    assert set(range(1, 300)) <= told


def test_in_steady_flow_several_sacks_report_each_packet() -> None:
    bench = Bench()
    sacks: list[Sack] = []
    for index in range(1, 240):
        bench.write(index)
        sacks += bench.sacks()
    assert all(sum(index in reported(sack) for sack in sacks) >= 7 for index in range(1, 170))


@pytest.mark.parametrize("planes", range(1, 9))
def test_every_plane_triggers_sacks(planes: int) -> None:
    bench = Bench()
    triggers: list[int] = []
    for index in range(400):
        bench.write(index, ev=index % planes)
        triggers += [sack.reflected_ev for sack in bench.sacks()]
    counts = [triggers.count(plane) for plane in range(planes)]
    assert min(counts) > len(triggers) / planes / 2


def test_a_probe_is_answered_by_the_whole_window() -> None:
    bench = Bench()
    arrived = set(range(2, 900, 3))
    for index in arrived:
        bench.write(index)
    bench.sacks()
    probe = ReliabilityProbe(ADDRESSES[1], ADDRESSES[0], 33, 1, 2, 0xFFFE, 77)
    bench.receive(probe)
    sacks = bench.sacks()
    assert set().union(*map(reported, sacks)) == arrived
    assert [sack.probe_reply for sack in sacks] == [False] * (len(sacks) - 1) + [True]
    assert sacks[-1].ack_psn_offset & 0xFFFF == 0xFFFE
    assert all(sack.ev == 33 for sack in sacks)


@pytest.mark.parametrize("nack_beyond", [True, False])
def test_the_window_ends_mpr_packets_above_cack(nack_beyond: bool) -> None:
    bench = Bench(mpr=1, nack_beyond=nack_beyond)
    bench.write(128)
    assert bench.counters.out_of_window == 1
    nacks = [(nack.reason, nack.nack_psn) for nack in bench.nacks()]
    assert nacks == [(NackReason.PSN_OOR_WINDOW, (FIRST + 128) & 0xFFFFFF)] * nack_beyond
    bench.write(127)
    assert bench.counters.out_of_window == 1
    assert bench.buffer[127] != 0
    assert bench.buffer[128] == 0


def test_an_ack_opens_the_window_too() -> None:
    bench = Bench(length=1, mpr=1)
    bench.write_message(0)
    assert (bench.sacks(), [ack.psn for ack in bench.acks]) == ([], [FIRST & 0xFFFFFF])
    bench.write_message(128)
    assert bench.counters.out_of_window == 0


def test_a_psn_from_half_of_the_numbers_away_is_dropped_silently() -> None:
    bench = Bench()
    bench.write(1 << 23)
    assert (bench.counters.out_of_window, bench.nacks()) == (1, [])


def test_received_bytes_are_whole_inner_packets_rounded_up() -> None:
    """As V4 has it: 0x22 units for a UDP length of 64 and two of 4144."""
    bench = Bench()
    for index in range(3):
        bench.write(index, ack_request=index == 2)
    (sack,) = bench.sacks()
    assert sack.rcvd_bytes == -(-3 * (60 + 4 + 4 + 16 + 4 + 4) // 256)


def test_a_sack_echoes_that_a_retransmission_triggered_it() -> None:
    bench = Bench()
    bench.write(0, retransmitted=True)
    bench.write(1, ack_request=True)
    assert [sack.retransmitted for sack in bench.sacks()] == [True, False]


@pytest.mark.parametrize("ecn", [False, True])
def test_the_answer_to_a_probe_has_its_mark(ecn: bool) -> None:
    bench = Bench()
    probe = ReliabilityProbe(ADDRESSES[1], ADDRESSES[0], 33, 1, 2, 7, 77)
    bench.receive(probe, ecn=ecn)
    (sack,) = bench.sacks()
    assert sack.mark is (EvMark.SKIP_ONCE if ecn else EvMark.NONE)
    assert (sack.reflected_ev, sack.tx_timestamp) == (33, 77)


def test_a_message_is_delivered_when_all_before_its_end_is_there() -> None:
    bench = Bench(length=5)
    for now_ns, index in enumerate((4, 0, 1, 3)):
        bench.write(index, now_ns=now_ns)
    assert not any(isinstance(event, MessageDelivered) for event in bench.events)
    bench.write(2, now_ns=9)
    assert bench.events.count(MessageDelivered(0, VA, RKEY, 5, 9)) == 1
    assert bench.buffer == bytes([1, 2, 3, 4, 5])


def test_a_refused_write_counts_as_received_and_its_message_never_completes() -> None:
    """The packet is acknowledged by a SACK, its operation is refused by a NAK, in order."""
    bench = Bench(length=4)
    bench.write(1, rkey=RKEY + 1, ack_request=True)
    assert [reported(sack) for sack in bench.sacks()] == [{1}]
    assert bench.acks == []
    bench.write(0)
    bench.sacks()
    (nak,) = bench.acks
    assert (nak.error, nak.psn, nak.msn) == (NakCode.REMOTE_ACCESS_ERROR, (FIRST + 1) & 0xFFFFFF, 0)
    for index in (2, 3, 3):
        bench.write(index)
    bench.sacks()
    assert {ack.error for ack in bench.acks} == {NakCode.REMOTE_ACCESS_ERROR}
    assert not any(isinstance(event, MessageDelivered) for event in bench.events)


def test_an_ack_is_sent_for_the_end_of_a_message_and_for_ack_request() -> None:
    bench = Bench(length=4)
    bench.write(1, ack_request=True)
    bench.sacks()
    assert bench.acks == []
    bench.write(0)
    assert bench.responder.deadline_ns == 0
    bench.sacks()
    assert [(ack.psn, ack.msn) for ack in bench.acks] == [((FIRST + 1) & 0xFFFFFF, 0)]
    for index in (3, 2):
        bench.write(index)
    bench.sacks()
    assert [(ack.psn, ack.msn) for ack in bench.acks[1:]] == [((FIRST + 3) & 0xFFFFFF, 1)]


def test_one_ack_covers_all_that_completed_before_it_is_sent() -> None:
    bench = Bench(length=1)
    for index in range(3):
        bench.write_message(index)
    bench.sacks()
    assert [(ack.psn, ack.msn) for ack in bench.acks] == [((FIRST + 2) & 0xFFFFFF, 3)]


def test_a_packet_from_below_the_window_is_acknowledged_twice() -> None:
    """By a SACK and by an ACK, each of which may have been lost."""
    bench = Bench(length=1)
    bench.write_message(0)
    bench.sacks()
    bench.write_message(0)
    (sack,) = bench.sacks()
    assert reported(sack) == {0}
    assert [(ack.psn, ack.msn) for ack in bench.acks] == [(FIRST, 1)] * 2


def test_a_packet_above_the_next_one_that_is_there_already_gets_a_sack_only() -> None:
    bench = Bench()
    bench.write(5)
    bench.write(5)
    assert len(bench.sacks()) == 1
    assert bench.acks == []


def test_each_immediate_consumes_a_receive_and_one_without_fails() -> None:
    bench = Bench(length=1)
    bench.responder.delivery.post_receive(7, flushed=False)
    for index in range(2):
        bench.write_message(index, immediate=40 + index)
    bench.sacks()
    assert bench.responder.delivery.take_completions() == [ReceiveCompletion(0, 40, 1, 7)]
    (nak,) = bench.acks
    assert (nak.error, nak.psn) == (NakCode.REMOTE_OPERATION_ERROR, FIRST + 1)
    assert nak.msn == bench.counters.no_receive == 1


def test_more_immediates_than_agreed_are_an_invalid_request() -> None:
    bench = Bench(length=1, immediates=2)
    for index in (3, 2, 1):
        bench.write_message(index, immediate=index)
    bench.write_message(0)
    bench.sacks()
    (nak,) = bench.acks
    assert (nak.error, nak.psn) == (NakCode.INVALID_REQUEST, FIRST + 1)
    assert bench.counters.excess_immediates == 1


@pytest.mark.parametrize(
    ("last_hop", "reason"), [(False, NackReason.TRIMMED), (True, NackReason.TRIMMED_LASTHOP)]
)
def test_a_trimmed_packet_is_nacked_unless_it_is_here(last_hop: bool, reason: NackReason) -> None:
    bench, classes = Bench(), DscpClasses()
    bench.write(1)
    for index in (0, 1, 2000):
        psn = (FIRST + index) & 0xFFFFFF
        trimmed = TrimmedWrite(ADDRESSES[1], ADDRESSES[0], 5, 1, psn, 0, 42)
        bench.receive(trimmed, dscp=classes.trimmed_lasthop if last_hop else classes.trimmed)
    nacks = bench.nacks()
    assert [(n.nack_psn, n.reason, n.reflected_ev, n.tx_timestamp) for n in nacks] == [
        (FIRST, reason, 5, 42)
    ]
