"""A WRITE as a value, what all packets share, and the reasons why bytes are refused."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from testbed.mrc.constants import ICRC_BYTES, MSN_BITS, PSN_BITS
from testbed.mrc.wire.headers import (
    BASE_BYTES,
    BTH,
    IMMDT,
    IPV6,
    METH,
    RETH,
    TSETH,
    UDP,
    concatenated,
)
from testbed.mrc.wire.kinds import KIND_OF, WRITE

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
