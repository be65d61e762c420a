"""What netlink does not carry: offloads, CPUs of receive work, sysctls, counters, TUN devices."""

import array
import fcntl
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from testbed.rights import as_root
from testbed.sandbox import namespaces

SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17
ETHTOOL_STSO = 0x1F
ETHTOOL_SGSO = 0x24
ETHTOOL_SGRO = 0x2C
_ETHTOOL_IFREQ = struct.Struct("@16sP16x")

SEGMENTATION = (ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO)
"""Offloads that merge or split packets: off on every port, so that no packet changes its size."""

SENT_BYTES, SENT_PACKETS, DROPPED_IN_SENDING = 8, 9, 11
"""Columns of `read_counters`."""

TUN_DEVICE = "/dev/net/tun"
TUN_REMEDY = (
    "modprobe tun, or a kernel with CONFIG_TUN; in a container, start it with --device "
    f"{TUN_DEVICE}, or make it there: mkdir -p /dev/net && mknod {TUN_DEVICE} c 10 200"
)

_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_TUN_IFREQ = struct.Struct("@16sH22x")


def switch_off(control: socket.socket, interface: str, offloads: tuple[int, ...]) -> None:
    """Switch offloads of an interface off (linux/ethtool.h).

    Args:
        control: any socket of the interface's namespace.
        interface: its name.
        offloads: the ethtool commands that set them.
    """
    for command in offloads:
        value = array.array("I", [command, 0])
        request = _ETHTOOL_IFREQ.pack(interface.encode(), value.buffer_info()[0])
        fcntl.ioctl(control, SIOCETHTOOL, request)


def pin_receive_work(sysfs: Path, cpus: Mapping[str, int]) -> None:
    """Have one CPU do an interface's receive work (RPS), for every interface of a namespace.

    The calling thread must be in that namespace: sysfs shows the interfaces of the namespace in
    which it is mounted.

    Args:
        sysfs: where to mount sysfs; it stays mounted until the sandbox ends.
        cpus: the CPU of every interface, by the interface's name.
    """
    sysfs.mkdir(parents=True)
    namespaces.mount("sysfs", str(sysfs), "sysfs")
    with as_root():
        for interface, cpu in cpus.items():
            mask = f"{1 << cpu % 32:x}" + ",00000000" * (cpu // 32)
            _write(f"{sysfs}/class/net/{interface}/queues/rx-0/rps_cpus", mask)


def write_sysctl(key: str, value: str) -> None:
    """Write a sysctl of the network namespace that this thread is in.

    Args:
        key: path below /proc/sys/net.
        value: what to write.
    """
    _write(f"/proc/sys/net/{key}", value)


def _write(path: str, value: str) -> None:
    """Write a file of the kernel's with plain system calls: a fabric has hundreds of them."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def read_counters() -> dict[str, list[int]]:
    """Read /proc/net/dev of the namespace that this thread is in: its columns by interface."""
    lines = Path("/proc/thread-self/net/dev").read_text(encoding="utf-8").splitlines()[2:]
    rows = (line.partition(":") for line in lines)
    return {name.strip(): [int(column) for column in columns.split()] for name, _, columns in rows}


def open_tun(name: str) -> int:
    """Make a TUN device, down, in the network namespace that this thread is in.

    Returns its non-blocking descriptor. Each read returns an IPv6 packet that the kernel has routed
    to the device, and each written packet arrives from it. The device disappears when the last
    copy of the descriptor is closed.

    Raises:
        OSError: this machine has no TUN devices.
    """
    with as_root():
        fd = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, _TUN_IFREQ.pack(name.encode(), _IFF_TUN | _IFF_NO_PI))
    except OSError:
        os.close(fd)
        raise
    return fd
