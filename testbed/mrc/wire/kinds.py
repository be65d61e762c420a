"""The packets of MRC: opcodes, control headers, and which headers each packet has behind the BTH.

The headers of a WRITE are in `headers.py`, with what `agree` says. The codec is `codec.py`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from testbed.mrc.constants import OTHER_UDP_PORT, ROCE_UDP_PORT
from testbed.mrc.wire.headers import (
    BTH,
    FDMN,
    IMMDT,
    IPV6,
    METH,
    RETH,
    TSETH,
    UDP,
    Field,
    Header,
    reserved,
    timestamp_fields,
)

_FKMN: Final = "4: FKMN (zeros)"
_FDM: Final = "3: FDM, K"


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


def _kind(agree: str) -> tuple[Field, Field]:
    """The first nine bits of every control header of MRC."""
    return (
        Field("type", 4, "0; ignored (mirrors UET's)", agree),
        Field("next_header", 5, "0; ignored (mirrors UET's)", agree),
    )


def _dcids(agree: str) -> tuple[Field, Field]:
    return (
        Field("spdcid", 16, "low 16 bits of the sender's QPN; ignored", agree),
        Field("dpdcid", 16, "low 16 bits of the receiver's QPN; ignored", agree),
    )


AETH: Final = Header(
    "AETH",
    "acknowledgement",
    "4: FDMN, K, I",
    (
        (
            Field(
                "syndrome",
                8,
                "1F: ACK (any 00 to 1F is one); NAK: 61 invalid request, 62 remote access error, "
                "63 remote operational error",
                "ACK 2: N, Z1; NAK: N, O, Z2, I",
            ),
            Field("msn", 24, "messages completed at the responder", "F, K, I"),
        ),
    ),
)

SETH: Final = Header(
    "SETH",
    "selective acknowledgement",
    FDMN,
    (
        (
            *_kind(_FKMN),
            Field(
                "m",
                2,
                "mark on the EV: 0 none, 1 skip once, 2 always skip; 3 is read as 0",
                "5: FDMNK",
            ),
            reserved(3),
            Field("pr", 1, "1: answers a reliability probe", "5: FDMNK"),
            reserved(1),
        ),
        (
            Field(
                "ack_psn_offset",
                16,
                "PSN of the packet that is answered, from cack_psn; where pr is 1 the probe's id",
                FDMN,
                signed=True,
            ),
        ),
        (Field("entropy", 32, "EV of the packet that is answered", FDMN),),
        *((field,) for field in _dcids("place 4: FDMN, K; meaning open")),
        (reserved(8, FDMN), Field("cack_psn", 24, "all PSNs up to it have arrived", FDMN)),
        (
            Field("cc_type", 4, "0: CC_STATE is as below; with others it is not read", "4: FDMN"),
            Field("cc_fl", 4, "0; ignored", "4: FDMN"),
        ),
        (
            Field(
                "mpr",
                8,
                "responder window in units of 128 PSNs; 0, and ignored, unless both ends agreed",
                "place 4: FDMN, K; 0 2: GN",
            ),
        ),
        (
            Field(
                "sack_offset",
                16,
                "first PSN of the bitmap, from cack_psn",
                FDMN,
                signed=True,
            ),
        ),
        (
            Field(
                "bitmap",
                64,
                "bit i, from the least significant: PSN cack_psn + sack_offset + i has arrived",
                "place 4: FDMN; order 2: MN",
            ),
        ),
    ),
)

CC_STATE: Final = Header(
    "CC_STATE",
    "congestion state, behind the SETH",
    FDMN,
    (
        (Field("tx_timestamp", 16, "of the packet that is answered; 0 if it had none", FDMN),),
        (
            reserved(1),
            Field("ooo_count", 15, "packets received above cack_psn", "4: FDMN, K, O"),
        ),
        (
            Field("restore_cwnd", 1, "return to the window before the penalty", FDMN),
            Field("rcv_cwnd_pen", 7, "penalty of a busy receiver, 0 to 127", FDMN),
            Field(
                "rcvd_bytes",
                24,
                "bytes of new, untrimmed data packets (UDP length + 40 each), in units of 256, "
                "rounded up, modulo 2^24",
                "place 4: FDMN, K; rounded up 3: MN U1; UDP length + 40 2: M U1",
            ),
        ),
    ),
)

NETH: Final = Header(
    "NETH",
    "negative acknowledgement",
    FDMN,
    (
        (*_kind(_FKMN), reserved(7, "3: FMN")),
        (
            Field(
                "nack_reason",
                8,
                "01 TRIMMED, 02 TRIMMED_LASTHOP, 06 NO_BITMAP, 07 NO_PKT_BUFFER, 0A NO_RESOURCE, "
                "0B PSN_OOR_WINDOW, 19 UNEXP_EVENT; others are refused",
                "5: FDMNK",
            ),
        ),
        (Field("vendor_info", 8, "0; ignored", FDMN),),
        (Field("entropy", 32, "EV of the refused packet", FDMN),),
        *((field,) for field in _dcids("place 4: FDMN, K; meaning open")),
        (reserved(8, FDMN), Field("nack_psn", 24, "PSN of the refused packet", FDMN)),
        (
            Field("cc_type", 4, "2; ignored", "3: FMN"),
            Field("cc_fl", 4, "0; ignored", "3: FMN"),
        ),
        (reserved(8, FDMN),),
        (Field("tx_timestamp", 16, "of the refused packet; 0 if it had none", FDMN),),
    ),
)

PETH: Final = Header(
    "PETH",
    "reliability probe",
    FDMN,
    (
        (*_kind(FDMN), reserved(7, FDMN)),
        (reserved(8, FDMN),),
        (Field("vendor_info", 8, "0; ignored", FDMN),),
        (Field("probe_id", 16, "the SACK that answers returns it", FDMN),),
        (reserved(16, "3: FMN, K"),),
        *((field,) for field in _dcids(FDMN)),
        *timestamp_fields("3: FDM, K; N: 0001"),
    ),
)

ERTH: Final = Header(
    "ERTH",
    "endpoint request, to QPN 2",
    FDMN,
    (
        (
            *_kind(_FDM),
            reserved(5, _FDM),
            Field("op", 2, "0 PORT_STATUS_UPDATE, 1 EV_PROBE; others are refused", _FDM),
        ),
        (reserved(8, _FDM),),
        (Field("vendor_info", 8, "0; ignored", _FDM),),
        (
            Field(
                "port_status_mask",
                32,
                "bit p: port p is reachable, from 0; only with op 0",
                "place 3: FDM, K; 1 is reachable 2: MN",
            ),
        ),
        (reserved(32, _FDM),),
        *timestamp_fields("3: FDM, K; N has the field"),
    ),
)

EETH: Final = Header(
    "EETH",
    "endpoint response, to QPN 2",
    FDMN,
    (
        (
            *_kind(_FDM),
            reserved(3, _FDM),
            Field("op", 2, "as in the request; the id decides on receipt", "FD; M: bits 5:4"),
            reserved(2, _FDM),
        ),
        (reserved(16, _FDM),),
        *((reserved(64, _FDM),),) * 3,
        (Field("tx_timestamp", 16, "that of the request", "3: FDM, K; N"),),
        (reserved(16, _FDM),),
        (reserved(32, _FDM),),
    ),
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
        recorded: what records of control packets call it; empty for a WRITE.
        of_responder: whether a flow's receiver sends it (`back` in the records).
    """

    name: str
    opcodes: tuple[Opcode, ...]
    headers: tuple[Header, ...]
    dqp: str
    psn: str
    dscp: str
    agree: str
    recorded: str = ""
    of_responder: bool = False


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
    "ack",
    of_responder=True,
)
SACK: Final = PacketKind(
    "SACK",
    (Opcode.SACK,),
    (SETH, CC_STATE),
    "peer QP",
    "cack_psn",
    "control",
    "4: FDMN, K; PSN 3: FMN",
    "sack",
    of_responder=True,
)
NACK: Final = PacketKind(
    "NACK",
    (Opcode.NACK,),
    (NETH,),
    "peer QP",
    "nack_psn",
    "control",
    "4: FDMN, K; PSN 3: FMN",
    "nack",
    of_responder=True,
)
RELIABILITY_PROBE: Final = PacketKind(
    "reliability probe",
    (Opcode.RELIABILITY_PROBE,),
    (PETH,),
    "peer QP",
    "0; ignored, consumes none",
    "data",
    "4: FDMN, K; PSN 2: FM; class 2: GM",
    "probe",
)
ENDPOINT_REQUEST: Final = PacketKind(
    "endpoint request",
    (Opcode.ENDPOINT_REQUEST,),
    (ERTH,),
    "2",
    "request id in the low 16 bits",
    "control",
    "4: FDMN, K",
    "probe",
)
ENDPOINT_RESPONSE: Final = PacketKind(
    "endpoint response",
    (Opcode.ENDPOINT_RESPONSE,),
    (EETH,),
    "2",
    "the request's id",
    "control",
    "4: FDMN, K",
    "answer",
    of_responder=True,
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

HEADERS: Final = tuple(dict.fromkeys((*COMMON, *(h for kind in KINDS for h in kind.headers))))
"""Every header, once."""

IMMEDIATE_OPCODES: Final = frozenset((Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_ONLY_IMMEDIATE))
"""The opcodes with an ImmDt."""


# --------------------------------------------------------------------------------------------------
# What sources disagree about on the wire, each an option with the default that we recommend.


@dataclass(frozen=True, slots=True)
class WireOptions:
    """How the packets of an endpoint are written where sources disagree.

    Attributes:
        udp_port: the UDP destination port to send to, 4791 or 4971; both are accepted.
        label_first: whether the field `entropy` of SACK and NACK has the flow label's half of an EV
            first, as in ECMP mode (two sources), or the UDP port's (one source, structured mode).
            Both ends must agree on it.
        sealed: whether the iCRC of data packets is computed; otherwise zeros stand in its place.
            Only for a simulator, which hands over what arrives undamaged without reading it.

    Raises:
        ValueError: the port is another one.
    """

    udp_port: int = ROCE_UDP_PORT
    label_first: bool = True
    sealed: bool = True

    def __post_init__(self) -> None:
        """Refuse a port that no peer accepts."""
        if self.udp_port not in UDP_PORTS:
            raise ValueError(f"udp_port must be 4791 or 4971, not {self.udp_port}")


UDP_PORTS: Final = frozenset((ROCE_UDP_PORT, OTHER_UDP_PORT))
"""The UDP destination ports that are accepted."""

DEFAULT_OPTIONS: Final = WireOptions()
