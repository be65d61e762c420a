"""What the library in a program and the NIC process say to each other: c/protocol.h."""

from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final, NamedTuple

from testbed.mrc.message import CompletionStatus
from testbed.mrc.qp import QpState

VERSION: Final = 1
SOCKET: Final = "\0mrc-nic"
"""The NIC's abstract socket, one in each network namespace."""

SOCKET_VARIABLE: Final = "MRC_NIC"
"""The environment variable that names another one, without the zero at its beginning."""

HOSTS_VARIABLE: Final = "MRC_HOSTS"
ADDRESS_VARIABLE: Final = "MRC_ADDRESS"
"""What c/names.c reads: names and addresses of hosts that share a loopback, and the own address."""

MAX_SGE: Final = 16
MAX_INLINE: Final = 256
MAX_DEPTH: Final = 16_384
MAX_CQE: Final = 65_536
MAX_MESSAGE: Final = 1 << 30
MODIFY_MRC: Final = 1 << 31
ENTRIES_OFFSET: Final = 4096


class Op(IntEnum):
    """What a request is for."""

    OPEN = 1
    ALLOC_PD = 2
    DEALLOC_PD = 3
    REG_MR = 4
    DEREG_MR = 5
    CREATE_CHANNEL = 6
    DESTROY_CHANNEL = 7
    CREATE_CQ = 8
    DESTROY_CQ = 9
    CREATE_QP = 10
    MODIFY_QP = 11
    QUERY_QP = 12
    DESTROY_QP = 13
    REPORT = 14
    RESIZE_CQ = 15
    QUERY_PORTS = 16
    SET_MRC = 17
    CONTROL = 18


class Call(IntEnum):
    """What a controller asks."""

    QUERY_CONTROL = 1
    QUERY_PORT = 2
    MODIFY_PORT = 3
    MODIFY_FORMAT = 4
    QUERY_FORMAT = 5
    MODIFY_EVS = 6
    QUERY_EVS = 7
    MODIFY_CC = 8
    QUERY_CC = 9
    POLL_EV_EVENTS = 10
    SEND_PROBES = 11
    TAKE_PROBES = 12


class Request(NamedTuple):
    """A request; what an operation has no use for is 0. The header explains the fields."""

    op: int
    handle: int
    cookie: int
    address: int
    length: int
    iova: int
    access: int
    channel: int
    depth: int
    recv_depth: int
    send_cq: int
    recv_cq: int
    signal_all: int
    mask: int
    state: int
    mtu: int
    peer_qpn: int
    peer_psn: int
    first_psn: int
    retries: int
    timeout: int
    version: int
    peer: bytes


class Reply(NamedTuple):
    """The answer to a request."""

    error: int = 0
    handle: int = 0
    key: int = 0
    state: int = 0
    guid: int = 0
    rate: int = 0
    dilation: int = 0
    sent_bytes: int = 0
    time_ns: int = 0
    mtu: int = 0
    planes: int = 0
    gid: bytes = b""


REQUEST: Final = Struct("=II4Q16I16s")
REPLY: Final = Struct("=iIII5QII16s")

RING_BYTES: Final = 192
TAIL, HEAD, DONE, ARMED = 0, 16, 17, 32
"""Where `struct mrc_ring` has its words."""

ARMED_SOLICITED: Final = 2
"""The value of `armed` where only a receive or an error makes an event."""

WQE: Final = Struct("=QQIIIIII")
"""A work request, without what it sends: wr_id, remote address and key, immediate, opcode, flags,
count, padding."""
WQE_BYTES: Final = WQE.size + MAX_INLINE
SGE: Final = Struct("=QII")
"""Address, length, key."""
RECEIVE: Final = Struct("=Q")
CQE: Final = Struct("=QIIIIII")
"""wr_id, status, opcode, length, immediate, QP number, flags."""
COPY: Final = Struct("=II")
"""What the library's thread is asked, without its places: whether it is to write, their number."""
COPY_BYTES: Final = COPY.size + MAX_SGE * SGE.size
EVENT: Final = Struct("=QII")
"""Cookie, type, port."""
COOKIE: Final = Struct("=Q")


# Numbers of libibverbs, as c/verbs_abi.h has them.


class IbvState(IntEnum):
    """enum ibv_qp_state."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class IbvMask(IntFlag):
    """enum ibv_qp_attr_mask."""

    STATE = 1 << 0
    CUR_STATE = 1 << 1
    ACCESS_FLAGS = 1 << 3
    PKEY_INDEX = 1 << 4
    PORT = 1 << 5
    AV = 1 << 7
    PATH_MTU = 1 << 8
    TIMEOUT = 1 << 9
    RETRY_CNT = 1 << 10
    RNR_RETRY = 1 << 11
    RQ_PSN = 1 << 12
    MAX_QP_RD_ATOMIC = 1 << 13
    MIN_RNR_TIMER = 1 << 15
    SQ_PSN = 1 << 16
    MAX_DEST_RD_ATOMIC = 1 << 17
    DEST_QPN = 1 << 20


class IbvAccess(IntFlag):
    """enum ibv_access_flags, the part that matters here."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2


WR_WRITE_WITH_IMM: Final = 1
SEND_SIGNALED: Final = 2
SEND_INLINE: Final = 8
WC_WITH_IMM: Final = 2
WC_RDMA_WRITE: Final = 1
WC_RECV_RDMA_WITH_IMM: Final = 129


class IbvStatus(IntEnum):
    """enum ibv_wc_status, the part that occurs here."""

    SUCCESS = 0
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12


class IbvEvent(IntEnum):
    """enum ibv_event_type, the part that occurs here."""

    CQ_ERR = 0
    QP_FATAL = 1
    QP_REQ_ERR = 2
    QP_ACCESS_ERR = 3
    PORT_ACTIVE = 9
    PORT_ERR = 10


MTUS: Final = (256, 512, 1024, 2048, 4096)
"""enum ibv_mtu, from 1 on."""

STATES: Final[dict[int, QpState]] = {
    IbvState.RESET: QpState.RESET,
    IbvState.INIT: QpState.INIT,
    IbvState.RTR: QpState.RTR,
    IbvState.RTS: QpState.RTS,
    IbvState.ERR: QpState.ERROR,
}
"""The states of a queue pair here, by verbs' numbers."""

STATUSES: Final[dict[int, CompletionStatus]] = {
    IbvStatus.SUCCESS: CompletionStatus.SUCCESS,
    IbvStatus.RETRY_EXC_ERR: CompletionStatus.RETRY_EXCEEDED,
    IbvStatus.REM_ACCESS_ERR: CompletionStatus.REMOTE_ACCESS_ERROR,
    IbvStatus.REM_INV_REQ_ERR: CompletionStatus.REMOTE_INVALID_REQUEST,
    IbvStatus.REM_OP_ERR: CompletionStatus.REMOTE_OPERATION_ERROR,
    IbvStatus.WR_FLUSH_ERR: CompletionStatus.FLUSHED,
    IbvStatus.LOC_PROT_ERR: CompletionStatus.LOCAL_PROTECTION_ERROR,
}
"""How work requests end here, by verbs' numbers."""
