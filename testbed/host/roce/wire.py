"""RoCEv2 packets of a reliable connection as values, and their bytes.

IPv6 / UDP / BTH / extension headers / payload / iCRC, as MRC's inner packets are, and with the same
iCRC (IBTA annex A17). Unlike in MRC only the first packet of a WRITE has a RETH: the payload of the
others follows it, so that packets can be placed only in order.

RoCEv2 puts a hash of the queue pair into the UDP source port, and switches hash it into a path. The
fabric here has no ECMP: the EV names the path, in the flow label's low 16 bits and in the source
port, as MRC's does, and one EV stands for one QP's hash.

The numbers of the format stand here once (IBTA architecture 1.x, chapter 9; annex A17).
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, Final

from testbed.mrc import DecodeError, DecodeReason
from testbed.mrc.constants import (
    AETH_MSN_MASK,
    AETH_NO_CREDITS,
    EV_LABEL_SHIFT,
    EV_PORT_MASK,
    ICRC_BYTES,
    IPV6_BYTES,
    ROCE_UDP_PORT,
)
from testbed.mrc.wire.codec import BASE, UDP_NEXT_HEADER, encode_base, icrc
from testbed.mrc.wire.crc import crc32
from testbed.mrc.wire.headers import BTH, IMMDT, RETH, UDP
from testbed.mrc.wire.kinds import Buffer, PacketFields

PSN_WINDOW: Final = 1 << 23
"""PSNs that may be outstanding: half of the number space (IBTA 9.7.1)."""

FLAG_ACK_REQUEST: Final = 0x80
"""In byte 8 of the BTH."""

BECN: Final = 0x40
"""In byte 4 of the BTH, set in a CNP (annex A17)."""

CNP_RESERVED_BYTES: Final = 16
"""What a CNP carries behind its BTH: zeros (annex A17)."""


class Opcode(IntEnum):
    """BTH opcodes of a reliable connection, and the CNP's (IBTA 9.2; annex A17)."""

    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMMEDIATE = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMMEDIATE = 0x0B
    ACKNOWLEDGE = 0x11
    CNP = 0x81


class Nak(IntEnum):
    """Why a responder refuses a packet: the AETH's NAK codes (IBTA 9.7.5.2.8)."""

    PSN_SEQUENCE_ERROR = 0
    INVALID_REQUEST = 1
    REMOTE_ACCESS_ERROR = 2


_RETH: Final = Struct("!QII")
_AETH: Final = Struct("!I")
_NAK: Final = 0b011 << 5

FIRSTS: Final = frozenset((Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMMEDIATE))
"""Opcodes that begin a WRITE: those with a RETH."""

LASTS: Final = frozenset(
    (Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMMEDIATE)
)
"""Opcodes that end a WRITE."""

IMMEDIATES: Final = frozenset((Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_ONLY_IMMEDIATE))
_ANSWER_BYTES: Final[dict[int, int]] = {
    Opcode.ACKNOWLEDGE: _AETH.size,
    Opcode.CNP: CNP_RESERVED_BYTES,
}
_WRITES: Final = FIRSTS | LASTS | {Opcode.WRITE_MIDDLE}


@dataclass(frozen=True, slots=True)
class Reth:
    """Where a WRITE goes: address, rkey, and its length in bytes."""

    va: int
    rkey: int
    dma_length: int


@dataclass(frozen=True, slots=True)
class Write(PacketFields):
    """One packet of an RDMA WRITE. `reth` in the first, `immediate` in the last, if at all."""

    psn: int
    opcode: int
    ack_request: bool
    payload: Buffer
    reth: Reth | None = None
    immediate: int | None = None


@dataclass(frozen=True, slots=True)
class Ack(PacketFields):
    """An acknowledgement of `psn` and all before it, or a refusal of `psn` (`nak` says why).

    A NAK acknowledges what lies before its PSN. `msn` counts the messages that are complete.
    """

    psn: int
    msn: int
    nak: Nak | None = None


@dataclass(frozen=True, slots=True)
class Cnp(PacketFields):
    """A congestion notification: a packet to the sender of this one came with an ECN mark."""


Packet = Write | Ack | Cnp


