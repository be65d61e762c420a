"""The plane by which each byte of a Multipath TCP connection arrived; sans-IO.

The connection's stream is read in order, whatever subflow its bytes arrived on. Every data segment
says where its bytes belong in that stream: the Data Sequence Signal (RFC 8684, section 3.3).
"""

import struct
from collections.abc import Iterator

from testbed.emulation.endpoint.kernel.segment import Segment
from testbed.mrc.constants import IPV6_BYTES

_TCP_HEADER = 20
_KIND_END, _KIND_NOP, _KIND_MPTCP = 0, 1, 30
_DSS = 2
_ACK, _LONG_ACK, _MAPPING, _LONG_MAPPING = 0x01, 0x02, 0x04, 0x08
_SEQUENCES = 1 << 32
_HALF = 1 << 31


def data_sequence(packet: bytes | memoryview, segment: Segment) -> int | None:
    """The position of a segment's bytes in the connection's stream, modulo 2^32.

    None if the segment does not give it, or gives that of other bytes.
    """
    at = IPV6_BYTES + _TCP_HEADER
    while at + 1 < segment.header_bytes and packet[at] != _KIND_END:
        if packet[at] == _KIND_NOP:
            at += 1
            continue
        length = packet[at + 1]
        if packet[at] == _KIND_MPTCP and packet[at + 2] >> 4 == _DSS:
            return _mapped(bytes(packet[at : at + length]), segment.payload_bytes)
        at += max(length, 2)
    return None


def _mapped(option: bytes, payload_bytes: int) -> int | None:
    flags = option[3]
    if not flags & _MAPPING:
        return None
    at = 4
    if flags & _ACK:
        at += 8 if flags & _LONG_ACK else 4
    if flags & _LONG_MAPPING:
        at += 4  # the upper half
    sequence, _subflow, length = struct.unpack_from("!IIH", option, at)
    return int(sequence) if length == payload_bytes else None


class Origins:
    """Remembers the planes of the bytes that have arrived and are not read yet.

    Multipath TCP sends bytes again on another subflow if one delays them. Such bytes count for the
    plane on which they arrived first.
    """

    def __init__(self) -> None:
        """Begin at the start of the stream, which is that of its earliest segment."""
        self._position: int | None = None  # in the stream, of the next byte to read
        self._arrived: dict[int, tuple[int, int]] = {}  # by data sequence: bytes, plane

    def arrived(self, sequence: int, size: int, plane: int) -> None:
        """Record a data segment."""
        if self._position is None or (sequence - self._position) % _SEQUENCES < _HALF:
            self._arrived.setdefault(sequence, (size, plane))

    def read(self, size: int, otherwise: int) -> Iterator[tuple[int, int]]:
        """Yield (bytes, plane) of the next bytes of the stream; `otherwise` where unknown."""
        if self._position is None and self._arrived:
            newest = next(reversed(self._arrived))
            self._position = max(
                self._arrived, key=lambda start: (newest - start + _HALF) % _SEQUENCES
            )
        while size > 0:
            origin = None if self._position is None else self._arrived.pop(self._position, None)
            count, plane = origin or (size, otherwise)
            taken = min(count, size)
            size -= taken
            if self._position is not None:
                self._position = (self._position + taken) % _SEQUENCES
                if count > taken:
                    self._arrived[self._position] = count - taken, plane
            yield taken, plane
