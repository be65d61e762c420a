"""Requests to the kernel, encoded by pyroute2: links, addresses, routes, queues, tunnels, MPTCP.

Encoding a message with pyroute2 takes about 100 µs, filling in a template 2 µs. So what a fabric
needs for every port, neighbour, address and route is encoded once and then filled in.

Settings of a host's own stack go through generic netlink. The source address of encapsulated
packets (`ip sr tunsrc`): without it the kernel chooses one by its own rules, here a NIC's uSID,
which names no host. And the addresses that MPTCP announces (`ip mptcp endpoint`): one for each
plane, so that a connection gets a subflow in each.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Interface, IPv6Address, IPv6Network
from socket import AF_INET, AF_INET6, IPPROTO_UDP, htons
from typing import Any

from pyroute2.netlink import (
    CTRL_CMD_GETFAMILY,
    GENL_ID_CTRL,
    NETLINK_GENERIC,
    NLA_F_NESTED,
    NLM_F_APPEND,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    ctrlmsg,
    genlmsg,
    rtnl,
)
from pyroute2.netlink.generic.mptcp import (
    MPTCP_GENL_NAME,
    MPTCP_PM_CMD_ADD_ADDR,
    MPTCP_PM_CMD_SET_LIMITS,
    mptcp_msg,
)

from testbed.emulation.fabric.netlink import (
    AddressMessage,
    LinkMessage,
    Message,
    NeighbourMessage,
    Netlink,
    NetlinkError,
    QdiscMessage,
    Request,
    RouteMessage,
    RuleMessage,
)
from testbed.model.fabric.nodes import Port
from testbed.sandbox.system_calls import ETH_P_ALL

IFF_UP = 0x1
IFF_MULTICAST = 0x1000
IFA_F_NODAD = 0x02
IFA_F_PERMANENT = 0x80
IFA_F_NOPREFIXROUTE = 0x200
NUD_PERMANENT = 0x80
RT_TABLE_MAIN = 254
RTPROT_STATIC = 4
RTN_UNICAST = 1
TCA_BPF_FLAG_ACT_DIRECT = 1
LOOPBACK = 1
"""ifindex of lo in every namespace."""

_TC_IFINDEX_OFFSET = 20
"""Offset of the ifindex in a tc message: behind its header, the family and padding."""

_NEW = NLM_F_CREATE | NLM_F_EXCL
_NEW_OR_REPLACED = NLM_F_CREATE | NLM_F_REPLACE

_NUMBER = struct.Struct("=i")
_NUMBERS = (b"AAAA", b"BBBB", b"CCCC", b"DDDD")
_ADDRESSES = (b"E" * 16, b"F" * 16)
_MACS = (b"GGGGGG", b"HHHHHH")
"""Placeholders of templates, by the kind of their values."""

Attributes = Iterable[tuple[str, Any]]
"""Attributes of a message as pyroute2 takes them: (name, value) pairs."""


class Template:
    """An encoded message with placeholders: byte strings that occur nowhere else in it."""

    __slots__ = ("_data", "_places")

    def __init__(self, data: bytes, *placeholders: bytes) -> None:
        """Find the placeholders in an encoded message.

        Raises:
            ValueError: a placeholder does not occur exactly once.
        """
        for placeholder in placeholders:
            count = data.count(placeholder)
            if count != 1:
                raise ValueError(
                    f"the placeholder {placeholder!r} occurs {count} times in {data!r}"
                )
        self._data = data
        self._places = tuple((data.index(text), len(text)) for text in placeholders)

    def filled(self, *values: bytes) -> bytes:
        """Return the message with values for its placeholders, in the order of the constructor.

        Raises:
            ValueError: the number of values, or the length of a value, does not match.
        """
        data = bytearray(self._data)
        for (start, length), value in zip(self._places, values, strict=True):
            if len(value) != length:
                raise ValueError(f"{value!r} does not fit into a placeholder of {length} bytes")
            data[start : start + length] = value
        return bytes(data)


@dataclass(frozen=True, slots=True)
class Interface:
    """One end of a veth pair to be made.

    Attributes:
        name: its name.
        ifindex: its index, which no other interface of the fabric has.
        mac: its MAC address.
        netns: descriptor of the namespace that it is made in.
    """

    name: str
    ifindex: int
    mac: str
    netns: int

    @classmethod
    def of_port(cls, port: Port, netns: int) -> "Interface":
        return cls(port.name, port.ifindex, port.mac, netns)


def encoded(message: Message, kind: int, request_flags: int, /, **fields: Any) -> bytes:
    """The bytes of a request; `request_flags` are those of the message, such as NLM_F_CREATE."""
    message.update(fields)
    message["header"].update(type=kind, flags=request_flags, sequence_number=0, pid=0)
    message.encode()
    return bytes(message.data)


def _number(packed: bytes) -> int:
    value: int = _NUMBER.unpack(packed)[0]
    return value


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


# --- links ------------------------------------------------------------------------------------


def new_veth(first: Interface, second: Interface, mtu: int) -> Request:
    """Make a veth pair, both ends down and without multicast, so that they send nothing unasked."""
    template = _veth_template(len(first.name), len(second.name), mtu)
    data = template.filled(*_veth_values(first), *_veth_values(second))
    return Request(data, f"make link {first.name} - {second.name}")


def _veth_values(interface: Interface) -> tuple[bytes, bytes, bytes, bytes]:
    """The values for the placeholders of one end."""
    return (
        _NUMBER.pack(interface.ifindex),
        interface.name.encode("ascii"),
        _mac(interface.mac),
        _NUMBER.pack(interface.netns),
    )


@cache
def _veth_template(first_length: int, second_length: int, mtu: int) -> Template:
    """A veth pair whose ends' names have these lengths."""
    macs = [mac.hex(":") for mac in _MACS]
    index, netns, peer_index, peer_netns = map(_number, _NUMBERS)
    first = Interface("x" * first_length, index, macs[0], netns)
    second = Interface("y" * second_length, peer_index, macs[1], peer_netns)

    def fields(interface: Interface, *more: tuple[str, Any]) -> dict[str, Any]:
        return {
            "index": interface.ifindex,
            "flags": 0,
            "change": IFF_MULTICAST,
            "attrs": [
                ("IFLA_IFNAME", interface.name),
                ("IFLA_ADDRESS", interface.mac),
                ("IFLA_MTU", mtu),
                ("IFLA_NET_NS_FD", interface.netns),
                ("IFLA_NUM_TX_QUEUES", 1),
                ("IFLA_NUM_RX_QUEUES", 1),
                *more,
            ],
        }

    peer = {"attrs": [("VETH_INFO_PEER", fields(second))]}
    info = {"attrs": [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", peer)]}
    link = fields(first, ("IFLA_LINKINFO", info))
    data = encoded(LinkMessage(), rtnl.RTM_NEWLINK, _NEW, **link)
    return Template(data, *_veth_values(first), *_veth_values(second))


def new_bridge(ifindex: int, name: str) -> Request:
    """Make a bridge in the namespace of the socket, down."""
    kind = ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "bridge")]})
    fields = {"index": ifindex, "flags": 0, "change": IFF_MULTICAST}
    attrs = [("IFLA_IFNAME", name), kind]
    data = encoded(LinkMessage(), rtnl.RTM_NEWLINK, _NEW, **fields, attrs=attrs)
    return Request(data, f"make bridge {name}")


