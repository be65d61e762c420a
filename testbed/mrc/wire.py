"""The wire format: the inner packets of MRC as values, and their bytes.

An inner packet is IPv6 / UDP / BTH / extension headers / payload / iCRC. Layouts are OCP MRC 1.0's
as independent implementers describe them; what they leave open is decided here:

- *EV halves*: the low 16 bits (the path) travel in the low 16 bits of the flow label, the high 16
  bits in the UDP source port. Sources disagree on the order. The inner flow label repeats the
  outer one, so that a receiver that sees only the inner packet still knows the EV.
- *SACK bitmap*: bit i, counted from the least significant, stands for PSN cack + sack_offset + i.
- *TSETH*: tx_timestamp, then tsr in bit 15 and ftype in bits 7-0.
- *PETH*: probe id, tx_timestamp, 12 reserved bytes.
- *ERTH*: op in byte 0, EV in 4-7, the asking QP in 8-11, port mask in 12-15. *EETH* begins the
  same way, followed by 20 reserved bytes. The position of its op is another open conflict.
- *AETH*: as IBTA has it, syndrome in byte 0, MSN in 1-3; the PSN acknowledged, and all before it,
  is the BTH's. Only ACKs: a NAK of the AETH's kind is a NACK here, which is its own opcode.
- spdcid, dpdcid and cc_type are sent as zero and ignored.

The iCRC is IBTA A17's: CRC-32 over eight 0xff bytes, the IPv6 header with traffic class, flow label
and hop limit masked, the UDP header with the checksum masked, the BTH with byte 4 masked, and all
that follows; sent least significant byte first. The outer header changes on the way and is not
covered. The UDP checksum is zero (RFC 6935, 6936).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from testbed.mrc.constants import (
    AETH_ACK_MASK,
    AETH_NO_CREDITS,
    DEFAULT_PKEY,
    ECT0,
    ENDPOINT_QPN,
    FLAG_ACK_REQUEST,
    FLAG_RETRANSMITTED,
    FLAG_TIMESTAMP,
    ROCE_UDP_PORT,
    EndpointOp,
    EvMark,
    NackReason,
    Opcode,
)
from testbed.mrc.datagram import new

Buffer = bytes | bytearray | memoryview

IPV6_BYTES: Final = 40
UDP_BYTES: Final = 8
BTH_BYTES: Final = 12
METH_BYTES: Final = 4
TSETH_BYTES: Final = 4
RETH_BYTES: Final = 16
IMMDT_BYTES: Final = 4
AETH_BYTES: Final = 4
SETH_BYTES: Final = 36
"""SETH with its CC_STATE."""
NETH_BYTES: Final = 20
PETH_BYTES: Final = 16
ERTH_BYTES: Final = 16
EETH_BYTES: Final = 36
ICRC_BYTES: Final = 4

_BASE_BYTES: Final = IPV6_BYTES + UDP_BYTES + BTH_BYTES
TRIMMED_BYTES: Final = _BASE_BYTES + METH_BYTES + TSETH_BYTES
"""What a trimming switch keeps of a WRITE: everything up to and including METH and TSETH."""
WRITE_HEADER_BYTES: Final = TRIMMED_BYTES + RETH_BYTES

_BASE_FORMAT: Final = "!IHBB16s16sHHHHBBHII"
BASE: Final = Struct(_BASE_FORMAT)
"""The headers that every inner packet begins with: IPv6, UDP and BTH."""
_WRITE: Final = Struct(_BASE_FORMAT + "HHHHQII")
_COVERED_BASE: Final = Struct("!8s" + _BASE_FORMAT[1:])
"""What of `BASE` the iCRC covers: packed from the same fields, the masked ones as their masks."""
_COVERED_WRITE: Final = Struct("!8s" + _BASE_FORMAT[1:] + "HHHHQII")
_METH_TSETH_RETH: Final = Struct("!HHHHQII")
_METH_TSETH: Final = Struct("!HHHH")
_AETH: Final = Struct("!I")
_SETH: Final = Struct("!BBhIIIBBhQHHI")
_NETH: Final = Struct("!HBBIIIBBH")
_PETH: Final = Struct("!HH12x")
_ERTH: Final = Struct("!B3xIII")
_EETH: Final = Struct("!B3xIII20x")

_UDP_NEXT_HEADER: Final = 17
_HOP_LIMIT: Final = 64
_FTYPE_TIMESTAMP: Final = 1
_CRC32_RESIDUE: Final = 0x2144DF1C
"""The CRC-32 of anything that is followed by its own CRC-32, least significant byte first."""
_BTH_BYTE4: Final = IPV6_BYTES + UDP_BYTES + 4
_ONES: Final = b"\xff" * 8
_MASKED_WORD: Final = 0x6FFFFFFF
_MASKED_HOP_LIMIT: Final = 0xFF
_MASKED_CHECKSUM: Final = 0xFFFF
_MASKED_RESERVED: Final = 0xFF000000
"""Of the BTH's second word: byte 4."""
_MASKED_START: Final = _ONES + _MASKED_WORD.to_bytes(4, "big")

