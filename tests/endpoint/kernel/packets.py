"""TCP segments made by hand, as the kernel writes them."""

import struct

SRC, DST = bytes(15) + b"\x01", bytes(15) + b"\x02"


def tcp_packet(
    payload: bytes = b"",
    *,
    sequence: int = 0,
    acknowledged: int = 0,
    options: bytes = b"",
    ecn: int = 0,
) -> bytes:
    """A segment over IPv6; its checksum is left out."""
    options += b"\x01" * (-len(options) % 4)
    words = 5 + len(options) // 4
    tcp = struct.pack("!HHIIBBHHH", 40000, 20016, sequence, acknowledged, words << 4, 0x10, 0, 0, 0)
    length = len(tcp) + len(options) + len(payload)
    ipv6 = struct.pack("!IHBB16s16s", 6 << 28 | ecn << 20, length, 6, 64, SRC, DST)
    return ipv6 + tcp + options + payload


def dss(data_sequence: int, length: int, *, long: bool, acknowledge: bool = True) -> bytes:
    """A Data Sequence Signal (RFC 8684, section 3.3), behind a timestamp option."""
    flags = 0x04 | (0x08 if long else 0) | (0x01 if acknowledge else 0)
    body = struct.pack("!BB", 2 << 4, flags)
    if acknowledge:
        body += struct.pack("!I", 7)
    body += struct.pack("!Q" if long else "!I", data_sequence)
    body += struct.pack("!IH", 1, length)
    return b"\x01\x01\x08\x0a" + bytes(8) + struct.pack("!BB", 30, len(body) + 2) + body
