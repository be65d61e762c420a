"""The core with the words of the verbs API: context, memory region, completion queue, queue pair.

What `ibv_open_device`, `ibv_reg_mr`, `ibv_create_cq`, `ibv_create_qp`, `ibv_modify_qp`,
`ibv_post_send` and `ibv_poll_cq` do with an RDMA NIC, this does with the sans-IO core:

    region = context.reg_mr(bytearray(4096))
    cq = context.create_cq()
    qp = context.create_qp(cq)
    qp.modify(QpState.INIT)
    qp.modify(QpState.RTR, peer)                       # what the peer says its `qp.local` is
    qp.modify(QpState.RTS)
    qp.post_write_imm(7, b"hello", remote_va, rkey, immediate=1)
    cq.poll()

Of the operations there are MRC's: WRITE and WRITE with immediate. An immediate consumes no posted
receive, as there is no RNR in MRC: it is a work completion at the peer. EV and CC profiles have the
words of the OCP MRC API.

Like the rest of the core a context does no I/O: what owns its sockets calls `receive`, `transmit`
and `next_deadline` (`testbed/endpoint/device.py`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Final

from testbed.mrc.config import PortAttributes
from testbed.mrc.congestion.nscc import CcProfile, Nscc
from testbed.mrc.congestion.window import CongestionControl, FixedWindow
from testbed.mrc.constants import (
    DEFAULT_EXPONENTIAL_RETRIES,
    DEFAULT_LINEAR_RETRIES,
    DEFAULT_MPR,
    FIRST_QPN,
    DscpClasses,
)
from testbed.mrc.demux import Demux
from testbed.mrc.ev.profile import EvEntry, EvProfile
from testbed.mrc.events import Event
from testbed.mrc.memory import MemoryRegion, MemoryTable
from testbed.mrc.message import CompletionStatus
from testbed.mrc.qp import QueuePair
from testbed.mrc.state import QpState, QpStateError, may_become
from testbed.mrc.wire.datagram import Arrival, Outbound
from testbed.mrc.wire.packets import Buffer

_FIRST_VA: Final = 0x7000_0000_0000
_VA_ALIGNMENT: Final = 1 << 21
_MIN_RKEY: Final = 1 << 8


class WcOpcode(StrEnum):
    """What a work completion is about."""

    RDMA_WRITE = "RDMA_WRITE"
    RECV_RDMA_WITH_IMM = "RECV_RDMA_WITH_IMM"


@dataclass(frozen=True, slots=True)
class WorkCompletion:
    """An entry of a completion queue.

    Attributes:
        wr_id: what was given to `post_write`; of a received immediate the message's number.
        status: how it ended.
        opcode: what it was.
        byte_len: the message's bytes.
        imm_data: the immediate that the peer sent, 32 bits; None for what was posted here.
        qp_num: the queue pair.
    """

    wr_id: int
    status: CompletionStatus
    opcode: WcOpcode
    byte_len: int
    imm_data: int | None
    qp_num: int


@dataclass(frozen=True, slots=True)
class Reach:
    """How a peer is reached: the EVs that lead there, and the base RTT of their paths."""

    evs: tuple[EvEntry, ...]
    rtt_ns: int


@dataclass(frozen=True, slots=True)
class QpAttributes:
    """What `ibv_qp_attr` sets besides state and destination; `QpConfig` says it in full.

    Attributes:
        mpr: the responder window, in units of 128 PSNs; both ends must have the same.
        linear_retries: timeouts of linear length, at most 7.
        exponential_retries: timeouts of doubling length after them, at most 25, which never end.
    """

    mpr: int = DEFAULT_MPR
    linear_retries: int = DEFAULT_LINEAR_RETRIES
    exponential_retries: int = DEFAULT_EXPONENTIAL_RETRIES


_DEFAULT_ATTRIBUTES: Final = QpAttributes()


@dataclass(frozen=True, slots=True)
class Destination:
    """One end of a connection, as the other end must know it."""

    address: bytes
    qpn: int
    psn: int


class CompletionQueue:
    """Where queue pairs report what has ended."""

    def __init__(self) -> None:
        self._qps: list[VerbsQp] = []
        self._entries: deque[WorkCompletion] = deque()

    def attach(self, qp: "VerbsQp") -> None:
        """Have a queue pair report here; `Context.create_qp` does it."""
        self._qps.append(qp)

    def detach(self, qp: "VerbsQp") -> None:
        """Forget a queue pair, but not what it has reported."""
        self._collect()
        self._qps.remove(qp)

    def poll(self, limit: int | None = None) -> list[WorkCompletion]:
        """Take out at most `limit` entries, oldest first; those of one queue pair are in order."""
        self._collect()
        count = len(self._entries) if limit is None else min(limit, len(self._entries))
        return [self._entries.popleft() for _ in range(count)]

    def _collect(self) -> None:
        for qp in self._qps:
            self._entries.extend(qp.take_completions())


EvProfileOf = Callable[[tuple[EvEntry, ...]], EvProfile]
"""Makes the EV profile of the EVs that lead to a peer: `EvProfile`, or a `partial` of it."""


@dataclass(frozen=True, slots=True)
class _Choices:
    """What `Context.create_qp` was asked for."""

    ev_profile: EvProfileOf
    cc_profile: CcProfile | FixedWindow | None
    attributes: QpAttributes


class VerbsQp:
    """One end of a reliable connection, to be taken from RESET to RTS by `modify`.

    Attributes:
        qp_num: its number.
        core: the protocol, from RTR on; None before.
    """

    def __init__(
        self,
        context: "Context",
        cq: CompletionQueue,
        local: Destination,
        choices: _Choices,
    ) -> None:
        """Begin in RESET; `Context.create_qp` makes them."""
        self.cq = cq
        self.local = local
        self.core: QueuePair | None = None
        self._context = context
        self._choices = choices
        self._state = QpState.RESET

    @property
    def qp_num(self) -> int:
        """Its number, which packets to it bear."""
        return self.local.qpn

    @property
    def state(self) -> QpState:
        """The state; ERROR as soon as the transport has given up."""
        return self._state if self.core is None else self.core.state

    def modify(self, state: QpState, destination: Destination | None = None) -> None:
        """Change the state; RTR wants to know the peer's end, the other states must not be told.

        ERROR flushes what is posted, RESET forgets everything.

        Raises:
            QpStateError: no such transition.
            ValueError: the destination is missing, or not wanted, or not in the fabric; or an
                attribute that `create_qp` was given is out of its range.
        """
        if (state is QpState.RTR) != (destination is not None):
            raise ValueError("a destination belongs to RTR, and to no other state")
        if not may_become(self.state, state):
            raise QpStateError(f"a queue pair in {self.state} cannot become {state}")
        if destination is not None:
            self.core = self._context.connect(self.local, destination, self._choices)
        elif state is QpState.RESET and self.core is not None:
            self._context.disconnect(self.core)
            self.core = None
        elif self.core is not None:
            self.core.modify(state)
        self._state = state

    def connect(self, destination: Destination) -> None:
        """Go from RESET to RTS: what the three calls of `modify` do.

        Raises:
            QpStateError: it is not in RESET.
            ValueError: the destination is not in the fabric.
        """
        self.modify(QpState.INIT)
        self.modify(QpState.RTR, destination)
        self.modify(QpState.RTS)

    def post_write(self, wr_id: int, payload: Buffer, remote_va: int, rkey: int) -> None:
        """Post an RDMA WRITE of `payload`, which is to be left alone until it has completed.

        Raises:
            ValueError: the message or the address does not fit the wire's fields.
            QpStateError: the QP is in RESET, INIT or RTR.
        """
        self._ready().post_write(wr_id, memoryview(payload), remote_va, rkey)

    def post_write_imm(
        self, wr_id: int, payload: Buffer, remote_va: int, rkey: int, immediate: int
    ) -> None:
        """Post an RDMA WRITE that completes at the peer too, with 32 bits of immediate data.

        Raises:
            ValueError: the message, the address or the immediate does not fit the wire's fields.
            QpStateError: the QP is in RESET, INIT or RTR.
        """
        self._ready().post_write(wr_id, memoryview(payload), remote_va, rkey, immediate)

    def _ready(self) -> QueuePair:
        if self.core is None:
            raise QpStateError(f"nothing can be posted to a queue pair in {self._state}")
        return self.core

    def take_completions(self) -> list[WorkCompletion]:
        """Take what has ended since the last call; the completion queue does."""
        core = self.core
        if core is None:
            return []
        number = self.qp_num
        return [
            WorkCompletion(one.wr_id, one.status, WcOpcode.RDMA_WRITE, one.length, None, number)
            for one in core.poll_cq()
        ] + [
            WorkCompletion(
                one.message,
                CompletionStatus.SUCCESS,
                WcOpcode.RECV_RDMA_WITH_IMM,
                one.length,
                one.immediate,
                number,
            )
            for one in core.poll_recv_cq()
        ]


class Context:
    """An opened device: memory regions, completion queues and queue pairs.

    Args:
        port: the NIC.
        reach: finds how a peer's address is reached; raises ValueError where it is not.
        rng: chooses rkeys and first PSNs, as a NIC does, so that a stray packet fits none.
    """

    def __init__(self, port: PortAttributes, reach: Callable[[bytes], Reach], rng: Random) -> None:
        self.port = port
        self._reach = reach
        self._rng = rng
        self._now_ns = 0
        self._down: set[int] = set()
        self._dscp = DscpClasses()
        self._memory = MemoryTable()
        self._demux = Demux(port.address, self._dscp)
        self._cores: list[QueuePair] = []
        self._turn = 0
        self._rkeys: set[int] = set()
        self._next_va = _FIRST_VA
        self._next_qpn = FIRST_QPN

    def reg_mr(self, buffer: bytearray | memoryview) -> MemoryRegion:
        """Register memory: peers may WRITE to it by the region's `va` and `rkey`.

        Raises:
            ValueError: the buffer is read-only or not made of bytes.
        """
        rkey = self._rng.randrange(_MIN_RKEY, 1 << 32)
        while rkey in self._rkeys:
            rkey = self._rng.randrange(_MIN_RKEY, 1 << 32)
        region = MemoryRegion(rkey, self._next_va, memoryview(buffer))
        self._memory.register(region)
        self._rkeys.add(rkey)
        self._next_va += (len(region.buffer) // _VA_ALIGNMENT + 2) * _VA_ALIGNMENT
        return region

    def dereg_mr(self, region: MemoryRegion) -> None:
        """Take a region out of the peers' reach: a WRITE to it is a remote access error.

        Raises:
            KeyError: it is not registered.
        """
        self._memory.deregister(region.rkey)

    def create_cq(self) -> CompletionQueue:
        """Make a completion queue; any number of queue pairs may share it."""
        return CompletionQueue()

    def create_qp(
        self,
        cq: CompletionQueue,
        *,
        ev_profile: EvProfileOf = EvProfile,
        cc_profile: CcProfile | FixedWindow | None = None,
        attributes: QpAttributes = _DEFAULT_ATTRIBUTES,
    ) -> VerbsQp:
        """Make a queue pair in RESET.

        Args:
            cq: where it reports what was posted and what was received.
            ev_profile: makes its EV profile, such as `partial(EvProfile, ev_min_active=4)`.
            cc_profile: NSCC's parameters, `query_cc_profile`'s for the peer's paths if None; or
                `FixedWindow(bytes)`, which never changes.
            attributes: responder window and retries.
        """
        local = Destination(self.port.address, self._next_qpn, self._rng.randrange(1 << 24))
        self._next_qpn += 1
        qp = VerbsQp(self, cq, local, _Choices(ev_profile, cc_profile, attributes))
        cq.attach(qp)
        return qp

    def destroy_qp(self, qp: VerbsQp) -> None:
        """Forget a queue pair and what it has posted."""
        qp.cq.detach(qp)
        qp.modify(QpState.RESET)

    def query_cc_profile(self, peer: bytes | None = None) -> CcProfile:
        """Return NSCC's defaults for this NIC, to be used as they are or changed by `replace`.

        Args:
            peer: whose paths they are for; without, for the longest there are.

        Raises:
            ValueError: no NIC of the fabric has this address.
        """
        return self.port.cc_profile(
            self.port.base_rtt_ns if peer is None else self._reach(peer).rtt_ns
        )

    # What queue pairs ask for

    def connect(self, local: Destination, peer: Destination, choices: _Choices) -> QueuePair:
        """Make the protocol of a queue pair that has learnt its peer, in RTR."""
        port, attributes = self.port, choices.attributes
        reach, chosen = self._reach(peer.address), choices.cc_profile
        congestion: CongestionControl
        if isinstance(chosen, FixedWindow):
            congestion = chosen
        else:
            congestion = Nscc(chosen or port.cc_profile(reach.rtt_ns))
        config = replace(
            port.qp_config(
                qpn=local.qpn,
                peer_qpn=peer.qpn,
                peer_address=peer.address,
                ev_profile=choices.ev_profile(reach.evs),
                cwnd=congestion.window,
                seed=self._rng.randrange(1 << 32),
            ),
            mpr=attributes.mpr,
            linear_retries=attributes.linear_retries,
            exponential_retries=attributes.exponential_retries,
            first_psn=local.psn,
            peer_first_psn=peer.psn,
            dscp=self._dscp,
        )
        core = QueuePair(config, self._memory, congestion, state=QpState.RTR)
        for plane in self._down:
            core.port_down(plane, self._now_ns)
        self._demux.add(core)
        self._cores.append(core)
        return core

    def disconnect(self, core: QueuePair) -> None:
        """Let go of the protocol of a queue pair."""
        self._demux.remove(core)
        self._cores.remove(core)

    # What drives it

    def receive(self, data: Buffer, arrival: Arrival) -> Outbound | None:
        """Take in an inner packet, whole, whatever it is; returns what to answer at once, if any.

        No view of `data` is kept.
        """
        return self._demux.receive(data, arrival)

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """The own port of a plane lost its carrier, or has it again: every queue pair acts on it.

        Raises:
            ValueError: ports are numbered 0 to 31.
        """
        self._now_ns = now_ns
        if up:
            self._down.discard(plane)
        else:
            self._down.add(plane)
        for core in self._cores:
            change = core.port_up if up else core.port_down
            change(plane, now_ns)

    def transmit(self, now_ns: int, limit: int) -> list[Outbound]:
        """Return what to send now, at most `limit` data packets; queue pairs take turns."""
        self._now_ns = now_ns
        cores = self._cores
        sent: list[Outbound] = []
        if cores:
            self._turn = (self._turn + 1) % len(cores)
            for core in (*cores[self._turn :], *cores[: self._turn]):
                peer = core.config.peer_address
                found = core.transmit(now_ns, limit)
                limit -= sum(datagram.is_data for datagram in found)
                sent.extend(Outbound(peer, datagram) for datagram in found)
        return sent

    def next_deadline(self) -> int | None:
        """Return when to call `transmit` even if nothing arrives; None if never."""
        deadlines = (core.next_deadline() for core in self._cores)
        return min((time for time in deadlines if time is not None), default=None)

    def take_events(self) -> list[Event]:
        """Take what happened since the last call, for observers; it grows until it is taken."""
        return [event for core in self._cores for event in core.events()]

    def refused(self) -> dict[str, int]:
        """Return how many packets were not acted on, by reason (see `Demux.refused`)."""
        return self._demux.refused()
