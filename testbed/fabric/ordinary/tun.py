"""A TUN device: the packets that the kernel routes to it are read, those written to it arrive."""

import fcntl
import os
import struct

DEVICE = "/dev/net/tun"
REMEDY = (
    "modprobe tun, or a kernel with CONFIG_TUN; in a container, start it with --device "
    f"{DEVICE}, or make it there: mkdir -p /dev/net && mknod {DEVICE} c 10 200"
)

_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_IFREQ = struct.Struct("@16sH22x")


def open_tun(name: str) -> int:
    """Make a TUN device in the network namespace that this thread is in, down.

    Returns its descriptor, which does not block: each read is one IPv6 packet, each write too. The
    device is gone when the last copy of it is closed.

    Raises:
        OSError: there are no TUN devices here.
    """
    fd = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, _IFREQ.pack(name.encode(), _IFF_TUN | _IFF_NO_PI))
    except OSError:
        os.close(fd)
        raise
    return fd
