"""Two hosts of RoCE queue pairs and one bottleneck in virtual time: no sockets, no clock, one seed.

Every path has a delay and may lose, repeat, delay or mark; with a rate, all data from side 0 waits
in one queue that marks above a backlog.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from testbed.host.roce import DcqcnProfile, RoceConfig, RoceQp, decode
from testbed.mrc import (
    Arrival,
    Completion,
    Datagram,
    DecodeError,
    Event,
    MemoryRegion,
    MemoryTable,
)
from tests.virtual_time import VirtualTime, flipped

MS = 1_000_000
S = 1_000_000_000
RKEY, VA = 0x1234, 0x7000_0000_0000
BASE_RTT_NS = 130 * MS
LINE_BPS = 40e6
DILATION = 10_000
ADDRESSES = (bytes([0xFD, *bytes(14), 1]), bytes([0xFD, *bytes(14), 2]))
ECT0, CE = 2, 3


def profile(line_bps: float = LINE_BPS) -> DcqcnProfile:
    return DcqcnProfile.derive(line_rate_bps=line_bps, base_rtt_ns=BASE_RTT_NS, dilation=DILATION)


@dataclass
class Way:
    """How a path treats packets, both ways."""

    delay_ns: int = BASE_RTT_NS // 2
    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    mark: float = 0.0
    dead: tuple[int, int] = (0, 0)
    drop: set[int] = field(default_factory=set)
    """Transmissions of data to lose, counted over the path from 0."""


Flying = tuple[int, bytes, Arrival]
"""The side that it flies to, its bytes, how it arrives."""


class Network(VirtualTime[Flying]):
    """`pairs` queue pairs from side 0 to side 1."""

    def __init__(
        self,
        pairs: int = 1,
        *,
        seed: int = 0,
        ways: dict[int, Way] | None = None,
        rate_bps: float | None = None,
        mark_bytes: float = 1e18,
        memory_bytes: int = 1 << 20,
        **options: object,
    ) -> None:
        super().__init__()
        self.rng = Random(seed)
        self.ways = ways if ways is not None else {0: Way(), 1: Way()}
        self.rate_bps, self.mark_bytes = rate_bps, mark_bytes
        self.free_ns = 0
        self.sent: list[tuple[int, int, Datagram]] = []
        self.events: list[list[Event]] = []
        self.completions: list[list[Completion]] = []
        self.decode_errors = 0
        self.data_packets = 0
        self.buffers: list[bytearray] = []
        self.qps: list[RoceQp] = []
        for number in range(2 * pairs):
            side = number % 2
            memory, buffer = MemoryTable(), bytearray(memory_bytes)
            memory.register(MemoryRegion(RKEY, VA, memoryview(buffer)))
            settings: dict[str, object] = {
                "ack_timeout_ns": 3 * S,
                "cnp_interval_ns": 500 * MS,
                "dcqcn": profile(),
                **options,
            }
            if side:
                first, peer = settings.get("first_psn", 0), settings.get("peer_first_psn", 0)
                settings |= {"first_psn": peer, "peer_first_psn": first}
            config = RoceConfig(
                qpn=16 + number,
                peer_qpn=16 + (number ^ 1),
                local_address=ADDRESSES[side],
                peer_address=ADDRESSES[1 - side],
                ev=0,
                plane=0,
                base_rtt_ns=BASE_RTT_NS,
                **settings,  # type: ignore[arg-type]
            )
            self.qps.append(RoceQp(config, memory))
            self.buffers.append(buffer)
            self.events.append([])
            self.completions.append([])

    def turn(self) -> Iterable[int | None]:
        for number in range(len(self.qps)):
            self._transmit(number)
        return [qp.next_deadline() for qp in self.qps]

    def arrive(self, _: int, flying: Flying) -> None:
        side, data, arrival = flying
        try:
            packet = decode(memoryview(data))
        except DecodeError:
            self.decode_errors += 1
            return
        assert packet.qpn % 2 == side
        self.qps[packet.qpn - 16].receive(packet, arrival)

    def _transmit(self, number: int) -> None:
        qp = self.qps[number]
        for datagram in qp.transmit(self.now_ns, 8):
            self.sent.append((number, self.now_ns, datagram))
            self._launch(number % 2, datagram)
        self.events[number] += qp.events()
        self.completions[number] += qp.poll_cq()

    def _launch(self, side: int, datagram: Datagram) -> None:
        way, rng = self.ways[datagram.ev & 0xFFFF], self.rng
        data = datagram.join()
        departure_ns, ecn = self.now_ns, ECT0
        dropped = False
        if datagram.is_data:
            dropped = self.data_packets in way.drop
            self.data_packets += 1
            if self.rate_bps is not None and side == 0:
                backlog = max(self.free_ns - self.now_ns, 0) * self.rate_bps / 8 / S
                ecn = CE if backlog > self.mark_bytes else ECT0
                self.free_ns = max(self.free_ns, self.now_ns) + int(
                    len(data) * 8 * S / self.rate_bps
                )
                departure_ns = self.free_ns
        if rng.random() < way.mark:
            ecn = CE
        start_ns, end_ns = way.dead
        if dropped or start_ns <= departure_ns < end_ns or rng.random() < way.loss:
            return
        if rng.random() < way.corrupt:
            data = flipped(data, rng)
        for _ in range(2 if rng.random() < way.duplicate else 1):
            at_ns = departure_ns + way.delay_ns
            arrival = Arrival(ecn, datagram.dscp, at_ns)
            self.under_way(at_ns, (1 - side, data, arrival))
