"""The queue pair of the verbs API, its completion queue and the entries of that queue."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from testbed.mrc.capabilities import Capabilities
from testbed.mrc.config import QpConfig
from testbed.mrc.constants import DEFAULT_EXPONENTIAL_RETRIES, DEFAULT_LINEAR_RETRIES
from testbed.mrc.memory import MemoryTable
from testbed.mrc.message import CompletionStatus, Payload
from testbed.mrc.qp import QueuePair
from testbed.mrc.state import QpState, QpStateError, may_become


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
    """

    capabilities: Capabilities = field(default_factory=Capabilities)
    linear_retries: int = DEFAULT_LINEAR_RETRIES
    exponential_retries: int = DEFAULT_EXPONENTIAL_RETRIES
    mtu: int | None = None


class VerbsQp:
    """One end of a reliable connection, to be taken from RESET to RTS by `modify`.

    Attributes:
        cq: where it reports what has completed.
        local: this end of the connection, as the peer must know it.
        attributes: RTR uses its capabilities and its MTU, RTS its retries.
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
        """The QP number, which packets to it carry."""
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
