"""Whether this kernel has what a scenario's transport asks of it."""

import os
import socket
from pathlib import Path

from testbed.endpoint.kernel.opening import protocol_of
from testbed.fabric.interfaces import TUN_DEVICE, TUN_REMEDY
from testbed.model.errors import MachineError
from testbed.model.transport import Mptcp, Tcp, Transport

_KNOWN = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def require_stack(transport: Transport) -> None:
    """Make sure that a transport of the kernel's is there; of the others there is nothing to ask.

    Raises:
        MachineError: it is not; says what to load or choose.
    """
    if not isinstance(transport, Tcp | Mptcp):
        return
    if not os.access(TUN_DEVICE, os.R_OK | os.W_OK):
        raise MachineError(f"there is no {TUN_DEVICE}", TUN_REMEDY)
    try:
        tried = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol_of(transport))
    except OSError as error:
        raise MachineError(
            f"this kernel has no MPTCP ({error.strerror})",
            "sysctl net.mptcp.enabled=1, or a kernel with CONFIG_MPTCP",
        ) from error
    name = transport.congestion
    with tried:
        try:
            tried.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            raise MachineError(
                f"transport.congestion: this kernel has no {name} ({error.strerror})",
                f"modprobe tcp_{name}, or one of those that it has: {_KNOWN.read_text().strip()}",
            ) from error
