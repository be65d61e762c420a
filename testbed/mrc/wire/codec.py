"""The wire format: the inner packets of MRC, from values to bytes and back.

An inner packet is IPv6 / UDP / BTH / extension headers / payload / iCRC. Layouts are OCP MRC 1.0's
as independent implementers describe them; what they leave open is decided here:

- *EV halves* (`EV_LABEL_MASK`): the inner flow label repeats the outer one, so that a receiver that
  sees only the inner packet can read the EV.
- *TSETH*: tx_timestamp, then tsr in bit 15 and ftype in bits 7-0. It is required in every WRITE:
  its timestamp distinguishes the transmissions of a packet.
- The extension headers of control packets are in `control.py`.

The iCRC is IBTA A17's: CRC-32 over eight 0xff bytes, the IPv6 header with traffic class, flow label
and hop limit masked, the UDP header with the checksum masked, the BTH with byte 4 masked, and all
that follows; sent least significant byte first. The outer header changes on the way and is not
covered. The UDP checksum is zero (RFC 6935, 6936).
"""

from struct import Struct
from typing import Final
from zlib import crc32

from testbed.mrc.constants import (
    BASE_BYTES,
    BTH_BYTES,
    DEFAULT_PKEY,
    ECT0,
    EV_LABEL_MASK,
    EV_PORT_SHIFT,
    FLAG_ACK_REQUEST,
    FLAG_RETRANSMITTED,
    FLAG_TIMESTAMP,
    HOP_LIMIT,
    ICRC_BYTES,
    IMMDT_BYTES,
    IPV6_BYTES,
    METH_BYTES,
    RETH_BYTES,
    ROCE_UDP_PORT,
    TSETH_BYTES,
    UDP_BYTES,
    Opcode,
)
from testbed.mrc.wire.control import EXTENSION_BYTES, decode_control, encode_extension
from testbed.mrc.wire.datagram import new
from testbed.mrc.wire.packets import (
    Buffer,
    Control,
    DecodeError,
    DecodeReason,
    Packet,
    TrimmedWrite,
    Write,
)

TRIMMED_BYTES: Final = BASE_BYTES + METH_BYTES + TSETH_BYTES
"""The part of a WRITE that a trimming switch keeps: up to and including METH and TSETH."""
WRITE_HEADER_BYTES: Final = TRIMMED_BYTES + RETH_BYTES

_BASE_FORMAT: Final = "!IHBB16s16sHHHHBBHII"
BASE: Final = Struct(_BASE_FORMAT)
"""The headers that every inner packet begins with: IPv6, UDP and BTH."""
_METH_TSETH_RETH: Final = Struct("!HHHHQII")
_METH_TSETH: Final = Struct("!HHHH")
_WRITE: Final = Struct(_BASE_FORMAT + "HHHHQII")
_COVERED: Final = Struct("!8s" + _BASE_FORMAT[1:])
"""What the iCRC covers of `BASE`: eight 0xff bytes, then its fields with the masked bits set."""

UDP_NEXT_HEADER: Final = 17
_FTYPE_TIMESTAMP: Final = 1
_TIMESTAMPED: Final = FLAG_TIMESTAMP << 24
"""In the BTH's last word: a TSETH follows the METH."""
_CRC32_RESIDUE: Final = 0x2144DF1C
"""The CRC-32 of data followed by its own CRC-32, least significant byte first."""
_ONES: Final = b"\xff" * 8
_MASKED_WORD: Final = 0x6FFFFFFF
"""The first word of IPv6, with traffic class and flow label masked."""
_MASKED_HOP_LIMIT: Final = 0xFF
_MASKED_CHECKSUM: Final = 0xFFFF
_MASKED_RESERVED: Final = 0xFF000000
"""Byte 4 of the BTH, in its second word."""
_MASK: Final = int.from_bytes(
    BASE.pack(
        _MASKED_WORD & 0x0FFFFFFF,
        *(0, 0, _MASKED_HOP_LIMIT, bytes(16), bytes(16), 0, 0, 0, _MASKED_CHECKSUM, 0, 0, 0),
        *(_MASKED_RESERVED, 0),
    ),
    "big",
)
"""The masked bits of `BASE`, as one number."""
_WRITE_MASK: Final = _MASK << 8 * (WRITE_HEADER_BYTES - BASE_BYTES)
_CRC_OF_ONES: Final = crc32(_ONES)

_IMMEDIATE_OPCODES: Final = frozenset((Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_ONLY_IMMEDIATE))
_WRITE_OPCODES: Final = _IMMEDIATE_OPCODES | {
    Opcode.WRITE_FIRST,
    Opcode.WRITE_MIDDLE,
    Opcode.WRITE_LAST,
    Opcode.WRITE_ONLY,
}


