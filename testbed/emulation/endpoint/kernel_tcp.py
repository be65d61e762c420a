"""The kernel's own TCP and Multipath TCP as a transport, on the fabric's paths.

The kernel's packets cross the fabric as MRC's do. This process puts the carrier's outer header in
front of them, sends them through its raw socket, and holds back arrivals for the propagation delay.
So delay, queues, marks and faults are the same for all transports.

By which plane a byte of a Multipath TCP connection arrived: the stream is read in order, whatever
subflow its bytes arrived on, and every data segment says where its bytes belong in that stream, in
the Data Sequence Signal (RFC 8684, section 3.3).

A connection has the methods of a queue pair. WRITEs become frames of its byte stream, each behind a
header that says where it goes. As iWARP does over TCP (RFC 5041, tagged buffers), address, rkey and
length travel with the data, so that the receiver puts every byte where a WRITE would have put it.
The format is ours. A WRITE has completed when the peer's kernel has acknowledged its last byte:
earlier than MRC, which completes when it is in memory.

A TUN device for each plane takes packets from the kernel, and hands it those of peers. It sends at
the port's rate, as a NIC does, and queues the rest. So TCP notices a busy port (TCP small queues:
data stays in the socket while packets wait here), and a retransmission does not queue behind a
whole window.
"""

import ctypes
import fcntl
import os
import socket
import struct
import termios
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path
from typing import Any, NamedTuple

from testbed import mrc
from testbed.emulation.fabric import requests
from testbed.emulation.fabric.capabilities import MPTCP, require
from testbed.emulation.fabric.interfaces import TUN_DEVICE, TUN_REMEDY, open_tun
from testbed.emulation.fabric.link_model import shaping
from testbed.emulation.fabric.netlink import Netlink, Request
from testbed.emulation.fabric.ordinary import inner_mtu
from testbed.emulation.fabric.requests import GenericNetlink
from testbed.host.plan import EndpointPlan, QpPlan
from testbed.host.queue_pairs import Stack
from testbed.model.closeable import Closeable
from testbed.model.errors import MachineError
from testbed.model.fabric.addressing import flow_label_of_ev, ordinary_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import LINK_MTU, NIC_QUEUE_BDP, Shape, Topology
from testbed.model.transport import KernelTransport, Mptcp, Transport
from testbed.mrc import Arrival, Datagram, MemoryTable, QpSample
from testbed.mrc.constants import ECN_CE, ECN_MASK, IPV6_BYTES, DscpClasses
from testbed.mrc.message import check_write
from testbed.mrc.wire.headers import IPV6
from testbed.sandbox.system_calls import SO_RCVBUFFORCE, system_call, until_blocked

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


_HEADER = struct.Struct("!QIIBI")
HEADER_BYTES = _HEADER.size
LONGEST_READ = 1 << 18
"""The most bytes read from the stream at once."""


class Frame(NamedTuple):
    """The header of a message.

    Attributes:
        va: the virtual address that it is written to.
        rkey: the key of the memory there.
        length: the message's bytes.
        immediate: the immediate data; None without.
    """

    va: int
    rkey: int
    length: int
    immediate: int | None

    def encode(self) -> bytes:
        """The header on the stream."""
        has_immediate = self.immediate is not None
        return _HEADER.pack(self.va, self.rkey, self.length, has_immediate, self.immediate or 0)

    @classmethod
    def decode(cls, data: bytes) -> "Frame":
        va, rkey, length, has_immediate, immediate = _HEADER.unpack(data)
        return cls(va, rkey, length, immediate if has_immediate else None)


