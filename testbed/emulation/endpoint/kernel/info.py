"""Window, flight and RTT of a connection, read from the kernel (linux/tcp.h, linux/mptcp.h)."""

import ctypes
import socket
import struct
from collections.abc import Iterator

from testbed.mrc import QpSample
from testbed.sandbox.system_calls import system_call

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
