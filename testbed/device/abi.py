"""What programs in Python pass to the library: structures of libibverbs and of OCP's mrc.h.

Names and order are those of c/verbs_abi.h and c/mrc_abi.h; a test compares the layouts. OCP's
interface sets of a queue pair what verbs does not.
"""

from ctypes import (
    POINTER,
    Structure,
    c_int,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, ClassVar, Final, Self

from testbed.mrc.config import Capabilities
from testbed.mrc.constants import (
    DEFAULT_EXPONENTIAL_RETRIES,
    DEFAULT_LINEAR_RETRIES,
    MAX_EXPONENTIAL_RETRIES,
    MAX_LINEAR_RETRIES,
)

QP_ATTR: Final = Struct("=BBHHBxQQBB6xQI128s4x")
"""struct mrc_qp_attr: MPR of requester and responder, WRITEs with immediate of both, timeout,
EV and CC profile, linear and exponential retries, hint, capabilities, the vendor's part."""

_MAX_TIMEOUT: Final = 24
_NO_TRIM_NACK_AT_PEER, _DYNAMIC_MPR, _NO_SERVICE_TIME_AT_PEER = 1, 2, 4
_CAPABILITIES: Final = _NO_TRIM_NACK_AT_PEER | _DYNAMIC_MPR | _NO_SERVICE_TIME_AT_PEER


@dataclass(slots=True)
class QpProfiles:
    """The profiles of a queue pair, which are looked up when it learns its peer.

    Attributes:
        ev: the number of its EV profile; 0: the NIC chooses the EVs.
        cc: the number of its CC profile; 0: the NIC's parameters.
        peer: the address of the peer.
    """

    ev: int = 0
    cc: int = 0
    peer: bytes = b""


@dataclass(frozen=True, slots=True)
class MrcAttributes:
    """The attributes of a queue pair of mrc.h; both ends have equal defaults.

    Attributes:
        own: the limits of this end as a responder.
        peer: those of the other end, which this end keeps as a requester.
        linear_retries: timeouts of one length.
        exponential_retries: timeouts of doubling length after them.
        ev_profile: the number of its EV profile; 0: the NIC chooses the EVs.
        cc_profile: the number of its CC profile; 0: the NIC's parameters of NSCC.
    """

    own: Capabilities = field(default_factory=Capabilities)
    peer: Capabilities = field(default_factory=Capabilities)
    linear_retries: int = DEFAULT_LINEAR_RETRIES
    exponential_retries: int = DEFAULT_EXPONENTIAL_RETRIES
    ev_profile: int = 0
    cc_profile: int = 0

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read a struct mrc_qp_attr; the timeout is only checked, MRC's follows from the RTT.

        Raises:
            ValueError: a value is out of its range.
        """
        mpr, mpr_dest, immediates, immediates_dest, timeout, *rest = QP_ATTR.unpack(data)
        ev_profile, cc_profile, linear, exponential, _, capabilities, _ = rest
        if timeout > _MAX_TIMEOUT:
            raise ValueError(f"a timeout is 0 to {_MAX_TIMEOUT}, not {timeout}")
        if linear > MAX_LINEAR_RETRIES or exponential > MAX_EXPONENTIAL_RETRIES:
            raise ValueError(f"{linear} linear and {exponential} exponential retries")
        if capabilities & ~_CAPABILITIES:
            raise ValueError(f"capabilities {capabilities:#x}")
        dynamic = bool(capabilities & _DYNAMIC_MPR)
        trims = not capabilities & _NO_TRIM_NACK_AT_PEER
        return cls(
            Capabilities(mpr_dest, dynamic, immediates_dest),
            Capabilities(mpr, dynamic, immediates, trims),
            linear,
            exponential,
            ev_profile,
            cc_profile,
        )

    def pack(self) -> bytes:
        """The struct mrc_qp_attr, of a program."""
        own, peer = self.own, self.peer
        capabilities = 0 if peer.trim_nack else _NO_TRIM_NACK_AT_PEER
        if own.dynamic_mpr and peer.dynamic_mpr:
            capabilities |= _DYNAMIC_MPR
        return QP_ATTR.pack(
            *(peer.mpr, own.mpr, peer.immediates, own.immediates, 0),
            *(self.ev_profile, self.cc_profile, self.linear_retries, self.exponential_retries),
            *(0, capabilities, b""),
        )


Fields = list[tuple[str, Any]]


class Mr(Structure):
    """struct ibv_mr."""

    _fields_: ClassVar[Fields] = [
        ("context", c_void_p),
        ("pd", c_void_p),
        ("addr", c_void_p),
        ("length", c_size_t),
        ("handle", c_uint32),
        ("lkey", c_uint32),
        ("rkey", c_uint32),
    ]


class Cap(Structure):
    """struct ibv_qp_cap."""

    _fields_: ClassVar[Fields] = [
        ("max_send_wr", c_uint32),
        ("max_recv_wr", c_uint32),
        ("max_send_sge", c_uint32),
        ("max_recv_sge", c_uint32),
        ("max_inline_data", c_uint32),
    ]


class MrcQpInit(Structure):
    """struct mrc_qp_init_attr."""

    _fields_: ClassVar[Fields] = [
        ("qp_context", c_void_p),
        ("send_cq", c_void_p),
        ("recv_cq", c_void_p),
        ("cap", Cap),
        ("sq_sig_all", c_int),
        ("pd", c_void_p),
        ("send_ops_flags", c_uint64),
        ("protocol_version", c_int),
    ]


class Gid(Structure):
    """union ibv_gid."""

    _fields_: ClassVar[Fields] = [("raw", c_uint8 * 16), ("_align", c_uint64 * 0)]


class Route(Structure):
    """struct ibv_global_route."""

    _fields_: ClassVar[Fields] = [
        ("dgid", Gid),
        ("flow_label", c_uint32),
        ("sgid_index", c_uint8),
        ("hop_limit", c_uint8),
        ("traffic_class", c_uint8),
    ]


class Ah(Structure):
    """struct ibv_ah_attr."""

    _fields_: ClassVar[Fields] = [
        ("grh", Route),
        ("dlid", c_uint16),
        ("sl", c_uint8),
        ("src_path_bits", c_uint8),
        ("static_rate", c_uint8),
        ("is_global", c_uint8),
        ("port_num", c_uint8),
    ]


class QpAttr(Structure):
    """struct ibv_qp_attr."""

    _fields_: ClassVar[Fields] = [
        ("qp_state", c_int),
        ("cur_qp_state", c_int),
        ("path_mtu", c_int),
        ("path_mig_state", c_int),
        ("qkey", c_uint32),
        ("rq_psn", c_uint32),
        ("sq_psn", c_uint32),
        ("dest_qp_num", c_uint32),
        ("qp_access_flags", c_uint),
        ("cap", Cap),
        ("ah_attr", Ah),
        ("alt_ah_attr", Ah),
        ("pkey_index", c_uint16),
        ("alt_pkey_index", c_uint16),
        ("en_sqd_async_notify", c_uint8),
        ("sq_draining", c_uint8),
        ("max_rd_atomic", c_uint8),
        ("max_dest_rd_atomic", c_uint8),
        ("min_rnr_timer", c_uint8),
        ("port_num", c_uint8),
        ("timeout", c_uint8),
        ("retry_cnt", c_uint8),
        ("rnr_retry", c_uint8),
        ("alt_port_num", c_uint8),
        ("alt_timeout", c_uint8),
        ("rate_limit", c_uint32),
    ]


class Sge(Structure):
    """struct ibv_sge."""

    _fields_: ClassVar[Fields] = [("addr", c_uint64), ("length", c_uint32), ("lkey", c_uint32)]


class SendWr(Structure):
    """struct ibv_send_wr."""


SendWr._fields_ = [
    ("wr_id", c_uint64),
    ("next", POINTER(SendWr)),
    ("sg_list", POINTER(Sge)),
    ("num_sge", c_int),
    ("opcode", c_int),
    ("send_flags", c_uint),
    ("imm_data", c_uint32),
    ("remote_addr", c_uint64),
    ("rkey", c_uint32),
    ("_rest", c_uint8 * 76),
]


class RecvWr(Structure):
    """struct ibv_recv_wr."""


RecvWr._fields_ = [
    ("wr_id", c_uint64),
    ("next", POINTER(RecvWr)),
    ("sg_list", POINTER(Sge)),
    ("num_sge", c_int),
]


class Wc(Structure):
    """struct ibv_wc."""

    _fields_: ClassVar[Fields] = [
        ("wr_id", c_uint64),
        ("status", c_int),
        ("opcode", c_int),
        ("vendor_err", c_uint32),
        ("byte_len", c_uint32),
        ("imm_data", c_uint32),
        ("qp_num", c_uint32),
        ("src_qp", c_uint32),
        ("wc_flags", c_uint),
        ("pkey_index", c_uint16),
        ("slid", c_uint16),
        ("sl", c_uint8),
        ("dlid_path_bits", c_uint8),
    ]