class FrameReader:
    """Splits a stream into messages and places them in memory.

    A message that would overwrite one that has not been checked yet waits, and so does the stream
    behind it: TCP acknowledges bytes that its application has not read.
    """

    def __init__(self, memory: MemoryTable) -> None:
        """Place messages in `memory`."""
        self._memory = memory
        self._header = b""
        self._frame: Frame | None = None
        self._offset = 0
        self._unchecked: set[int] = set()

    @property
    def next_size(self) -> int:
        """The most bytes of the stream to feed next; 0 if they must wait."""
        frame = self._frame
        if frame is None:
            return HEADER_BYTES - len(self._header)
        if frame.va in self._unchecked:
            return 0
        return min(frame.length - self._offset, LONGEST_READ)

    def feed(self, data: bytes) -> tuple[int, Frame | None]:
        """Take the next bytes, at most `next_size`.

        Returns the number of payload bytes among them, and the message that they complete, if any.

        Raises:
            AccessError: the message may not be written where it says.
        """
        frame = self._frame
        if frame is None:
            self._header += data
            if len(self._header) == HEADER_BYTES:
                self._frame = Frame.decode(self._header)
                self._header, self._offset = b"", 0
            return 0, None
        self._memory.place(frame.rkey, frame.va + self._offset, data)
        self._offset += len(data)
        if self._offset < frame.length:
            return len(data), None
        self._frame = None
        self._unchecked.add(frame.va)
        return len(data), frame

    def release(self) -> None:
        """Let all messages placed so far be overwritten: they have been checked."""
        self._unchecked.clear()


# --------------------------------------------------------------------------------------------------
# Window, flight and RTT of a connection, read from the kernel (linux/tcp.h, linux/mptcp.h).


SOL_MPTCP = 284
MPTCP_TCPINFO = 2

_TCP_INFO = struct.Struct("=8x19I")
"""`struct tcp_info` up to the congestion window."""

_MSS, _UNACKED, _SACKED, _LOST, _RETRANS, _RTT_US, _CWND = 2, 4, 5, 6, 7, 15, 18

_SUBFLOWS = struct.Struct("=4I")
"""`struct mptcp_subflow_data`: its size, subflows, size of each in the kernel and here."""

_MAX_SUBFLOWS = 16


def sample(connection: socket.socket, protocol: int) -> QpSample:
    """Read the state of a connection from the kernel, its subflows together.

    Windows and bytes in flight are added up; the RTT is the longest of all subflows.

    Raises:
        OSError: the kernel does not report it.
    """
    infos = list(_infos(connection, protocol))
    return QpSample(
        window=sum(info[_CWND] * info[_MSS] for info in infos),
        flight=sum(
            max(info[_UNACKED] - info[_SACKED] - info[_LOST] + info[_RETRANS], 0) * info[_MSS]
            for info in infos
        ),
        smoothed_ns=max((info[_RTT_US] * 1000 for info in infos), default=0),
    )


def _infos(connection: socket.socket, protocol: int) -> Iterator[tuple[int, ...]]:
    if protocol == socket.IPPROTO_TCP:
        data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        yield _TCP_INFO.unpack(data)
        return
    room = bytearray(_SUBFLOWS.size + _MAX_SUBFLOWS * _TCP_INFO.size)
    _SUBFLOWS.pack_into(room, 0, _SUBFLOWS.size, 0, 0, _TCP_INFO.size)
    buffer = (ctypes.c_char * len(room)).from_buffer(room)
    length = ctypes.c_uint32(len(room))
    option = connection.fileno(), SOL_MPTCP, MPTCP_TCPINFO
    system_call("getsockopt", *option, buffer, ctypes.byref(length))
    size, count, _, step = _SUBFLOWS.unpack_from(room)
    for i in range(min(count, _MAX_SUBFLOWS)):
        yield _TCP_INFO.unpack_from(room, size + i * step)


_DSCP = DscpClasses().no_trim
_OUTSTANDING = struct.Struct("@i")

SocketAddress = tuple[str, int]
"""An address and a port."""


def protocol_of(transport: KernelTransport) -> int:
    return socket.IPPROTO_MPTCP if isinstance(transport, Mptcp) else socket.IPPROTO_TCP


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """The configuration of one end of a connection.

    Attributes:
        qpn: the number of the queue pair that it implements.
        protocol: IPPROTO_TCP or IPPROTO_MPTCP.
        congestion: the name of the kernel's congestion control.
        listens_at: the address at which it listens; None if it connects.
        connects_to: the address that it connects to; None if it listens.
        paths: by the plane of its addresses, the EV that packets carry, and that EV's plane.
        receive_buffer_bytes: of the socket; the kernel sizes the send buffer.
        retry_ns: the time after which it tries again to connect if it was refused.
    """

    qpn: int
    protocol: int
    congestion: str
    listens_at: SocketAddress | None
    connects_to: SocketAddress | None
    paths: Mapping[int, tuple[int, int]]
    receive_buffer_bytes: int
    retry_ns: int


