"""The wire format: the inner packets of MRC, from values to bytes; `decoding.py` reads them.

An inner packet is IPv6 / UDP / BTH / extension headers / payload / iCRC. `headers.py` and
`kinds.py` declare the headers; formats, shifts and masks come from there. What follows the BTH in
control packets is in `control.py`. The inner flow label repeats the outer one, so that a receiver
that sees only the inner packet can read the EV.

The iCRC is IBTA A17's: CRC-32 over eight 0xff bytes, the IPv6 header with traffic class, flow label
and hop limit masked, the UDP header with the checksum masked, the BTH with byte 4 masked, and all
that follows; sent least significant byte first. The outer header changes on the way and is not
covered. The UDP checksum is zero (RFC 6935, 6936).
"""

from typing import Final

from testbed.mrc.constants import (
    DEFAULT_PKEY,
    ECT0,
    EV_LABEL_SHIFT,
    EV_PORT_MASK,
    HOP_LIMIT,
    ICRC_BYTES,
    IPV6_BYTES,
    ROCE_UDP_PORT,
)
from testbed.mrc.wire.control import (
    EXTENSION_BYTES,
    Control,
    Packet,
    decode_control,
    encode_extension,
)
from testbed.mrc.wire.crc import crc32
from testbed.mrc.wire.datagram import Datagram, new
from testbed.mrc.wire.headers import (
    BASE_BYTES,
    BTH,
    IMMDT,
    IPV6,
    METH,
    RETH,
    TIMESTAMP_FTYPE,
    TSETH,
    UDP,
    concatenated,
)
from testbed.mrc.wire.kinds import (
    DEFAULT_OPTIONS,
    IMMEDIATE_OPCODES,
    KIND_OF,
    TRIMMED_BYTES,
    UDP_PORTS,
    Buffer,
    DecodeError,
    DecodeReason,
    WireOptions,
    Write,
    decode_trimmed,
)
from testbed.mrc.wire.kinds import WRITE as WRITE_KIND

WRITE_HEADER_BYTES: Final = TRIMMED_BYTES + RETH.size
"""The headers of a WRITE with TSETH, without ImmDt."""

BASE_FORMAT: Final = IPV6.format() + UDP.format() + BTH.format()
"""The headers that every inner packet begins with: IPv6, UDP and BTH."""
BASE: Final = concatenated(BASE_FORMAT)
TIMED: Final = concatenated(METH.format(), TSETH.format(), RETH.format())
UNTIMED: Final = concatenated(METH.format(), RETH.format())
"""What follows them in a WRITE, with TSETH and without."""
_WRITE_TIMED: Final = concatenated(BASE_FORMAT, METH.format(), TSETH.format(), RETH.format())

UDP_NEXT_HEADER: Final = 17
_IPV6: Final = 6 << IPV6.shift("version") | ECT0 << IPV6.shift("ecn")
_DSCP_SHIFT: Final = IPV6.shift("dscp")
_PAD_SHIFT: Final = BTH.shift("pad")
_ACK_REQUEST: Final = BTH.mask("ack_request")
_RTX: Final = BTH.mask("rtx")
_TS: Final = BTH.mask("ts")
_TSR_SHIFT: Final = TSETH.shift("tsr")

