"""One direction of a link: the packets on it, the sending port with its two queues, and the wire.

It decides as the emulation's link model does (linkmodel.bpf.c).
Whether an arriving packet is trimmed, dropped or marked depends on the bytes before it in its own
queue, those in service included. The priority queue is served first. Faults act on the
wire, so a lost packet has used its share of the link, and packets that wait when a blackhole begins
are swallowed as they leave.

Unlike the emulation, a fabric may pause (priority flow control, IEEE 802.1Qbb). A direction counts
the bytes that came over it and wait at the next switch, whatever port they are for. When these are
too many, its sender may send nothing more of the low class until most of them have left. So one
full port also stops packets for other ports: head-of-line blocking.
"""

from collections import deque
from collections.abc import Callable
from math import ceil
from random import Random
from typing import Final

from testbed.host.rounds import OUTER_BYTES
from testbed.model.fabric.addressing import flow_label_of_ev
from testbed.model.fabric.topology import Shape
from testbed.model.faults.impairment import Impairment
from testbed.model.run_files.content import LinkCounts
from testbed.model.units import NS_PER_S
from testbed.mrc import NEVER, Datagram, DscpClasses
from testbed.mrc.constants import ECN_CE, ECT0
from testbed.mrc.wire.codec import sealed_trailer
from testbed.mrc.wire.kinds import TRIMMED_BYTES, kept_bytes
from testbed.sim.engine import Engine, Event

TRIMMABLE_WIRE_BYTES: Final = OUTER_BYTES + 2 * TRIMMED_BYTES
"""Only longer packets are trimmed: a reliability probe is as short as what is left of a WRITE.
Ours; the link model of the emulation does the same."""


class Hop(Event):
    """A link direction on a packet's route."""

    def offer(self, now_ns: int, packet: "Packet") -> None:
        """Accept a packet that is to leave by this port."""
        raise NotImplementedError

    def arrive(self, now_ns: int, packet: "Packet") -> None:
        """Hand a packet that has crossed the wire to the next hop, or to the host."""
        raise NotImplementedError

    def count_waiting(self, now_ns: int, size: int) -> None:
        """Count bytes that came over this link and now wait at the next switch.

        A negative `size` is bytes that wait no more.
        """
        raise NotImplementedError


Deliver = Callable[[int, "Packet"], None]
"""Receives a packet at the end of its route, at a time in ns."""


class Packet(Event):
    """A datagram in flight. As an event it is the arrival at the end of the link that it is on.

    Attributes:
        datagram: what the core handed over: the inner packet.
        route: the link directions that it crosses, in order.
        hop: the index of the current one.
        deliver: called with the time and the packet at the end of the route.
        size: bytes on the wire, Ethernet header included.
        dscp: DSCP of the outer header.
        ecn: ECN field of the outer header.
        trimmed: whether a switch has cut off its payload.
        flips: the bits flipped on the way, as (byte, mask) of the inner packet.
    """

    __slots__ = ("datagram", "deliver", "dscp", "ecn", "flips", "hop", "route", "size", "trimmed")

    def __init__(self, datagram: Datagram, route: tuple[Hop, ...], deliver: Deliver) -> None:
        self.datagram = datagram
        self.route = route
        self.deliver = deliver
        self.hop = 0
        self.size = (
            OUTER_BYTES + len(datagram.header) + len(datagram.payload) + len(datagram.trailer)
        )
        self.dscp = datagram.dscp
        self.ecn = ECT0
        self.trimmed = False
        self.flips: tuple[tuple[int, int], ...] = ()

    def happen(self, now_ns: int) -> None:
        """Reach the end of the link."""
        self.route[self.hop].arrive(now_ns, self)

    def trim(self, dscp: int) -> None:
        """Cut off the payload: the headers travel on in another class, without an ECN mark."""
        self.size = OUTER_BYTES + kept_bytes(self.datagram.header)
        self.dscp = dscp
        self.ecn = 0
        self.trimmed = True

    def flip(self, random_bits: int) -> None:
        """Flip one bit behind the outer header, chosen by random bits."""
        at = (random_bits >> 3) % (self.size - OUTER_BYTES)
        self.flips += ((at, 1 << (random_bits & 7)),)

    def inner(self) -> bytes:
        """The inner packet as it arrives, trimmed and damaged."""
        datagram = self.datagram
        if self.trimmed:
            data = datagram.join()
            data = data[: kept_bytes(data)]
        else:
            header, payload = datagram.header, datagram.payload
            data = b"".join((header, payload, sealed_trailer(header, payload, datagram.trailer)))
        if self.flips:
            damaged = bytearray(data)
            for at, mask in self.flips:
                if at < len(damaged):
                    damaged[at] ^= mask
            data = bytes(damaged)
        return data


