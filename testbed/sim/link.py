"""One direction of a link: the sending port with its two queues, and the wire behind it.

It decides as the emulation's link model does (testbed/fabric/link_model/bpf/linkmodel.bpf.c): a
packet sees the bytes before it in its own queue, what is in service among them; it is trimmed,
dropped or marked by them as it comes; priority classes go first; faults sit on the wire, so that a
lost packet has used its share of the link, and what waits when a blackhole begins is swallowed as
it leaves.

What the emulation has not: a fabric may pause (priority flow control, IEEE 802.1Qbb). A direction
knows what has come over it and waits at the next switch, whatever port it is for; where that is too
much, its sender may send no more of the low class until most of it has left. So one full port stops
packets that are for others: head-of-line blocking.
"""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from random import Random
from typing import Final

from testbed.model.fabric.addressing import flow_label_of_ev
from testbed.model.fabric.shape import Shape
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.units import NS_PER_S
from testbed.mrc import NEVER, DscpClasses
from testbed.mrc.constants import ECN_CE
from testbed.sim.engine import Engine, Event
from testbed.sim.packet import TRIMMED_WIRE_BYTES, Packet

_RANDOM_BITS: Final = 32


class Timing(StrEnum):
    """Where a packet spends its time, besides waiting.

    REAL: it is stored and forwarded at every hop, and its propagation delay lies along the way.
    EMULATED: as in the emulation, it leaves a port as its service begins (HTB sends, and then waits
    for as long as that takes), and all propagation delay is its receiver's business.
    """

    REAL = "real"
    EMULATED = "emulated"


@dataclass(frozen=True, slots=True)
class Counts:
    """What a direction has done so far, in packets unless the name says bytes.

    Attributes:
        offered: came to the sending port.
        offered_bytes: their bytes, Ethernet header included.
        packets: arrived at the receiving port, trimmed ones among them.
        bytes: their bytes.
        marked: got an ECN mark here.
        trimmed: lost their payload here.
        trimmed_off_bytes: what they lost.
        full: dropped, the queue being full.
        full_priority: the same in the priority queue.
        lost: dropped by random loss, of all packets or of those on a chosen path.
        blackholed: swallowed by a blackhole.
        cut: dropped, there being no carrier.
        corrupted: arrived with a bit flipped.
        paused: times that the next switch paused its sender.
        queued: wait at the port now.
        on_wire: have left the queue and not arrived yet.
        peak_bytes: greatest backlog of both queues.
    """

    offered: int
    offered_bytes: int
    packets: int
    bytes: int
    marked: int
    trimmed: int
    trimmed_off_bytes: int
    full: int
    full_priority: int
    lost: int
    blackholed: int
    cut: int
    corrupted: int
    paused: int
    queued: int
    on_wire: int
    peak_bytes: int

    @property
    def dropped(self) -> int:
        """All that will not arrive."""
        return self.full + self.full_priority + self.lost + self.blackholed + self.cut


class Outages:
    """The stretches of time in which a wire was dark; those long past are forgotten."""

    def __init__(self) -> None:
        self._from_ns: list[int] = []
        self._until_ns: list[int] = []

    def begin(self, now_ns: int, memory_ns: int) -> None:
        """Begin one; forget those that ended more than `memory_ns` ago."""
        if self._until_ns[-1:] == [NEVER]:
            return
        while self._until_ns and self._until_ns[0] < now_ns - memory_ns:
            del self._from_ns[0], self._until_ns[0]
        self._from_ns.append(now_ns)
        self._until_ns.append(NEVER)

    def end(self, now_ns: int) -> None:
        """End it."""
        if self._until_ns[-1:] == [NEVER]:
            self._until_ns[-1] = now_ns

    def cover(self, time_ns: int) -> bool:
        """Whether the wire was dark then."""
        return any(
            begin <= time_ns < end for begin, end in zip(self._from_ns, self._until_ns, strict=True)
        )


