"""Packets in a pcapng file, which tshark, Wireshark and tcpdump read.

The format: draft-ietf-opsawg-pcapng, sections 3.5 (options), 4.1 (section header), 4.2 (interface
description) and 4.3 (enhanced packet).
"""

import struct
from collections.abc import Iterable

_SECTION, _INTERFACE, _PACKET = 0x0A0D_0D0A, 1, 6
_BYTE_ORDER = 0x1A2B_3C4D
_UNKNOWN_LENGTH = -1
_LINKTYPE_ETHERNET = 1
_END_OF_OPTIONS, _COMMENT, _INTERFACE_NAME, _TIME_RESOLUTION = 0, 1, 2, 9
_NANOSECONDS = bytes([9])  # a power of ten

_BLOCK = struct.Struct("=II")  # type, length of the block
_LENGTH = struct.Struct("=I")
_SECTION_BODY = struct.Struct("=IHHq")  # byte order, version, length of the section
_INTERFACE_BODY = struct.Struct("=HHI")  # link type, reserved, most bytes of a packet
_PACKET_BODY = struct.Struct("=IIIII")  # interface, upper and lower half of the time, two lengths
_OPTION = struct.Struct("=HH")  # code, length


def header(comment: str, interfaces: Iterable[str], most_bytes: int) -> bytes:
    """The beginning of a file of Ethernet frames.

    Args:
        comment: about the whole file; capinfos and Wireshark show it.
        interfaces: the names of those whose frames follow, numbered from 0.
        most_bytes: the most that is kept of a frame.
    """
    version = 1, 0
    section = _SECTION_BODY.pack(_BYTE_ORDER, *version, _UNKNOWN_LENGTH)
    blocks = _block(_SECTION, section + _options((_COMMENT, comment.encode())))
    for name in interfaces:
        body = _INTERFACE_BODY.pack(_LINKTYPE_ETHERNET, 0, most_bytes)
        options = _options((_INTERFACE_NAME, name.encode()), (_TIME_RESOLUTION, _NANOSECONDS))
        blocks += _block(_INTERFACE, body + options)
    return blocks


def packet(interface: int, time_ns: int, data: bytes) -> bytes:
    """A frame, whole, as a block.

    Args:
        interface: its number.
        time_ns: when it was captured, in ns since 1970.
        data: the frame, from its Ethernet header on.
    """
    upper, lower = time_ns >> 32, time_ns & 0xFFFF_FFFF
    body = _PACKET_BODY.pack(interface, upper, lower, len(data), len(data))
    return _block(_PACKET, body + _padded(data))


def _block(kind: int, body: bytes) -> bytes:
    length = _BLOCK.size + len(body) + _LENGTH.size
    return _BLOCK.pack(kind, length) + body + _LENGTH.pack(length)


def _options(*options: tuple[int, bytes]) -> bytes:
    ended = (*options, (_END_OF_OPTIONS, b""))
    return b"".join(_OPTION.pack(code, len(value)) + _padded(value) for code, value in ended)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