_RANDOM_BITS: Final = 32

CUT: Final = "cut"
BLACKHOLED: Final = "blackholed"
LOST: Final = "lost"
CORRUPTED: Final = "corrupted"


def random_stream(seed: int, name: str, purpose: str) -> Random:
    """The random numbers of one link direction for one purpose, repeated by the run's seed."""
    return Random(f"{seed}/{name}/{purpose}")  # noqa: S311 - repeatable chance


class Outages:
    """The periods in which a wire lost every packet; those long past are forgotten."""

    def __init__(self) -> None:
        self._from_ns: list[int] = []
        self._until_ns: list[int] = []

    def set(self, now_ns: int, memory_ns: int, *, dark: bool) -> None:
        """Begin or end an outage; forget those that ended more than `memory_ns` ago."""
        if dark == (self._until_ns[-1:] == [NEVER]):
            return
        if not dark:
            self._until_ns[-1] = now_ns
            return
        while self._until_ns and self._until_ns[0] < now_ns - memory_ns:
            del self._from_ns[0], self._until_ns[0]
        self._from_ns.append(now_ns)
        self._until_ns.append(NEVER)

    def cover(self, time_ns: int) -> bool:
        """Whether the wire lost every packet at that time."""
        return any(
            begin <= time_ns < end for begin, end in zip(self._from_ns, self._until_ns, strict=True)
        )


class Wire:
    """An impaired wire. Each kind of chance has a random stream of its own."""

    def __init__(self, name: str, seed: int) -> None:
        """Begin without impairments; `name` is the link direction's."""
        self._cuts = Outages()
        self._blackholes = Outages()
        self._loss = self._corruption = self._path_loss = 0.0
        self._path_bits = 0
        self._losses = random_stream(seed, name, "loss")
        self._corruptions = random_stream(seed, name, "corrupt")
        self._path_losses = random_stream(seed, name, "path")

    def impair(self, now_ns: int, state: Impairment, memory_ns: int) -> None:
        """Bring the wire into a state from now on.

        Args:
            now_ns: the time.
            state: the state.
            memory_ns: how long a packet may have been on the wire, at most.
        """
        self._cuts.set(now_ns, memory_ns, dark=state.cut)
        self._blackholes.set(now_ns, memory_ns, dark=state.blackhole)
        self._loss = state.loss
        self._corruption = state.corrupt
        self._path_loss, self._path_bits = state.path_loss, state.path_bits

    def fate(self, left_ns: int, packet: Packet) -> str:
        """What happens to a packet that left the port at that time; draws random numbers.

        Returns the reason why it does not arrive: `CUT`, `BLACKHOLED` or `LOST`; or `CORRUPTED` if
        it arrives with a bit flipped; or nothing.
        """
        if self._cuts.cover(left_ns):
            return CUT
        if self._blackholes.cover(left_ns):
            return BLACKHOLED
        if self._loss and self._losses.random() < self._loss:
            return LOST
        if (
            self._path_loss
            and flow_label_of_ev(packet.datagram.ev) == self._path_bits
            and self._path_losses.random() < self._path_loss
        ):
            return LOST
        if self._corruption and self._corruptions.random() < self._corruption:
            packet.flip(self._corruptions.getrandbits(_RANDOM_BITS))
            return CORRUPTED
        return ""


_TALLIES: Final = (
    "marked",
    "trimmed",
    "trimmed_off_bytes",
    "full",
    "full_priority",
    "lost",
    "blackholed",
    "cut",
    "corrupted",
    "paused",
)
"""The counters of events that are rarer than packets."""