@dataclass(slots=True)
class _Posted:
    """A message that has not completed, with the parts of it that are not in the socket yet."""

    number: int
    wr_id: int
    length: int
    parts: list[memoryview]
    end: int
    """Its end in the stream, in bytes."""


class StreamQp:
    """One end of a connection: sends WRITEs, and places the peer's in `memory`.

    Attributes:
        touched: whether something may have happened since the last `transmit`: the kernel tells
            nobody, so it has to be asked in each round.
    """

    def __init__(self, config: StreamConfig, memory: mrc.MemoryTable) -> None:
        """Listen, or connect at the first `transmit`.

        Raises:
            OSError: the kernel has no such protocol or congestion control.
        """
        self.config = config
        self.touched = True
        self._paths = dict(config.paths)
        self._origins = Origins()
        self._newest_plane = next(iter(config.paths))
        self._reader = FrameReader(memory)
        self._events: list[mrc.Event] = []
        self._completions: list[mrc.Completion] = []
        self._immediates: list[mrc.ReceiveCompletion] = []
        self._posted = 0
        self._delivered = 0
        self._reads = 0
        self._segments = 0
        self._posted_bytes = 0
        self._written = 0
        self._unwritten: deque[_Posted] = deque()
        self._unfinished: deque[_Posted] = deque()
        self._subflows: dict[tuple[int, int], SentSegments] = {}
        self._outgoing: deque[mrc.Datagram] = deque()
        self._collect: Callable[[int], None] | None = None
        self._connect_ns = 0
        self._connecting: socket.socket | None = None
        self._socket: socket.socket | None = None
        """The connection, once it is established."""
        self._failure = ""
        self._listener: socket.socket | None = None
        if config.listens_at is not None:
            self._listener = self._open()
            self._listener.bind(config.listens_at)
            self._listener.listen(1)

    def attach(self, collect: Callable[[int], None]) -> None:
        """Call `collect` before sending: it calls `sent` for each packet of the kernel's."""
        self._collect = collect

    # --- posting and completing ---------------------------------------------------------------

    def post_write(
        self,
        wr_id: int,
        payload: memoryview,
        remote_va: int,
        rkey: int,
        immediate: int | None = None,
    ) -> None:
        """Queue an RDMA WRITE, with 32 bits of immediate data or without."""
        check_write(payload, remote_va, rkey, immediate)
        header = Frame(remote_va, rkey, len(payload), immediate).encode()
        self._posted_bytes += len(header) + len(payload)
        message = _Posted(
            self._posted, wr_id, len(payload), [memoryview(header), payload], self._posted_bytes
        )
        self._posted += 1
        self._unwritten.append(message)
        self._unfinished.append(message)
        if self._failure:
            self._flush()

    def poll_cq(self) -> list[mrc.Completion]:
        """The messages that have completed since the last call."""
        if self._unfinished and self._socket is not None:
            acknowledged = self._written - self._outstanding(self._socket)
            while self._unfinished and self._unfinished[0].end <= acknowledged:
                self._complete(mrc.CompletionStatus.SUCCESS)
        completions, self._completions = self._completions, []
        return completions

    def poll_recv_cq(self) -> list[mrc.ReceiveCompletion]:
        """The peer's WRITEs with immediate that have completed since the last call."""
        immediates, self._immediates = self._immediates, []
        return immediates

    def events(self) -> list[mrc.Event]:
        """What has happened since the last call; the caller checks delivered messages now."""
        events, self._events = self._events, []
        self._reader.release()
        return events

    def _complete(self, status: mrc.CompletionStatus) -> None:
        message = self._unfinished.popleft()
        completion = mrc.Completion(message.wr_id, status, message.number, message.length)
        self._completions.append(completion)

    # --- observers ---------------------------------------------------------------------------

    def sample(self) -> mrc.QpSample:
        """The kernel's congestion window, bytes in flight and RTT, queueing included."""
        if self._socket is None:
            return mrc.QpSample(0, 0, 0)
        return sample(self._socket, self.config.protocol)

    # --- packets ------------------------------------------------------------------------------

    def sent(self, packet: bytes, segment: Segment, plane: int, now_ns: int) -> None:
        """Queue a packet that the kernel sends to this connection's peer in a plane."""
        ev, plane = self._paths[plane]
        label = flow_label_of_ev(ev).to_bytes(2, "big")  # the other end learns the path
        header = packet[:2] + label + packet[4 : segment.header_bytes]
        payload = packet[segment.header_bytes :]
        number, again = None, False
        if payload:
            subflow = self._subflows.setdefault(
                (segment.src_port, segment.dst_port), SentSegments()
            )
            transmission = subflow.sent(segment, self._segments, now_ns)
            number, again = transmission.number, transmission.before_ns is not None
            if transmission.before_ns is None:
                self._segments += 1
            else:
                reason = "retransmitted by the kernel"
                self._events.append(
                    mrc.Lost(number, ev, plane, transmission.before_ns, reason, now_ns)
                )
        self._outgoing.append(
            mrc.Datagram(ev, _DSCP, header, payload, b"", number, again, ecn=segment.ecn)
        )

    def arrived(
        self, packet: memoryview, segment: Segment, plane: int, arrival: mrc.Arrival
    ) -> None:
        """Record a packet of this connection that has been handed to the kernel."""
        subflow = self._subflows.get((segment.dst_port, segment.src_port))
        if subflow is not None:
            subflow.acknowledged(segment.acknowledged)
        if segment.payload_bytes:
            self._newest_plane = plane
            sequence = data_sequence(packet, segment)
            if sequence is not None:
                self._origins.arrived(sequence, segment.payload_bytes, plane)
            self._read(arrival.rx_ns)

    def transmit(self, now_ns: int, limit: int) -> list[mrc.Datagram]:
        """What to send now: at most `limit` data packets, in order with the control packets."""
        if not self._failure:
            self._connect(now_ns)
            self._write()
            self._read(now_ns)
        if self._collect is not None:
            self._collect(now_ns)
        datagrams: list[mrc.Datagram] = []
        while self._outgoing and (limit > 0 or not self._outgoing[0].is_data):
            datagram = self._outgoing.popleft()
            limit -= datagram.is_data
            datagrams.append(datagram)
        return datagrams

    def deadlines(self) -> tuple[int, int]:
        """When to call `transmit` even if no packet arrives: for timers, and for data."""
        return 0 if self._outgoing else mrc.NEVER, mrc.NEVER

    def reroute(self, ev: int, plane: int, now_ns: int) -> None:
        """Use another path from now on: the fabric's routing has converged."""
        ((address_plane, before),) = self._paths.items()  # TCP has one path
        after, good = (ev, plane), mrc.EvState.GOOD
        if before == after:
            return
        for path, active in ((before, False), (after, True)):
            self._events.append(
                mrc.EvChanged(*path, good, good, "routing converged", active, now_ns)
            )
        self._paths[address_plane] = after

    # --- the socket ---------------------------------------------------------------------------

    def _open(self) -> socket.socket:
        config = self.config
        opened = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, config.protocol)
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, config.receive_buffer_bytes)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = config.congestion.encode()
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
        return opened

    def _connect(self, now_ns: int) -> None:
        if self._socket is not None:
            return
        if self._listener is not None:
            try:
                self._socket, _ = self._listener.accept()
            except BlockingIOError:
                return
            self._socket.setblocking(False)
        elif self._connecting is not None:
            self._check_connect(self._connecting, now_ns)
        elif self.config.connects_to is not None and now_ns >= self._connect_ns:
            self._connecting = self._open()
            self._connecting.connect_ex(self.config.connects_to)

    def _check_connect(self, connecting: socket.socket, now_ns: int) -> None:
        """Take the connection that the peer has accepted; connect again if it has refused."""
        if connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            connecting.close()
            self._connecting, self._connect_ns = None, now_ns + self.config.retry_ns
            return
        with suppress(OSError):  # it is not accepted yet
            connecting.getpeername()
            self._socket = connecting

    def _write(self) -> None:
        if self._socket is None:
            return
        while self._unwritten:
            parts = self._unwritten[0].parts
            try:
                count = self._socket.sendmsg(parts)
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(str(error))
                return
            self._written += count
            while parts and count >= len(parts[0]):
                count -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][count:]
            else:
                self._unwritten.popleft()

    def _read(self, now_ns: int) -> None:
        """Read what has arrived, and record it by the planes that it arrived on."""
        if self._socket is None:
            return
        reader, placed = self._reader, Counter[int]()
        while size := reader.next_size:
            try:
                data = self._socket.recv(size)
            except BlockingIOError:
                break
            except OSError as error:
                self._fail(str(error))
                break
            if not data:
                self._fail("closed by the peer")
                break
            count, frame = reader.feed(data)
            for origin_size, plane in self._origins.read(len(data), self._newest_plane):
                placed[plane] += origin_size if count else 0
            if frame is not None:
                self._deliver(frame, now_ns)
        for plane, size in placed.items():
            if size:
                ev, _ = self._paths[plane]
                self._events.append(mrc.Placed(self._reads, ev, size, False, now_ns))
                self._reads += 1

    def _deliver(self, frame: Frame, now_ns: int) -> None:
        number = self._delivered
        self._delivered += 1
        self._events.append(
            mrc.MessageDelivered(number, frame.va, frame.rkey, frame.length, now_ns)
        )
        if frame.immediate is not None:
            self._immediates.append(mrc.ReceiveCompletion(number, frame.immediate, frame.length))

    @staticmethod
    def _outstanding(connection: socket.socket) -> int:
        """Bytes in the socket that the peer has not acknowledged."""
        answer = fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(_OUTSTANDING.size))
        (count,) = _OUTSTANDING.unpack(answer)
        return int(count)

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._flush()

    def _flush(self) -> None:
        self._unwritten.clear()
        while self._unfinished:
            self._complete(mrc.CompletionStatus.RETRY_EXCEEDED)


