"""Whether this kernel supports a scenario's transport."""

import os
import socket
from pathlib import Path

from testbed.emulation.fabric.capabilities import MPTCP, require
from testbed.emulation.fabric.interfaces import TUN_DEVICE, TUN_REMEDY
from testbed.model.errors import MachineError
from testbed.model.transport import KernelTransport, Mptcp, Transport

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