def set_link(ifindex: int, name: str, *, up: bool) -> Request:
    """Set a link up or down, and multicast off."""
    data = _link_template(up=up).filled(_NUMBER.pack(ifindex))
    return Request(data, f"set {name} {'up' if up else 'down'}")


@cache
def _link_template(*, up: bool) -> Template:
    index = _NUMBERS[0]
    fields = {"flags": int(up), "change": IFF_UP | IFF_MULTICAST, "attrs": []}
    data = encoded(LinkMessage(), rtnl.RTM_NEWLINK, 0, index=_number(index), **fields)
    return Template(data, index)


def set_link_attribute(ifindex: int, name: str, attribute: str, value: int) -> Request:
    """Set an attribute of a link, such as IFLA_MTU."""
    fields = {"index": ifindex, "flags": 0, "change": 0, "attrs": [(attribute, value)]}
    data = encoded(LinkMessage(), rtnl.RTM_NEWLINK, 0, **fields)
    return Request(data, f"set {attribute} of {name} to {value}")


def one_packet_at_a_time(ifindex: int, name: str) -> Request:
    """Have the kernel's TCP make single packets for an interface, none to be split later."""
    return set_link_attribute(ifindex, name, "IFLA_GSO_MAX_SEGS", 1)


# --- addresses, neighbours, routes ------------------------------------------------------------


