"""Mininet's links and interfaces as records only: the fabric makes all veths at once."""

from typing import Any

from mininet.link import Intf, Link

from testbed.emulation.fabric.link_model.link_control import read_link


class FabricIntf(Intf):  # type: ignore[misc] # Mininet is untyped
    """A port of the fabric.

    Attributes:
        ifindex: its index, unique in the fabric.
    """

    def __init__(self, name: str, ifindex: int = 0, address: str = "", **params: Any) -> None:
        """Record the port.

        Args:
            name: its name.
            ifindex: its index.
            address: the node's address for ordinary traffic in this port's plane, which Mininet
                substitutes for the node's name; empty for a switch.
            params: further parameters of Mininet's.
        """
        self.ifindex = ifindex
        self._address = address
        super().__init__(name, **params)
        self.ip = address or None

    def config(self, **_params: Any) -> dict[str, Any]:
        """Do nothing: the fabric configures all ports at once."""
        return {}

    def updateIP(self) -> str:  # noqa: N802 - Mininet's name
        """Return the node's address in this port's plane; empty for a switch."""
        return self._address

    def updateMAC(self) -> str:  # noqa: N802 - Mininet's name
        """Return the port's MAC address."""
        return str(self.mac)

    def updateAddr(self) -> tuple[str, str]:  # noqa: N802 - Mininet's name
        """Return both addresses."""
        return self.updateIP(), self.updateMAC()

    def isUp(self, setUp: bool = False) -> bool:  # noqa: ARG002, N802 - Mininet's names
        """Return whether the port has carrier."""
        link = read_link(self.node.namespace.netlink, self.ifindex, self.name)
        return bool(link.get_attr("IFLA_CARRIER"))

    def status(self) -> str:
        """Return the status that Mininet's `links` shows."""
        return "OK" if self.isUp() else "DOWN"

    def delete(self) -> None:
        """Forget the port: the kernel removes it with its namespace."""
        self.node.delIntf(self)
        self.link = None


class FabricLink(Link):  # type: ignore[misc] # Mininet is untyped
    """A link of the fabric."""

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_params: Any) -> None:  # noqa: N802 - Mininet's name
        """Do nothing: the fabric makes all links at once."""

    def stop(self) -> None:
        """Do nothing: the kernel removes the veth with its namespaces."""
