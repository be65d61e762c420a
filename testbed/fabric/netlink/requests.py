"""Requests to the kernel, encoded by pyroute2: links, addresses, neighbours, routes, queues.

What a fabric needs by the hundred is encoded once as a form (`netlink/forms.py`) and filled in.
"""

import struct
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv6Address, IPv6Network
from socket import AF_INET6, htons
from typing import Any

from pyroute2.netlink import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE
from pyroute2.netlink.rtnl import (
    RTM_DELQDISC,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWNEIGH,
    RTM_NEWQDISC,
    RTM_NEWROUTE,
    RTM_NEWTCLASS,
    RTM_NEWTFILTER,
)

from testbed.fabric.netlink.forms import Form
from testbed.fabric.netlink.messages import (
    AddressMessage,
    LinkMessage,
    Message,
    NeighbourMessage,
    QdiscMessage,
    RouteMessage,
)
from testbed.fabric.netlink.socket import Request

IFF_UP = 0x1
IFF_MULTICAST = 0x1000
IFA_F_NODAD = 0x02
IFA_F_PERMANENT = 0x80
IFA_F_NOPREFIXROUTE = 0x200
NUD_PERMANENT = 0x80
RT_TABLE_MAIN = 254
RTPROT_STATIC = 4
RTN_UNICAST = 1
ETH_P_ALL = 3
TCA_BPF_FLAG_ACT_DIRECT = 1
LOOPBACK = 1
"""ifindex of lo in every namespace."""

_TC_IFINDEX_OFFSET = 20
"""Where a tc message holds the ifindex: behind its header, the family and padding."""

_NEW = NLM_F_CREATE | NLM_F_EXCL

_NUMBER = struct.Struct("=i")
_BLANK_NUMBERS = (b"AAAA", b"BBBB", b"CCCC", b"DDDD")
_BLANK_ADDRESSES = (b"E" * 16, b"F" * 16)
_BLANK_MACS = (b"GGGGGG", b"HHHHHH")


@dataclass(frozen=True, slots=True)
class Interface:
    """One end of a veth pair that is to be made.

    Attributes:
        name: its name.
        ifindex: its index, the same number in no other namespace of the fabric.
        mac: its MAC address.
        netns: descriptor of the namespace in which it is to live.
    """

    name: str
    ifindex: int
    mac: str
    netns: int


def _encoded(message: Message, kind: int, request_flags: int, /, **fields: Any) -> bytes:
    message.update(fields)
    message["header"].update(type=kind, flags=request_flags, sequence_number=0, pid=0)
    message.encode()
    return bytes(message.data)


def _request(
    message: Message, kind: int, request_flags: int, what: str, /, **fields: Any
) -> Request:
    return Request(_encoded(message, kind, request_flags, **fields), what)


def _number(packed: bytes) -> int:
    value: int = _NUMBER.unpack(packed)[0]
    return value


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def new_veth(one: Interface, other: Interface, mtu: int) -> Request:
    """Make a veth pair, both ends down, without multicast: nothing is sent on its own."""
    form = _veth_form(len(one.name), len(other.name), mtu)
    data = form.filled(*_veth_end(one), *_veth_end(other))
    return Request(data, f"make link {one.name} - {other.name}")


def _veth_end(interface: Interface) -> tuple[bytes, bytes, bytes, bytes]:
    """What fills the blanks of one end."""
    return (
        _NUMBER.pack(interface.ifindex),
        interface.name.encode("ascii"),
        _mac(interface.mac),
        _NUMBER.pack(interface.netns),
    )


