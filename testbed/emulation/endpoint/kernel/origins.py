"""The plane by which each byte of a Multipath TCP connection arrived; sans-IO.

The connection's stream is read in order, whatever subflow its bytes arrived on. Every data segment
says where its bytes belong in that stream: the Data Sequence Signal (RFC 8684, section 3.3).
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from testbed.mrc.constants import ECN_CE, ECN_MASK, IPV6_BYTES
from testbed.mrc.wire.headers import IPV6

# --------------------------------------------------------------------------------------------------
# The headers of a TCP segment, and the transmissions of a subflow; sans-IO.


NEXT_HEADER_TCP = 6

_IPV6 = IPV6.struct()
_TCP = struct.Struct("!HHIIBB")
_SEQUENCES = 1 << 32
_HALF = 1 << 31


class Segment(NamedTuple):
    """The headers of a TCP segment over IPv6.

    Attributes:
        src: the sender's address.
        dst: the receiver's address.
        src_port: the sender's port.
        dst_port: the receiver's port.
        sequence: the sequence number of the first byte, or of the SYN.
        acknowledged: the next byte that the sender expects.
        header_bytes: the length of the IPv6 and TCP headers together.
        payload_bytes: the length of what follows them.
        ecn: the ECN field of the IPv6 header.
    """

    src: bytes
    dst: bytes
    src_port: int
    dst_port: int
    sequence: int
    acknowledged: int
    header_bytes: int
    payload_bytes: int
    ecn: int


def parse(packet: bytes | memoryview) -> Segment | None:
    """Read the headers of a packet; None if it is not a whole TCP segment over IPv6."""
    if len(packet) < IPV6_BYTES + _TCP.size:
        return None
    word, length, following, _hops, src, dst = _IPV6.unpack_from(packet)
    if word >> 28 != 6 or following != NEXT_HEADER_TCP or len(packet) != IPV6_BYTES + length:  # noqa: PLR2004 - the IP version
        return None
    src_port, dst_port, sequence, acknowledged, offset, _flags = _TCP.unpack_from(
        packet, IPV6_BYTES
    )
    header_bytes = IPV6_BYTES + (offset >> 4) * 4
    if header_bytes > len(packet):
        return None
    payload_bytes, ecn = len(packet) - header_bytes, word >> 20 & ECN_MASK
    return Segment(
        src, dst, src_port, dst_port, sequence, acknowledged, header_bytes, payload_bytes, ecn
    )


def marked(packet: bytes | memoryview) -> bytes:
    """A copy of an IPv6 packet with Congestion Experienced set (no checksum covers the field)."""
    copy = bytearray(packet)
    copy[1] |= ECN_CE << 4
    return bytes(copy)


class SentSegment(NamedTuple):
    """A data segment that the kernel sent.

    Attributes:
        number: its index in the connection; a retransmission has that of the first transmission.
        before_ns: when those bytes were last sent before; None if never.
    """

    number: int
    before_ns: int | None


class SentSegments:
    """The data segments of one subflow that its peer has not acknowledged yet."""

    def __init__(self) -> None:
        self._highest: int | None = None
        self._open: dict[int, tuple[int, int, int]] = {}  # by offset: number, end, time

    def sent(self, segment: Segment, number: int, now_ns: int) -> SentSegment:
        """Record a data segment; it gets `number` if its bytes are new."""
        start = self._unwrap(segment.sequence)
        end = start + segment.payload_bytes
        if self._highest is None or end > self._highest:
            self._highest = end
            self._open[start] = (number, end, now_ns)
            return SentSegment(number, None)
        for at, (first, first_end, before_ns) in self._open.items():
            if at <= start < first_end:
                self._open[at] = (first, first_end, now_ns)
                return SentSegment(first, before_ns)
        return SentSegment(number, now_ns)  # acknowledged meanwhile: a needless retransmission

    def acknowledged(self, sequence: int) -> None:
        """Forget the segments that `sequence` acknowledges."""
        if self._highest is None:
            return
        until = self._unwrap(sequence)
        while self._open:
            at = next(iter(self._open))
            if self._open[at][1] > until:
                return
            del self._open[at]

    def _unwrap(self, sequence: int) -> int:
        if self._highest is None:
            return sequence
        distance = (sequence - self._highest) % _SEQUENCES
        return self._highest + (distance - _SEQUENCES if distance >= _HALF else distance)


_TCP_HEADER = 20
_KIND_END, _KIND_NOP, _KIND_MPTCP = 0, 1, 30
_DSS = 2
_ACK, _LONG_ACK, _MAPPING, _LONG_MAPPING = 0x01, 0x02, 0x04, 0x08


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
