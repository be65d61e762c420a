"""Capture the frames that leave a port, and write those of a link to a pcap file.

Frames are captured at the sending end, when they leave the port's queue. A plain packet socket
would share a frame with the next hop, which shifts its uSIDs before it is read here; a ring gets a
copy at once (packet(7), PACKET_RX_RING).

The file is a pcap with nanosecond times (wiki.wireshark.org/Development/LibpcapFileFormat), which
tshark, Wireshark and tcpdump read.
"""

import ctypes
import mmap
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from testbed.model.closeable import Closeable
from testbed.model.errors import RunFailedError
from testbed.model.fabric.nodes import Link, Port
from testbed.model.fabric.topology import ETHERNET_HEADER, LINK_MTU
from testbed.model.units import NS_PER_S
from testbed.sandbox import namespaces
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import spawn

ETH_P_ALL = 3
SO_ATTACH_FILTER = 26
SOL_PACKET = 263
PACKET_RX_RING = 5
PACKET_STATISTICS = 6
PACKET_VERSION = 10
TPACKET_V2 = 1
TP_STATUS_USER = 1

PCAP_MAGIC_NS = 0xA1B2_3C4D
LINKTYPE_ETHERNET = 1

_FRAME_BYTES = 10_240
_BLOCK_FRAMES = 2
_HEADER = struct.Struct("=IIIHHII")  # status, length, captured, mac, net, seconds, nanoseconds
_RING = struct.Struct("=IIII")  # block size, blocks, frame size, frames
_STATISTICS = struct.Struct("=II")  # packets, lost
_PCAP_HEADER = struct.Struct("=IHHiIII")
_PCAP_RECORD = struct.Struct("=IIII")
_SNAPLEN = LINK_MTU + ETHERNET_HEADER
_POLL_MS = 100

_OUTGOING_ONLY = (
    (0x30, 0, 0, 0xFFFF_F004),  # load the packet's type (linux/filter.h, SKF_AD_PKTTYPE)
    (0x15, 0, 1, 4),  # PACKET_OUTGOING?
    (0x06, 0, 0, 0x4_0000),  # then keep it
    (0x06, 0, 0, 0),
)


@dataclass(frozen=True, slots=True, order=True)
class Frame:
    """A frame that left a port.

    Attributes:
        time_ns: time at which the kernel captured it, CLOCK_REALTIME.
        data: its bytes, from the Ethernet header on.
    """

    time_ns: int
    data: bytes


class PortCapture(Closeable):
    """The frames that a port sends from now on."""

    def __init__(self, port: Port, frames: int = 512) -> None:
        """Begin to capture in the port's namespace of this sandbox.

        Args:
            port: the port.
            frames: size of the ring in frames; further frames are lost and counted.
        """
        self._frames = frames
        with namespaces.entered_by_name(port.node.name):
            kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
            self._socket = socket.socket(socket.AF_PACKET, kind, 0)
        self._socket.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        block = _FRAME_BYTES * _BLOCK_FRAMES
        ring = _RING.pack(block, frames // _BLOCK_FRAMES, _FRAME_BYTES, frames)
        self._socket.setsockopt(SOL_PACKET, PACKET_RX_RING, ring)
        self._ring = mmap.mmap(self._socket.fileno(), _FRAME_BYTES * frames)
        self._next = 0
        code = b"".join(struct.pack("=HBBI", *instruction) for instruction in _OUTGOING_ONLY)
        program = ctypes.create_string_buffer(code, len(code))
        head = struct.pack("@HP", len(_OUTGOING_ONLY), ctypes.addressof(program))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, head)
        self._socket.bind((port.name, ETH_P_ALL))  # frames arrive from here on

    def fileno(self) -> int:
        """The socket's descriptor, readable when frames wait."""
        return self._socket.fileno()

    def read(self) -> Iterator[Frame]:
        """Yield the frames that are in the ring."""
        while True:
            start = self._next * _FRAME_BYTES
            status, _, size, mac, _, seconds, ns = _HEADER.unpack_from(self._ring, start)
            if not status & TP_STATUS_USER:
                return
            data = self._ring[start + mac : start + mac + size]
            struct.pack_into("=I", self._ring, start, 0)  # returns the slot to the kernel
            self._next = (self._next + 1) % self._frames
            yield Frame(seconds * NS_PER_S + ns, data)

    def lost(self) -> int:
        """Frames lost since the last call because the ring was full."""
        statistics = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, _STATISTICS.size)
        return int(_STATISTICS.unpack(statistics)[1])

    def close(self) -> None:
        """End the capture."""
        self._ring.close()
        self._socket.close()


class LinkCapture:
    """A process that writes the frames that both ends of a link send to a pcap file.

    The file has the frames that are lost on the wire, to a fault of the link model or in Open
    vSwitch, but not the frames that a full queue drops at its sender.
    """

    def __init__(self, link: Link, file: Path) -> None:
        """Begin to capture: every frame that is sent after this returns.

        Raises:
            OSError: the file cannot be written.
        """
        self.link = link
        self.file = file
        output = file.open("wb", buffering=0)
        captures = [PortCapture(port) for port in link.ports]
        self._process = spawn(
            lambda channel: _write(captures, output, channel),
            title=f"the capture of {link.name}",
            isolated=False,
            name="capture",
        )
        output.close()
        for capture in captures:
            capture.close()

    def stop(self) -> int:
        """End the capture; returns how many frames it lost because it could not keep up.

        Raises:
            RunFailedError: the process has died.
        """
        with suppress(RunFailedError):  # `result` says how it ended
            self._process.send({"stop": True})
        return int(self._process.result())


def _write(captures: list[PortCapture], output: BinaryIO, channel: Channel) -> int:
    """Write frames in the order of their times until a message comes; returns how many are lost."""
    header = PCAP_MAGIC_NS, 2, 4, 0, 0, _SNAPLEN, LINKTYPE_ETHERNET
    output.write(_PCAP_HEADER.pack(*header))
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    for capture in captures:
        poller.register(capture, select.POLLIN)
    waiting: list[Frame] = []
    capturing, lost = True, 0
    while capturing:
        capturing = all(descriptor != channel.fileno() for descriptor, _ in poller.poll(_POLL_MS))
        now_ns = time.time_ns() if capturing else 1 << 63
        for capture in captures:
            waiting += capture.read()
            lost += capture.lost()
        waiting.sort()
        # Frames that one end sent after the other end was read wait for the next turn.
        ready = [frame for frame in waiting if frame.time_ns <= now_ns]
        waiting = waiting[len(ready) :]
        output.write(b"".join(map(_record, ready)))
    return lost


def _record(frame: Frame) -> bytes:
    seconds, ns = divmod(frame.time_ns, NS_PER_S)
    size = len(frame.data)
    return _PCAP_RECORD.pack(seconds, ns, size, size) + frame.data
