"""Hosts around one switch per plane, in virtual time: queues, trimming and priority at each port.

Host ports have a rate both ways. What a host sends waits in its own port, then `delay_ns` on the
way, then in the switch's port to the receiver, the last hop: a data packet that finds more than
`trim_bytes` there loses its payload; control packets and trimmed headers go first. No ECN.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from testbed.mrc import (
    Arrival,
    Datagram,
    Demux,
    DscpClasses,
    EvProfile,
    MemoryRegion,
    MemoryTable,
    Placed,
    QpConfig,
    QueuePair,
    Window,
)
from testbed.mrc.wire.kinds import kept_bytes
from tests.virtual_time import VirtualTime

from .harness import MS, OUTER_BYTES, RKEY, VA, S

MTU = 4096
PRIORITY_LIMIT_NS = 40 * MS


def address(host: int) -> bytes:
    return bytes.fromhex("5f0000001001") + host.to_bytes(2, "big") + bytes(8)


@dataclass
class Flow:
    """One direction from host to host: its two queue pairs and what has arrived."""

    source: int
    destination: int
    sender: QueuePair
    receiver: QueuePair
    placed: list[tuple[int, int]]

    def goodput_bps(self, start_ns: int, end_ns: int) -> float:
        size = sum(size for time_ns, size in self.placed if start_ns <= time_ns < end_ns)
        return size * 8 * S / (end_ns - start_ns)


Flying = tuple[int, Datagram, bool]
"""The host that it flies to, the packet, whether it has passed the last hop's queue."""


class Star(VirtualTime[Flying]):
    """`flows` are (source, destination) hosts; `congestion` makes the window of each.

    Further options are those of `QpConfig`.
    """

    def __init__(
        self,
        profile: EvProfile,
        flows: list[tuple[int, int]],
        congestion: Callable[[], Window],
        *,
        port_bps: float = 10e6,
        base_rtt_ns: int = 130 * MS,
        trim_bdp: float = 1.5,
        **options: object,
    ) -> None:
        super().__init__()
        self.port_bps = port_bps
        self.delay_ns = base_rtt_ns // 2
        self.bdp = port_bps * base_rtt_ns / 8 / S
        self.trim_ns = int(trim_bdp * base_rtt_ns)
        self.dead: dict[int, tuple[int, int]] = {}
        self.dscp = DscpClasses()
        self.backlog: list[float] = []
        self.trimmed = self.dropped = self.swallowed = 0
        self._plane = {entry.ev: entry.plane for entry in profile.entries}
        self._up: dict[tuple[int, int], int] = {}
        self._down: dict[tuple[int, int], int] = {}
        self._priority: dict[tuple[int, int], int] = {}
        self._body = memoryview(bytes(64 * MTU))
        self._demuxes: dict[int, Demux] = {}
        self._qps: dict[int, tuple[int, int, QueuePair]] = {}
        self.flows: list[Flow] = []
        for index, (source, destination) in enumerate(flows):
            pair = []
            for side, (local, peer) in enumerate(((source, destination), (destination, source))):
                memory = MemoryTable()
                memory.register(MemoryRegion(RKEY, VA, memoryview(bytearray(len(self._body)))))
                config = QpConfig(
                    qpn=16 + 2 * index + side,
                    peer_qpn=17 + 2 * index - side,
                    local_address=address(local),
                    peer_address=address(peer),
                    ev_profile=profile,
                    base_rtt_ns=base_rtt_ns,
                    cwnd=MTU,
                    mtu=MTU,
                    seed=index * 2 + side,
                    **options,  # type: ignore[arg-type]
                )
                pair.append(QueuePair(config, memory, congestion()))
                self._qps[config.qpn] = (local, peer, pair[-1])
                if local not in self._demuxes:
                    self._demuxes[local] = Demux(address(local), self.dscp)
                self._demuxes[local].add(pair[-1])
            self.flows.append(Flow(source, destination, pair[0], pair[1], []))

    def load(self, flow: Flow, messages: int = 16) -> None:
        """Keep `messages` WRITEs outstanding from now on."""
        for _ in range(messages):
            flow.sender.post_write(0, self._body, VA, RKEY)

    def turn(self) -> Iterable[int | None]:
        for flow in self.flows:
            flow.sender.events()
            flow.placed += [
                (event.time_ns, event.size)
                for event in flow.receiver.events()
                if isinstance(event, Placed)
            ]
            self.load(flow, len(flow.sender.poll_cq()))
        return [self._transmit(local, peer, qp) for local, peer, qp in self._qps.values()]

    def _transmit(self, local: int, peer: int, qp: QueuePair) -> int | None:
        while True:
            datagrams = qp.transmit(self.now_ns, 64)
            for datagram in datagrams:
                self._launch(local, peer, datagram)
            deadline = qp.next_deadline()
            if not datagrams or deadline is None or deadline > self.now_ns:
                return deadline

    def _wire_ns(self, size: int) -> int:
        return int((size + OUTER_BYTES) * 8 / self.port_bps * S)

    def _launch(self, source: int, destination: int, datagram: Datagram) -> None:
        plane = self._plane[datagram.ev]
        port = (source, plane)
        size = len(datagram.header) + len(datagram.payload) + len(datagram.trailer)
        departure = self.now_ns + self._wire_ns(size)
        if datagram.is_data:
            departure += max(0, self._up.get(port, 0) - self.now_ns)
            self._up[port] = departure
        start, end = self.dead.get(datagram.ev, (0, 0))
        if start <= departure < end:
            self.swallowed += 1
            return
        at_ns = departure + self.delay_ns
        self.under_way(at_ns, (destination, datagram, False))

    def arrive(self, at_ns: int, flying: Flying) -> None:
        host, datagram, arrived = flying
        if not arrived:
            self._last_hop(at_ns, host, datagram)
            return
        data = memoryview(datagram.join())
        answer = self._demuxes[host].receive(data, Arrival(2, datagram.dscp, at_ns))
        if answer is not None:
            peer = int.from_bytes(answer.peer[6:8], "big")
            self._launch(host, peer, answer.datagram)

    def _last_hop(self, now_ns: int, host: int, datagram: Datagram) -> None:
        port = (host, self._plane[datagram.ev])
        if datagram.is_data:
            waiting_ns = max(0, self._down.get(port, 0) - now_ns)
            self.backlog.append(waiting_ns / S * self.port_bps / 8 / self.bdp)
            if waiting_ns <= self.trim_ns:
                leave_ns = now_ns + waiting_ns + self._wire_ns(len(datagram.payload) + 96)
                self._down[port] = leave_ns
                self.under_way(leave_ns, (host, datagram, True))
                return
            self.trimmed += 1
            header = datagram.join()
            header = header[: kept_bytes(header)]
            datagram = Datagram(datagram.ev, self.dscp.trimmed_lasthop, header, b"", b"")
        size = len(datagram.header) + len(datagram.trailer)
        waiting_ns = max(0, self._priority.get(port, 0) - now_ns)
        if waiting_ns > PRIORITY_LIMIT_NS:
            self.dropped += 1
            return
        leave_ns = now_ns + waiting_ns + self._wire_ns(size)
        self._priority[port] = leave_ns
        self._down[port] = max(self._down.get(port, 0), now_ns) + self._wire_ns(size)
        self.under_way(leave_ns, (host, datagram, True))
