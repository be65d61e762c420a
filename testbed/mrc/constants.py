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
"""UDP destination port (IBTA A17). One description of MRC has 4971: taken as a typing error."""

ENDPOINT_QPN: Final = 2
"""The queue pair that answers endpoint requests (OCP MRC 1.0)."""

FIRST_QPN: Final = 16
"""The first number of a queue pair; lower ones are reserved, like `ENDPOINT_QPN`. Ours."""

EV_PORT_SHIFT: Final = 16
EV_LABEL_MASK: Final = (1 << EV_PORT_SHIFT) - 1
"""The halves of an EV: the upper one is the UDP source port; the lower one, which selects the path,
is in the flow label. Sources disagree on the order."""

DEFAULT_PKEY: Final = 0xFFFF
"""The default partition (IBTA)."""

NEVER: Final = (1 << 62) - 1
"""A time in ns that is never reached: the largest integer that mypyc compares without boxing."""

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
"""The most of each (OCP MRC API); 25 exponential retries mean that a QP never fails."""

DEFAULT_LINEAR_RETRIES: Final = 7
DEFAULT_EXPONENTIAL_RETRIES: Final = 4
"""Ours: the API's example is 7 and 25, by which no queue pair would ever fail."""

SACK_BITMAP_BITS: Final = 64
"""Bits of the bitmap of a SACK, one for each PSN (OCP MRC 1.0)."""

RCVD_BYTES_UNIT: Final = 256
"""Bytes in one unit of `rcvd_bytes` in CC_STATE (OCP MRC 1.0)."""

TIMESTAMP_SHIFT: Final = 7
"""The unit of `tx_timestamp` is 2^7 = 128 ns (OCP MRC 1.0) ..."""

TIMESTAMP_RTT_BITS: Final = 11
"""... or the least doubling of it in which a base RTT has at most 2^11 units, so that its 16 bits
wrap after 32 base RTTs or more: 128 ns at full speed, 65.5 us where an RTT takes 131 ms. Ours to
choose; the peer only echoes it."""

IPV6_BYTES: Final = 40
UDP_BYTES: Final = 8
BTH_BYTES: Final = 12
METH_BYTES: Final = 4
TSETH_BYTES: Final = 4
RETH_BYTES: Final = 16
IMMDT_BYTES: Final = 4
ICRC_BYTES: Final = 4
"""Bytes of each header (IPv6, UDP, BTH, RETH, ImmDt, iCRC: IBTA A17; METH, TSETH: OCP MRC 1.0)."""

BASE_BYTES: Final = IPV6_BYTES + UDP_BYTES + BTH_BYTES
"""The headers that every inner packet begins with."""

FLAG_ACK_REQUEST: Final = 0x80
FLAG_RETRANSMITTED: Final = 0x20
FLAG_TIMESTAMP: Final = 0x10
"""Flags in byte 8 of the BTH (OCP MRC 1.0, two descriptions agree)."""

ECT0: Final = 0b10
ECN_CE: Final = 0b11
"""ECN field of the IPv6 traffic class (RFC 3168)."""


class Opcode(IntEnum):
    """BTH opcodes (OCP MRC 1.0)."""

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_LAST_IMMEDIATE = 0xC9
    WRITE_ONLY = 0xCA
    WRITE_ONLY_IMMEDIATE = 0xCB
    ACK = 0xD1
    ENDPOINT_REQUEST = 0xD8
    ENDPOINT_RESPONSE = 0xD9
    SACK = 0xDC
    NACK = 0xDD
    RELIABILITY_PROBE = 0xDE


AETH_NO_CREDITS: Final = 0x1F
"""Syndrome of an ACK whose sender does not count credits (IBTA, table of AETH syndromes)."""

AETH_ACK_MASK: Final = 0xE0
"""These bits of the syndrome are zero in an ACK; others make it a NAK (IBTA)."""


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
