"""The packet sockets of Open vSwitch's datapath in user space, reached with pidfd_getfd(2).

With the kernel's default buffers they lose packets, and only a socket's own drop counter shows it.
"""

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from testbed.model.errors import RunFailedError
from testbed.sandbox.system_calls import SO_RCVBUFFORCE, SO_SNDBUFFORCE, system_call

BUFFER_BYTES = 16 << 20

_SO_MEMINFO = 55
_SK_MEMINFO_DROPS = 8
_SK_MEMINFO_WORDS = 9
_SYS_PIDFD_GETFD = 438
_BUFFERS = ((SO_RCVBUFFORCE, socket.SO_RCVBUF), (SO_SNDBUFFORCE, socket.SO_SNDBUF))


def enlarge_buffers(pid: int) -> None:
    """Give every packet socket of a process 16 MiB in each direction.

    Raises:
        RunFailedError: the kernel granted less.
    """
    for sock, _ in _packet_sockets(pid):
        for option, effect in _BUFFERS:
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            size = sock.getsockopt(socket.SOL_SOCKET, effect)
            if size < BUFFER_BYTES:
                raise RunFailedError(f"a packet socket's buffer is {size} bytes")


def dropped_packets(pid: int) -> dict[str, int]:
    """Packets that a process's packet sockets had no room for so far, by interface."""
    drops: dict[str, int] = {}
    for sock, interface in _packet_sockets(pid):
        if interface:
            words = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * _SK_MEMINFO_WORDS)
            name = socket.if_indextoname(interface)
            drops[name] = drops.get(name, 0) + struct.unpack("9I", words)[_SK_MEMINFO_DROPS]
    return drops


def _packet_sockets(pid: int) -> Iterator[tuple[socket.socket, int]]:
    """Yield a process's packet sockets in this namespace, with the indexes of their interfaces."""
    interfaces: dict[str, int] = {}
    for line in Path("/proc/net/packet").read_text(encoding="utf-8").splitlines()[1:]:
        _, _, _, _, interface, _, _, _, inode = line.split()
        interfaces[f"socket:[{inode}]"] = int(interface)
    pidfd = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except FileNotFoundError:
                continue  # it has been closed
            if target in interfaces:
                number = int(entry.name)
                copy = system_call("pidfd_getfd", pidfd, number, 0, number=_SYS_PIDFD_GETFD)
                with socket.socket(fileno=copy) as sock:
                    yield sock, interfaces[target]
    finally:
        os.close(pidfd)
