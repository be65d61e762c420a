"""What hosts' own stacks are told through generic netlink, by pyroute2's messages.

The source address of encapsulated packets (`ip sr tunsrc`): without it the kernel chooses one by
its own rules, here a NIC's uSID, which names no host. And the addresses that MPTCP announces
(`ip mptcp endpoint`): one for each plane, so that a connection gets a subflow in each.
"""

import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import Any

from pyroute2.netlink import (
    CTRL_CMD_GETFAMILY,
    GENL_ID_CTRL,
    NETLINK_GENERIC,
    NLM_F_ACK,
    NLM_F_REQUEST,
    NLMSG_ERROR,
    ctrlmsg,
    genlmsg,
)
from pyroute2.netlink.generic.mptcp import (
    MPTCP_GENL_NAME,
    MPTCP_PM_CMD_ADD_ADDR,
    MPTCP_PM_CMD_SET_LIMITS,
    mptcp_msg,
)

from testbed.fabric.netlink.socket import NetlinkError
from testbed.model.closeable import Closeable

SEG6_GENL_NAME = "SEG6"
SEG6_CMD_SET_TUNSRC = 3
SEG6_CMD_GET_TUNSRC = 4
MPTCP_PM_ADDR_FLAG_SIGNAL = 1
MPTCP_MAX_SUBFLOWS = 8
"""Most that the kernel allows beside the first (net/mptcp/protocol.h, MPTCP_PM_ADDR_MAX)."""

_TIMEOUT_S = 10
_READ_BYTES = 1 << 14
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port


class Seg6Message(genlmsg):  # type: ignore[misc] # pyroute2 is untyped
    """A message of the family SEG6: linux/seg6_genl.h."""

    __slots__ = ()
    nla_map = (("SEG6_ATTR_UNSPEC", "none"), ("SEG6_ATTR_DST", "ip6addr"))


class GenericNetlink(Closeable):
    """A NETLINK_GENERIC socket in the namespace in which it was opened."""

    def __init__(self, where: str) -> None:
        """Open it; `where` names the namespace in error messages."""
        self.where = where
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, NETLINK_GENERIC)
        self._socket.bind((0, 0))
        self._socket.settimeout(_TIMEOUT_S)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def set_tunnel_source(self, source: IPv6Address) -> None:
        """Set the source address of what this namespace encapsulates, and read it back.

        Raises:
            NetlinkError: the kernel refused, or took another.
        """
        what = f"set the source of encapsulated packets to {source}"
        family = self._family(SEG6_GENL_NAME, what)
        to = [("SEG6_ATTR_DST", str(source))]
        self._ask(Seg6Message(), family, SEG6_CMD_SET_TUNSRC, to, what)
        answer = self._ask(Seg6Message(), family, SEG6_CMD_GET_TUNSRC, [], what)
        found = answer.get_attr("SEG6_ATTR_DST")
        if IPv6Address(found) != source:
            raise NetlinkError(self.where, what, 0, f"it is {found} all the same")

    def announce_to_mptcp_peers(self, addresses: Sequence[IPv6Address]) -> None:
        """Have MPTCP announce addresses, and open a subflow to each that a peer announces.

        Raises:
            NetlinkError: the kernel refused, such as one without MPTCP.
        """
        what = "set what MPTCP announces"
        family = self._family(MPTCP_GENL_NAME, what)
        limits = [
            ("MPTCP_PM_ATTR_RCV_ADD_ADDRS", MPTCP_MAX_SUBFLOWS),
            ("MPTCP_PM_ATTR_SUBFLOWS", MPTCP_MAX_SUBFLOWS),
        ]
        self._ask(mptcp_msg(), family, MPTCP_PM_CMD_SET_LIMITS, limits, what)
        for address in addresses:
            told = [
                ("MPTCP_PM_ADDR_ATTR_FAMILY", socket.AF_INET6),
                ("MPTCP_PM_ADDR_ATTR_ADDR6", str(address)),
                ("MPTCP_PM_ADDR_ATTR_FLAGS", MPTCP_PM_ADDR_FLAG_SIGNAL),
            ]
            attributes = [("MPTCP_PM_ATTR_ADDR", {"attrs": told})]
            self._ask(mptcp_msg(), family, MPTCP_PM_CMD_ADD_ADDR, attributes, what)

    def _family(self, name: str, what: str) -> int:
        attributes = [("CTRL_ATTR_FAMILY_NAME", name)]
        answer = self._ask(ctrlmsg(), GENL_ID_CTRL, CTRL_CMD_GETFAMILY, attributes, what)
        number: int = answer.get_attr("CTRL_ATTR_FAMILY_ID")
        return number

    def _ask(
        self,
        message: Any,
        family: int,
        command: int,
        attributes: Sequence[tuple[str, object]],
        what: str,
    ) -> Any:
        """Send a message; returns the answer, or the message itself where there is but success."""
        message.update(cmd=command, version=1)
        message["attrs"] = list(attributes)
        flags = NLM_F_REQUEST | NLM_F_ACK
        message["header"].update(type=family, flags=flags, sequence_number=1, pid=0)
        message.encode()
        self._socket.send(bytes(message.data))
        answer = message
        while True:
            data = self._socket.recv(_READ_BYTES)
            start = 0
            while start < len(data):
                length, kind, _flags, _sequence, _port = _HEADER.unpack_from(data, start)
                if kind == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", data, start + _HEADER.size)[0]
                    if code:
                        raise NetlinkError(self.where, what, code, "")
                    return answer
                answer = type(message)(data[start : start + length])
                answer.decode()
                start += length + 3 & ~3