RTAX_RTO_MIN = 13
"""linux/rtnetlink.h. TCP uses this metric only if the route locks it."""

_NS_PER_MS = 1_000_000


class Tun(Closeable):
    """A TUN device in the network namespace that this process is in, gone when it is closed."""

    def __init__(self, topology: Topology, plane: int) -> None:
        """Make the device, down.

        Raises:
            OSError: there are no TUN devices here.
        """
        self.plane = plane
        self._topology = topology
        self._name = f"tun{plane}"
        self._fd = open_tun(self._name)
        self.ifindex = socket.if_nametoindex(self._name)

    def requests(
        self, address: IPv6Address, peers: Iterator[IPv6Address], rto_min_ns: int | None
    ) -> Iterator[Request]:
        """Yield the requests that bring the device up: address, rate, a route to every peer.

        Args:
            address: the host's address in the plane.
            peers: the peers' addresses in the plane.
            rto_min_ns: TCP's minimum retransmission timeout; the kernel's own if None.
        """
        topology = self._topology
        mtu = inner_mtu(topology)
        rate_bps = topology.port_rate_bps * mtu // topology.wire_bytes
        yield requests.set_link_attribute(self.ifindex, self._name, "IFLA_MTU", mtu)
        yield requests.one_packet_at_a_time(self.ifindex, self._name)
        yield from shaping.attach(self.ifindex, Shape(rate_bps, NIC_QUEUE_BDP * topology.bdp_bytes))
        yield requests.set_link(self.ifindex, self._name, up=True)
        yield requests.new_address(address)
        attributes: list[tuple[str, Any]] = [("RTA_PREFSRC", str(address))]
        if rto_min_ns is not None:
            floor_ms = max(round(rto_min_ns / _NS_PER_MS), 1)
            floor = [("RTAX_LOCK", 1 << RTAX_RTO_MIN), ("RTAX_RTO_MIN", floor_ms)]
            attributes.append(("RTA_METRICS", {"attrs": floor}))
        route = requests.route_template(address.max_prefixlen, attributes)
        for peer in peers:
            description = f"{peer} dev {self._name}"
            yield requests.new_route(IPv6Network(peer), self.ifindex, route, description)

    def read(self) -> Iterator[bytes]:
        """The packets that the kernel has sent through it, read without blocking."""
        return until_blocked(partial(os.read, self._fd, LINK_MTU))

    def write(self, packet: bytes | memoryview) -> None:
        """Hand a packet to the kernel's stack, which has processed it when this returns."""
        os.write(self._fd, packet)

    def close(self) -> None:
        """Close the device, which removes it."""
        os.close(self._fd)


