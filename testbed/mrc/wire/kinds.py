"""The packets of MRC: opcodes, control headers, and which headers each packet has behind the BTH.

A WRITE as a value, what all packets share, and the reasons why bytes are refused are here, too. The
headers of a WRITE are in `headers.py`, with what `agree` says. The codec is `codec.py`.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from testbed.mrc.constants import ICRC_BYTES, MSN_BITS, OTHER_UDP_PORT, PSN_BITS, ROCE_UDP_PORT
from testbed.mrc.wire.headers import (
    BASE_BYTES,
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
    concatenated,
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


Buffer = bytes | bytearray | memoryview


class Write(NamedTuple):
    """One packet of an RDMA WRITE. `va` is this packet's own, `dma_length` the whole message's.

    Only the last packet of a WRITE with immediate has an `immediate` (32 bits). `tx_timestamp` is
    None where there is no TSETH. Its unit is 128 ns, or the sender's own (`tsr`), and it is a
    timestamp if `ftype` is 1.
    """

    source: bytes
    destination: bytes
    ev: int
    qpn: int
    psn: int
    opcode: int
    ack_request: bool
    retransmitted: bool
    rqmsn: int
    msn: int
    tx_timestamp: int | None
    va: int
    rkey: int
    dma_length: int
    payload: Buffer
    immediate: int | None = None
    tsr: bool = False
    ftype: int = 1


@dataclass(frozen=True, slots=True)
class PacketFields:
    """The first fields of most packets; `ev` is the EV that the packet travels on."""

    source: bytes
    destination: bytes
    ev: int
    qpn: int


@dataclass(frozen=True, slots=True)
class TrimmedWrite(PacketFields):
    """What a trimming switch left of a WRITE. No iCRC covers it: a hint, no evidence."""

    psn: int
    msn: int
    tx_timestamp: int | None


class DecodeReason(Enum):
    """Why bytes are not a packet of MRC."""

    TRUNCATED = "shorter than its headers"
    NOT_IPV6 = "the inner header is not IPv6"
    NOT_UDP = "the next header is not UDP"
    BAD_LENGTH = "a length field disagrees with the packet"
    WRONG_PORT = "not a port of MRC"
    WRONG_VERSION = "the transport version of the BTH is not 0"
    UNKNOWN_OPCODE = "not an opcode of MRC"
    BAD_ICRC = "the iCRC does not match: corrupted on the way"
    BAD_FIELD = "a field holds a value that is not defined"


class DecodeError(Exception):
    """Bytes that are not a valid packet; `reason` says why."""

    def __init__(self, reason: DecodeReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


# --------------------------------------------------------------------------------------------------
# Sequence numbers: 24-bit PSNs and 16-bit MSNs on the wire, unwrapped integers inside.
#
# Inside the core a packet is identified by its `seq`, a PSN that never wraps; `wrap_*` and
# `unwrap_*` convert, and for each data packet the masks, which need no call. Unwrapping is correct
# while both ends differ by less than half the number space, which the responder window (at most 255
# x 128 PSNs) guarantees.


_PSN_SPAN: Final = 1 << PSN_BITS
PSN_MASK: Final = _PSN_SPAN - 1
_PSN_HALF: Final = _PSN_SPAN >> 1
_MSN_SPAN: Final = 1 << MSN_BITS
MSN_MASK: Final = _MSN_SPAN - 1
_MSN_HALF: Final = _MSN_SPAN >> 1


def wrap_psn(seq: int) -> int:
    """Return the 24-bit PSN of `seq`."""
    return seq & PSN_MASK


def unwrap_psn(psn: int, near: int) -> int:
    """Return the `seq` with this PSN that lies nearest to `near` (from -2^23 to 2^23 - 1 away)."""
    return near + ((psn - near + _PSN_HALF) & PSN_MASK) - _PSN_HALF


def unwrap_msn(msn: int, near: int) -> int:
    """Return the message number with this MSN nearest to `near` (-2^15 to 2^15 - 1 away)."""
    return near + ((msn - near + _MSN_HALF) & MSN_MASK) - _MSN_HALF


# --------------------------------------------------------------------------------------------------
# What a trimming switch leaves of a WRITE: headers up to METH, and TSETH where there is one.


TRIMMED_BYTES: Final = BASE_BYTES + METH.size + TSETH.size
"""What is left of a WRITE with TSETH."""

_UNTIMED_BYTES: Final = BASE_BYTES + METH.size
_METH: Final = METH.struct()
_METH_TSETH: Final = concatenated(METH.format(), TSETH.format())
_PSN: Final = BTH.mask("psn")
_TS: Final = BTH.mask("ts")
_FLAGS_AT: Final = IPV6.size + UDP.size + 8
"""Byte 8 of the BTH, which begins its last word."""


def kept_bytes(write: Buffer) -> int:
    """How much a trimming switch keeps of a WRITE."""
    return TRIMMED_BYTES if write[_FLAGS_AT] & _TS >> 24 else _UNTIMED_BYTES


def decode_trimmed(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, opcode: int, word8: int
) -> TrimmedWrite:
    """Decode a trimmed WRITE, given the fields of its first headers; `word8`: the BTH's last word.

    Raises:
        DecodeError: it is no WRITE, or too short.
    """
    if KIND_OF.get(opcode) is not WRITE:
        raise DecodeError(DecodeReason.UNKNOWN_OPCODE)
    tx_timestamp: int | None = None
    timed = word8 & _TS != 0
    if len(packet) < (TRIMMED_BYTES if timed else _UNTIMED_BYTES):
        raise DecodeError(DecodeReason.TRUNCATED)
    if timed:
        _, msn, tx_timestamp, _ = _METH_TSETH.unpack_from(packet, BASE_BYTES)
    else:
        _, msn = _METH.unpack_from(packet, BASE_BYTES)
    return TrimmedWrite(source, destination, ev, qpn, word8 & _PSN, msn, tx_timestamp)


# --------------------------------------------------------------------------------------------------
# The size with which a data packet counts in congestion control.


_TIMED: Final = TRIMMED_BYTES + RETH.size + ICRC_BYTES
"""All but the payload, its padding and an immediate, where there is a timestamp."""

_UNTIMED: Final = _TIMED - TSETH.size
_IMMEDIATE: Final = IMMDT.size


def nominal_size(payload: int, *, immediate: bool, timestamp: bool) -> int:
    """The bytes that a data packet adds to `rcvd_bytes`: the inner packet with its headers."""
    size = (_TIMED if timestamp else _UNTIMED) + payload + (-payload & 3)
    return size + _IMMEDIATE if immediate else size
