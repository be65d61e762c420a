"""What a trimming switch leaves of a WRITE: headers up to METH, and TSETH where there is one."""

from typing import Final

from testbed.mrc.wire.header import concatenated
from testbed.mrc.wire.headers import BASE_BYTES, BTH, IPV6, METH, TSETH, UDP
from testbed.mrc.wire.kinds import KIND_OF, WRITE
from testbed.mrc.wire.packets import Buffer, DecodeError, DecodeReason, TrimmedWrite

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