FIRST_PORT = 20_000
"""The first port on which hosts listen; all are below the ephemeral ports."""

SEND_BUFFER_BDP = 8
"""The limit of a socket's send buffer in BDPs of the host, if the kernel's own limit is lower. The
buffer grows with the congestion window, so Multipath TCP keeps about two windows of data for each
subflow. A large buffer from the start would be assigned to subflows at once, by how fast they
happen to be at that moment. Ours."""

RECEIVE_BUFFER_BDP = 16
"""A socket's receive buffer in BDPs of the host; half of it is window. It must never limit a flow:
at the edge of the window that subflows share, Multipath TCP's sender sometimes sends one segment
too many, and the receiver drops it after acknowledging it to the subflow. Only the timer of the
connection, a second of the kernel's time, sends it again. Ours."""


_ECN_SYSCTL = Path("/proc/sys/net/ipv4/tcp_ecn")
_ADD_ADDR_TIMEOUT_SYSCTL = Path("/proc/sys/net/mptcp/add_addr_timeout")
_ADD_ADDR_TIMEOUT_S = 1
"""When Multipath TCP announces an address again that the peer has not confirmed. The kernel's 120 s
would leave a flow without the subflows of a plane for the whole run, if an announcement is lost."""
_SEND_BUFFER_SYSCTL = Path("/proc/sys/net/ipv4/tcp_wmem")
_REFUSALS = ("not_tcp", "unknown_connection")


