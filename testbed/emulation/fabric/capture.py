"""Capture the frames that leave a port: those of links into files, one packet all the way.

Frames are captured at the sending end, when they leave the port's queue. A plain packet socket
would share a frame with the next hop, which shifts its uSIDs before it is read here; a ring gets a
copy at once (packet(7), PACKET_RX_RING).
"""

import mmap
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from ipaddress import IPv6Address
from pathlib import Path

from testbed.emulation.fabric.fabric import IPV6_HEADER, Fabric, probe_packet, raw_socket
from testbed.model.closeable import Closeable
from testbed.model.errors import InputError, RunFailedError
from testbed.model.fabric import addressing
from testbed.model.fabric.addressing import flow_label_of_ev
from testbed.model.fabric.nodes import Link, Node, Port
from testbed.model.fabric.topology import ETHERNET_HEADER, LINK_MTU, Topology
from testbed.model.units import NS_PER_S
from testbed.sandbox import namespaces
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import call, spawn
from testbed.sandbox.system_calls import ETH_P_ALL, attach_filter

# --------------------------------------------------------------------------------------------------
# Packets in a pcapng file, which tshark, Wireshark and tcpdump read.
#
# The format: draft-ietf-opsawg-pcapng, sections 3.5 (options), 4.1 (section header), 4.2 (interface
# description) and 4.3 (enhanced packet).


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


SOL_PACKET = 263
PACKET_RX_RING = 5
PACKET_STATISTICS = 6
PACKET_VERSION = 10
TPACKET_V2 = 1
TP_STATUS_USER = 1

RINGS_BYTES = 128 << 20
"""Memory of the rings of all ports that are captured together."""

RING_FRAMES = 512
"""Size of a port's ring, in frames, where few ports are captured."""

_LEAST_RING_FRAMES = 16
_FRAME_BYTES = 10_240
_BLOCK_FRAMES = 2
_ALLOCATED_BYTES = 16_384
"""What the kernel takes for a frame: it rounds a block up to a power of two of pages."""

_HEADER = struct.Struct("=IIIHHII")  # status, length, captured, mac, net, seconds, nanoseconds
_RING = struct.Struct("=IIII")  # block size, blocks, frame size, frames
_STATISTICS = struct.Struct("=II")  # packets, lost
_SNAPLEN = LINK_MTU + ETHERNET_HEADER
_POLL_MS = 100
_GATHER_S = 0.002
"""Pause between two readings of the rings, so that each finds several frames."""

_OUTGOING_ONLY = (
    (0x30, 0, 0, 0xFFFF_F004),  # load the packet's type (linux/filter.h, SKF_AD_PKTTYPE)
    (0x15, 0, 1, 4),  # PACKET_OUTGOING?
    (0x06, 0, 0, 0x4_0000),  # then keep it
    (0x06, 0, 0, 0),
)


@dataclass(frozen=True, slots=True, order=True)
class CapturedFrame:
    """A frame that left a port.

    Attributes:
        time_ns: time at which the kernel captured it, CLOCK_REALTIME.
        data: its bytes, from the Ethernet header on.
    """

    time_ns: int
    data: bytes


class PortCapture(Closeable):
    """The frames that a port sends from now on."""

    def __init__(self, port: Port, frames: int = RING_FRAMES) -> None:
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
        attach_filter(self._socket, _OUTGOING_ONLY)
        self._socket.bind((port.name, ETH_P_ALL))  # frames arrive from here on

    def fileno(self) -> int:
        """The socket's descriptor, readable when frames wait."""
        return self._socket.fileno()

    def read(self) -> Iterator[CapturedFrame]:
        while True:
            start = self._next * _FRAME_BYTES
            status, _, size, mac, _, seconds, ns = _HEADER.unpack_from(self._ring, start)
            if not status & TP_STATUS_USER:
                return
            data = self._ring[start + mac : start + mac + size]
            struct.pack_into("=I", self._ring, start, 0)  # returns the slot to the kernel
            self._next = (self._next + 1) % self._frames
            yield CapturedFrame(seconds * NS_PER_S + ns, data)

    def lost(self) -> int:
        """Frames lost since the last call because the ring was full."""
        statistics = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, _STATISTICS.size)
        return int(_STATISTICS.unpack(statistics)[1])

    def close(self) -> None:
        self._ring.close()
        self._socket.close()