@cache
def _veth_form(name_length: int, other_length: int, mtu: int) -> Form:
    """A veth pair whose ends' names have these lengths."""
    numbers, macs = _BLANK_NUMBERS, [mac.hex(":") for mac in _BLANK_MACS]
    one = Interface("x" * name_length, _number(numbers[0]), macs[0], _number(numbers[1]))
    other = Interface("y" * other_length, _number(numbers[2]), macs[1], _number(numbers[3]))

    def end(interface: Interface) -> dict[str, Any]:
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
            ],
        }

    fields = end(one)
    peer = {"attrs": [("VETH_INFO_PEER", end(other))]}
    info = [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", peer)]
    fields["attrs"].append(("IFLA_LINKINFO", {"attrs": info}))
    data = _encoded(LinkMessage(), RTM_NEWLINK, _NEW, **fields)
    return Form(data, *_veth_end(one), *_veth_end(other))


def set_link(ifindex: int, name: str, *, up: bool) -> Request:
    """Set a link up or down, and multicast off."""
    what = f"set {name} {'up' if up else 'down'}"
    return Request(_link_form(up=up).filled(_NUMBER.pack(ifindex)), what)


@cache
def _link_form(*, up: bool) -> Form:
    index = _BLANK_NUMBERS[0]
    fields = {"flags": int(up), "change": IFF_UP | IFF_MULTICAST, "attrs": []}
    data = _encoded(LinkMessage(), RTM_NEWLINK, 0, index=_number(index), **fields)
    return Form(data, index)


def set_mtu(ifindex: int, name: str, mtu: int) -> Request:
    """Set the largest packet of an interface, in bytes."""
    attributes = [("IFLA_MTU", mtu)]
    fields = {"index": ifindex, "flags": 0, "change": 0, "attrs": attributes}
    return _request(LinkMessage(), RTM_NEWLINK, 0, f"set mtu of {name} to {mtu}", **fields)


def set_queue_length(ifindex: int, name: str, packets: int) -> Request:
    """Set how many packets wait at most in an interface."""
    attributes = [("IFLA_TXQLEN", packets)]
    fields = {"index": ifindex, "flags": 0, "change": 0, "attrs": attributes}
    return _request(LinkMessage(), RTM_NEWLINK, 0, f"set queue length of {name}", **fields)


def one_packet_at_a_time(ifindex: int, name: str) -> Request:
    """Have the kernel's TCP make single packets for an interface, none to be split later."""
    return _request(
        LinkMessage(),
        RTM_NEWLINK,
        0,
        f"set gso_max_segs of {name}",
        index=ifindex,
        flags=0,
        change=0,
        attrs=[("IFLA_GSO_MAX_SEGS", 1)],
    )


def new_address(address: IPv6Address, ifindex: int = LOOPBACK) -> Request:
    """Hold an address as a /128, without duplicate address detection or a route."""
    data = _address_form().filled(_NUMBER.pack(ifindex), address.packed, address.packed)
    return Request(data, f"add address {address}")


@cache
def _address_form() -> Form:
    index, (local, same) = _BLANK_NUMBERS[0], _BLANK_ADDRESSES
    data = _encoded(
        AddressMessage(),
        RTM_NEWADDR,
        _NEW,
        family=AF_INET6,
        prefixlen=128,
        index=_number(index),
        attrs=[
            ("IFA_LOCAL", str(IPv6Address(local))),
            ("IFA_ADDRESS", str(IPv6Address(same))),
            ("IFA_FLAGS", IFA_F_NODAD | IFA_F_PERMANENT | IFA_F_NOPREFIXROUTE),
        ],
    )
    return Form(data, index, local, same)


def new_neighbour(address: IPv6Address, ifindex: int, mac: str) -> Request:
    """Say for good which MAC address a next hop has."""
    what = f"add neighbour {address} {mac} on interface {ifindex}"
    data = _neighbour_form().filled(_NUMBER.pack(ifindex), address.packed, _mac(mac))
    return Request(data, what)


@cache
def _neighbour_form() -> Form:
    index, address, mac = _BLANK_NUMBERS[0], _BLANK_ADDRESSES[0], _BLANK_MACS[0]
    data = _encoded(
        NeighbourMessage(),
        RTM_NEWNEIGH,
        NLM_F_CREATE | NLM_F_REPLACE,
        family=AF_INET6,
        ifindex=_number(index),
        state=NUD_PERMANENT,
        attrs=[("NDA_DST", str(IPv6Address(address))), ("NDA_LLADDR", mac.hex(":"))],
    )
    return Form(data, index, address, mac)


def new_route(
    destination: IPv6Network,
    oif: int,
    attributes: list[tuple[str, Any]],
    what: str,
    *,
    replace: bool = False,
) -> Request:
    """Add a static route to the main table, or put it in the place of the one there is."""
    form = route_form(destination.prefixlen, attributes, replace=replace)
    return route_of(form, destination, oif, what)


def route_of(form: Form, destination: IPv6Network, oif: int, what: str) -> Request:
    """The same with all but destination and interface taken from a form for its prefix length."""
    data = form.filled(_NUMBER.pack(oif), destination.network_address.packed)
    return Request(data, f"add route {what}")


def route_form(prefixlen: int, attributes: list[tuple[str, Any]], *, replace: bool = False) -> Form:
    """Routes that differ in destination and interface only; `prefixlen` is in bits."""
    index, address = _BLANK_NUMBERS[0], _BLANK_ADDRESSES[0]
    data = _encoded(
        RouteMessage(),
        RTM_NEWROUTE,
        NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL),
        family=AF_INET6,
        dst_len=prefixlen,
        table=RT_TABLE_MAIN,
        proto=RTPROT_STATIC,
        type=RTN_UNICAST,
        attrs=[
            ("RTA_DST", str(IPv6Address(address))),
            ("RTA_OIF", _number(index)),
            *attributes,
        ],
    )
    return Form(data, index, address)