def new_address(address: IPv6Address, ifindex: int = LOOPBACK) -> Request:
    """Add an address as a /128, without duplicate address detection and without a route."""
    data = _address_template().filled(_NUMBER.pack(ifindex), address.packed, address.packed)
    return Request(data, f"add address {address}")


@cache
def _address_template() -> Template:
    index, (local, peer) = _NUMBERS[0], _ADDRESSES
    data = encoded(
        AddressMessage(),
        rtnl.RTM_NEWADDR,
        _NEW,
        family=AF_INET6,
        prefixlen=128,
        index=_number(index),
        attrs=[
            ("IFA_LOCAL", str(IPv6Address(local))),
            ("IFA_ADDRESS", str(IPv6Address(peer))),
            ("IFA_FLAGS", IFA_F_NODAD | IFA_F_PERMANENT | IFA_F_NOPREFIXROUTE),
        ],
    )
    return Template(data, index, local, peer)


def new_ipv4_address(address: IPv4Interface, ifindex: int) -> Request:
    """Add an IPv4 address, with the route to its network."""
    data = encoded(
        AddressMessage(),
        rtnl.RTM_NEWADDR,
        _NEW,
        family=AF_INET,
        prefixlen=address.network.prefixlen,
        index=ifindex,
        attrs=[("IFA_LOCAL", str(address.ip)), ("IFA_ADDRESS", str(address.ip))],
    )
    return Request(data, f"add address {address}")


def new_neighbour(address: IPv6Address, ifindex: int, mac: str) -> Request:
    """Add a permanent neighbour entry: a next hop's MAC address."""
    data = _neighbour_template().filled(_NUMBER.pack(ifindex), address.packed, _mac(mac))
    return Request(data, f"add neighbour {address} {mac} on interface {ifindex}")


@cache
def _neighbour_template() -> Template:
    index, address, mac = _NUMBERS[0], _ADDRESSES[0], _MACS[0]
    data = encoded(
        NeighbourMessage(),
        rtnl.RTM_NEWNEIGH,
        _NEW_OR_REPLACED,
        family=AF_INET6,
        ifindex=_number(index),
        state=NUD_PERMANENT,
        attrs=[("NDA_DST", str(IPv6Address(address))), ("NDA_LLADDR", mac.hex(":"))],
    )
    return Template(data, index, address, mac)


def new_route(destination: IPv6Network, oif: int, template: Template, description: str) -> Request:
    """Add the static route of a template, to a destination of the template's prefix length."""
    data = template.filled(_NUMBER.pack(oif), destination.network_address.packed)
    return Request(data, f"add route {description}")


def route_template(prefixlen: int, attributes: Attributes, *, replace: bool = False) -> Template:
    """Static routes of the main table that differ only in destination and interface.

    Args:
        prefixlen: length of the destination's prefix in bits.
        attributes: what the routes have in common.
        replace: whether a route replaces the one that the table has for its destination.
    """
    index, address = _NUMBERS[0], _ADDRESSES[0]
    data = encoded(
        RouteMessage(),
        rtnl.RTM_NEWROUTE,
        _NEW_OR_REPLACED if replace else _NEW,
        family=AF_INET6,
        dst_len=prefixlen,
        table=RT_TABLE_MAIN,
        proto=RTPROT_STATIC,
        type=RTN_UNICAST,
        attrs=[("RTA_DST", str(IPv6Address(address))), ("RTA_OIF", _number(index)), *attributes],
    )
    return Template(data, index, address)


# --- queueing disciplines ---------------------------------------------------------------------


def _tc_request(
    kind: int,
    flags: int,
    description: str,
    ifindex: int,
    discipline: str,
    attributes: Attributes = (),
    **fields: int,
) -> Request:
    attrs = [("TCA_KIND", discipline), *attributes]
    data = encoded(QdiscMessage(), kind, flags, index=ifindex, attrs=attrs, **fields)
    return Request(data, f"{description} interface {ifindex}")