_IMMEDIATE_OPCODES: Final = frozenset((Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_ONLY_IMMEDIATE))
_WRITE_OPCODES: Final = _IMMEDIATE_OPCODES | {
    Opcode.WRITE_FIRST,
    Opcode.WRITE_MIDDLE,
    Opcode.WRITE_LAST,
    Opcode.WRITE_ONLY,
}


class DecodeReason(Enum):
    """Why bytes are not a packet of MRC."""

    TRUNCATED = "shorter than its headers"
    NOT_IPV6 = "the inner header is not IPv6"
    NOT_UDP = "the next header is not UDP"
    BAD_LENGTH = "a length field disagrees with the packet"
    WRONG_PORT = "not the RoCEv2 port"
    UNKNOWN_OPCODE = "not an opcode of MRC"
    BAD_ICRC = "the iCRC does not match: corrupted on the way"
    BAD_FIELD = "a field holds a value that is not defined"


class DecodeError(Exception):
    """These bytes are not a packet that may be acted on."""

    def __init__(self, reason: DecodeReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Write(NamedTuple):
    """One packet of an RDMA WRITE. `va` is this packet's own, `dma_length` the whole message's.

    `immediate` (32 bits) is there in the last packet of a WRITE with immediate, and only there.
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
    tx_timestamp: int
    va: int
    rkey: int
    dma_length: int
    payload: Buffer
    immediate: int | None = None


@dataclass(frozen=True, slots=True)
class TrimmedWrite:
    """What a trimming switch left of a WRITE. No iCRC covers it: a hint, not evidence."""

    source: bytes
    destination: bytes
    ev: int
    qpn: int
    psn: int
    msn: int
    tx_timestamp: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Transport acknowledgement: `psn` and all before it have arrived.

    `msn` (24 bits here) counts the messages completed. It reflects no EV.
    """

    source: bytes
    destination: bytes
    ev: int
    qpn: int
    psn: int
    msn: int


@dataclass(frozen=True, slots=True)
class Sack:
    """Selective acknowledgement: SETH and CC_STATE.

    `ack_psn_offset` names the packet that triggered it, relative to `cack_psn` (or is the probe's
    id where `probe_reply`), and `reflected_ev` the EV that packet came on. `mpr` is the responder
    window in units of 128 PSNs, `rcvd_bytes` counts units of 256 bytes, modulo 2^24.
    """

    source: bytes
    destination: bytes
    ev: int
    qpn: int
    mark: EvMark
    probe_reply: bool
    ack_psn_offset: int
    reflected_ev: int
    cack_psn: int
    mpr: int
    sack_offset: int
    bitmap: int
    tx_timestamp: int
    ooo_count: int
    restore_cwnd: bool
    rcv_cwnd_pen: int
    rcvd_bytes: int


@dataclass(frozen=True, slots=True)
class Nack:
    """Negative acknowledgement of the packet `nack_psn`, sent at `tx_timestamp`."""

    source: bytes
    destination: bytes
    ev: int
    qpn: int
    reason: NackReason
    reflected_ev: int
    nack_psn: int
    tx_timestamp: int


@dataclass(frozen=True, slots=True)
class ReliabilityProbe:
    """Asks the peer QP for a SACK with `probe_reply`; consumes no PSN (`psn` is the next one)."""

    source: bytes
    destination: bytes
    ev: int
    qpn: int
    psn: int
    probe_id: int
    tx_timestamp: int


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """A request to the peer's endpoint (QPN 2): an EV probe or a port status update."""

    source: bytes
    destination: bytes
    ev: int
    op: EndpointOp
    request_id: int
    requester_qpn: int
    port_mask: int


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """The answer to an `EndpointRequest`, for the queue pair `qpn` that asked."""

    source: bytes
    destination: bytes
    ev: int
    op: EndpointOp
    request_id: int
    qpn: int
    port_mask: int
    reflected_ev: int


Control = Ack | Sack | Nack | ReliabilityProbe | EndpointRequest | EndpointResponse
Packet = Write | TrimmedWrite | Control


def _masked_start(packet: Buffer) -> bytes:
    return b"".join(
        (
            _MASKED_START,
            packet[4:7],
            b"\xff",
            packet[8:46],
            b"\xff\xff",
            packet[48:52],
            b"\xff",
        )
    )


def icrc(header: Buffer, payload: Buffer) -> int:
    """Return the iCRC of these headers (IPv6, UDP, BTH and what follows) and this payload."""
    return crc32(payload, crc32(header[_BTH_BYTE4 + 1 :], crc32(_masked_start(header))))


def encode_write(
    source: bytes,
    destination: bytes,
    ev: int,
    qpn: int,
    psn: int,
    opcode: int,
    ack_request: bool,
    retransmitted: bool,
    rqmsn: int,
    msn: int,
    tx_timestamp: int,
    va: int,
    rkey: int,
    dma_length: int,
    payload: Buffer,
    dscp: int,
    immediate: int | None = None,
) -> tuple[bytes, bytes]:
    """Return the header of a WRITE packet and its trailer (padding and iCRC).

    The arguments are the fields of `Write` and the DSCP of the inner header, which repeats the
    outer one. The immediate goes with the opcodes that have one, and with no other.
    """
    size = len(payload)
    pad = -size & 3
    length = UDP_BYTES + BTH_BYTES + METH_BYTES + TSETH_BYTES + RETH_BYTES + size + pad + ICRC_BYTES
    if immediate is not None:
        length += IMMDT_BYTES
    flags = FLAG_TIMESTAMP
    if ack_request:
        flags |= FLAG_ACK_REQUEST
    if retransmitted:
        flags |= FLAG_RETRANSMITTED
    word8 = flags << 24 | psn
    header = _WRITE.pack(
        0x60000000 | dscp << 22 | ECT0 << 20 | ev & 0xFFFF,
        length,
        _UDP_NEXT_HEADER,
        _HOP_LIMIT,
        source,
        destination,
        ev >> 16,
        ROCE_UDP_PORT,
        length,
        0,
        opcode,
        pad << 4,
        DEFAULT_PKEY,
        qpn,
        word8,
        rqmsn,
        msn,
        tx_timestamp,
        _FTYPE_TIMESTAMP,
        va,
        rkey,
        dma_length,
    )
    covered = _COVERED_WRITE.pack(
        _ONES,
        _MASKED_WORD,
        length,
        _UDP_NEXT_HEADER,
        _MASKED_HOP_LIMIT,
        source,
        destination,
        ev >> 16,
        ROCE_UDP_PORT,
        length,
        _MASKED_CHECKSUM,
        opcode,
        pad << 4,
        DEFAULT_PKEY,
        _MASKED_RESERVED | qpn,
        word8,
        rqmsn,
        msn,
        tx_timestamp,
        _FTYPE_TIMESTAMP,
        va,
        rkey,
        dma_length,
    )
    if immediate is not None:
        extension = immediate.to_bytes(IMMDT_BYTES, "big")
        header += extension
        covered += extension
    crc = crc32(payload, crc32(covered))
    if pad:
        padding = bytes(pad)
        return header, padding + crc32(padding, crc).to_bytes(4, "little")
    return header, crc.to_bytes(4, "little")


def encode(packet: Control, dscp: int) -> tuple[bytes, bytes]:
    """Return the header of a control packet and its trailer (the iCRC)."""
    qpn, psn = ENDPOINT_QPN, 0
    if isinstance(packet, Sack):
        opcode, qpn = Opcode.SACK, packet.qpn
        extension = _SETH.pack(
            0,
            packet.mark << 5 | packet.probe_reply << 1,
            packet.ack_psn_offset,
            packet.reflected_ev,
            0,
            packet.cack_psn,
            0,
            packet.mpr,
            packet.sack_offset,
            packet.bitmap,
            packet.tx_timestamp,
            packet.ooo_count,
            packet.restore_cwnd << 31 | packet.rcv_cwnd_pen << 24 | packet.rcvd_bytes,
        )
    elif isinstance(packet, Ack):
        opcode, qpn, psn = Opcode.ACK, packet.qpn, packet.psn
        extension = _AETH.pack(AETH_NO_CREDITS << 24 | packet.msn)
    elif isinstance(packet, Nack):
        opcode, qpn = Opcode.NACK, packet.qpn
        extension = _NETH.pack(
            0,
            packet.reason,
            0,
            packet.reflected_ev,
            0,
            packet.nack_psn,
            0,
            0,
            packet.tx_timestamp,
        )
    elif isinstance(packet, ReliabilityProbe):
        opcode, qpn, psn = Opcode.RELIABILITY_PROBE, packet.qpn, packet.psn
        extension = _PETH.pack(packet.probe_id, packet.tx_timestamp)
    elif isinstance(packet, EndpointRequest):
        opcode, psn = Opcode.ENDPOINT_REQUEST, packet.request_id
        extension = _ERTH.pack(packet.op, packet.ev, packet.requester_qpn, packet.port_mask)
    else:
        opcode, psn = Opcode.ENDPOINT_RESPONSE, packet.request_id
        extension = _EETH.pack(packet.op, packet.reflected_ev, packet.qpn, packet.port_mask)
    length = UDP_BYTES + BTH_BYTES + len(extension) + ICRC_BYTES
    base = BASE.pack(
        0x60000000 | dscp << 22 | ECT0 << 20 | packet.ev & 0xFFFF,
        length,
        _UDP_NEXT_HEADER,
        _HOP_LIMIT,
        packet.source,
        packet.destination,
        packet.ev >> 16,
        ROCE_UDP_PORT,
        length,
        0,
        opcode,
        0,
        DEFAULT_PKEY,
        qpn,
        psn,
    )
    header = base + extension
    return header, icrc(header, b"").to_bytes(4, "little")


_EXTENSION_BYTES: Final[dict[int, int]] = {
    Opcode.ACK: AETH_BYTES,
    Opcode.SACK: SETH_BYTES,
    Opcode.NACK: NETH_BYTES,
    Opcode.RELIABILITY_PROBE: PETH_BYTES,
    Opcode.ENDPOINT_REQUEST: ERTH_BYTES,
    Opcode.ENDPOINT_RESPONSE: EETH_BYTES,
}


def decode(packet: Buffer, *, trimmed: bool = False) -> Packet:  # noqa: C901, PLR0912 - one check after the other, on the hottest path
    """Return the packet that these bytes (an inner packet, whole) are.

    `trimmed` says that it arrived in one of the trimmed classes: then only the headers that
    trimming keeps are read, and no iCRC vouches for them. A `Write` keeps a view of `packet` as its
    payload: place it before the buffer is used again.

    Raises:
        DecodeError: it is not one, or it was corrupted on the way.
    """
    total = len(packet)
    if total < _BASE_BYTES:
        raise DecodeError(DecodeReason.TRUNCATED)
    (
        word,
        length,
        next_header,
        _,
        source,
        destination,
        source_port,
        port,
        udp_length,
        _,
        opcode,
        flags,
        pkey,
        word4,
        word8,
    ) = BASE.unpack_from(packet)
    if word >> 28 != 6:  # noqa: PLR2004 - the version is the protocol's name
        raise DecodeError(DecodeReason.NOT_IPV6)
    if next_header != _UDP_NEXT_HEADER:
        raise DecodeError(DecodeReason.NOT_UDP)
    if port != ROCE_UDP_PORT:
        raise DecodeError(DecodeReason.WRONG_PORT)
    ev = source_port << 16 | word & 0xFFFF
    qpn = word4 & 0xFFFFFF
    if trimmed:
        return _decode_trimmed(packet, source, destination, ev, qpn, opcode, word8)
    if length != total - IPV6_BYTES or udp_length != length:
        raise DecodeError(DecodeReason.BAD_LENGTH)
    is_write = opcode in _WRITE_OPCODES
    if is_write:
        pad = flags >> 4 & 3
        payload_start = WRITE_HEADER_BYTES
        if opcode in _IMMEDIATE_OPCODES:
            payload_start += IMMDT_BYTES
        if total < payload_start + pad + ICRC_BYTES:
            raise DecodeError(DecodeReason.TRUNCATED)
    else:
        extension = _EXTENSION_BYTES.get(opcode)
        if extension is None:
            raise DecodeError(DecodeReason.UNKNOWN_OPCODE)
        if total != _BASE_BYTES + extension + ICRC_BYTES:
            raise DecodeError(DecodeReason.BAD_LENGTH)
    covered = _COVERED_BASE.pack(
        _ONES,
        _MASKED_WORD,
        length,
        next_header,
        _MASKED_HOP_LIMIT,
        source,
        destination,
        source_port,
        port,
        udp_length,
        _MASKED_CHECKSUM,
        opcode,
        flags,
        pkey,
        _MASKED_RESERVED | word4,
        word8,
    )
    if crc32(packet[_BASE_BYTES:], crc32(covered)) != _CRC32_RESIDUE:
        raise DecodeError(DecodeReason.BAD_ICRC)
    if is_write:
        rqmsn, msn, tx_timestamp, kind, va, rkey, dma_length = _METH_TSETH_RETH.unpack_from(
            packet, _BASE_BYTES
        )
        if kind != _FTYPE_TIMESTAMP:
            raise DecodeError(DecodeReason.BAD_FIELD)
        immediate: int | None = None
        if payload_start != WRITE_HEADER_BYTES:
            immediate = int.from_bytes(packet[WRITE_HEADER_BYTES:payload_start], "big")
        write = (
            source,
            destination,
            ev,
            qpn,
            word8 & 0xFFFFFF,
            opcode,
            word8 & FLAG_ACK_REQUEST << 24 != 0,
            word8 & FLAG_RETRANSMITTED << 24 != 0,
            rqmsn,
            msn,
            tx_timestamp,
            va,
            rkey,
            dma_length,
            packet[payload_start : total - ICRC_BYTES - pad],
            immediate,
        )
        return new(Write, write)
    try:
        return _CONTROL_DECODERS[opcode](packet, source, destination, ev, qpn, word8 & 0xFFFFFF)
    except ValueError as error:
        raise DecodeError(DecodeReason.BAD_FIELD) from error


def _decode_trimmed(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, opcode: int, word8: int
) -> TrimmedWrite:
    if opcode not in _WRITE_OPCODES:
        raise DecodeError(DecodeReason.UNKNOWN_OPCODE)
    if len(packet) < TRIMMED_BYTES:
        raise DecodeError(DecodeReason.TRUNCATED)
    _, msn, tx_timestamp, kind = _METH_TSETH.unpack_from(packet, _BASE_BYTES)
    if kind != _FTYPE_TIMESTAMP:
        raise DecodeError(DecodeReason.BAD_FIELD)
    return TrimmedWrite(source, destination, ev, qpn, word8 & 0xFFFFFF, msn, tx_timestamp)


def _decode_ack(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, psn: int
) -> Ack:
    (word,) = _AETH.unpack_from(packet, _BASE_BYTES)
    if word >> 24 & AETH_ACK_MASK:
        raise DecodeError(DecodeReason.BAD_FIELD)
    return Ack(source, destination, ev, qpn, psn, word & 0xFFFFFF)


def _decode_sack(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, _psn: int
) -> Sack:
    (
        _,
        marks,
        ack_psn_offset,
        reflected_ev,
        _,
        cack_psn,
        _,
        mpr,
        sack_offset,
        bitmap,
        tx_timestamp,
        ooo_count,
        accounting,
    ) = _SETH.unpack_from(packet, _BASE_BYTES)
    return Sack(
        source,
        destination,
        ev,
        qpn,
        EvMark(marks >> 5 & 3),
        marks & 2 != 0,
        ack_psn_offset,
        reflected_ev,
        cack_psn & 0xFFFFFF,
        mpr,
        sack_offset,
        bitmap,
        tx_timestamp,
        ooo_count & 0x7FFF,
        accounting >> 31 != 0,
        accounting >> 24 & 0x7F,
        accounting & 0xFFFFFF,
    )


def _decode_nack(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, _psn: int
) -> Nack:
    _, reason, _, reflected_ev, _, nack_psn, _, _, tx_timestamp = _NETH.unpack_from(
        packet, _BASE_BYTES
    )
    return Nack(
        source,
        destination,
        ev,
        qpn,
        NackReason(reason),
        reflected_ev,
        nack_psn & 0xFFFFFF,
        tx_timestamp,
    )


def _decode_probe(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, psn: int
) -> ReliabilityProbe:
    probe_id, tx_timestamp = _PETH.unpack_from(packet, _BASE_BYTES)
    return ReliabilityProbe(source, destination, ev, qpn, psn, probe_id, tx_timestamp)


def _decode_request(
    packet: Buffer, source: bytes, destination: bytes, _ev: int, qpn: int, psn: int
) -> EndpointRequest:
    # The EV of the extension header: unlike the flow label, the iCRC vouches for it.
    op, ev, requester_qpn, port_mask = _ERTH.unpack_from(packet, _BASE_BYTES)
    if qpn != ENDPOINT_QPN:
        raise DecodeError(DecodeReason.BAD_FIELD)
    return EndpointRequest(
        source, destination, ev, EndpointOp(op), psn & 0xFFFF, requester_qpn, port_mask
    )


def _decode_response(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, psn: int
) -> EndpointResponse:
    op, reflected_ev, requester_qpn, port_mask = _EETH.unpack_from(packet, _BASE_BYTES)
    if qpn != ENDPOINT_QPN:
        raise DecodeError(DecodeReason.BAD_FIELD)
    return EndpointResponse(
        source,
        destination,
        ev,
        EndpointOp(op),
        psn & 0xFFFF,
        requester_qpn,
        port_mask,
        reflected_ev,
    )


_CONTROL_DECODERS: Final[dict[int, Callable[[Buffer, bytes, bytes, int, int, int], Packet]]] = {
    Opcode.ACK: _decode_ack,
    Opcode.SACK: _decode_sack,
    Opcode.NACK: _decode_nack,
    Opcode.RELIABILITY_PROBE: _decode_probe,
    Opcode.ENDPOINT_REQUEST: _decode_request,
    Opcode.ENDPOINT_RESPONSE: _decode_response,
}
