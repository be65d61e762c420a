"""The packets of MRC: which headers each has behind the BTH, and what its BTH says.

`read` takes an inner packet apart header by header, as `headers.py` declares them: slow, for tools
and tests. The codec is `codec.py`.
"""

from dataclasses import dataclass
from typing import Final

from testbed.mrc.constants import Opcode
from testbed.mrc.wire.header import Header
from testbed.mrc.wire.headers import (
    AETH,
    BTH,
    CC_STATE,
    EETH,
    ERTH,
    IMMDT,
    IPV6,
    METH,
    NETH,
    PETH,
    RETH,
    SETH,
    TSETH,
    UDP,
)


@dataclass(frozen=True, slots=True)
class PacketKind:
    """One kind of packet.

    Attributes:
        name: what it is called.
        opcodes: the opcodes that it has.
        headers: the headers behind the BTH; of a WRITE, TSETH and ImmDt may be absent.
        dqp: what BTH.dqp says.
        psn: what BTH.psn says.
        dscp: the traffic class that it is sent in.
        agree: how many sources agree on headers and PSN, and which.
    """

    name: str
    opcodes: tuple[Opcode, ...]
    headers: tuple[Header, ...]
    dqp: str
    psn: str
    dscp: str
    agree: str


WRITE: Final = PacketKind(
    "WRITE",
    (
        Opcode.WRITE_FIRST,
        Opcode.WRITE_MIDDLE,
        Opcode.WRITE_LAST,
        Opcode.WRITE_LAST_IMMEDIATE,
        Opcode.WRITE_ONLY,
        Opcode.WRITE_ONLY_IMMEDIATE,
    ),
    (METH, TSETH, RETH, IMMDT),
    "peer QP",
    "its PSN",
    "data; retransmissions in their own",
    "5: FDMNG",
)
ACK: Final = PacketKind(
    "ACK",
    (Opcode.ACK,),
    (AETH,),
    "peer QP",
    "last PSN acknowledged cumulatively; of a NAK, the PSN of the failed WRITE's last packet",
    "control",
    "3: DMN, K; PSN 2: FN, I",
)
SACK: Final = PacketKind(
    "SACK",
    (Opcode.SACK,),
    (SETH, CC_STATE),
    "peer QP",
    "cack_psn",
    "control",
    "4: FDMN, K; PSN 3: FMN",
)
NACK: Final = PacketKind(
    "NACK", (Opcode.NACK,), (NETH,), "peer QP", "nack_psn", "control", "4: FDMN, K; PSN 3: FMN"
)
RELIABILITY_PROBE: Final = PacketKind(
    "reliability probe",
    (Opcode.RELIABILITY_PROBE,),
    (PETH,),
    "peer QP",
    "0; ignored, consumes none",
    "data",
    "4: FDMN, K; PSN 2: FM; class 2: GM",
)
ENDPOINT_REQUEST: Final = PacketKind(
    "endpoint request",
    (Opcode.ENDPOINT_REQUEST,),
    (ERTH,),
    "2",
    "request id in the low 16 bits",
    "control",
    "4: FDMN, K",
)
ENDPOINT_RESPONSE: Final = PacketKind(
    "endpoint response",
    (Opcode.ENDPOINT_RESPONSE,),
    (EETH,),
    "2",
    "the request's id",
    "control",
    "4: FDMN, K",
)

KINDS: Final = (
    WRITE,
    ACK,
    SACK,
    NACK,
    RELIABILITY_PROBE,
    ENDPOINT_REQUEST,
    ENDPOINT_RESPONSE,
)
KIND_OF: Final[dict[int, PacketKind]] = {code: kind for kind in KINDS for code in kind.opcodes}
"""The kind of packet that each opcode is of."""

COMMON: Final = (IPV6, UDP, BTH)
"""The headers that every inner packet begins with."""

IMMEDIATE_OPCODES: Final = frozenset((Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_ONLY_IMMEDIATE))
"""The opcodes with an ImmDt."""


def headers_behind(opcode: int, *, ts: bool) -> tuple[Header, ...]:
    """The headers behind the BTH of a packet; `ts` is its flag in the BTH.

    Raises:
        KeyError: the opcode is none of MRC's.
    """
    return tuple(
        header
        for header in KIND_OF[opcode].headers
        if not (header is TSETH and not ts)
        and not (header is IMMDT and opcode not in IMMEDIATE_OPCODES)
    )


def read(packet: bytes) -> list[tuple[Header, dict[str, int]]]:
    """Every header of an inner packet with its fields, in order; payload and iCRC are left out.

    Raises:
        KeyError: the opcode is none of MRC's.
        ValueError: the packet ends within a header.
    """
    found: list[tuple[Header, dict[str, int]]] = []
    at = 0
    for header in COMMON:
        found.append((header, header.read(packet, at)))
        at += header.size
    bth = found[-1][1]
    for header in headers_behind(bth["opcode"], ts=bool(bth["ts"])):
        found.append((header, header.read(packet, at)))
        at += header.size
    return found
