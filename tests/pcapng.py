"""Read pcapng files, by the draft and not by the code that writes them."""

import struct
from dataclasses import dataclass

SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6
COMMENT, NAME, RESOLUTION = 1, 2, 9


@dataclass(frozen=True, slots=True)
class Capture:
    """What is in a file: its comment, the interfaces, and (interface, time in ns, frame)."""

    comment: str
    interfaces: tuple[str, ...]
    frames: tuple[tuple[str, int, bytes], ...]


def read_capture(data: bytes) -> Capture:
    """Read a file of one section."""
    comment, interfaces, frames, at = "", [], [], 0
    while at < len(data):
        kind, length = struct.unpack_from("=II", data, at)
        assert length % 4 == 0
        assert struct.unpack_from("=I", data, at + length - 4) == (length,)
        body = data[at + 8 : at + length - 4]
        at += length
        if kind == SECTION:
            assert struct.unpack_from("=IHHq", body) == (0x1A2B3C4D, 1, 0, -1)
            comment = options(body[16:])[COMMENT].decode()
        elif kind == INTERFACE:
            linktype, _, snaplen = struct.unpack_from("=HHI", body)
            assert linktype == 1
            assert snaplen > 0
            of_interface = options(body[8:])
            assert of_interface[RESOLUTION] == b"\x09"
            interfaces.append(of_interface[NAME].decode())
        else:
            assert kind == PACKET
            interface, upper, lower, kept, size = struct.unpack_from("=IIIII", body)
            assert kept == size
            frames.append((interfaces[interface], upper << 32 | lower, body[20 : 20 + size]))
    return Capture(comment, tuple(interfaces), tuple(frames))


def options(data: bytes) -> dict[int, bytes]:
    """The values of options by their codes."""
    found: dict[int, bytes] = {}
    at = 0
    while True:
        code, length = struct.unpack_from("=HH", data, at)
        if code == 0:
            assert at + 4 == len(data)
            return found
        found[code] = data[at + 4 : at + 4 + length]
        at += 4 + length + -length % 4
