"""Two queue pairs in virtual time, and what they say to each other when something happens.

The protocol core itself speaks; the network between is as small as it can be: a constant delay, a
packet every few milliseconds, and one mishap. Times are emulated ns at the default dilation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from heapq import heappop, heappush
from itertools import count

from testbed.mrc import (
    Arrival,
    Datagram,
    EndpointRequest,
    EvChanged,
    EvEntry,
    EvProfile,
    MemoryRegion,
    MemoryTable,
    Packet,
    QpConfig,
    QueuePair,
    decode,
    respond,
)
from testbed.mrc.constants import ECN_CE, ECT0, DscpClasses, EndpointOp, EvMark, NackReason
from testbed.mrc.wire.codec import TRIMMED_BYTES
from testbed.mrc.wire.packets import EndpointResponse, Nack, Sack, Write
from testbed.mrc.wire.psn import unwrap_psn

RTT_NS = 130_800_000
PACE_NS = RTT_NS // 16
"""From one data packet to the next: slow enough that each has a line of its own."""

PLANES = 2
REQUESTER, RESPONDER = 0, 1
BAD_EV = 2
"""The EV that things happen to: plane 0, its second path."""

BACKUP_EV = 4
"""The backup of its plane."""

_MTU = 64
_RKEY = 7
_DSCP = DscpClasses()
_ADDRESSES = b"q" * 16, b"r" * 16


class Fate(Enum):
    """What becomes of a packet on its way."""

    ARRIVES = "arrives"
    LOST = "lost"
    TRIMMED = "trimmed"
    MARKED = "marked"
    LATE = "late"


Mishap = Callable[[int, Datagram, int], Fate]
"""Decides a packet's fate by the side that sends it, the packet, and when."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A packet from one side to the other; half way there it is lost, or its payload is."""

    side: int
    sent_ns: int
    arrives_ns: int
    ev: int
    text: str
    is_data: bool
    retransmitted: bool
    fate: Fate


@dataclass(frozen=True, slots=True)
class Trace:
    """What was said, and what the requester's EVs went through."""

    crossings: tuple[Crossing, ...]
    changes: tuple[EvChanged, ...]


Act = Callable[[QueuePair, int], None]
"""Something done to the requester at a time."""


def ev_profile() -> EvProfile:
    """Two planes of two active EVs and a backup each."""
    entries = tuple(
        EvEntry(index * PLANES + plane, plane, (plane, index), index < 2)  # noqa: PLR2004 - two
        for index in range(3)
        for plane in range(PLANES)
    )
    return EvProfile(entries)


def converse(
    mishap: Mishap, *, packets: int, until_rtt: float, acts: tuple[tuple[float, Act], ...] = ()
) -> Trace:
    """Have one WRITE of so many packets sent through a mishap.

    Args:
        mishap: what happens to packets.
        packets: how long the WRITE is.
        until_rtt: when to stop looking, in base RTTs.
        acts: what else is done to the requester, and when, in base RTTs.
    """
    return _Dialogue(mishap, packets, acts).run(round(until_rtt * RTT_NS))


