"""Reads the bytes that `codec.py` writes, and refuses those that are no packet of MRC."""

from typing import Final

from testbed.mrc.constants import EV_LABEL_SHIFT, ICRC_BYTES, IPV6_BYTES
from testbed.mrc.wire.codec import (
    BASE,
    BASE_FORMAT,
    MASKED_CHECKSUM,
    MASKED_HOP_LIMIT,
    MASKED_RESERVED,
    MASKED_WORD,
    ONES,
    TIMED,
    UDP_NEXT_HEADER,
    UNTIMED,
    WRITE_HEADER_BYTES,
)
from testbed.mrc.wire.control import EXTENSION_BYTES, Packet, decode_control
from testbed.mrc.wire.crc import crc32
from testbed.mrc.wire.datagram import new
from testbed.mrc.wire.header import concatenated
from testbed.mrc.wire.headers import BASE_BYTES, BTH, IMMDT, IPV6, TIMESTAMP_FTYPE, TSETH
from testbed.mrc.wire.kinds import IMMEDIATE_OPCODES, KIND_OF
from testbed.mrc.wire.kinds import WRITE as WRITE_KIND
from testbed.mrc.wire.options import UDP_PORTS
from testbed.mrc.wire.packets import Buffer, DecodeError, DecodeReason, Write
from testbed.mrc.wire.trimming import decode_trimmed

_UNTIMED_END: Final = BASE_BYTES + UNTIMED.size
"""Where the RETH of a WRITE without TSETH ends."""

_COVERED: Final = concatenated("8s", BASE_FORMAT)
"""What the iCRC covers of `BASE`: eight 0xff bytes, then its fields with the masked bits set."""

_CRC32_RESIDUE: Final = 0x2144DF1C
"""The CRC-32 of data followed by its own CRC-32, least significant byte first."""

_VERSION_SHIFT: Final = IPV6.shift("version")
_LABEL: Final = IPV6.mask("label")
_PAD_SHIFT: Final = BTH.shift("pad")
_MOST_PAD: Final = BTH.most("pad")
_TRANSPORT_VERSION: Final = BTH.mask("version")
_QPN: Final = BTH.mask("dqp")
_PSN: Final = BTH.mask("psn")
_ACK_REQUEST: Final = BTH.mask("ack_request")
_RTX: Final = BTH.mask("rtx")
_TS: Final = BTH.mask("ts")
_TSR_SHIFT: Final = TSETH.shift("tsr")
_FTYPE: Final = TSETH.mask("ftype")

_IMMEDIATE_OPCODES: Final = IMMEDIATE_OPCODES
_WRITE_OPCODES: Final = frozenset(code for code, kind in KIND_OF.items() if kind is WRITE_KIND)