def encode(packet: Packet, dscp: int) -> tuple[bytes, bytes]:
    """Return the header of a packet and its trailer (padding and iCRC)."""
    becn = psn = flags = 0
    payload: Buffer = b""
    extension = b""
    if isinstance(packet, Write):
        opcode, psn, payload = packet.opcode, packet.psn, packet.payload
        flags = FLAG_ACK_REQUEST if packet.ack_request else 0
        reth = packet.reth
        if reth is not None:
            extension = _RETH.pack(reth.va, reth.rkey, reth.dma_length)
        if packet.immediate is not None:
            extension += packet.immediate.to_bytes(IMMDT.size, "big")
    elif isinstance(packet, Ack):
        opcode, psn = Opcode.ACKNOWLEDGE, packet.psn
        syndrome = AETH_NO_CREDITS if packet.nak is None else _NAK | packet.nak
        extension = _AETH.pack(syndrome << 24 | packet.msn & AETH_MSN_MASK)
    else:
        opcode, becn, extension = Opcode.CNP, BECN, bytes(CNP_RESERVED_BYTES)
    pad = -len(payload) & 3
    length = UDP.size + BTH.size + len(extension) + len(payload) + pad + ICRC_BYTES
    base = encode_base(
        packet.source,
        packet.destination,
        packet.ev,
        dscp,
        length,
        opcode,
        pad << 4,
        becn << 24 | packet.qpn,
        flags << 24 | psn,
    )
    header, padding = base + extension, bytes(pad)
    crc = crc32(padding, icrc(header, payload))
    return header, padding + crc.to_bytes(ICRC_BYTES, "little")


def _checked(packet: Buffer) -> tuple[Any, ...]:
    """Check the headers that every packet begins with; return their fields."""
    total = len(packet)
    if total < BASE.size + ICRC_BYTES:
        raise DecodeError(DecodeReason.TRUNCATED)
    fields = BASE.unpack_from(packet)
    word, length, next_header, port, udp_length = *fields[:3], *fields[7:9]
    if word >> 28 != 6:  # noqa: PLR2004 - the version is the protocol's name
        raise DecodeError(DecodeReason.NOT_IPV6)
    if next_header != UDP_NEXT_HEADER:
        raise DecodeError(DecodeReason.NOT_UDP)
    if port != ROCE_UDP_PORT:
        raise DecodeError(DecodeReason.WRONG_PORT)
    if length != total - IPV6_BYTES or udp_length != length:
        raise DecodeError(DecodeReason.BAD_LENGTH)
    if icrc(packet[:-ICRC_BYTES], b"") != int.from_bytes(packet[-ICRC_BYTES:], "little"):
        raise DecodeError(DecodeReason.BAD_ICRC)
    return fields


def decode(packet: Buffer) -> Packet:
    """Decode the bytes of a packet, from the IPv6 header on.

    A `Write` keeps a view of `packet` as its payload: place it before the buffer is used again.

    Raises:
        DecodeError: the bytes are not a RoCE packet, or were corrupted on the way.
    """
    fields = _checked(packet)
    word, _, _, _, source, destination, source_port = fields[:7]
    opcode, flags, _, word4, word8 = fields[10:]
    ev = (word & EV_PORT_MASK) << EV_LABEL_SHIFT | source_port
    body = packet[BASE.size : -ICRC_BYTES]
    qpn, psn = word4 & 0xFFFFFF, word8 & 0xFFFFFF
    if opcode in _WRITES:
        ack_request = word8 >> 24 & FLAG_ACK_REQUEST != 0
        payload, reth, immediate = _write_body(body, opcode, flags >> 4 & 3)
        return Write(
            source, destination, ev, qpn, psn, opcode, ack_request, payload, reth, immediate
        )
    if len(body) != _ANSWER_BYTES.get(opcode):
        is_answer = opcode in _ANSWER_BYTES
        raise DecodeError(DecodeReason.BAD_LENGTH if is_answer else DecodeReason.UNKNOWN_OPCODE)
    if opcode == Opcode.CNP:
        return Cnp(source, destination, ev, qpn)
    aeth = int.from_bytes(body, "big")
    return Ack(source, destination, ev, qpn, psn, aeth & AETH_MSN_MASK, _nak(aeth >> 24))


def _write_body(body: Buffer, opcode: int, pad: int) -> tuple[Buffer, Reth | None, int | None]:
    """Take a WRITE's extension headers and padding off; returns its payload and them."""
    start = RETH.size if opcode in FIRSTS else 0
    end = len(body) - pad
    payload_start = start + IMMDT.size if opcode in IMMEDIATES else start
    if end < payload_start:
        raise DecodeError(DecodeReason.TRUNCATED)
    reth = Reth(*_RETH.unpack_from(body)) if start else None
    immediate = None
    if payload_start != start:
        immediate = int.from_bytes(body[start:payload_start], "big")
    return body[payload_start:end], reth, immediate


def _nak(syndrome: int) -> Nak | None:
    """Return why an AETH refuses, None if it acknowledges."""
    kind, value = syndrome & 0b111 << 5, syndrome & 0b11111
    if kind == 0:
        return None
    if kind != _NAK or value not in Nak.__members__.values():
        raise DecodeError(DecodeReason.BAD_FIELD)
    return Nak(value)