class _Dialogue:
    def __init__(self, mishap: Mishap, packets: int, acts: tuple[tuple[float, Act], ...]) -> None:
        self._mishap = mishap
        self._ties = count()
        self._agenda: list[tuple[int, int, Callable[[int], None]]] = []
        self._qps = tuple(self._open(side, packets * _MTU) for side in (REQUESTER, RESPONDER))
        self._crossings: list[Crossing] = []
        self._changes: list[EvChanged] = []
        self._turn_ns = [0, 0]
        self._qps[REQUESTER].post_write(0, memoryview(bytes(packets * _MTU)), 0, _RKEY)
        for at_rtt, act in acts:
            self._at(round(at_rtt * RTT_NS), partial(act, self._qps[REQUESTER]))

    @staticmethod
    def _open(side: int, size: int) -> QueuePair:
        memory = MemoryTable()
        memory.register(MemoryRegion(_RKEY, 0, memoryview(bytearray(size))))
        config = QpConfig(
            qpn=16 + side,
            peer_qpn=17 - side,
            local_address=_ADDRESSES[side],
            peer_address=_ADDRESSES[1 - side],
            ev_profile=ev_profile(),
            base_rtt_ns=RTT_NS,
            cwnd=64 * _MTU,
            mtu=_MTU,
            sack_packets=4,
        )
        return QueuePair(config, memory)

    def _at(self, time_ns: int, what: Callable[[int], None]) -> None:
        heappush(self._agenda, (time_ns, next(self._ties), what))

    def run(self, until_ns: int) -> Trace:
        now_ns = 0
        while now_ns <= until_ns:
            for side, qp in enumerate(self._qps):
                self._send(side, qp, now_ns)
            times = [self._agenda[0][0]] if self._agenda else []
            for side, qp in enumerate(self._qps):
                deadline_ns = qp.next_deadline()
                if deadline_ns is not None:
                    times.append(max(deadline_ns, self._turn_ns[side]))
            if not times:
                break
            now_ns = max(now_ns, min(times))
            while self._agenda and self._agenda[0][0] <= now_ns:
                heappop(self._agenda)[2](now_ns)
        return Trace(tuple(self._crossings), tuple(self._changes))

    def _send(self, side: int, qp: QueuePair, now_ns: int) -> None:
        """Send what is due: a data packet ends the turn, and the next comes a pace later."""
        while now_ns >= self._turn_ns[side]:
            datagrams = qp.transmit(now_ns, 1)
            events = qp.events()
            if side == REQUESTER:
                self._changes += [event for event in events if isinstance(event, EvChanged)]
            if not datagrams:
                return
            for datagram in datagrams:
                self._launch(side, datagram, now_ns)
            if any(datagram.is_data for datagram in datagrams):
                self._turn_ns[side] = now_ns + PACE_NS

    def _launch(self, side: int, datagram: Datagram, now_ns: int) -> None:
        fate = self._mishap(side, datagram, now_ns)
        data = datagram.join()
        text = _told(decode(data))
        arrives_ns = now_ns + (2 * RTT_NS if fate is Fate.LATE else RTT_NS // 2)
        self._crossings.append(
            Crossing(
                side,
                now_ns,
                arrives_ns,
                datagram.ev,
                text,
                datagram.is_data,
                datagram.retransmitted,
                fate,
            )
        )
        if fate is Fate.TRIMMED:
            arrival = Arrival(ECT0, _DSCP.trimmed, arrives_ns)
            self._at(arrives_ns, partial(self._arrive, 1 - side, data[:TRIMMED_BYTES], arrival))
        elif fate is not Fate.LOST:
            ecn = ECN_CE if fate is Fate.MARKED else ECT0
            arrival = Arrival(ecn, datagram.dscp, arrives_ns)
            self._at(arrives_ns, partial(self._arrive, 1 - side, data, arrival))

    def _arrive(self, side: int, data: bytes, arrival: Arrival, _now_ns: int) -> None:
        packet = decode(data, trimmed=arrival.dscp == _DSCP.trimmed)
        if not isinstance(packet, EndpointRequest):
            self._qps[side].receive(packet, arrival)
            return
        if packet.op is EndpointOp.EV_PROBE or self._qps[side].receive(packet, arrival):
            self._launch(side, respond(packet, _DSCP), arrival.rx_ns)


def _told(packet: Packet) -> str:
    """A packet in few words."""
    match packet:
        case Write():
            text = f"WRITE {packet.psn}" + (", rtx" if packet.retransmitted else "")
        case Sack():
            text = _told_sack(packet)
        case Nack():
            text = f"NACK {packet.nack_psn} {NackReason(packet.reason).name}"
        case EndpointRequest(op=EndpointOp.EV_PROBE):
            text = f"EV probe {packet.ev}"
        case EndpointResponse(op=EndpointOp.EV_PROBE):
            text = f"EV {packet.reflected_ev} answers"
        case _:
            text = type(packet).__name__
    return text


def _told_sack(sack: Sack) -> str:
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
    """Consecutive numbers as ranges."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    pairs = zip(starts, ends, strict=True)
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)


# --- what happens -------------------------------------------------------------------------------


def fine(_side: int, _datagram: Datagram, _now_ns: int) -> Fate:
    """Let everything arrive."""
    return Fate.ARRIVES


def befalls(psn: int, fate: Fate) -> Mishap:
    """Something befalls the first transmission of one data packet."""

    def mishap(_side: int, datagram: Datagram, _now_ns: int) -> Fate:
        hit = datagram.seq == psn and not datagram.retransmitted
        return fate if hit else Fate.ARRIVES

    return mishap


def both(first: Mishap, second: Mishap) -> Mishap:
    """Two mishaps that befall different packets."""

    def mishap(side: int, datagram: Datagram, now_ns: int) -> Fate:
        fate = first(side, datagram, now_ns)
        return second(side, datagram, now_ns) if fate is Fate.ARRIVES else fate

    return mishap


def path_dies(from_rtt: float, to_rtt: float, ev: int = BAD_EV) -> Mishap:
    """All that takes an EV's path is lost for a while, both ways, in base RTTs."""

    def mishap(_side: int, datagram: Datagram, now_ns: int) -> Fate:
        dead = datagram.ev == ev and from_rtt * RTT_NS <= now_ns < to_rtt * RTT_NS
        return Fate.LOST if dead else Fate.ARRIVES

    return mishap


def all_paths_lose(from_rtt: float, to_rtt: float) -> Mishap:
    """Data is lost on every path for a while, in base RTTs."""

    def mishap(_side: int, datagram: Datagram, now_ns: int) -> Fate:
        lost = datagram.is_data and from_rtt * RTT_NS <= now_ns < to_rtt * RTT_NS
        return Fate.LOST if lost else Fate.ARRIVES

    return mishap


def nothing_arrives(_side: int, _datagram: Datagram, _now_ns: int) -> Fate:
    """Lose everything."""
    return Fate.LOST


def loss() -> Trace:
    """One data packet is lost, whole."""
    return converse(befalls(2, Fate.LOST), packets=20, until_rtt=2.0)


def trim() -> Trace:
    """A switch trims one data packet."""
    return converse(befalls(2, Fate.TRIMMED), packets=20, until_rtt=2.0)


def path_death() -> Trace:
    """A path dies, and is back two RTTs later."""
    return converse(path_dies(0, 2.0), packets=30, until_rtt=6.1)


def everything() -> tuple[Trace, ...]:
    """What can happen to an EV, one thing after the other."""

    def deny(qp: QueuePair, now_ns: int) -> None:
        qp.deny_ev(BAD_EV, now_ns)

    def allow(qp: QueuePair, now_ns: int) -> None:
        qp.allow_ev(BAD_EV, now_ns)

    def unplug(qp: QueuePair, now_ns: int) -> None:
        qp.port_down(0, now_ns)

    def plug_in(qp: QueuePair, now_ns: int) -> None:
        qp.port_up(0, now_ns)

    return (
        loss(),
        trim(),
        path_death(),
        converse(befalls(2, Fate.MARKED), packets=20, until_rtt=3),
        converse(befalls(2, Fate.LATE), packets=40, until_rtt=4),
        # Once a packet has come late, time alone is slow to judge: order is quicker.
        converse(both(befalls(2, Fate.LATE), befalls(60, Fate.LOST)), packets=80, until_rtt=7),
        # With no packet to pass over the EV it stays in SKIP.
        converse(both(befalls(2, Fate.MARKED), befalls(6, Fate.LOST)), packets=8, until_rtt=3),
        converse(befalls(2, Fate.MARKED), packets=8, until_rtt=3, acts=((1.3, deny),)),
        converse(befalls(2, Fate.LOST), packets=20, until_rtt=3, acts=((1.6, deny),)),
        converse(nothing_arrives, packets=8, until_rtt=8),
        converse(path_dies(0, 3, ev=BACKUP_EV), packets=40, until_rtt=9),
        converse(all_paths_lose(0, 0.5), packets=40, until_rtt=4),
        converse(fine, packets=60, until_rtt=9, acts=((0.6, deny), (1.2, allow))),
        converse(fine, packets=60, until_rtt=9, acts=((0.6, unplug), (1.2, plug_in))),
    )
