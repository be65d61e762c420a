"""The numbers of MRC's wire format and defaults, each once and with its source.

Sources: "MRC paper" is arXiv 2605.04333; "MRC transport" is arXiv 2606.18170; "OCP MRC 1.0" is the
specification as independent implementers describe it (medium confidence: the text itself is not
public); "IBTA A17" is InfiniBand annex A17, RoCEv2. "Ours" marks a value chosen in this project.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

NS_PER_S: Final = 1_000_000_000
"""Nanoseconds per second."""

HOP_LIMIT: Final = 64
"""The IPv6 hop limit, outer and inner, with which a packet leaves its host. Ours."""

ROCE_UDP_PORT: Final = 4791
OTHER_UDP_PORT: Final = 4971
"""UDP destination ports. 4791 is RoCEv2's (IBTA A17), 4971 is what OCP MRC 1.0 prints (three
sources quote it). Both are accepted; which is sent is an option."""

ENDPOINT_QPN: Final = 2
"""The queue pair that answers endpoint requests (OCP MRC 1.0)."""

FIRST_QPN: Final = 16
"""The first number of a queue pair; lower ones are reserved, like `ENDPOINT_QPN`. Ours."""

EV_LABEL_SHIFT: Final = 16
EV_PORT_MASK: Final = (1 << EV_LABEL_SHIFT) - 1
"""The halves of an EV: the upper one, which selects the path, is in the flow label; the lower one
is the UDP source port. Sources disagree on the order, which only SACK and NACK show: see
`WireOptions`."""

FIRST_PORT_BIT: Final = 0
"""The bit of a port status mask that is the first port's. One example of a source looks like it."""

DEFAULT_PKEY: Final = 0xFFFF
"""The default partition (IBTA)."""

NEVER: Final = (1 << 62) - 1
"""A time in ns that is never reached: the largest integer that mypyc compares without boxing."""

REQUEST_ID_MASK: Final = 0xFFFF
"""The id of an endpoint request, or of a reliability probe, has 16 bits (OCP MRC 1.0)."""

PSN_BITS: Final = 24
"""Bits of a packet sequence number (IBTA)."""

MSN_BITS: Final = 16
"""Bits of a message sequence number in the METH (OCP MRC 1.0)."""

MPR_UNIT: Final = 128
"""PSNs in one unit of the responder window, MPR (OCP MRC 1.0)."""

MAX_MPR: Final = 255
"""MPR has one byte on the wire."""

DEFAULT_MPR: Final = 8
"""1,024 packets: the OCP MRC API's example."""

MAX_LINEAR_RETRIES: Final = 7
MAX_EXPONENTIAL_RETRIES: Final = 25
"""The most retries of each kind (OCP MRC API); with 25 exponential ones a QP never fails."""

DEFAULT_LINEAR_RETRIES: Final = 7
DEFAULT_EXPONENTIAL_RETRIES: Final = 7
"""Ours: the API's example is 7 and 25, by which no queue pair would ever fail."""

DEFAULT_SACK_BYTES: Final = 32 * 1024
"""Bytes of payload after which a SACK is sent. Configuration: UEC has 16 KiB, one source 4 KiB."""

SACK_LEAST_BYTES: Final = 1024
"""What a packet counts at least in `DEFAULT_SACK_BYTES` (one source; UEC's ACK_Gen_Min_Pkt_Add)."""

SACK_BITMAP_BITS: Final = 64
"""Bits of the bitmap of a SACK, one for each PSN (OCP MRC 1.0)."""

RCVD_BYTES_UNIT: Final = 256
"""Bytes in one unit of `rcvd_bytes` in CC_STATE (OCP MRC 1.0)."""

TIMESTAMP_SHIFT: Final = 7
"""The unit of `tx_timestamp` is 2^7 = 128 ns where `tsr` is 0 (OCP MRC 1.0)."""

TIMESTAMP_RTT_BITS: Final = 11
"""A base RTT has at most 2^11 units of `tx_timestamp`, so that its 16 bits wrap after 32 base RTTs
or more. Where 128 ns are too short for that, the sender doubles the unit until it fits, and sets
`tsr` to 1: 65.5 us where a base RTT takes 131 ms. The peer only echoes the timestamp."""

IPV6_BYTES: Final = 40
ICRC_BYTES: Final = 4
"""Bytes of the inner IPv6 header and of the iCRC. Headers are declared in `wire/`."""

HOP_LIMIT_BYTE: Final = 7
"""Where an IPv6 header has its hop limit."""

ECN_MASK: Final = 0b11
ECT0: Final = 0b10
ECN_CE: Final = 0b11
"""ECN field of the IPv6 traffic class (RFC 3168)."""


AETH_MSN_MASK: Final = 0xFFFFFF
"""The MSN of an AETH has 24 bits (IBTA, table of AETH fields)."""

AETH_NO_CREDITS: Final = 0x1F
"""Syndrome of an ACK whose sender does not count credits (IBTA, table of AETH syndromes)."""

AETH_ACK_MASK: Final = 0xE0
"""These bits of the syndrome are zero in an ACK (IBTA)."""


class NakCode(IntEnum):
    """Why a WRITE failed at the responder: the syndrome of a NAK (IBTA)."""

    INVALID_REQUEST = 0x61
    REMOTE_ACCESS_ERROR = 0x62
    REMOTE_OPERATION_ERROR = 0x63


PENALTY_UNIT: Final = 128
"""A window penalty (`rcv_cwnd_pen`, 7 bits) of p takes p / 128 of the window. The unit is ours."""


class EvMark(IntEnum):
    """The mark of a SACK on the EV that it reflects: the field `m` (OCP MRC 1.0)."""

    NONE = 0
    SKIP_ONCE = 1
    ALWAYS_SKIP = 2


class NackReason(IntEnum):
    """Why a packet was refused (OCP MRC 1.0)."""

    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


class EndpointOp(IntEnum):
    """The operation of an endpoint request (OCP MRC 1.0)."""

    PORT_STATUS_UPDATE = 0
    EV_PROBE = 1


@dataclass(frozen=True, slots=True)
class DscpClasses:
    """DSCP of each traffic class. OCP MRC 1.0 names the classes, the operator chooses values."""

    no_trim: int = 0
    trimmable: int = 10
    trimmable_retx: int = 18
    trimmed: int = 26
    trimmed_lasthop: int = 28
    control: int = 46
