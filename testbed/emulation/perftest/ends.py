"""The two ends of a measurement: the client decides what is measured, the server follows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from testbed.device.client import ClientQp, CompletionQueue, Device, MemoryRegion
from testbed.device.rendezvous import RemoteMemory, Rendezvous, meet
from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.perftest.parameters import Parameters, Tool
from testbed.emulation.perftest.results import Bandwidth, LatencyRow, Rows
from testbed.host.workloads.messages import IMMEDIATE_MASK, Block, Pattern
from testbed.model.errors import RunFailedError
from testbed.mrc import CompletionStatus
from testbed.mrc.verbs import WcOpcode, WorkCompletion

_CLIENT, _SERVER = 0, 1

_RECEIVES = 2
"""Posted receives of write_lat: one is consumed by each message, of which one is on its way."""


@dataclass(frozen=True, slots=True)
class _End:
    """One end, connected.

    Every queue pair has a slot of the peer's memory, as large as the largest message; what it sends
    there is a pattern of its own, another one for each size.
    """

    device: Device
    peer: Rendezvous
    parameters: Parameters
    cq: CompletionQueue
    qps: tuple[ClientQp, ...]
    block: Block
    memory: MemoryRegion
    remote: RemoteMemory

    @property
    def slot(self) -> int:
        return max(self.parameters.sizes)

    def payload(self, sender: int, number: int, size: int) -> memoryview:
        """What the end `sender` writes by the queue pair of that number."""
        qps = self.parameters.qps
        return Pattern(self.block, sender * qps + number).message(size, size)

    def check(self, size: int) -> None:
        """Compare the memory with what the peer has written.

        Raises:
            RunFailedError: it differs.
        """
        sender = _SERVER if self.peer.is_client else _CLIENT
        for number in range(self.parameters.qps):
            start = number * self.slot
            received = self.memory.buffer[start : start + size]
            if received != self.payload(sender, number, size):
                raise RunFailedError(f"message of {size} bytes: what arrived is not what was sent")


def call(device: Device, server: str, port: int, parameters: Parameters) -> Rows:
    """Measure the path to the program that listens on a host, by its name or address.

    Raises:
        RunFailedError: a WRITE failed, or something else arrived than was sent.
        TimeoutError: nobody answered.
    """
    with meet(device, server, port=port) as peer:
        peer.exchange(parameters.as_dict())
        return _measure(device, peer, parameters)


def serve(device: Device, port: int) -> tuple[Parameters, Rows]:
    """Wait for a client and follow it; return its parameters and what this end has measured.

    Raises:
        RunFailedError: a WRITE failed, or something else arrived than was sent.
        TimeoutError: nobody connected.
    """
    with meet(device, port=port) as peer:
        parameters = Parameters.from_dict(peer.exchange({}))
        return parameters, _measure(device, peer, parameters)


def _measure(device: Device, peer: Rendezvous, parameters: Parameters) -> Rows:
    cq = device.create_cq()
    qps = tuple(device.create_qp(cq, depth=parameters.tx_depth) for _ in range(parameters.qps))
    memory = device.reg_mr(bytearray(max(parameters.sizes) * parameters.qps))
    if parameters.tool is Tool.LATENCY:
        for wr_id in range(_RECEIVES):
            qps[0].post_recv(wr_id)
    block = Block(0, max(parameters.sizes))
    device.reg_mr(block.content)
    remote = peer.connect(qps, memory)
    end = _End(device, peer, parameters, cq, qps, block, memory, remote)
    if parameters.tool is Tool.LATENCY:
        return [_latency(end, size) for size in parameters.sizes]
    return [_bandwidth(end, size) for size in parameters.sizes]


def require_success(entries: Sequence[WorkCompletion]) -> None:
    """Refuse WRITEs that have failed.

    Raises:
        RunFailedError: one has.
    """
    for entry in entries:
        if entry.status is not CompletionStatus.SUCCESS:
            raise RunFailedError(f"a WRITE ended with: {entry.status.value}")


# --- bandwidth ------------------------------------------------------------------------------------


def _bandwidth(end: _End, size: int) -> Bandwidth:
    """Measure the bandwidth of one message size, beginning and ending together with the peer.

    Returns the sum of both directions where both ends send, otherwise the client's direction.
    """
    end.peer.exchange({"size": size})
    sends = end.peer.is_client or end.parameters.bidirectional
    sent = _send_all(end, size) if sends else None
    of_peer = end.peer.exchange({"measured": sent and asdict(sent)})["measured"]
    if of_peer is not None:
        end.check(size)
    rows = [row for row in (sent, of_peer and Bandwidth(**of_peer)) if row]
    return rows[0] if len(rows) == 1 else rows[0].both(rows[1])


def _send_all(end: _End, size: int) -> Bandwidth:
    sender = _CLIENT if end.peer.is_client else _SERVER
    parameters, remote = end.parameters, end.remote
    payloads = [end.payload(sender, number, size) for number in range(parameters.qps)]
    unsent = [parameters.iters] * parameters.qps
    outstanding = [0] * parameters.qps
    number_of = {qp.qp_num: number for number, qp in enumerate(end.qps)}
    posted_ns: list[int] = []
    completed_ns: list[int] = []

    def step() -> bool:
        entries = end.cq.poll()
        now = now_ns()
        require_success(entries)
        for entry in entries:
            outstanding[number_of[entry.qp_num]] -= 1
            completed_ns.append(now)
        for number, qp in enumerate(end.qps):
            while unsent[number] and outstanding[number] < parameters.tx_depth:
                unsent[number] -= 1
                outstanding[number] += 1
                va = remote.va + number * end.slot
                qp.post_write(len(posted_ns), payloads[number], va, remote.rkey)
                posted_ns.append(now)
        return len(completed_ns) == parameters.iters * parameters.qps

    end.peer.work(step)
    return Bandwidth.of(size, parameters.iters, posted_ns, completed_ns)


# --- latency --------------------------------------------------------------------------------------


def _latency(end: _End, size: int) -> LatencyRow:
    """Measure the latency of one message size: half of each round trip of a ping-pong.

    Each end waits for the immediate. perftest watches the last byte of its memory instead, but MRC
    places packets in any order, so that the last byte may arrive first.
    """
    end.peer.exchange({"size": size})
    sender = _CLIENT if end.peer.is_client else _SERVER
    payload = end.payload(sender, 0, size)
    (qp,) = end.qps
    remote = end.remote
    posted_ns: list[int] = []
    received = 0

    def post() -> None:
        number = len(posted_ns)
        posted_ns.append(now_ns())
        qp.post_write_imm(number, payload, remote.va, remote.rkey, number & IMMEDIATE_MASK)

    def step() -> bool:
        nonlocal received
        entries = end.cq.poll()
        require_success(entries)
        for entry in entries:
            if entry.opcode is WcOpcode.RECV_RDMA_WITH_IMM:
                received += 1
                qp.post_recv(entry.wr_id)
                if end.peer.is_client and received == end.parameters.iters:
                    posted_ns.append(now_ns())
                else:
                    post()
        return received == end.parameters.iters

    if end.peer.is_client:
        post()
    end.peer.work(step)
    end.check(size)
    row = LatencyRow.of(size, posted_ns) if end.peer.is_client else None
    of_peer = end.peer.exchange({"measured": row and asdict(row)})["measured"]
    return row or LatencyRow(**of_peer)
