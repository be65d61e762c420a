"""Where the hosts of a simulated fabric are on this machine: addresses of its loopback.

All of 127.0.0.0/8 is local on Linux, and needs no set-up. Each run claims a network of its own
there, so that several go side by side, and each host has an address with all its ports. The library
in the programs makes names resolve to them (device/c/names.c).
"""

import errno
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Final

from testbed.device.protocol import ADDRESS_VARIABLE, HOSTS_VARIABLE, SOCKET, SOCKET_VARIABLE
from testbed.emulation.experiment.programs import MASTER_PORT
from testbed.model.closeable import Closeable
from testbed.model.errors import MachineError
from testbed.model.fabric.nodes import Node

_NETWORKS: Final = range(64, 255)
"""The second byte of a run's addresses; others use the lower ones by hand."""


class Loopback(Closeable):
    """A network of the loopback that this run alone uses, as long as it is open."""

    def __init__(self, hosts: Sequence[Node]) -> None:
        """Claim one for these hosts, the first of which has the port at which programs meet.

        Raises:
            MachineError: all are taken, the machine has no loopback, or no port is free.
        """
        self._claim = socket.socket(socket.AF_UNIX)
        self._network = _claimed(self._claim)
        self._hosts = hosts
        try:
            self.master_port = _free_port(str(self.address_of(hosts[0])))
        except MachineError:
            self.close()
            raise

    def address_of(self, host: Node) -> IPv4Address:
        """The address of a host."""
        return IPv4Address((127 << 24) + (self._network << 16) + 1 + host.index)

    def nic_of(self, host: Node) -> str:
        """The name of the socket of a host's NIC."""
        return f"{SOCKET}-{self.address_of(host)}"

    def variables(self, name: str) -> dict[str, str]:
        """What programs in a host have in their environment."""
        own = next(host for host in self._hosts if host.name == name)
        names = ",".join(f"{host.name}={self.address_of(host)}" for host in self._hosts)
        return {
            SOCKET_VARIABLE: self.nic_of(own).lstrip("\0"),
            HOSTS_VARIABLE: names,
            ADDRESS_VARIABLE: str(self.address_of(own)),
        }

    def close(self) -> None:
        """Give it back."""
        self._claim.close()


def _claimed(claim: socket.socket) -> int:
    """Bind a socket to the name of the first network that nobody has claimed; return its number."""
    for network in _NETWORKS:
        try:
            claim.bind(f"\0mrc-loopback-127.{network}")
        except OSError:
            continue
        return network
    claim.close()
    raise MachineError(
        f"{len(_NETWORKS)} runs of programs are under way in this network namespace, and more have "
        "no addresses",
        "wait until one of them has ended",
    )


def _free_port(address: str) -> int:
    """The port of torchrun if it is free at an address, else any that is.

    Raises:
        MachineError: none is, or the address is not there.
    """
    for port in (MASTER_PORT, 0):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((address, port))
                trial.listen()
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                raise MachineError(
                    f"no loopback here: {address}: {error.strerror}", "ip link set lo up"
                ) from error
            found: int = trial.getsockname()[1]
            return found
    raise MachineError(
        f"no TCP port is free at {address}", "end what listens on all addresses of this machine"
    )