def new_qdisc(
    ifindex: int,
    kind: str,
    *,
    handle: int,
    parent: int,
    attributes: Attributes = (),
    replace: bool = False,
) -> Request:
    """Attach a queueing discipline, or replace the one that is there."""
    flags, text = _NEW_OR_REPLACED if replace else _NEW, f"attach {kind} to"
    return _tc_request(
        rtnl.RTM_NEWQDISC, flags, text, ifindex, kind, attributes, handle=handle, parent=parent
    )


def delete_qdisc(ifindex: int, kind: str, *, handle: int, parent: int) -> Request:
    """Detach a queueing discipline from an interface."""
    text = f"detach {kind} from"
    return _tc_request(rtnl.RTM_DELQDISC, 0, text, ifindex, kind, handle=handle, parent=parent)


def set_class(
    ifindex: int, kind: str, *, handle: int, parent: int, attributes: Attributes, new: bool
) -> Request:
    """Add a class to a queueing discipline, or change the one that is there."""
    flags, text = (_NEW, f"add {kind} class to") if new else (0, f"change {kind} class of")
    return _tc_request(
        rtnl.RTM_NEWTCLASS, flags, text, ifindex, kind, attributes, handle=handle, parent=parent
    )


def new_bpf_filter(ifindex: int, parent: int, fd: int, name: str) -> Request:
    """Run a loaded BPF program, which decides about every packet, at a hook of clsact."""
    options = [
        ("TCA_BPF_FD", fd),
        ("TCA_BPF_NAME", name),
        ("TCA_BPF_FLAGS", TCA_BPF_FLAG_ACT_DIRECT),
    ]
    attributes = [("TCA_OPTIONS", {"attrs": options})]
    text, info = f"attach the program {name} to", 1 << 16 | htons(ETH_P_ALL)
    return _tc_request(
        rtnl.RTM_NEWTFILTER, _NEW, text, ifindex, "bpf", attributes, parent=parent, info=info
    )


def for_interface(request: Request, ifindex: int) -> Request:
    """The same tc request for another interface: patched, since encoding takes longer."""
    data = bytearray(request.data)
    _NUMBER.pack_into(data, _TC_IFINDEX_OFFSET, ifindex)
    return Request(bytes(data), f"{request.description.rpartition(' ')[0]} {ifindex}")


# --------------------------------------------------------------------------------------------------
# Requests for routes with several next hops, and for rules that read a packet's source port.


FR_ACT_TO_TABLE = 1
FR_ACT_BLACKHOLE = 6


def add_next_hop(
    destination: IPv6Address,
    oif: int,
    via: IPv6Address,
    *,
    table: int = RT_TABLE_MAIN,
    metric: int = 0,
) -> Request:
    """Add a next hop of a route to one address: those with equal metrics share its packets."""
    attrs = [
        ("RTA_DST", str(destination)),
        ("RTA_OIF", oif),
        ("RTA_GATEWAY", str(via)),
        *([("RTA_PRIORITY", metric)] if metric else []),
    ]
    data = encoded(
        RouteMessage(),
        rtnl.RTM_NEWROUTE,
        NLM_F_CREATE | NLM_F_APPEND,
        family=AF_INET6,
        dst_len=128,
        table=table,
        proto=RTPROT_STATIC,
        type=RTN_UNICAST,
        attrs=attrs,
    )
    return Request(data, f"add next hop {via} on interface {oif} to {destination}")


def source_port_rule(
    destination: IPv6Address, ports: range, priority: int, table: int | None
) -> Request:
    """A rule: UDP packets to an address with these source ports use a routing table.

    With `table` None they are dropped. `ports` does not have 0, which the kernel takes for any
    port.
    """
    data = encoded(
        RuleMessage(),
        rtnl.RTM_NEWRULE,
        NLM_F_CREATE | NLM_F_EXCL,
        family=AF_INET6,
        dst_len=128,
        table=table or 0,
        action=FR_ACT_BLACKHOLE if table is None else FR_ACT_TO_TABLE,
        attrs=[
            ("FRA_DST", str(destination)),
            ("FRA_PRIORITY", priority),
            ("FRA_IP_PROTO", IPPROTO_UDP),
            ("FRA_SPORT_RANGE", f"{ports[0]}:{ports[-1]}"),
        ],
    )
    return Request(data, f"add a rule for the source ports {ports[0]} to {ports[-1]}")


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
                ("MPTCP_PM_ADDR_ATTR_FAMILY", AF_INET6),
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
