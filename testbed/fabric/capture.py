"""What a link carries: frames as they leave a port, and a process that writes them to a file.

Frames are taken at the sending end, the moment that they leave the port's queue. A plain packet
socket would share them with the next hop, which shifts their uSIDs before anybody has read them
here; a ring is filled at once (packet(7), PACKET_RX_RING).

The file is a pcap with nanoseconds (wiki.wireshark.org/Development/LibpcapFileFormat), which
tshark, Wireshark and tcpdump read.
"""

import ctypes
import mmap
import os
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
        time_ns: when, CLOCK_REALTIME as the kernel stamped it.
        data: its bytes from the Ethernet header on.
    """

    time_ns: int
    data: bytes


class PortCapture(Closeable):
    """What a port sends from now on."""

    def __init__(self, port: Port, frames: int = 512) -> None:
        """Begin to capture in the port's namespace of this sandbox.

        Args:
            port: the port.
            frames: frames that fit before they are read; what comes then is lost and counted.
        """
        self._frames = frames
        netns = namespaces.open_netns(port.node.name)
        try:
            with namespaces.entered(netns):
                kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
                self._socket = socket.socket(socket.AF_PACKET, kind, 0)
        finally:
            os.close(netns)
        self._socket.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        block = _FRAME_BYTES * _BLOCK_FRAMES
        ring = _RING.pack(block, frames // _BLOCK_FRAMES, _FRAME_BYTES, frames)
        self._socket.setsockopt(SOL_PACKET, PACKET_RX_RING, ring)
        self._ring = mmap.mmap(self._socket.fileno(), _FRAME_BYTES * frames)
        self._next = 0
        code = b"".join(struct.pack("=HBBI", *one) for one in _OUTGOING_ONLY)
        program = ctypes.create_string_buffer(code, len(code))
        head = struct.pack("@HP", len(_OUTGOING_ONLY), ctypes.addressof(program))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, head)
        self._socket.bind((port.name, ETH_P_ALL))  # only now does anything come

    def fileno(self) -> int:
        """Readable where frames wait."""
        return self._socket.fileno()

    def read(self) -> Iterator[Frame]:
        """Yield the frames that wait."""
        while True:
            start = self._next * _FRAME_BYTES
            status, _, size, mac, _, seconds, ns = _HEADER.unpack_from(self._ring, start)
            if not status & TP_STATUS_USER:
                return
            data = self._ring[start + mac : start + mac + size]
            struct.pack_into("=I", self._ring, start, 0)  # the kernel's again
            self._next = (self._next + 1) % self._frames
            yield Frame(seconds * NS_PER_S + ns, data)

    def lost(self) -> int:
        """Frames lost since the last call, as the ring was full."""
        got = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, _STATISTICS.size)
        lost: int = _STATISTICS.unpack(got)[1]
        return lost

    def close(self) -> None:
        """End the capture."""
        self._ring.close()
        self._socket.close()


class LinkCapture:
    """A process that writes what both ends of a link send to a pcap file.

    A frame that a full queue swallows at its sender is not in it; one that is lost on the wire, to
    a fault of the link model or in Open vSwitch, is.
    """

    def __init__(self, link: Link, file: Path) -> None:
        """Begin to capture; when this returns, nothing is missed any more.

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
        """End the capture; returns how many frames it lost as it could not keep up.

        Raises:
            RunFailedError: the process has died.
        """
        with suppress(RunFailedError):  # `result` says how it ended
            self._process.send({"stop": True})
        lost: int = self._process.result()
        return lost


def _write(captures: list[PortCapture], output: BinaryIO, channel: Channel) -> int:
    """Write frames in the order of their times until told to stop; returns how many were lost."""
    header = PCAP_MAGIC_NS, 2, 4, 0, 0, _SNAPLEN, LINKTYPE_ETHERNET
    output.write(_PCAP_HEADER.pack(*header))
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    for capture in captures:
        poller.register(capture, select.POLLIN)
    waiting: list[Frame] = []
    on, lost = True, 0
    while on:
        on = all(descriptor != channel.fileno() for descriptor, _ in poller.poll(_POLL_MS))
        now_ns = time.time_ns() if on else 1 << 63
        for capture in captures:
            waiting += capture.read()
            lost += capture.lost()
        waiting.sort()
        # What one end sent after the other end was read waits for the next turn.
        ready = [frame for frame in waiting if frame.time_ns <= now_ns]
        waiting = waiting[len(ready) :]
        output.write(b"".join(map(_record, ready)))
    return lost


def _record(frame: Frame) -> bytes:
    seconds, ns = divmod(frame.time_ns, NS_PER_S)
    size = len(frame.data)
    return _PCAP_RECORD.pack(seconds, ns, size, size) + frame.data