class LinkDirection(Event):
    """A port, its queues and the wire behind it. What happens to it is that the port is free.

    Attributes:
        name: `p0_t0_0>p0_t1_2`.
        shape: how it was set up; `set_rate` may have changed the rate since.
        state: what `impair` last brought it into.
    """

    __slots__ = (
        "_at_once",
        "_behind_ns",
        "_blackholes",
        "_bytes",
        "_clean",
        "_corrupt",
        "_corruption",
        "_cuts",
        "_dark",
        "_ecn_max_bytes",
        "_ecn_min_bytes",
        "_engine",
        "_free_ns",
        "_held_bytes",
        "_high",
        "_high_bytes",
        "_in_service_high",
        "_limit_bytes",
        "_loss",
        "_losses",
        "_lossless",
        "_low",
        "_low_bytes",
        "_marks",
        "_ns_per_byte",
        "_offered",
        "_offered_bytes",
        "_packets",
        "_path_bits",
        "_path_loss",
        "_path_losses",
        "_pausing",
        "_peak_bytes",
        "_priority",
        "_serving",
        "_started",
        "_stopped",
        "_tallies",
        "_trim_bytes",
        "_trimmable",
        "_trimmed_dscp",
        "_way_ns",
        "name",
        "shape",
        "state",
    )

    def __init__(
        self, name: str, shape: Shape, engine: Engine, dscp: DscpClasses, seed: int
    ) -> None:
        """Set it up: empty, without faults. Each kind of chance has a stream of its own."""
        self.name = name
        self.shape = shape
        self._engine = engine
        self._ns_per_byte = 8 * NS_PER_S / shape.rate_bps
        self._limit_bytes = float(shape.limit_bytes)
        self._trim_bytes = float(shape.trim_bytes)
        self._ecn_min_bytes = float(shape.ecn_min_bytes)
        self._ecn_max_bytes = float(shape.ecn_max_bytes)
        self._at_once = shape.at_once
        self._behind_ns = shape.behind_ns
        self._way_ns = shape.before_ns + shape.behind_ns
        self._priority = frozenset(
            (dscp.control, dscp.trimmable_retx, dscp.trimmed, dscp.trimmed_lasthop)
        )
        self._trimmable = frozenset((dscp.trimmable, dscp.trimmable_retx))
        self._trimmed_dscp = dscp.trimmed_lasthop if shape.last_hop else dscp.trimmed
        self._high: deque[Packet] = deque()
        self._low: deque[Packet] = deque()
        self._high_bytes = self._low_bytes = 0.0
        self._peak_bytes = 0.0
        self._free_ns = 0.0
        self._in_service_high = False
        self._serving = False
        self._lossless = shape.pauses
        self._held_bytes = 0
        self._pausing = self._stopped = False
        self._clean = True
        self._dark = False
        self._loss = self._corruption = 0.0
        self._blackholes = Outages()
        self._cuts = Outages()
        self._path_loss, self._path_bits = 0.0, 0
        self.state = HEALTHY
        self._marks, self._losses, self._corrupt, self._path_losses = (
            Random(f"{seed}/{name}/{stream}")  # noqa: S311 - repeatable chance
            for stream in ("ecn", "loss", "corrupt", "path")
        )
        self._offered = self._offered_bytes = self._packets = self._bytes = self._started = 0
        self._tallies = dict.fromkeys(
            (
                "marked",
                "trimmed",
                "trimmed_off_bytes",
                "full",
                "full_priority",
                "lost",
                "blackholed",
                "cut",
                "cut_on_wire",
                "corrupted",
                "paused",
            ),
            0,
        )

    # --- the port -----------------------------------------------------------------------------

    def offer(self, now_ns: int, packet: Packet) -> None:
        """Take in a packet that is to leave by this port."""
        size = packet.size
        self._offered += 1
        self._offered_bytes += size
        # Times are whole ns, service is not: the rate is kept by counting on from the last end.
        free_ns = max(self._free_ns, float(now_ns))
        if free_ns >= now_ns + 1 or self._serving or self._dark or self._stopped:
            self._enqueue(now_ns, packet)
            return
        self._in_service_high = packet.dscp in self._priority
        self._free_ns = end_ns = free_ns + size * self._ns_per_byte
        self._started += 1
        leaves_ns = int(free_ns if self._at_once else end_ns)
        self._engine.schedule(leaves_ns + self._way_ns, packet)

    def _enqueue(self, now_ns: int, packet: Packet) -> None:
        """Decide what becomes of a packet that may have to wait."""
        if self._dark:
            self._tallies["cut"] += 1
            return
        size, dscp = packet.size, packet.dscp
        high = dscp in self._priority
        residue = (self._free_ns - now_ns) / self._ns_per_byte  # of what is in service
        ahead = self._high_bytes if high else self._low_bytes
        if high is self._in_service_high and residue > 0:
            ahead += residue
        if (
            ahead + size > self._trim_bytes
            and dscp in self._trimmable
            and size > TRIMMED_WIRE_BYTES
        ):
            size, high = self._trim(packet), True
            ahead = self._high_bytes
            if self._in_service_high and residue > 0:
                ahead += residue
        if ahead + size > self._limit_bytes:
            self._tallies["full_priority" if high else "full"] += 1
            return
        if ahead >= self._ecn_min_bytes and packet.ecn not in (0, ECN_CE) and self._draw(ahead):
            packet.ecn = ECN_CE
            self._tallies["marked"] += 1
        if high:
            self._high.append(packet)
            self._high_bytes += size
        else:
            self._low.append(packet)
            self._low_bytes += size
            if self._lossless and packet.hop:
                packet.route[packet.hop - 1].waits_behind(now_ns, size)
        backlog = self._high_bytes + self._low_bytes + residue
        self._peak_bytes = max(self._peak_bytes, backlog)
        if not self._serving:
            self._serving = True
            at_ns = max(ceil(self._free_ns), now_ns)
            self._engine.schedule(at_ns, self)

    def _trim(self, packet: Packet) -> int:
        """Cut a packet's payload off; returns its size now."""
        tallies = self._tallies
        tallies["trimmed"] += 1
        tallies["trimmed_off_bytes"] += packet.size - TRIMMED_WIRE_BYTES
        packet.trim(self._trimmed_dscp)
        return packet.size

    def _draw(self, ahead: float) -> bool:
        """Whether to mark a packet that finds so many bytes before it, at least the minimum."""
        least, most = self._ecn_min_bytes, self._ecn_max_bytes
        return ahead >= most or self._marks.random() * (most - least) < ahead - least

    def happen(self, now_ns: int) -> None:
        """Begin to send the next packet: the port is free."""
        if self._high:
            packet = self._high.popleft()
            self._high_bytes -= packet.size
            self._in_service_high = True
        elif self._low and not self._stopped:
            packet = self._low.popleft()
            self._low_bytes -= packet.size
            self._in_service_high = False
            if self._lossless and packet.hop:
                packet.route[packet.hop - 1].waits_behind(now_ns, -packet.size)
        else:  # a cut has emptied the queues, or it is paused
            self._serving = False
            return
        begin_ns = self._free_ns if self._free_ns > now_ns - 1 else float(now_ns)
        self._free_ns = free_ns = begin_ns + packet.size * self._ns_per_byte
        self._started += 1
        leaves_ns = max(int(begin_ns), now_ns) if self._at_once else int(free_ns)
        self._engine.schedule(leaves_ns + self._way_ns, packet)
        if self._high or (self._low and not self._stopped):
            self._engine.schedule(ceil(free_ns), self)
        else:
            self._serving = False

    # --- priority flow control ----------------------------------------------------------------

    def waits_behind(self, now_ns: int, size: int) -> None:
        """Count bytes that came over this and wait at the next switch; negative: that wait no more.

        Pauses the sender when they are too many, and lets it go on when enough of them have left.
        """
        self._held_bytes += size
        if not self._pausing and self._held_bytes > self.shape.xoff_bytes:
            self._pausing = True
            self._tallies["paused"] += 1
            self._tell(now_ns, stop=True)
        elif self._pausing and self._held_bytes <= self.shape.xon_bytes:
            self._pausing = False
            self._tell(now_ns, stop=False)

    def _tell(self, now_ns: int, *, stop: bool) -> None:
        """Send a pause frame, or its end, back to the sender: it takes as long as a packet."""
        self._engine.at(now_ns + self._behind_ns, self._told, stop)

    def _told(self, now_ns: int, stop: bool) -> None:
        self._stopped = stop
        if not stop and self._low and not self._serving:
            self._serving = True
            at_ns = max(ceil(self._free_ns), now_ns)
            self._engine.schedule(at_ns, self)

    # --- the wire -----------------------------------------------------------------------------

    def arrive(self, now_ns: int, packet: Packet) -> None:
        """Hand a packet that has crossed the wire to the next port, or to the host."""
        if not self._clean and not self._survives(now_ns - self._behind_ns, packet):
            return
        self._packets += 1
        self._bytes += packet.size
        hop = packet.hop = packet.hop + 1
        route = packet.route
        if hop < len(route):
            route[hop].offer(now_ns, packet)
        else:
            packet.deliver(now_ns, packet)

    def _survives(self, left_ns: int, packet: Packet) -> bool:
        """Do what the wire does to a packet that left the port at that time."""
        tallies = self._tallies
        if self._cuts.cover(left_ns):
            tallies["cut"] += 1
            tallies["cut_on_wire"] += 1
            return False
        if self._blackholes.cover(left_ns):
            tallies["blackholed"] += 1
            return False
        if self._loss and self._losses.random() < self._loss:
            tallies["lost"] += 1
            return False
        if (
            self._path_loss
            and flow_label_of_ev(packet.datagram.ev) == self._path_bits
            and self._path_losses.random() < self._path_loss
        ):
            tallies["lost"] += 1
            return False
        if self._corruption and self._corrupt.random() < self._corruption:
            packet.flip(self._corrupt.getrandbits(_RANDOM_BITS))
            tallies["corrupted"] += 1
        return True

    # --- faults -------------------------------------------------------------------------------

    def set_blackhole(self, now_ns: int, *, on: bool) -> None:
        """Swallow what leaves the port from now on, or no longer."""
        self._clean = False
        if on:
            self._blackholes.begin(now_ns, self._way_ns)
        else:
            self._blackholes.end(now_ns)

    def set_cut(self, now_ns: int, *, on: bool) -> None:
        """Take the carrier away, and what waits and is being sent with it; or bring it back."""
        self._clean = False
        self._dark = on
        if not on:
            self._cuts.end(now_ns)
            return
        self._cuts.begin(now_ns, self._way_ns)
        self._tallies["cut"] += len(self._high) + len(self._low)
        if self._lossless:
            for packet in self._low:
                if packet.hop:
                    packet.route[packet.hop - 1].waits_behind(now_ns, -packet.size)
        self._high.clear()
        self._low.clear()
        self._high_bytes = self._low_bytes = 0.0

    def set_loss(self, probability: float) -> None:
        """Lose packets at random from now on."""
        self._clean = False
        self._loss = probability

    def set_corruption(self, probability: float) -> None:
        """Flip a bit of packets at random from now on."""
        self._clean = False
        self._corruption = probability

    def set_path_loss(self, probability: float, bits: int) -> None:
        """Lose packets of the EVs with these path bits at random from now on."""
        self._clean = False
        self._path_loss, self._path_bits = probability, bits

    def impair(self, now_ns: int, state: Impairment) -> None:
        """Bring the direction into a state, whatever is wrong with it now."""
        before, self.state = self.state, state
        if state.cut != before.cut:
            self.set_cut(now_ns, on=state.cut)
        if state.blackhole != before.blackhole:
            self.set_blackhole(now_ns, on=state.blackhole)
        if state.rate != before.rate:
            self.set_rate(max(round(self.shape.rate_bps * state.rate), 1))
        if state.delay_ns != before.delay_ns:
            self.set_delay(state.delay_ns)
        self.set_loss(state.loss)
        self.set_corruption(state.corrupt)
        self.set_path_loss(state.path_loss, state.path_bits)

    def set_delay(self, extra_ns: int) -> None:
        """Have what leaves the port from now on take so much longer than by the shape."""
        self._behind_ns = self.shape.behind_ns + extra_ns
        self._way_ns = self.shape.before_ns + self._behind_ns

    def set_rate(self, rate_bps: int) -> None:
        """Send at another rate from the next packet on."""
        self._ns_per_byte = 8 * NS_PER_S / rate_bps

    # --- what it has done ---------------------------------------------------------------------

    @property
    def packets(self) -> int:
        """Packets that have arrived at the receiving port."""
        return self._packets

    @property
    def bytes(self) -> int:
        """Their bytes, Ethernet header included."""
        return self._bytes

    def backlog_bytes(self, now_ns: int) -> int:
        """Bytes that wait at the port, what is in service among them."""
        residue = max(self._free_ns - now_ns, 0) / self._ns_per_byte
        return int(self._high_bytes + self._low_bytes + residue)

    @property
    def counts(self) -> Counts:
        """All counters."""
        tallies = dict(self._tallies)
        gone = tallies["lost"] + tallies["blackholed"] + tallies.pop("cut_on_wire")
        return Counts(
            offered=self._offered,
            offered_bytes=self._offered_bytes,
            packets=self._packets,
            bytes=self._bytes,
            queued=len(self._high) + len(self._low),
            on_wire=self._started - self._packets - gone,
            peak_bytes=int(self._peak_bytes),
            **tallies,
        )
