"""Interface settings that netlink does not carry: offloads, and the CPU of receive work."""

import array
import fcntl
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from testbed.sandbox import namespaces

SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17
ETHTOOL_STSO = 0x1F
ETHTOOL_SGSO = 0x24
ETHTOOL_SGRO = 0x2C
_IFREQ = struct.Struct("@16sP16x")

SEGMENTATION = (ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO)
"""Offloads that merge or split packets: off on every port, so that a packet is a packet."""


def switch_off(control: socket.socket, interface: str, offloads: tuple[int, ...]) -> None:
    """Switch offloads of an interface off (linux/ethtool.h).

    Args:
        control: any socket of the interface's namespace.
        interface: its name.
        offloads: the commands that set them.
    """
    for command in offloads:
        value = array.array("I", [command, 0])
        request = _IFREQ.pack(interface.encode(), value.buffer_info()[0])
        fcntl.ioctl(control, SIOCETHTOOL, request)


def pin_receive_work(sysfs: Path, cpus: Mapping[str, int]) -> None:
    """Have one CPU do an interface's receive work (RPS), for every interface of a namespace.

    Must be called in the namespace: sysfs shows the interfaces of the one that mounts it.

    Args:
        sysfs: where to mount it; it stays mounted until the sandbox ends.
        cpus: CPU by interface name.
    """
    sysfs.mkdir(parents=True)
    namespaces.mount("sysfs", str(sysfs), "sysfs")
    for interface, cpu in cpus.items():
        mask = f"{1 << cpu % 32:x}" + ",00000000" * (cpu // 32)
        fd = os.open(
            sysfs / "class/net" / interface / "queues/rx-0/rps_cpus", os.O_WRONLY | os.O_CLOEXEC
        )
        try:
            os.write(fd, mask.encode())
        finally:
            os.close(fd)
