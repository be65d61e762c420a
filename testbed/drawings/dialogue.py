"""Traces of two queue pairs of the protocol core in virtual time, for the sequence diagrams.

The network between them is minimal: a constant delay, a data packet every few milliseconds, and one
fault. Times are emulated ns at the default dilation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from heapq import heappop, heappush
from itertools import count

from testbed import mrc
from testbed.mrc.constants import ECT0, DscpClasses, EndpointOp, EvMark, NackReason
from testbed.mrc.wire.control import Ack, EndpointResponse, Nack, ReliabilityProbe, Sack
from testbed.mrc.wire.packets import Write, kept_bytes, unwrap_psn

RTT_NS = 130_800_000
PACE_NS = RTT_NS // 16
"""From one data packet to the next: slow enough that each has a line of its own."""

PLANES = 2
REQUESTER, RESPONDER = 0, 1
BAD_EV = 2
"""The EV whose packets are lost or trimmed: plane 0, its second path."""

_MTU = 64
_RKEY = 7
_DSCP = DscpClasses()
_ADDRESSES = b"q" * 16, b"r" * 16


class Fate(Enum):
    """What becomes of a packet on its way."""

    ARRIVES = "arrives"
    LOST = "lost"
    TRIMMED = "trimmed"


FateOf = Callable[[mrc.Datagram, int], Fate]
"""Decides the fate of a packet that is sent at a time in ns."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A packet from one side to the other; it is lost or trimmed half way."""

    side: int
    sent_ns: int
    arrives_ns: int
    datagram: mrc.Datagram
    text: str
    fate: Fate


@dataclass(frozen=True, slots=True)
class Trace:
    """The packets of both sides, and the changes of the requester's EVs."""

    crossings: tuple[Crossing, ...]
    changes: tuple[mrc.EvChanged, ...]


def ev_profile() -> mrc.EvProfile:
    """Return two planes of two active EVs and a backup each."""
    entries = tuple(
        mrc.EvEntry(index * PLANES + plane, plane, (plane, index), index < 2)  # noqa: PLR2004 - two
        for index in range(3)
        for plane in range(PLANES)
    )
    return mrc.EvProfile(entries)


def converse(fate_of: FateOf, *, packets: int, until_rtt: float) -> Trace:
    """Send one WRITE and record what both sides send.

    Args:
        fate_of: what becomes of each packet.
        packets: the length of the WRITE.
        until_rtt: when the trace ends, in base RTTs.
    """
    return _Dialogue(fate_of, packets).run(round(until_rtt * RTT_NS))


class _Dialogue:
    def __init__(self, fate_of: FateOf, packets: int) -> None:
        self._fate_of = fate_of
        self._ties = count()
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._qps = tuple(self._open(side, packets * _MTU) for side in (REQUESTER, RESPONDER))
        self._demuxes = tuple(mrc.Demux(address, _DSCP) for address in _ADDRESSES)
        for demux, qp in zip(self._demuxes, self._qps, strict=True):
            demux.add(qp)
        self._crossings: list[Crossing] = []
        self._changes: list[mrc.EvChanged] = []
        self._turn_ns = [0, 0]
        self._qps[REQUESTER].post_write(0, memoryview(bytes(packets * _MTU)), 0, _RKEY)

    @staticmethod
    def _open(side: int, size: int) -> mrc.QueuePair:
        memory = mrc.MemoryTable()
        memory.register(mrc.MemoryRegion(_RKEY, 0, memoryview(bytearray(size))))
        config = mrc.QpConfig(
            qpn=16 + side,
            peer_qpn=17 - side,
            local_address=_ADDRESSES[side],
            peer_address=_ADDRESSES[1 - side],
            ev_profile=ev_profile(),
            base_rtt_ns=RTT_NS,
            cwnd=64 * _MTU,
            mtu=_MTU,
            sack_bytes=4 * 1024,
        )
        return mrc.QueuePair(config, memory)

    def run(self, until_ns: int) -> Trace:
        now_ns = 0
        while now_ns <= until_ns:
            for side, qp in enumerate(self._qps):
                self._send(side, qp, now_ns)
            times = [self._agenda[0][0]] if self._agenda else []
            for turn_ns, qp in zip(self._turn_ns, self._qps, strict=True):
                deadline_ns = qp.next_deadline()
                if deadline_ns is not None:
                    times.append(max(deadline_ns, turn_ns))
            if not times:
                break
            now_ns = max(now_ns, min(times))
            while self._agenda and self._agenda[0][0] <= now_ns:
                heappop(self._agenda)[2]()
        return Trace(tuple(self._crossings), tuple(self._changes))

    def _send(self, side: int, qp: mrc.QueuePair, now_ns: int) -> None:
        """Send what is due; after a data packet the side waits for `PACE_NS`."""
        while now_ns >= self._turn_ns[side]:
            datagrams = qp.transmit(now_ns, 1)
            events = qp.events()
            if side == REQUESTER:
                self._changes += [event for event in events if isinstance(event, mrc.EvChanged)]
            if not datagrams:
                return
            for datagram in datagrams:
                self._launch(side, datagram, now_ns)
            if any(datagram.is_data for datagram in datagrams):
                self._turn_ns[side] = now_ns + PACE_NS

    def _launch(self, side: int, datagram: mrc.Datagram, now_ns: int) -> None:
        fate = self._fate_of(datagram, now_ns)
        data = datagram.join()
        text = _summary(mrc.decode(data))
        arrives_ns = now_ns + RTT_NS // 2
        self._crossings.append(Crossing(side, now_ns, arrives_ns, datagram, text, fate))
        trimmed = fate is Fate.TRIMMED
        arrival = mrc.Arrival(ECT0, _DSCP.trimmed if trimmed else datagram.dscp, arrives_ns)
        if fate is not Fate.LOST:
            rest = data[: kept_bytes(data)] if trimmed else data
            arrive: Callable[[], None] = partial(self._arrive, 1 - side, rest, arrival)
            heappush(self._agenda, (arrives_ns, next(self._ties), arrive))

    def _arrive(self, side: int, data: bytes, arrival: mrc.Arrival) -> None:
        answer = self._demuxes[side].receive(data, arrival)
        if answer is not None:
            self._launch(side, answer.datagram, arrival.rx_ns)