def decode(packet: Buffer, *, trimmed: bool = False, label_first: bool = True) -> Packet:  # noqa: C901, PLR0912 - one check after the other, on the hottest path
    """Decode the bytes of an inner packet.

    `trimmed` says that it arrived in one of the trimmed classes: then only the headers that
    trimming keeps are read, and no iCRC covers them. `label_first` is that of `WireOptions`. The
    payload of a `Write` is a view of `packet`: place it before the buffer is used again.

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
    if word >> _VERSION_SHIFT != 6:  # noqa: PLR2004 - the version is the protocol's name
        raise DecodeError(DecodeReason.NOT_IPV6)
    if next_header != UDP_NEXT_HEADER:
        raise DecodeError(DecodeReason.NOT_UDP)
    if port not in UDP_PORTS:
        raise DecodeError(DecodeReason.WRONG_PORT)
    ev = (word & _LABEL) << EV_LABEL_SHIFT | source_port
    qpn = word4 & _QPN
    if trimmed:
        if flags & _TRANSPORT_VERSION:
            raise DecodeError(DecodeReason.WRONG_VERSION)
        return decode_trimmed(packet, source, destination, ev, qpn, opcode, word8)
    if length != total - IPV6_BYTES or udp_length != length:
        raise DecodeError(DecodeReason.BAD_LENGTH)
    is_write = opcode in _WRITE_OPCODES
    if is_write:
        pad = flags >> _PAD_SHIFT & _MOST_PAD
        payload_start = WRITE_HEADER_BYTES if word8 & _TS else _UNTIMED_END
        if opcode in _IMMEDIATE_OPCODES:
            payload_start += IMMDT.size
        if total < payload_start + pad + ICRC_BYTES:
            raise DecodeError(DecodeReason.TRUNCATED)
    else:
        extension = EXTENSION_BYTES.get(opcode)
        if extension is None:
            raise DecodeError(DecodeReason.UNKNOWN_OPCODE)
        if total != BASE_BYTES + extension + ICRC_BYTES:
            raise DecodeError(DecodeReason.BAD_LENGTH)
    covered = _COVERED.pack(
        ONES,
        MASKED_WORD,
        length,
        next_header,
        MASKED_HOP_LIMIT,
        source,
        destination,
        source_port,
        port,
        udp_length,
        MASKED_CHECKSUM,
        opcode,
        flags,
        pkey,
        MASKED_RESERVED | word4,
        word8,
    )
    if crc32(packet[BASE_BYTES:], crc32(covered)) != _CRC32_RESIDUE:
        raise DecodeError(DecodeReason.BAD_ICRC)
    if flags & _TRANSPORT_VERSION:
        raise DecodeError(DecodeReason.WRONG_VERSION)
    if is_write:
        payload = packet[payload_start : total - ICRC_BYTES - pad]
        return _write(packet, source, destination, ev, qpn, opcode, word8, payload)
    return decode_control(
        opcode,
        packet,
        (source, destination, ev, qpn),
        word8 & _PSN,
        retransmitted=word8 & _RTX != 0,
        label_first=label_first,
    )


def decode_undamaged(header: bytes, payload: Buffer, *, label_first: bool = True) -> Packet:
    """Decode a packet in its pieces, exactly as `encode_write` or `encode` made it.

    Nothing is checked, and no iCRC is needed. The payload of a `Write` is `payload` itself.
    """
    (
        word,
        _length,
        _next_header,
        _hop_limit,
        source,
        destination,
        source_port,
        _port,
        _udp_length,
        _checksum,
        opcode,
        _flags,
        _pkey,
        word4,
        word8,
    ) = BASE.unpack_from(header)
    ev = (word & _LABEL) << EV_LABEL_SHIFT | source_port
    qpn = word4 & _QPN
    if opcode in _WRITE_OPCODES:
        return _write(header, source, destination, ev, qpn, opcode, word8, payload)
    return decode_control(
        opcode,
        header,
        (source, destination, ev, qpn),
        word8 & _PSN,
        retransmitted=word8 & _RTX != 0,
        label_first=label_first,
    )


def _write(
    packet: Buffer,
    source: bytes,
    destination: bytes,
    ev: int,
    qpn: int,
    opcode: int,
    word8: int,
    payload: Buffer,
) -> Write:
    """Read what follows the BTH of a WRITE."""
    tx_timestamp: int | None = None
    kind = TIMESTAMP_FTYPE
    if word8 & _TS:
        end = WRITE_HEADER_BYTES
        rqmsn, msn, tx_timestamp, kind, va, rkey, dma_length = TIMED.unpack_from(packet, BASE_BYTES)
    else:
        end = _UNTIMED_END
        rqmsn, msn, va, rkey, dma_length = UNTIMED.unpack_from(packet, BASE_BYTES)
    immediate: int | None = None
    if opcode in _IMMEDIATE_OPCODES:
        immediate = int.from_bytes(packet[end : end + IMMDT.size], "big")
    fields = (
        source,
        destination,
        ev,
        qpn,
        word8 & _PSN,
        opcode,
        word8 & _ACK_REQUEST != 0,
        word8 & _RTX != 0,
        rqmsn,
        msn,
        tx_timestamp,
        va,
        rkey,
        dma_length,
        payload,
        immediate,
        kind >> _TSR_SHIFT != 0,
        kind & _FTYPE,
    )
    return new(Write, fields)
