"""CPU time of a packet in the transport core alone: no sockets, no kernel, hot caches.

A queue pair writes to another one in this process, in rounds that are a round trip apart.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from testbed import fast, mrc
from testbed.model.fabric.addressing import Path, ev_for_path
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.mrc.constants import ECT0, NS_PER_S
from testbed.studies.bench.measure import Measurement, Setting, no_target

PLANES, PATHS = 4, 4
"""Each EV has a path of its own."""

ROUND = 16
"""Packets of a round: they fill the window, and two SACKs acknowledge them."""

WARMING, ROUNDS = 100, 2_000
"""Rounds before the measurement (an EV's outer header is built at its first use), and in it."""

RTT_NS = 1_000_000
MESSAGE_ROUNDS = 16
ADDRESSES = (bytes(15) + b"\1", bytes(15) + b"\2")
RKEY, VA = 1, 0

STEPS = (
    REQUESTER := "requester: choose EV, encode, iCRC",
    DECODE := "decode, iCRC",
    RESPONDER := "responder: place, note, events",
    SACKS := "SACKs: make, encode, decode, take in",
)


def core(setting: Setting) -> list[Measurement]:
    """Time each step of a data packet of PAYLOAD_MTU bytes."""
    repeats = setting.repeat("transport core", packet_ns)
    how = "as built" if fast.is_built() else "as Python"
    return [
        no_target(f"core {how}, {step}", "us/packet", [ns[step] / 1e3 for ns in repeats])
        for step in STEPS
    ]


def packet_ns() -> dict[str, float]:
    """CPU time of each step, in ns per data packet."""
    sender, receiver = _queue_pair(0), _queue_pair(1)
    demux, answering = (
        mrc.Demux(qp.config.local_address, qp.config.dscp) for qp in (sender, receiver)
    )
    demux.add(sender)
    answering.add(receiver)
    payload = memoryview(bytes(MESSAGE_ROUNDS * ROUND * PAYLOAD_MTU))
    laps, before = _Laps(), 0
    for number in range(WARMING + ROUNDS):
        if number == WARMING:
            laps, before = _Laps(), sender.counters.data_sent
        sent_ns = number * RTT_NS
        placed_ns, known_ns = sent_ns + RTT_NS // 2, sent_ns + RTT_NS
        if number % MESSAGE_ROUNDS == 0:
            sender.post_write(number, payload, VA, RKEY)
        with laps.step(REQUESTER):
            datagrams = sender.transmit(sent_ns, ROUND)
        on_the_wire = [datagram.join() for datagram in datagrams]  # sendmmsg's work
        with laps.step(DECODE):
            packets = [mrc.decode(data) for data in on_the_wire]
        with laps.step(RESPONDER):
            arrival = mrc.Arrival(ECT0, datagrams[0].dscp, placed_ns)
            for packet in packets:
                receiver.receive(packet, arrival)
            receiver.events()
        with laps.step(SACKS):
            for sack in receiver.transmit(placed_ns, 0):
                answer = demux.receive(sack.join(), mrc.Arrival(sack.ecn, sack.dscp, known_ns))
                if answer is not None:  # to a probe of the path that SACKs take
                    answering.receive(answer.datagram.join(), arrival)
            sender.events()
            sender.poll_cq()
    count = sender.counters.data_sent - before
    return {step: laps.spent_ns[step] / count for step in STEPS}


class _Laps:
    """CPU time of this thread by step."""

    def __init__(self) -> None:
        self.spent_ns = Counter[str]()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began_ns = time.thread_time_ns()
        yield
        self.spent_ns[name] += time.thread_time_ns() - began_ns


def _queue_pair(side: int) -> mrc.QueuePair:
    """One end of the connection, with memory for a message."""
    memory = mrc.MemoryTable()
    room = bytearray(MESSAGE_ROUNDS * ROUND * PAYLOAD_MTU)
    memory.register(mrc.MemoryRegion(RKEY, VA, memoryview(room)))
    evs = (
        mrc.EvEntry(ev_for_path(Path(plane, t1)), plane, path_key=(plane, t1), active=True)
        for t1 in range(PATHS)
        for plane in range(PLANES)
    )
    window = ROUND * PAYLOAD_MTU
    port = mrc.PortAttributes(ADDRESSES[side], PAYLOAD_MTU, RTT_NS, window * 8 * NS_PER_S // RTT_NS)
    config = port.qp_config(
        qpn=16 + side,
        peer_qpn=17 - side,
        peer_address=ADDRESSES[1 - side],
        ev_profile=mrc.EvProfile(tuple(evs)),
        cwnd=window,
    )
    return mrc.QueuePair(config, memory)