ONES: Final = b"\xff" * 8
MASKED_WORD: Final = 0x6FFFFFFF
"""The first word of IPv6, with traffic class and flow label masked."""
MASKED_HOP_LIMIT: Final = 0xFF
MASKED_CHECKSUM: Final = 0xFFFF
MASKED_RESERVED: Final = 0xFFFFFFFF & ~BTH.mask("dqp")
"""Byte 4 of the BTH, in its word."""
_MASK: Final = int.from_bytes(
    BASE.pack(
        MASKED_WORD & 0x0FFFFFFF,
        *(0, 0, MASKED_HOP_LIMIT, bytes(16), bytes(16), 0, 0, 0, MASKED_CHECKSUM, 0, 0, 0),
        *(MASKED_RESERVED, 0),
    ),
    "big",
)
"""The masked bits of `BASE`, as one number."""
_TIMED_MASK: Final = _MASK << 8 * TIMED.size
_UNTIMED_MASK: Final = _MASK << 8 * UNTIMED.size
_CRC_OF_ONES: Final = crc32(ONES)


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
    tx_timestamp: int | None,
    va: int,
    rkey: int,
    dma_length: int,
    payload: Buffer,
    dscp: int,
    immediate: int | None = None,
    tsr: bool = False,
    udp_port: int = ROCE_UDP_PORT,
    sealed: bool = True,
) -> tuple[bytes, bytes]:
    """Return the header of a WRITE packet and its trailer (padding and iCRC).

    The arguments are the fields of `Write`, the DSCP of the inner header, which repeats that of the
    outer one, the UDP destination port, and whether to compute the iCRC (see `WireOptions`). An
    immediate is given exactly for the opcodes that have one.
    """
    size = len(payload)
    pad = -size & 3
    length = WRITE_HEADER_BYTES - IPV6_BYTES + size + pad + ICRC_BYTES
    word8 = psn
    if ack_request:
        word8 |= _ACK_REQUEST
    if retransmitted:
        word8 |= _RTX
    if immediate is not None:
        length += IMMDT.size
    if tx_timestamp is not None:
        header = _WRITE_TIMED.pack(
            _IPV6 | dscp << _DSCP_SHIFT | ev >> EV_LABEL_SHIFT,
            length,
            UDP_NEXT_HEADER,
            HOP_LIMIT,
            source,
            destination,
            ev & EV_PORT_MASK,
            udp_port,
            length,
            0,
            opcode,
            pad << _PAD_SHIFT,
            DEFAULT_PKEY,
            qpn,
            word8 | _TS,
            rqmsn,
            msn,
            tx_timestamp,
            tsr << _TSR_SHIFT | TIMESTAMP_FTYPE,
            va,
            rkey,
            dma_length,
        )
        mask = _TIMED_MASK
    else:
        length -= TSETH.size
        base = encode_base(
            source,
            destination,
            ev,
            dscp,
            length,
            opcode,
            pad << _PAD_SHIFT,
            qpn,
            word8,
            udp_port,
        )
        header = base + UNTIMED.pack(rqmsn, msn, va, rkey, dma_length)
        mask = _UNTIMED_MASK
    extension = b"" if immediate is None else immediate.to_bytes(IMMDT.size, "big")
    if not sealed:
        return header + extension, bytes(pad + ICRC_BYTES)
    masked = (int.from_bytes(header, "big") | mask).to_bytes(len(header), "big")
    crc = crc32(masked, _CRC_OF_ONES)
    if extension:
        header += extension
        crc = crc32(extension, crc)
    crc = crc32(payload, crc)
    if pad:
        padding = bytes(pad)
        return header, padding + crc32(padding, crc).to_bytes(4, "little")
    return header, crc.to_bytes(4, "little")


def encode(
    packet: Control, dscp: int, options: WireOptions = DEFAULT_OPTIONS
) -> tuple[bytes, bytes]:
    """Return the header of a control packet and its trailer (the iCRC)."""
    opcode, qpn, psn, rtx, extension = encode_extension(packet, label_first=options.label_first)
    base = encode_base(
        packet.source,
        packet.destination,
        packet.ev,
        dscp,
        BASE_BYTES - IPV6_BYTES + len(extension) + ICRC_BYTES,
        opcode,
        0,
        qpn,
        _RTX | psn if rtx else psn,
        options.udp_port,
    )
    header = base + extension
    return header, icrc(header, b"").to_bytes(ICRC_BYTES, "little")


def sealed_trailer(header: Buffer, payload: Buffer, trailer: bytes) -> bytes:
    """Return the trailer of a packet with its iCRC, whether it had one or not."""
    padding = trailer[:-ICRC_BYTES]
    return padding + crc32(padding, icrc(header, payload)).to_bytes(ICRC_BYTES, "little")


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
    udp_port: int = ROCE_UDP_PORT,
) -> bytes:
    """Return the headers that every inner packet begins with, RoCE's too.

    `length` is that of the UDP datagram; `flags` is byte 1 of the BTH, which has the pad count, and
    the words are those from its bytes 4 and 8 on.
    """
    return BASE.pack(
        _IPV6 | dscp << _DSCP_SHIFT | ev >> EV_LABEL_SHIFT,
        length,
        UDP_NEXT_HEADER,
        HOP_LIMIT,
        source,
        destination,
        ev & EV_PORT_MASK,
        udp_port,
        length,
        0,
        opcode,
        flags,
        DEFAULT_PKEY,
        word4,
        word8,
    )


def seal(packet: Control, dscp: int, options: WireOptions) -> Datagram:
    """A control packet as a datagram on its EV."""
    header, trailer = encode(packet, dscp, options)
    return Datagram(packet.ev, dscp, header, b"", trailer)


# --------------------------------------------------------------------------------------------------
# Reads the bytes that `codec.py` writes, and refuses those that are no packet of MRC.


_UNTIMED_END: Final = BASE_BYTES + UNTIMED.size
"""Where the RETH of a WRITE without TSETH ends."""

_COVERED: Final = concatenated("8s", BASE_FORMAT)
"""What the iCRC covers of `BASE`: eight 0xff bytes, then its fields with the masked bits set."""

_CRC32_RESIDUE: Final = 0x2144DF1C
"""The CRC-32 of data followed by its own CRC-32, least significant byte first."""

_VERSION_SHIFT: Final = IPV6.shift("version")
_LABEL: Final = IPV6.mask("label")
_MOST_PAD: Final = BTH.most("pad")
_TRANSPORT_VERSION: Final = BTH.mask("version")
_QPN: Final = BTH.mask("dqp")
_PSN: Final = BTH.mask("psn")
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