class LinkDirection(Hop):
    """A port, its queues and the wire behind it. As an event it is the port becoming free.

    Attributes:
        name: `p0_t0_0>p0_t1_2`.
        shape: how it was set up; faults may have changed rate and delay since.
    """

    def __init__(
        self, name: str, shape: Shape, engine: Engine, dscp: DscpClasses, seed: int
    ) -> None:
        """Set it up empty and without faults. `seed` repeats every random choice."""
        self.name = name
        self.shape = shape
        self._engine = engine
        self._seed = seed
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
        self._free_ns = 0.0  # when the packet in service has left
        self._in_service_high = False
        self._serving = False
        self._lossless = shape.pauses
        self._waiting_bytes = 0
        self._pausing = self._paused = False
        self._dark = False
        self._wire: Wire | None = None  # from the first impairment on
        self._marks = random_stream(seed, name, "ecn")
        self._offered = self._offered_bytes = self._packets = self._bytes = self._started = 0
        self._lost_on_wire = 0
        self._tallies = dict.fromkeys(_TALLIES, 0)

    # --- the port -----------------------------------------------------------------------------

    def offer(self, now_ns: int, packet: Packet) -> None:
        """Accept a packet that is to leave by this port."""
        size = packet.size
        self._offered += 1
        self._offered_bytes += size
        # Times are whole ns, service is not: the rate is kept by counting on from the last end.
        free_ns = self._free_ns
        if free_ns < now_ns:
            free_ns = float(now_ns)
        if free_ns >= now_ns + 1 or self._serving or self._dark or self._paused:
            self._enqueue(now_ns, packet)
            return
        self._in_service_high = packet.dscp in self._priority
        self._free_ns = end_ns = free_ns + size * self._ns_per_byte
        self._started += 1
        leaves_ns = int(free_ns if self._at_once else end_ns)
        self._engine.schedule(leaves_ns + self._way_ns, packet)

    def _enqueue(self, now_ns: int, packet: Packet) -> None:
        """Queue, mark, trim or drop a packet that cannot be sent at once."""
        if self._dark:
            self._tallies[CUT] += 1
            return
        size, dscp = packet.size, packet.dscp
        high = dscp in self._priority
        residue = (self._free_ns - now_ns) / self._ns_per_byte  # bytes of the packet in service
        ahead = self._high_bytes if high else self._low_bytes
        if high is self._in_service_high and residue > 0:
            ahead += residue
        if (
            ahead + size > self._trim_bytes
            and dscp in self._trimmable
            and size > TRIMMABLE_WIRE_BYTES
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
                packet.route[packet.hop - 1].count_waiting(now_ns, size)
        backlog = self._high_bytes + self._low_bytes + residue
        self._peak_bytes = max(self._peak_bytes, backlog)
        if not self._serving:
            self._serve_next(now_ns)

    def _trim(self, packet: Packet) -> int:
        """Cut off a packet's payload; returns its new size."""
        tallies, whole = self._tallies, packet.size
        packet.trim(self._trimmed_dscp)
        tallies["trimmed"] += 1
        tallies["trimmed_off_bytes"] += whole - packet.size
        return packet.size

    def _draw(self, ahead: float) -> bool:
        """Whether to mark a packet with `ahead` bytes before it, at least the lower threshold."""
        least, most = self._ecn_min_bytes, self._ecn_max_bytes
        return ahead >= most or self._marks.random() * (most - least) < ahead - least

    def _serve_next(self, now_ns: int) -> None:
        """Serve the queues again as soon as the port is free."""
        self._serving = True
        at_ns = max(ceil(self._free_ns), now_ns)
        self._engine.schedule(at_ns, self)

    def happen(self, now_ns: int) -> None:
        """Begin to send the next packet: the port is free."""
        if self._high:
            packet = self._high.popleft()
            self._high_bytes -= packet.size
            self._in_service_high = True
        elif self._low and not self._paused:
            packet = self._low.popleft()
            self._low_bytes -= packet.size
            self._in_service_high = False
            if self._lossless and packet.hop:
                packet.route[packet.hop - 1].count_waiting(now_ns, -packet.size)
        else:  # a cut has emptied the queues, or the port is paused
            self._serving = False
            return
        begin_ns = self._free_ns if self._free_ns > now_ns - 1 else float(now_ns)
        self._free_ns = free_ns = begin_ns + packet.size * self._ns_per_byte
        self._started += 1
        leaves_ns = max(int(begin_ns), now_ns) if self._at_once else int(free_ns)
        self._engine.schedule(leaves_ns + self._way_ns, packet)
        if self._high or (self._low and not self._paused):
            self._engine.schedule(ceil(free_ns), self)
        else:
            self._serving = False

    # --- priority flow control ----------------------------------------------------------------

    def count_waiting(self, now_ns: int, size: int) -> None:
        """Count bytes that came over this link and wait at the next switch; negative: no more.

        Pauses the sender when they are too many, and resumes it when enough of them have left.
        """
        self._waiting_bytes += size
        if not self._pausing and self._waiting_bytes > self.shape.xoff_bytes:
            self._pausing = True
            self._tallies["paused"] += 1
        elif self._pausing and self._waiting_bytes <= self.shape.xon_bytes:
            self._pausing = False
        else:
            return
        # The pause frame takes as long back to the sender as a packet takes from it.
        self._engine.at(now_ns + self._behind_ns, self._set_paused, self._pausing)

    def _set_paused(self, now_ns: int, paused: bool) -> None:
        self._paused = paused
        if not paused and self._low and not self._serving:
            self._serve_next(now_ns)

    # --- the wire -----------------------------------------------------------------------------

    def arrive(self, now_ns: int, packet: Packet) -> None:
        """Hand a packet that has crossed the wire to the next port, or to the host."""
        if self._wire is not None:
            fate = self._wire.fate(now_ns - self._behind_ns, packet)
            if fate:
                self._tallies[fate] += 1
                if fate != CORRUPTED:
                    self._lost_on_wire += 1
                    return
        self._packets += 1
        self._bytes += packet.size
        hop = packet.hop = packet.hop + 1
        route = packet.route
        if hop < len(route):
            route[hop].offer(now_ns, packet)
        else:
            packet.deliver(now_ns, packet)

    def impair(self, now_ns: int, state: Impairment) -> None:
        """Bring the direction into a state from now on, whatever its state was.

        Rate and delay apply to the packets that leave the port from now on; a cut drops those that
        wait as well.
        """
        if self._wire is None:
            self._wire = Wire(self.name, self._seed)
        self._wire.impair(now_ns, state, self._way_ns)
        if state.cut and not self._dark:
            self._drop_queued(now_ns)
        self._dark = state.cut
        shape = self.shape
        self._ns_per_byte = 8 * NS_PER_S / max(round(shape.rate_bps * state.rate), 1)
        self._behind_ns = shape.behind_ns + state.delay_ns
        self._way_ns = shape.before_ns + self._behind_ns

    def _drop_queued(self, now_ns: int) -> None:
        self._tallies[CUT] += len(self._high) + len(self._low)
        if self._lossless:
            for packet in self._low:
                if packet.hop:
                    packet.route[packet.hop - 1].count_waiting(now_ns, -packet.size)
        self._high.clear()
        self._low.clear()
        self._high_bytes = self._low_bytes = 0.0

    # --- counters -----------------------------------------------------------------------------

    def backlog_bytes(self, now_ns: int) -> int:
        """Bytes that wait at the port, including what is in service."""
        residue = max(self._free_ns - now_ns, 0) / self._ns_per_byte
        return int(self._high_bytes + self._low_bytes + residue)

    @property
    def counts(self) -> LinkCounts:
        return LinkCounts(
            offered=self._offered,
            offered_bytes=self._offered_bytes,
            packets=self._packets,
            bytes=self._bytes,
            queued=len(self._high) + len(self._low),
            on_wire=self._started - self._packets - self._lost_on_wire,
            peak_bytes=int(self._peak_bytes),
            **self._tallies,
        )