def _summary(packet: mrc.Packet) -> str:
    """Return a packet in few words."""
    match packet:
        case Write():
            text = f"WRITE {packet.psn}" + (", rtx" if packet.retransmitted else "")
        case Sack():
            text = _sack_summary(packet)
        case Nack():
            text = f"NACK {packet.nack_psn} {NackReason(packet.reason).name}"
        case Ack():
            text = f"ACK {packet.psn}"
        case ReliabilityProbe():
            text = f"probe EV {packet.ev}"
        case mrc.EndpointRequest(op=EndpointOp.EV_PROBE):
            text = f"EV probe {packet.ev}"
        case EndpointResponse(op=EndpointOp.EV_PROBE):
            text = f"EV {packet.ev} answers"
        case _:
            text = type(packet).__name__
    return text


def _sack_summary(sack: Sack) -> str:
    cack = unwrap_psn(sack.cack_psn, 0)
    first = cack + sack.sack_offset
    above = [first + bit for bit in range(64) if sack.bitmap >> bit & 1]
    words = [f"cack {cack}"] if cack >= 0 else ["nothing in order"]
    if above:
        words.append(f"and {_ranges(above)}")
    if sack.mark is EvMark.SKIP_ONCE:
        words.append(f"skip EV {sack.reflected_ev}")
    return ("probe reply: " if sack.probe_reply else "SACK ") + ", ".join(words)


def _ranges(numbers: list[int]) -> str:
    """Write runs of consecutive numbers as ranges."""
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    pairs = zip(starts, ends, strict=True)
    return " ".join(str(start) if start == end else f"{start}-{end}" for start, end in pairs)


# --- the traces of docs/protocol.md --------------------------------------------------------------


def loss() -> Trace:
    """Return a trace in which one data packet is lost, whole."""
    return converse(_third_packet(Fate.LOST), packets=20, until_rtt=2.0)


def trim() -> Trace:
    """Return a trace in which a switch trims one data packet."""
    return converse(_third_packet(Fate.TRIMMED), packets=20, until_rtt=2.0)


def path_death() -> Trace:
    """Return a trace in which a path dies, and is back two RTTs later."""

    def decide_fate(datagram: mrc.Datagram, now_ns: int) -> Fate:
        dead = datagram.ev == BAD_EV and now_ns < 2 * RTT_NS
        return Fate.LOST if dead else Fate.ARRIVES

    return converse(decide_fate, packets=30, until_rtt=6.1)


def _third_packet(fate: Fate) -> FateOf:
    """Give the first transmission of the third data packet this fate; all others arrive."""

    def decide_fate(datagram: mrc.Datagram, _now_ns: int) -> Fate:
        hit = datagram.seq == 2 and not datagram.retransmitted  # noqa: PLR2004 - counted from 0
        return fate if hit else Fate.ARRIVES

    return decide_fate