def kernel_stack(plan: EndpointPlan, transport: KernelTransport) -> Stack:
    """The stack of the kernel's TCP or Multipath TCP, for a process in the host's namespace.

    Raises:
        NetlinkError: the kernel refused, such as one without MPTCP.
        OSError: there are no TUN devices here.
    """
    return Stack(KernelStack(plan, transport), partial(_open_stream, plan, transport))


def _open_stream(
    plan: EndpointPlan, transport: KernelTransport, qp: QpPlan, memory: MemoryTable
) -> StreamQp:
    """Make a host's end of a connection; the host with the lower number connects to the other."""
    topology = plan.scenario.topology
    plane = qp.evs[0].path.plane  # where Multipath TCP begins
    port = _port_of(plan.host, qp)
    connecting = plan.host < qp.peer
    listener = ordinary_address(topology, qp.peer if connecting else plan.host, plane)
    config = StreamConfig(
        qpn=qp.qpn,
        protocol=protocol_of(transport),
        congestion=transport.congestion,
        # Subflows come to the other planes' addresses.
        listens_at=None if connecting else ("::", port),
        connects_to=(str(listener), port) if connecting else None,
        paths={ev.path.plane: (ev.value, ev.path.plane) for ev in qp.evs},
        receive_buffer_bytes=RECEIVE_BUFFER_BDP * topology.planes * topology.bdp_bytes,
        retry_ns=topology.propagation_rtt_ns,
    )
    return StreamQp(config, memory)


def _port_of(host: Node, qp: QpPlan) -> int:
    """The port of the listening end of a connection."""
    return FIRST_PORT + (qp.peer_qpn if host < qp.peer else qp.qpn)