def new_qdisc(
    ifindex: int,
    kind: str,
    *,
    handle: int,
    parent: int,
    attributes: list[tuple[str, Any]],
    replace: bool = False,
) -> Request:
    """Attach a queueing discipline, or put it in the place of another."""
    return _request(
        QdiscMessage(),
        RTM_NEWQDISC,
        NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL),
        f"attach {kind} to interface {ifindex}",
        index=ifindex,
        handle=handle,
        parent=parent,
        attrs=[("TCA_KIND", kind), *attributes],
    )


def delete_qdisc(ifindex: int, kind: str, *, handle: int, parent: int) -> Request:
    """Take a queueing discipline off an interface."""
    return _request(
        QdiscMessage(),
        RTM_DELQDISC,
        0,
        f"take {kind} off interface {ifindex}",
        index=ifindex,
        handle=handle,
        parent=parent,
        attrs=[("TCA_KIND", kind)],
    )


def new_class(
    ifindex: int, kind: str, *, handle: int, parent: int, attributes: list[tuple[str, Any]]
) -> Request:
    """Add a class to a queueing discipline."""
    return _request(
        QdiscMessage(),
        RTM_NEWTCLASS,
        _NEW,
        f"add {kind} class to interface {ifindex}",
        index=ifindex,
        handle=handle,
        parent=parent,
        attrs=[("TCA_KIND", kind), *attributes],
    )


def change_class(
    ifindex: int, kind: str, *, handle: int, parent: int, attributes: list[tuple[str, Any]]
) -> Request:
    """Change a class of a queueing discipline."""
    return _request(
        QdiscMessage(),
        RTM_NEWTCLASS,
        0,
        f"change {kind} class of interface {ifindex}",
        index=ifindex,
        handle=handle,
        parent=parent,
        attrs=[("TCA_KIND", kind), *attributes],
    )


def new_bpf_filter(ifindex: int, parent: int, fd: int, name: str) -> Request:
    """Run a loaded BPF program on every packet of a hook of clsact; it says what becomes of it."""
    options = [
        ("TCA_BPF_FD", fd),
        ("TCA_BPF_NAME", name),
        ("TCA_BPF_FLAGS", TCA_BPF_FLAG_ACT_DIRECT),
    ]
    return _request(
        QdiscMessage(),
        RTM_NEWTFILTER,
        _NEW,
        f"attach the program {name} to interface {ifindex}",
        index=ifindex,
        parent=parent,
        info=1 << 16 | htons(ETH_P_ALL),
        attrs=[("TCA_KIND", "bpf"), ("TCA_OPTIONS", {"attrs": options})],
    )


def for_interface(request: Request, ifindex: int) -> Request:
    """The same tc request for another interface: encoding one costs more than patching it."""
    data = bytearray(request.data)
    struct.pack_into("=i", data, _TC_IFINDEX_OFFSET, ifindex)
    return Request(bytes(data), f"{request.what.rpartition(' ')[0]} {ifindex}")