class LinkCaptures:
    """A process that writes the frames that both ends of links send, a pcapng file for each link.

    A file has the frames that are lost on the wire, to a fault of the link model or in Open
    vSwitch, but not the frames that a full queue drops at its sender. Its comment has the offset
    from its clock, CLOCK_REALTIME, to that of records.
    """

    def __init__(self, files: Mapping[Link, Path], realtime_offset_ns: int) -> None:
        """Begin to capture: every frame that is sent after this returns.

        Args:
            files: where to write each link's frames.
            realtime_offset_ns: CLOCK_REALTIME minus CLOCK_MONOTONIC.

        Raises:
            InputError: a file cannot be written.
        """
        self.files = files
        frames = _ring_frames(2 * len(files))
        links = [_LinkFile(link, file, frames) for link, file in files.items()]
        comment = _comment(realtime_offset_ns)
        self._process = spawn(
            lambda channel: _write(links, comment, channel),
            title="the capture of links",
            isolated=False,
            name="capture",
        )
        for link in links:
            link.close()

    def stop(self) -> dict[str, int]:
        """End the capture; returns by link how many frames it lost, as it could not keep up.

        Raises:
            RunFailedError: the process has died.
        """
        with suppress(RunFailedError):  # `result` says how it ended
            self._process.send({"stop": True})
        lost: dict[str, int] = self._process.result()
        return lost


def _comment(realtime_offset_ns: int) -> str:
    return (
        "Times are CLOCK_REALTIME. "
        f"realtime_offset_ns = {realtime_offset_ns}: CLOCK_REALTIME - CLOCK_MONOTONIC as it began. "
        "A time here - realtime_offset_ns - t0_ns of run.json = t of the run's tables."
    )


def _ring_frames(ports: int) -> int:
    """The size of each ring, in frames, such that those of so many ports fit into `RINGS_BYTES`."""
    fitting = RINGS_BYTES // (_ALLOCATED_BYTES * max(ports, 1))
    even = fitting // _BLOCK_FRAMES * _BLOCK_FRAMES
    return min(max(even, _LEAST_RING_FRAMES), RING_FRAMES)


class _LinkFile:
    """The file of a link, and the frames that are on their way to it."""

    def __init__(self, link: Link, file: Path, ring_frames: int) -> None:
        self.name = link.name
        try:
            self._output = file.open("wb", buffering=0)
        except OSError as error:
            expected = f"a file to write ({str(error.strerror).lower()})"
            raise InputError.of("--pcap", str(file), expected) from None
        self._ports = [port.name for port in link.ports]
        self.captures = [PortCapture(port, ring_frames) for port in link.ports]
        self._waiting: list[tuple[CapturedFrame, int]] = []

    def begin(self, comment: str) -> None:
        self._output.write(header(comment, self._ports, _SNAPLEN))

    def write_until(self, now_ns: int) -> None:
        """Write the frames that both ends have sent until then, in the order of their times."""
        for interface, capture in enumerate(self.captures):
            self._waiting += ((frame, interface) for frame in capture.read())
        if not self._waiting:
            return
        self._waiting.sort()
        # Frames that one end sent after the other end was read wait for the next turn.
        ready = [(frame, port) for frame, port in self._waiting if frame.time_ns <= now_ns]
        self._waiting = self._waiting[len(ready) :]
        blocks = (packet(port, frame.time_ns, frame.data) for frame, port in ready)
        self._output.write(b"".join(blocks))

    def lost(self) -> int:
        """Frames lost since the last call."""
        return sum(capture.lost() for capture in self.captures)

    def close(self) -> None:
        """Close this process's copy."""
        self._output.close()
        for capture in self.captures:
            capture.close()


