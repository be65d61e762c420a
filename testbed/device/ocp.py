"""What OCP's interface for MRC programs sets of a queue pair, and verbs does not (c/mrc_abi.h)."""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final, Self

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