class KernelStack:
    """The TUN devices of a host and the connections over them; takes arrivals as `mrc.Demux` does.

    The process must be in the host's network namespace, which holds all that this sets up.
    """

    def __init__(self, plan: EndpointPlan, transport: KernelTransport) -> None:
        """Bring the devices up.

        Raises:
            NetlinkError: the kernel refused, such as one without MPTCP.
            OSError: there are no TUN devices here.
        """
        topology, host = plan.scenario.topology, plan.host
        planes = range(topology.planes)
        self._by_peer: dict[tuple[bytes, int], StreamQp] = {}
        self._dropped: Counter[str] = Counter(dict.fromkeys(_REFUSALS, 0))
        self._plane_of = {ordinary_address(topology, host, plane).packed: plane for plane in planes}
        self._tuns = tuple(Tun(topology, plane) for plane in planes)
        self._plan = plan
        self._plans = {qp.qpn: qp for qp in plan.qps}
        peers = dict.fromkeys(qp.peer for qp in plan.qps)
        floor_ns = None
        if transport.rto_min is not None:
            floor_ns = round(transport.rto_min * topology.dilation)
        with Netlink(host.name) as netlink:
            for tun in self._tuns:
                address = ordinary_address(topology, host, tun.plane)
                routed = (ordinary_address(topology, peer, tun.plane) for peer in peers)
                netlink.send(tun.requests(address, routed, floor_ns))
        _let_send_buffers_grow(SEND_BUFFER_BDP * topology.planes * topology.bdp_bytes)
        if transport.ecn:
            _ECN_SYSCTL.write_text("1", encoding="utf-8")
        if isinstance(transport, Mptcp):
            _ADD_ADDR_TIMEOUT_SYSCTL.write_text(str(_ADD_ADDR_TIMEOUT_S), encoding="utf-8")
            listening = any(qp.peer < host for qp in plan.qps)  # the other end opens the subflows
            others = planes[1:] if listening else ()
            addresses = [ordinary_address(topology, host, plane) for plane in others]
            with GenericNetlink(host.name) as generic:
                generic.announce_to_mptcp_peers(addresses)

    def add(self, qp: StreamQp) -> None:
        """Take packets to and from a connection."""
        plan, topology = self._plans[qp.config.qpn], self._plan.scenario.topology
        for plane in range(topology.planes):
            address = ordinary_address(topology, plan.peer, plane).packed
            self._by_peer[address, _port_of(self._plan.host, plan)] = qp
        qp.attach(self.collect)

    def collect(self, now_ns: int) -> None:
        """Hand each packet that the kernel has sent to its connection."""
        for tun in self._tuns:
            for packet in tun.read():
                segment = parse(packet)
                if segment is None:
                    continue  # such as neighbour discovery, which these links do not need
                qp = self._find(segment.dst, segment.src_port, segment.dst_port)
                if qp is not None:
                    qp.sent(packet, segment, tun.plane, now_ns)

    def receive_undamaged(self, datagram: Datagram, arrival: Arrival) -> None:
        """Process a packet that arrived undamaged, given in its pieces."""
        self.receive(memoryview(datagram.join()), arrival)

    def receive(self, data: memoryview, arrival: Arrival) -> None:
        """Hand an arrival to the kernel, and read what its connection can deliver then."""
        segment = parse(data)
        if segment is None:
            self._dropped["not_tcp"] += 1
            return
        plane = self._plane_of.get(segment.dst)
        qp = self._find(segment.src, segment.dst_port, segment.src_port)
        if plane is None or qp is None:
            self._dropped["unknown_connection"] += 1
            return
        congested = arrival.ecn == ECN_CE and segment.ecn not in (0, ECN_CE)
        self._tuns[plane].write(marked(data) if congested else data)
        qp.arrived(data, segment, plane, arrival)

    def refused(self) -> dict[str, int]:
        """How many packets were not acted on, by reason."""
        return dict(self._dropped)

    def _find(self, peer: bytes, host_port: int, peer_port: int) -> StreamQp | None:
        """The connection between two ports, one of which listens."""
        return self._by_peer.get((peer, peer_port)) or self._by_peer.get((peer, host_port))


def _let_send_buffers_grow(size: int) -> None:
    least, first, most = map(int, _SEND_BUFFER_SYSCTL.read_text(encoding="utf-8").split())
    _SEND_BUFFER_SYSCTL.write_text(f"{least} {first} {max(most, size)}", encoding="utf-8")


# --------------------------------------------------------------------------------------------------
# Whether this kernel supports a scenario's transport.


_ALGORITHMS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def require_kernel_support(transport: Transport) -> None:
    """Check that the kernel supports a transport; only TCP and MPTCP need its support.

    Raises:
        MachineError: it does not; the remedy says what to load or choose.
    """
    if not isinstance(transport, KernelTransport):
        return
    if not os.access(TUN_DEVICE, os.R_OK | os.W_OK):
        raise MachineError(f"there is no {TUN_DEVICE}", TUN_REMEDY)
    if isinstance(transport, Mptcp):
        require(MPTCP)
    name = transport.congestion
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            algorithms = _ALGORITHMS.read_text(encoding="ascii")
            raise MachineError(
                f"transport.congestion: this kernel has no {name} ({error.strerror})",
                f"modprobe tcp_{name}, or one that it has: {algorithms.strip()}",
            ) from error