def _write(links: list[_LinkFile], comment: str, channel: Channel) -> dict[str, int]:
    """Write the frames of links until a message comes; returns how many are lost, by link."""
    poller = select.poll()
    poller.register(channel, select.POLLIN)
    for link in links:
        link.begin(comment)
        for capture in link.captures:
            poller.register(capture, select.POLLIN)
    capturing = True
    while capturing:
        capturing = all(descriptor != channel.fileno() for descriptor, _ in poller.poll(_POLL_MS))
        now_ns = time.time_ns() if capturing else 1 << 63
        for link in links:
            link.write_until(now_ns)
        if capturing:
            time.sleep(_GATHER_S)
    return {link.name: link.lost() for link in links}


ARRIVAL_S = 1.0
"""How long the packet may take; an idle fabric needs a thousandth of it."""

_SETTLE_S = 0.05
_RING_FRAMES = 4
_MARK = b"MRCtrace"


@dataclass(frozen=True, slots=True)
class Seen:
    """The packet as it was captured when it left a port.

    Attributes:
        port: the port's name.
        destination: the outer destination address.
        hop_limit: the outer hop limit.
        next_header: the protocol behind the outer header: 41, IPv6.
        flow_label: the outer flow label.
    """

    port: str
    destination: str
    hop_limit: int
    next_header: int
    flow_label: int


@dataclass(frozen=True, slots=True)
class LiveTrace:
    """The way of the packet.

    Attributes:
        seen: the packet at every port of the fabric that it left by, in the order of time.
        delivered: whether the receiver got it, at its NIC's address and undamaged.
    """

    seen: tuple[Seen, ...]
    delivered: bool


def trace_live(
    topology: Topology, src: Node, dst: Node, path: addressing.Path, ev: int
) -> LiveTrace:
    """Build the fabric in a sandbox, send one packet with an EV's flow label, return its way.

    Raises:
        RunFailedError: the fabric did not come up as the model says.
    """
    trace = call(lambda: asdict(_in_sandbox(topology, src, dst, path, ev)))
    return LiveTrace(tuple(Seen(**seen) for seen in trace["seen"]), trace["delivered"])


def _in_sandbox(
    topology: Topology, src: Node, dst: Node, path: addressing.Path, ev: int
) -> LiveTrace:
    with Fabric(topology) as fabric, ExitStack() as stack:
        fabric.verify()
        ports = [port for link in topology.links.values() for port in link.ports]
        captures = {
            port.name: stack.enter_context(PortCapture(port, _RING_FRAMES)) for port in ports
        }
        from_node, to_node = fabric.namespaces[src.name], fabric.namespaces[dst.name]
        receiver = stack.enter_context(raw_socket(to_node, socket.IPPROTO_IPV6))
        sender = stack.enter_context(raw_socket(from_node, socket.IPPROTO_RAW))
        label = flow_label_of_ev(ev)
        packet, address = probe_packet(topology, src, dst, path, _MARK, label)
        sender.sendto(packet, (str(address), 0))
        receiver.settimeout(ARRIVAL_S)
        try:
            delivered = receiver.recv(len(packet)) == packet[IPV6_HEADER.size :]
        except TimeoutError:
            delivered = False
        time.sleep(_SETTLE_S)  # the kernel may have sent more packets because of this one
        frames = [(frame, name) for name, capture in captures.items() for frame in capture.read()]
        marked = sorted(pair for pair in frames if _MARK in pair[0].data)
        return LiveTrace(tuple(_seen(name, frame) for frame, name in marked), delivered)


def _seen(port: str, frame: CapturedFrame) -> Seen:
    first, _, next_header, hop_limit, _, dst = IPV6_HEADER.unpack_from(frame.data, ETHERNET_HEADER)
    return Seen(port, str(IPv6Address(dst)), hop_limit, next_header, first & 0xF_FFFF)
