"""A TCP or Multipath TCP connection with the methods of a queue pair.

WRITEs become frames of its byte stream, each behind a header that says where it goes. As iWARP does
over TCP (RFC 5041, tagged buffers), address, rkey and length travel with the data, so that the
receiver puts every byte where a WRITE would have put it. The format is ours.

A WRITE has completed when the peer's kernel has acknowledged its last byte: earlier than MRC, which
completes when it is in memory.
"""

import ctypes
import fcntl
import socket
import struct
import termios
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from testbed import mrc
from testbed.emulation.endpoint.kernel.origins import Origins, Segment, SentSegments, data_sequence
from testbed.model.fabric.addressing import flow_label_of_ev
from testbed.model.transport import KernelTransport, Mptcp
from testbed.mrc import MemoryTable, QpSample
from testbed.mrc.constants import DscpClasses
from testbed.mrc.message import check_write
from testbed.sandbox.system_calls import SO_RCVBUFFORCE, system_call

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
