"""The core with the words of the verbs API: context, memory region, completion queue, queue pair.

What `ibv_open_device`, `ibv_reg_mr`, `ibv_create_cq`, `ibv_create_qp`, `ibv_modify_qp`,
`ibv_post_send`, `ibv_post_recv` and `ibv_poll_cq` do with an RDMA NIC, this does with the sans-IO
core:

    region = context.reg_mr(bytearray(4096))
    cq = context.create_cq()
    qp = context.create_qp(cq)
    qp.modify(QpState.INIT)
    qp.modify(QpState.RTR, peer)                       # `peer` is the `qp.local` of the other end
    qp.modify(QpState.RTS)
    qp.post_write_imm(7, b"hello", remote_va, rkey, immediate=1)
    cq.poll()

The operations are those of MRC: WRITE and WRITE with immediate, which consumes a posted receive at
the peer. EV and CC profiles have the names of the OCP MRC API.

Like the rest of the core a context does no I/O: whoever owns its sockets calls `receive`,
`transmit` and `next_deadline` (`testbed/emulation/endpoint/device.py`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from random import Random
from typing import Final

from testbed.mrc.config import Capabilities, QpConfig
from testbed.mrc.congestion.control import FixedWindow, ReceiverWindow, Window
from testbed.mrc.congestion.nscc_incast import CcProfile, Nscc
from testbed.mrc.congestion.nscc_uec import UecNscc, UecProfile
from testbed.mrc.constants import (
    DEFAULT_EXPONENTIAL_RETRIES,
    DEFAULT_LINEAR_RETRIES,
    FIRST_QPN,
    DscpClasses,
)
from testbed.mrc.demux import Demux
from testbed.mrc.endpoint import PortAttributes
from testbed.mrc.entropy import EvEntry, EvProfile
from testbed.mrc.events import Event
from testbed.mrc.message import CompletionStatus, MemoryRegion, MemoryTable, Payload, Region
from testbed.mrc.qp import QpState, QpStateError, QueuePair, may_become
from testbed.mrc.wire.datagram import Arrival, Datagram, Outbound
from testbed.mrc.wire.kinds import DEFAULT_OPTIONS, Buffer, WireOptions

# --------------------------------------------------------------------------------------------------
# The queue pair of the verbs API, its completion queue and the entries of that queue.


class WcOpcode(StrEnum):
    """The operation that has completed."""

    RDMA_WRITE = "RDMA_WRITE"
    RECV_RDMA_WITH_IMM = "RECV_RDMA_WITH_IMM"


@dataclass(frozen=True, slots=True)
class WorkCompletion:
    """An entry of a completion queue.

    Attributes:
        wr_id: as given to `post_write` or `post_recv`.
        status: how it ended.
        opcode: the operation.
        byte_len: the length of the message in bytes.
        imm_data: the 32 bits that the peer sent; None for what was posted here.
        qp_num: the number of the queue pair.
    """

    wr_id: int
    status: CompletionStatus
    opcode: WcOpcode
    byte_len: int
    imm_data: int | None
    qp_num: int


@dataclass(frozen=True, slots=True)
class Destination:
    """One end of a connection, as the other end must know it."""

    address: bytes
    qpn: int
    psn: int
    capabilities: Capabilities = field(default_factory=Capabilities)


@dataclass(frozen=True, slots=True)
class QpAttributes:
    """What `ibv_qp_attr` sets besides state, destination and PSNs (see `QpConfig`).

    Attributes:
        capabilities: the limits of this end; the peer must know them (`VerbsQp.local`).
        linear_retries: timeouts of linear length, at most 7.
        exponential_retries: timeouts of doubling length after them; 25, the most, never end.
        mtu: payload bytes of a full packet, the same at both ends; None: the port's.
        peer_capabilities: the peer's limits, if RTS brings others than the destination had.
    """

    capabilities: Capabilities = field(default_factory=Capabilities)
    linear_retries: int = DEFAULT_LINEAR_RETRIES
    exponential_retries: int = DEFAULT_EXPONENTIAL_RETRIES
    mtu: int | None = None
    peer_capabilities: Capabilities | None = None


class VerbsQp:
    """One end of a reliable connection, to be taken from RESET to RTS by `modify`.

    Attributes:
        cq: where it reports what has completed.
        local: this end of the connection, as the peer must know it.
        attributes: RTR uses its MTU, RTS its retries and the peer's capabilities.
        memory: what the peer may write to, from RTR on.
        core: the queue pair of the protocol core, from RTR on; None before.
    """

    def __init__(
        self,
        cq: "CompletionQueue",
        local: Destination,
        attributes: QpAttributes,
        memory: MemoryTable,
        open_core: Callable[["VerbsQp", Destination], QueuePair],
        close_core: Callable[[QueuePair], None],
    ) -> None:
        """Begin in RESET; `Context.create_qp` makes them."""
        self.cq = cq
        self.local = local
        self.attributes = attributes
        self.memory = memory
        self.core: QueuePair | None = None
        self._open_core = open_core
        self._close_core = close_core
        self._state = QpState.RESET
        self._receives: list[int] = []

    @property
    def qp_num(self) -> int:
        return self.local.qpn

    @property
    def state(self) -> QpState:
        """The state; ERROR as soon as the transport has given up."""
        return self._state if self.core is None else self.core.state

    def modify(
        self,
        state: QpState,
        destination: Destination | None = None,
        *,
        first_psn: int | None = None,
    ) -> None:
        """Change the state; RTR needs the peer's end of the connection, other states take none.

        ERROR flushes what is posted, RESET forgets everything. RTS may bring another first PSN than
        that of `local`.

        Raises:
            QpStateError: no such transition.
            ValueError: the destination is missing, or belongs to no such state, or is not in the
                fabric; or an attribute given to `create_qp` is out of its range.
        """
        if (state is QpState.RTR) != (destination is not None):
            raise ValueError("a destination belongs to RTR, and to no other state")
        if not may_become(self.state, state):
            raise QpStateError(f"a queue pair in {self.state} cannot become {state}")
        if destination is not None:
            self.core = self._open_core(self, destination)
            for wr_id in self._receives:
                self.core.post_receive(wr_id)
            self._receives.clear()
        elif state is QpState.RESET and self.core is not None:
            self._close_core(self.core)
            self.core = None
            self._receives.clear()
        elif self.core is not None:
            config = None if first_psn is None else self._config(self.core, first_psn)
            self.core.modify(state, config)
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

    def post_write(self, wr_id: int, payload: bytes | Payload, remote_va: int, rkey: int) -> None:
        """Post an RDMA WRITE of `payload`, which is to be left alone until it has completed.

        Raises:
            ValueError: the message or the address does not fit the wire's fields.
            QpStateError: the QP is in RESET, INIT or RTR.
        """
        self._ready().post_write(wr_id, _payload(payload), remote_va, rkey)

    def post_write_imm(
        self, wr_id: int, payload: bytes | Payload, remote_va: int, rkey: int, immediate: int
    ) -> None:
        """Post an RDMA WRITE that completes at the peer too, with 32 bits of immediate data.

        Raises:
            ValueError: the message, the address or the immediate does not fit the wire's fields.
            QpStateError: the QP is in RESET, INIT or RTR.
        """
        self._ready().post_write(wr_id, _payload(payload), remote_va, rkey, immediate)

    def post_recv(self, wr_id: int) -> None:
        """Post a receive: a WRITE with immediate of the peer consumes one, oldest first.

        It has no buffer, as the WRITE says where its bytes go. Post receives before `connect`: MRC
        has no RNR, so a WRITE with immediate that finds none fails, and the peer's queue pair too.
        """
        if self.core is None:
            self._receives.append(wr_id)
        else:
            self.core.post_receive(wr_id)

    def take_receives(self) -> list[int]:
        """Remove and return the receives that wait for a core, for those who flush them."""
        receives, self._receives = self._receives, []
        return receives

    def _ready(self) -> QueuePair:
        if self.core is None:
            raise QpStateError(f"nothing can be posted to a queue pair in {self._state}")
        return self.core

    def _config(self, core: QueuePair, first_psn: int) -> QpConfig:
        return replace(
            core.config,
            first_psn=first_psn,
            peer_capabilities=self.attributes.peer_capabilities or core.config.peer_capabilities,
            linear_retries=self.attributes.linear_retries,
            exponential_retries=self.attributes.exponential_retries,
        )

    def take_completions(self) -> list[WorkCompletion]:
        """Return what has completed since the last call; for the completion queue."""
        core, number = self.core, self.qp_num
        if core is None:
            return []
        sent = [(done.wr_id, done.status, done.length) for done in core.poll_cq()]
        received = core.poll_recv_cq()
        return [
            WorkCompletion(wr_id, status, WcOpcode.RDMA_WRITE, length, None, number)
            for wr_id, status, length in sent
        ] + [
            WorkCompletion(
                done.wr_id,
                done.status,
                WcOpcode.RECV_RDMA_WITH_IMM,
                done.length,
                done.immediate if done.status is CompletionStatus.SUCCESS else None,
                number,
            )
            for done in received
        ]


def _payload(payload: bytes | Payload) -> Payload:
    """A view of bytes; what reads a message when it is sent stays as it is."""
    return memoryview(payload) if isinstance(payload, bytes | bytearray) else payload


class CompletionQueue:
    """Where queue pairs report what has completed."""

    def __init__(self) -> None:
        self._qps: list[VerbsQp] = []
        self._entries: deque[WorkCompletion] = deque()

    def attach(self, qp: VerbsQp) -> None:
        """Have a queue pair report here; `Context.create_qp` does it."""
        self._qps.append(qp)

    def detach(self, qp: VerbsQp) -> None:
        """Forget a queue pair, but not what it has reported."""
        self._collect()
        self._qps.remove(qp)

    def poll(self, limit: int | None = None) -> list[WorkCompletion]:
        """Remove and return at most `limit` entries, oldest first; in order for each queue pair."""
        self._collect()
        count = len(self._entries) if limit is None else min(limit, len(self._entries))
        return [self._entries.popleft() for _ in range(count)]

    def _collect(self) -> None:
        for qp in self._qps:
            self._entries.extend(qp.take_completions())


# --------------------------------------------------------------------------------------------------
# The context of the verbs API: it registers memory, creates queue pairs and drives them.


_FIRST_VA: Final = 0x7000_0000_0000
_VA_ALIGNMENT: Final = 1 << 21
_MIN_RKEY: Final = 1 << 8


@dataclass(frozen=True, slots=True)
class PeerPaths:
    """How a peer is reached: the EVs that lead to it, and the base RTT of their paths."""

    evs: tuple[EvEntry, ...]
    rtt_ns: int


_DEFAULT_ATTRIBUTES: Final = QpAttributes()


EvProfileOf = Callable[[tuple[EvEntry, ...]], EvProfile]
"""Makes an EV profile of the EVs that lead to a peer: `EvProfile`, or a `partial` of it."""

AnyCcProfile = CcProfile | UecProfile | FixedWindow
CcProfileOf = Callable[[int], AnyCcProfile]
"""Makes a CC profile for paths of a base RTT, in ns."""


class Context:
    """An opened device: memory regions, completion queues and queue pairs.

    Args:
        port: the NIC.
        paths_to: finds how a peer's address is reached; raises ValueError where it is not.
        rng: chooses rkeys and first PSNs, as a NIC does, so that a stray packet fits none.
        wire: how packets are written where sources disagree; peers must agree on it.
        first_qpn: the number of its first queue pair.
        demux: hands arrivals to other queue pairs of this NIC as well; None: it has no others.
    """

    def __init__(
        self,
        port: PortAttributes,
        paths_to: Callable[[bytes], PeerPaths],
        rng: Random,
        wire: WireOptions = DEFAULT_OPTIONS,
        first_qpn: int = FIRST_QPN,
        demux: Demux | None = None,
    ) -> None:
        self.port = port
        self._paths_to = paths_to
        self._rng = rng
        self._now_ns = 0
        self._down: set[int] = set()
        self._disabled: set[int] = set()
        self._dscp = DscpClasses()
        self._memory = MemoryTable()
        self._wire = wire
        self._demux = demux or Demux(port.address, self._dscp, wire)
        self._cores: list[QueuePair] = []
        self._closed: list[QueuePair] = []
        self._turn = 0
        self._rkeys: set[int] = set()
        self._next_va = _FIRST_VA
        self._next_qpn = first_qpn

    def reg_mr(self, buffer: bytearray | memoryview) -> MemoryRegion:
        """Register memory: peers may WRITE to it by the region's `va` and `rkey`.

        Raises:
            ValueError: the buffer is read-only or not made of bytes.
        """
        region = MemoryRegion(self.new_rkey(), self._next_va, memoryview(buffer))
        self._memory.register(region)
        self._next_va += (len(region.buffer) // _VA_ALIGNMENT + 2) * _VA_ALIGNMENT
        return region

    def dereg_mr(self, region: Region) -> None:
        """Take a region out of the peers' reach: a WRITE to it is a remote access error.

        Raises:
            KeyError: it is not registered.
        """
        self._memory.deregister(region.rkey)
        self.free_rkey(region.rkey)

    def new_rkey(self) -> int:
        """Return an rkey that no region of this device has."""
        rkey = self._rng.randrange(_MIN_RKEY, 1 << 32)
        while rkey in self._rkeys:
            rkey = self._rng.randrange(_MIN_RKEY, 1 << 32)
        self._rkeys.add(rkey)
        return rkey

    def free_rkey(self, rkey: int) -> None:
        self._rkeys.discard(rkey)

    def create_cq(self) -> CompletionQueue:
        """Make a completion queue; any number of queue pairs may share it."""
        return CompletionQueue()

    def create_qp(
        self,
        cq: CompletionQueue,
        *,
        ev_profile: EvProfileOf = EvProfile,
        cc_profile: AnyCcProfile | CcProfileOf | None = None,
        attributes: QpAttributes = _DEFAULT_ATTRIBUTES,
    ) -> VerbsQp:
        """Make a queue pair in RESET.

        Args:
            cq: where it reports completions.
            ev_profile: makes its EV profile, such as `partial(EvProfile, ev_min_active=4)`.
            cc_profile: the parameters of NSCC (a `UecProfile` brings Ultra Ethernet's rules), or
                `FixedWindow(bytes)`, which never changes; or what makes one of these; if None, the
                defaults for the peer's paths (`PortAttributes.cc_profile`).
            attributes: capabilities, retries and MTU.
        """
        psn = self._rng.randrange(1 << 24)
        local = Destination(self.port.address, self._next_qpn, psn, attributes.capabilities)
        self._next_qpn += 1
        open_core = partial(self._open_core, ev_profile, cc_profile)
        qp = VerbsQp(cq, local, attributes, self._memory, open_core, self._close_core)
        cq.attach(qp)
        return qp

    def destroy_qp(self, qp: VerbsQp) -> None:
        """Forget a queue pair and what it has posted."""
        qp.cq.detach(qp)
        qp.modify(QpState.RESET)

    def _open_core(
        self,
        ev_profile: EvProfileOf,
        cc_profile: AnyCcProfile | CcProfileOf | None,
        qp: VerbsQp,
        peer: Destination,
    ) -> QueuePair:
        """Return the core of a queue pair that has learnt its peer, in RTR."""
        port, paths = self.port, self._paths_to(peer.address)
        local, attributes = qp.local, qp.attributes
        if callable(cc_profile):
            cc_profile = cc_profile(paths.rtt_ns)
        if isinstance(cc_profile, FixedWindow):
            congestion = Window(lambda: cc_profile)
        elif isinstance(cc_profile, UecProfile):
            congestion = ReceiverWindow(partial(UecNscc, cc_profile))
        else:
            congestion = Window(partial(Nscc, cc_profile or port.cc_profile(paths.rtt_ns)))
        config = replace(
            port.qp_config(
                qpn=local.qpn,
                peer_qpn=peer.qpn,
                peer_address=peer.address,
                ev_profile=ev_profile(paths.evs),
                cwnd=congestion.window,
                seed=self._rng.randrange(1 << 32),
            ),
            capabilities=local.capabilities,
            peer_capabilities=peer.capabilities,
            linear_retries=attributes.linear_retries,
            exponential_retries=attributes.exponential_retries,
            mtu=attributes.mtu or port.mtu,
            first_psn=local.psn,
            peer_first_psn=peer.psn,
            dscp=self._dscp,
            wire=self._wire,
        )
        core = QueuePair(config, qp.memory, congestion, state=QpState.RTR)
        self._demux.add(core)
        for plane in self._down:
            core.port_changed(plane, up=False, now_ns=self._now_ns)
        for plane in self._disabled:
            core.set_port_disabled(plane, disabled=True, now_ns=self._now_ns)
        self._cores.append(core)
        return core

    def _close_core(self, core: QueuePair) -> None:
        self._demux.remove(core)
        self._cores.remove(core)
        self._closed.append(core)
        self._turn = 0

    # What drives it

    def receive(self, data: Buffer, arrival: Arrival) -> Outbound | None:
        """Process the bytes of an inner packet; return an answer to send at once, if any.

        No view of `data` is kept.
        """
        return self._demux.receive(data, arrival)

    def receive_undamaged(self, datagram: Datagram, arrival: Arrival) -> Outbound | None:
        """Process a packet that arrived undamaged: nothing is checked. Otherwise like `receive`."""
        return self._demux.receive_undamaged(datagram, arrival)

    def port_changed(self, plane: int, *, up: bool, now_ns: int) -> None:
        """Tell every queue pair that the own port of a plane lost its carrier, or has it again.

        Raises:
            ValueError: ports are numbered 0 to 31.
        """
        self._now_ns = now_ns
        if up:
            self._down.discard(plane)
        else:
            self._down.add(plane)
        for core in self._cores:
            core.port_changed(plane, up=up, now_ns=now_ns)

    @property
    def down_planes(self) -> frozenset[int]:
        """The planes whose own port has no carrier, or is disabled."""
        return frozenset(self._down | self._disabled)

    @property
    def disabled_planes(self) -> frozenset[int]:
        return frozenset(self._disabled)

    def set_port_disabled(self, plane: int, *, disabled: bool, now_ns: int) -> None:
        """Take the own port of a plane out of use by order, or allow it again.

        Raises:
            ValueError: ports are numbered 0 to 31.
        """
        self._now_ns = now_ns
        (self._disabled.add if disabled else self._disabled.discard)(plane)
        for core in self._cores:
            core.set_port_disabled(plane, disabled=disabled, now_ns=now_ns)

    def transmit(self, now_ns: int, limit: int) -> list[Outbound]:
        """Return what to send now, at most `limit` data packets; queue pairs take turns."""
        packets = self.transmit_by_qp(now_ns, limit)
        return [Outbound(core.config.peer_address, datagram) for core, datagram in packets]

    def transmit_by_qp(self, now_ns: int, limit: int) -> list[tuple[QueuePair, Datagram]]:
        """Return the same, each packet with the core of its queue pair, for observers.

        The turn passes to the queue pair after the one that used up the limit, not simply to the
        next: behind many that have nothing to send one would get the turn of all of them.
        """
        self._now_ns = now_ns
        cores, first = self._cores, self._turn
        sent: list[tuple[QueuePair, Datagram]] = []
        for place in range(first, first + len(cores)):
            core = cores[place % len(cores)]
            datagrams = core.transmit(now_ns, limit)
            data = sum(datagram.is_data for datagram in datagrams)
            if data:
                self._turn = (place + 1) % len(cores)
            limit -= data
            sent.extend((core, datagram) for datagram in datagrams)
        return sent

    def next_deadline(self) -> int | None:
        """Return when to call `transmit` even if nothing arrives; None if never."""
        deadlines = (core.next_deadline() for core in self._cores)
        return min((time for time in deadlines if time is not None), default=None)

    def events_by_qp(self) -> list[tuple[QueuePair, list[Event]]]:
        """Return each queue pair's events since the last call; for the last time of closed ones."""
        events = [(core, core.events()) for core in (*self._cores, *self._closed)]
        self._closed.clear()
        return events

    def refused(self) -> dict[str, int]:
        """Return how many packets were not acted on, by reason (see `Demux.refused`)."""
        return self._demux.refused()


__all__ = [
    "CompletionQueue",
    "Context",
    "Destination",
    "PeerPaths",
    "PortAttributes",
    "QpAttributes",
    "VerbsQp",
    "WcOpcode",
    "WorkCompletion",
]
