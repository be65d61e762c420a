"""Two queue pairs and a toy network in virtual time: no sockets, no clock, one seed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from testbed.mrc import (
    Arrival,
    Completion,
    Datagram,
    Demux,
    Event,
    EvEntry,
    EvProfile,
    MemoryRegion,
    MemoryTable,
    QpConfig,
    QueuePair,
    Window,
)
from testbed.mrc.config import Capabilities
from testbed.mrc.wire.kinds import kept_bytes
from tests.virtual_time import VirtualTime, flipped

MS = 1_000_000
S = 1_000_000_000
ADDRESSES = (
    bytes.fromhex("5f00000010010000") + bytes(8),
    bytes.fromhex("5f00000010020000") + bytes(8),
)
RKEY = 0x1234
VA = 0x7000_0000_0000
OUTER_BYTES = 54


def make_profile(
    planes: int = 4, active: int = 3, backups: int = 1, **options: object
) -> EvProfile:
    """EVs numbered as in the fabric: plane in the low 3 bits, path above."""
    entries = tuple(
        EvEntry(ev=plane | index << 3, plane=plane, path_key=(plane, index), active=index < active)
        for index in range(active + backups)
        for plane in range(planes)
    )
    return EvProfile(entries, **options)  # type: ignore[arg-type]


@dataclass
class PathModel:
    """How one EV's path treats packets, both ways. Times in ns, probabilities per packet.

    Data waits `queued_ns` in queues that control packets pass by; of more than `most_bytes`
    nothing fits.
    """

    delay_ns: int = 65 * MS
    jitter_ns: int = 0
    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    mark: float = 0.0
    trim: float = 0.0
    trim_last_hop: bool = False
    queued_ns: int = 0
    most_bytes: int = 1 << 16
    dead: list[tuple[int, int]] = field(default_factory=list)
    dead_direction: int | None = None

    def is_dead(self, now_ns: int, direction: int, size: int) -> bool:
        if size > self.most_bytes:
            return True
        if self.dead_direction not in (None, direction):
            return False
        return any(start <= now_ns < end for start, end in self.dead)


@dataclass
class Sent:
    """One datagram that a side handed over."""

    side: int
    time_ns: int
    datagram: Datagram


Flying = tuple[int, bytes, Arrival]
"""The side that it flies to, its bytes, how it arrives."""


class Network(VirtualTime[Flying]):
    """Side 0 and side 1, joined by one `PathModel` per EV and, if rated, one port per plane."""

    def __init__(
        self,
        profile: EvProfile,
        *,
        seed: int = 0,
        paths: dict[int, PathModel] | None = None,
        default: Callable[[], PathModel] = PathModel,
        port_bps: float | None = None,
        port_queue_ns: int = 100 * S,
        memory_bytes: int = 1 << 20,
        burst: int = 64,
        cwnd: int = 160 * 4096,
        base_rtt_ns: int = 130 * MS,
        congestion: Callable[[], Window] | None = None,
        receives: int = 64,
        **options: object,
    ) -> None:
        super().__init__()
        self.rng = Random(seed)
        self.paths = paths if paths is not None else {}
        for entry in profile.entries:
            self.paths.setdefault(entry.ev, default())
        self.port_bps = port_bps
        self.port_queue_ns = port_queue_ns
        self.port_free: dict[tuple[int, int], int] = {}
        self.sent: list[Sent] = []
        self.events: tuple[list[Event], list[Event]] = ([], [])
        self.completions: tuple[list[Completion], list[Completion]] = ([], [])
        self.buffers = (bytearray(memory_bytes), bytearray(memory_bytes))
        self.dscp = QpConfig(1, 1, *ADDRESSES, ev_profile=profile, base_rtt_ns=1, cwnd=4096).dscp
        qps = []
        for side in (0, 1):
            memory = MemoryTable()
            memory.register(MemoryRegion(RKEY, VA, memoryview(self.buffers[side])))
            if "mpr" in options:
                both = Capabilities(options.pop("mpr"), dynamic_mpr=True)  # type: ignore[arg-type]
                options |= {"capabilities": both, "peer_capabilities": both}
            options.setdefault("sack_bytes", 8 * max(int(options.get("mtu", 4096)), 1024))  # type: ignore[call-overload]
            psns = (options.get("first_psn", 0), options.get("peer_first_psn", 0))
            config = QpConfig(
                qpn=16 + side,
                peer_qpn=17 - side,
                local_address=ADDRESSES[side],
                peer_address=ADDRESSES[1 - side],
                ev_profile=profile,
                base_rtt_ns=base_rtt_ns,
                cwnd=cwnd,
                seed=seed + side,
                **{  # type: ignore[arg-type]
                    **options,
                    "first_psn": psns[side],
                    "peer_first_psn": psns[1 - side],
                },
            )
            qps.append(QueuePair(config, memory, congestion() if congestion else None))
        self.qps = (qps[0], qps[1])
        self.demuxes = (Demux(ADDRESSES[0], self.dscp), Demux(ADDRESSES[1], self.dscp))
        for demux, qp in zip(self.demuxes, qps, strict=True):
            demux.add(qp)
            for _ in range(receives):
                qp.post_receive(0)
        self._plane = {entry.ev: entry.plane for entry in profile.entries}
        self._burst = burst

    def add_path(self, entry: EvEntry) -> None:
        """Let packets pass on an EV that is in no profile from the start."""
        self.paths[entry.ev] = PathModel()
        self._plane[entry.ev] = entry.plane

    def turn(self) -> Iterable[int | None]:
        for side in (0, 1):
            self._transmit(side)
        return [qp.next_deadline() for qp in self.qps]

    def arrive(self, _: int, flying: Flying) -> None:
        side, data, arrival = flying
        answer = self.demuxes[side].receive(memoryview(data), arrival)
        if answer is not None:
            self._launch(side, answer.datagram)

    def refused(self, *reasons: str) -> int:
        """How many packets both sides refused for these reasons."""
        return sum(demux.refused()[reason] for demux in self.demuxes for reason in reasons)

    def _transmit(self, side: int) -> None:
        qp = self.qps[side]
        while True:
            datagrams = qp.transmit(self.now_ns, self._burst)
            assert sum(datagram.is_data for datagram in datagrams) <= self._burst
            for datagram in datagrams:
                self.sent.append(Sent(side, self.now_ns, datagram))
                self._launch(side, datagram)
            self.events[side].extend(qp.events())
            self.completions[side].extend(qp.poll_cq())
            deadline = qp.next_deadline()
            if not datagrams or deadline is None or deadline > self.now_ns:
                return

    def _launch(self, side: int, datagram: Datagram) -> None:
        path = self.paths.get(datagram.ev)
        if path is None:  # mirrors a flow label that was corrupted on the way: no such path
            return
        data = datagram.join()
        departure = self.now_ns
        if self.port_bps is not None:
            port = (side, self._plane[datagram.ev])
            control = datagram.dscp == self.dscp.control
            departure += int((len(data) + OUTER_BYTES) * 8 / self.port_bps * S)
            if not control:  # strict priority: control packets pass the queue by
                waiting_ns = max(0, self.port_free.get(port, 0) - self.now_ns)
                if waiting_ns > self.port_queue_ns:
                    return
                departure += waiting_ns
                self.port_free[port] = departure
        rng = self.rng
        if path.is_dead(departure, side, len(data)) or rng.random() < path.loss:
            return
        trimmed = datagram.is_data and rng.random() < path.trim
        dscp = datagram.dscp
        if trimmed:
            dscp = self.dscp.trimmed_lasthop if path.trim_last_hop else self.dscp.trimmed
            data = data[: kept_bytes(data)]
        elif rng.random() < path.corrupt:
            data = flipped(data, rng)
        ecn = 3 if rng.random() < path.mark else 2
        copies = 2 if rng.random() < path.duplicate else 1
        for _ in range(copies):
            at_ns = (
                departure + path.delay_ns + path.queued_ns * (datagram.dscp != self.dscp.control)
            )
            if path.jitter_ns:
                at_ns += rng.randrange(path.jitter_ns)
            arrival = Arrival(ecn, dscp, at_ns)
            self.under_way(at_ns, (1 - side, data, arrival))

    def data_sent(self, side: int = 0) -> Iterable[Sent]:
        return (sent for sent in self.sent if sent.side == side and sent.datagram.is_data)
