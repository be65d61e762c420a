"""Mininet's links and interfaces as records: the fabric makes the veths, all at once."""

from typing import Any

from mininet.link import Intf, Link
from pyroute2.netlink.rtnl import RTM_GETLINK

from testbed.fabric.netlink.messages import RTEXT_FILTER_SKIP_STATS, LinkMessage


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
                puts in the place of the node's name; empty for a switch.
            params: Mininet's.
        """
        self.ifindex = ifindex
        self._address = address
        super().__init__(name, **params)
        self.ip = address or None

    def config(self, **_params: Any) -> dict[str, Any]:
        """Configure nothing: the fabric does, for all ports at once."""
        return {}

    def updateIP(self) -> str:  # noqa: N802 - Mininet's name
        """Return the node's address in this port's plane; empty for a switch."""
        return self._address

    def updateMAC(self) -> str:  # noqa: N802 - Mininet's name
        """Return the port's MAC address."""
        return str(self.mac)

    def updateAddr(self) -> tuple[str, str]:  # noqa: N802 - Mininet's name
        """Return both."""
        return self.updateIP(), self.updateMAC()

    def isUp(self, setUp: bool = False) -> bool:  # noqa: ARG002, N802 - Mininet's names
        """Say whether the port has carrier."""
        request = LinkMessage()
        request["index"] = self.ifindex
        request["attrs"] = [("IFLA_EXT_MASK", RTEXT_FILTER_SKIP_STATS)]
        found = self.node.netlink.get(request, RTM_GETLINK, f"read {self.name}")
        return bool(found.get_attr("IFLA_CARRIER"))

    def status(self) -> str:
        """Say what Mininet's `links` shows."""
        return "OK" if self.isUp() else "DOWN"

    def delete(self) -> None:
        """Forget the port: it goes with its namespace."""
        self.node.delIntf(self)
        self.link = None


class FabricLink(Link):  # type: ignore[misc] # Mininet is untyped
    """A link of the fabric."""

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_params: Any) -> None:  # noqa: N802 - Mininet's name
        """Make nothing yet: the fabric makes all links at once."""

    def stop(self) -> None:
        """Stop nothing: the veth goes with its namespaces."""