def icrc(header: Buffer, payload: Buffer) -> int:
    """Return the iCRC of these headers (IPv6, UDP, BTH and what follows) and this payload."""
    base = int.from_bytes(header[:BASE_BYTES], "big") | _MASK
    covered = crc32(base.to_bytes(BASE_BYTES, "big"), _CRC_OF_ONES)
    return crc32(payload, crc32(header[BASE_BYTES:], covered))


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

    The arguments are the fields of `Write`, and the DSCP of the inner header, which repeats that
    of the outer one. An immediate is given exactly for the opcodes that have one.
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
        0x60000000 | dscp << 22 | ECT0 << 20 | ev & EV_LABEL_MASK,
        length,
        UDP_NEXT_HEADER,
        HOP_LIMIT,
        source,
        destination,
        ev >> EV_PORT_SHIFT,
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
    covered = (int.from_bytes(header, "big") | _WRITE_MASK).to_bytes(WRITE_HEADER_BYTES, "big")
    crc = crc32(covered, _CRC_OF_ONES)
    if immediate is not None:
        extension = immediate.to_bytes(IMMDT_BYTES, "big")
        header += extension
        crc = crc32(extension, crc)
    crc = crc32(payload, crc)
    if pad:
        padding = bytes(pad)
        return header, padding + crc32(padding, crc).to_bytes(4, "little")
    return header, crc.to_bytes(4, "little")


def encode(packet: Control, dscp: int) -> tuple[bytes, bytes]:
    """Return the header of a control packet and its trailer (the iCRC)."""
    opcode, qpn, psn, extension = encode_extension(packet)
    length = UDP_BYTES + BTH_BYTES + len(extension) + ICRC_BYTES
    base = encode_base(
        packet.source, packet.destination, packet.ev, dscp, length, opcode, 0, qpn, psn
    )
    header = base + extension
    return header, icrc(header, b"").to_bytes(4, "little")


def encode_base(
    source: bytes,
    destination: bytes,
    ev: int,
    dscp: int,
    length: int,
    opcode: int,
    flags: int,
    word4: int,
    word8: int,
) -> bytes:
    """Return the headers that every inner packet begins with, RoCE's too.

    `length` is that of the UDP datagram; `flags` is byte 1 of the BTH, which has the pad count, and
    the words are those from its bytes 4 and 8 on.
    """
    return BASE.pack(
        0x60000000 | dscp << 22 | ECT0 << 20 | ev & EV_LABEL_MASK,
        length,
        UDP_NEXT_HEADER,
        HOP_LIMIT,
        source,
        destination,
        ev >> EV_PORT_SHIFT,
        ROCE_UDP_PORT,
        length,
        0,
        opcode,
        flags,
        DEFAULT_PKEY,
        word4,
        word8,
    )


def decode(packet: Buffer, *, trimmed: bool = False) -> Packet:  # noqa: C901, PLR0912 - one check after the other, on the hottest path
    """Decode the bytes of an inner packet.

    `trimmed` says that it arrived in one of the trimmed classes: then only the headers that
    trimming keeps are read, and no iCRC covers them. The payload of a `Write` is a view of
    `packet`: place it before the buffer is used again.

    Raises:
        DecodeError: the bytes are not a packet of MRC, or were corrupted on the way.
    """
    total = len(packet)
    if total < BASE_BYTES:
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
    if next_header != UDP_NEXT_HEADER:
        raise DecodeError(DecodeReason.NOT_UDP)
    if port != ROCE_UDP_PORT:
        raise DecodeError(DecodeReason.WRONG_PORT)
    ev = source_port << EV_PORT_SHIFT | word & EV_LABEL_MASK
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
        extension = EXTENSION_BYTES.get(opcode)
        if extension is None:
            raise DecodeError(DecodeReason.UNKNOWN_OPCODE)
        if total != BASE_BYTES + extension + ICRC_BYTES:
            raise DecodeError(DecodeReason.BAD_LENGTH)
    covered = _COVERED.pack(
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
    if crc32(packet[BASE_BYTES:], crc32(covered)) != _CRC32_RESIDUE:
        raise DecodeError(DecodeReason.BAD_ICRC)
    if is_write:
        rqmsn, msn, tx_timestamp, kind, va, rkey, dma_length = _METH_TSETH_RETH.unpack_from(
            packet, BASE_BYTES
        )
        if kind != _FTYPE_TIMESTAMP or not word8 & _TIMESTAMPED:
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
    return decode_control(opcode, packet, (source, destination, ev, qpn), word8 & 0xFFFFFF)


def _decode_trimmed(
    packet: Buffer, source: bytes, destination: bytes, ev: int, qpn: int, opcode: int, word8: int
) -> TrimmedWrite:
    if opcode not in _WRITE_OPCODES:
        raise DecodeError(DecodeReason.UNKNOWN_OPCODE)
    if len(packet) < TRIMMED_BYTES:
        raise DecodeError(DecodeReason.TRUNCATED)
    _, msn, tx_timestamp, kind = _METH_TSETH.unpack_from(packet, BASE_BYTES)
    if kind != _FTYPE_TIMESTAMP or not word8 & _TIMESTAMPED:
        raise DecodeError(DecodeReason.BAD_FIELD)
    return TrimmedWrite(source, destination, ev, qpn, word8 & 0xFFFFFF, msn, tx_timestamp)
