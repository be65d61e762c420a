"""Settings of a host's own stack through generic netlink.

The source address of encapsulated packets (`ip sr tunsrc`): without it the kernel chooses one by
its own rules, here a NIC's uSID, which names no host. And the addresses that MPTCP announces
(`ip mptcp endpoint`): one for each plane, so that a connection gets a subflow in each.
"""

import socket
from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import Any

from pyroute2.netlink import (
    CTRL_CMD_GETFAMILY,
    GENL_ID_CTRL,
    NETLINK_GENERIC,
    NLA_F_NESTED,
    ctrlmsg,
    genlmsg,
)
from pyroute2.netlink.generic.mptcp import (
    MPTCP_GENL_NAME,
    MPTCP_PM_CMD_ADD_ADDR,
    MPTCP_PM_CMD_SET_LIMITS,
    mptcp_msg,
)

from testbed.emulation.fabric.netlink.messages import Message
from testbed.emulation.fabric.netlink.socket import Netlink, NetlinkError

SEG6_GENL_NAME = "SEG6"
SEG6_CMD_SET_TUNSRC = 3
SEG6_CMD_GET_TUNSRC = 4
MPTCP_PM_ADDR_FLAG_SIGNAL = 1
MPTCP_MAX_SUBFLOWS = 8
"""Most subflows that the kernel allows beside the first (net/mptcp/protocol.h,
MPTCP_PM_ADDR_MAX)."""


class Seg6Message(genlmsg):  # type: ignore[misc] # pyroute2 is untyped
    """A message of the family SEG6: linux/seg6_genl.h."""

    nla_map = (("SEG6_ATTR_UNSPEC", "none"), ("SEG6_ATTR_DST", "ip6addr"))


class MptcpMessage(mptcp_msg):  # type: ignore[misc] # pyroute2 is untyped
    """A message of the family mptcp_pm, whose address is marked as nested.

    pyroute2 does not mark it, and Linux 6.1 refuses it then.
    """

    __slots__ = ()

    class pm_addr(mptcp_msg.pm_addr):  # type: ignore[misc] # noqa: N801 - pyroute2 looks it up by this name
        __slots__ = ()
        nla_flags = NLA_F_NESTED


class GenericNetlink(Netlink):
    """A NETLINK_GENERIC socket in the namespace in which it was opened."""

    protocol = NETLINK_GENERIC

    def set_tunnel_source(self, source: IPv6Address) -> None:
        """Set the source address of what this namespace encapsulates, and read it back.

        Raises:
            NetlinkError: the kernel refused, or uses another address.
        """
        description = f"set the source of encapsulated packets to {source}"
        family = self._family(SEG6_GENL_NAME, description)
        destination = [("SEG6_ATTR_DST", str(source))]
        self._command(Seg6Message, family, SEG6_CMD_SET_TUNSRC, destination, description)
        answer = self._command(Seg6Message, family, SEG6_CMD_GET_TUNSRC, [], description)
        address = answer.get_attr("SEG6_ATTR_DST")
        if IPv6Address(address) != source:
            raise NetlinkError(self.namespace, description, 0, f"the kernel uses {address}")

    def announce_to_mptcp_peers(self, addresses: Sequence[IPv6Address]) -> None:
        """Have MPTCP announce addresses, and open a subflow to each that a peer announces.

        Raises:
            NetlinkError: the kernel refused, such as one without MPTCP.
        """
        description = "set what MPTCP announces"
        family = self._family(MPTCP_GENL_NAME, description)
        limits = [
            ("MPTCP_PM_ATTR_RCV_ADD_ADDRS", MPTCP_MAX_SUBFLOWS),
            ("MPTCP_PM_ATTR_SUBFLOWS", MPTCP_MAX_SUBFLOWS),
        ]
        self._command(MptcpMessage, family, MPTCP_PM_CMD_SET_LIMITS, limits, description)
        for address in addresses:
            fields = [
                ("MPTCP_PM_ADDR_ATTR_FAMILY", socket.AF_INET6),
                ("MPTCP_PM_ADDR_ATTR_ADDR6", str(address)),
                ("MPTCP_PM_ADDR_ATTR_FLAGS", MPTCP_PM_ADDR_FLAG_SIGNAL),
            ]
            attributes = [("MPTCP_PM_ATTR_ADDR", {"attrs": fields})]
            self._command(MptcpMessage, family, MPTCP_PM_CMD_ADD_ADDR, attributes, description)

    def _family(self, name: str, description: str) -> int:
        attributes = [("CTRL_ATTR_FAMILY_NAME", name)]
        answer = self._command(ctrlmsg, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, attributes, description)
        number: int = answer.get_attr("CTRL_ATTR_FAMILY_ID")
        return number

    def _command(
        self,
        message_type: type[Message],
        family: int,
        command: int,
        attributes: Sequence[tuple[str, object]],
        description: str,
    ) -> Any:
        """Send a command; returns the decoded answer, None if the kernel only acknowledges."""
        fields = {"cmd": command, "version": 1, "attrs": list(attributes)}
        return self._exchange(message_type, family, 0, description, fields)
