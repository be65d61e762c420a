"""Requests to the kernel, encoded by pyroute2: links, addresses, neighbours, routes, queues."""

import struct
from dataclasses import dataclass
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

from testbed.fabric.messages import (
    AddressMessage,
    LinkMessage,
    Message,
    NeighbourMessage,
    QdiscMessage,
    RouteMessage,
)
from testbed.fabric.netlink import Request

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


def _request(
    message: Message, kind: int, request_flags: int, what: str, /, **fields: Any
) -> Request:
    message.update(fields)
    message["header"].update(type=kind, flags=request_flags, sequence_number=0, pid=0)
    message.encode()
    return Request(bytes(message.data), what)


def new_veth(one: Interface, other: Interface, mtu: int) -> Request:
    """Make a veth pair, both ends down, without multicast: nothing is sent on its own."""

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
    what = f"make link {one.name} - {other.name}"
    return _request(LinkMessage(), RTM_NEWLINK, _NEW, what, **fields)


def set_link(ifindex: int, name: str, *, up: bool) -> Request:
    """Set a link up or down, and multicast off."""
    what = f"set {name} {'up' if up else 'down'}"
    fields = {"index": ifindex, "flags": int(up), "change": IFF_UP | IFF_MULTICAST, "attrs": []}
    return _request(LinkMessage(), RTM_NEWLINK, 0, what, **fields)


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
    return _request(
        AddressMessage(),
        RTM_NEWADDR,
        _NEW,
        f"add address {address}",
        family=AF_INET6,
        prefixlen=128,
        index=ifindex,
        attrs=[
            ("IFA_LOCAL", str(address)),
            ("IFA_ADDRESS", str(address)),
            ("IFA_FLAGS", IFA_F_NODAD | IFA_F_PERMANENT | IFA_F_NOPREFIXROUTE),
        ],
    )


def new_neighbour(address: IPv6Address, ifindex: int, mac: str) -> Request:
    """Say for good which MAC address a next hop has."""
    return _request(
        NeighbourMessage(),
        RTM_NEWNEIGH,
        NLM_F_CREATE | NLM_F_REPLACE,
        f"add neighbour {address} {mac} on interface {ifindex}",
        family=AF_INET6,
        ifindex=ifindex,
        state=NUD_PERMANENT,
        attrs=[("NDA_DST", str(address)), ("NDA_LLADDR", mac)],
    )


def new_route(
    destination: IPv6Network,
    oif: int,
    attributes: list[tuple[str, Any]],
    what: str,
    *,
    replace: bool = False,
) -> Request:
    """Add a static route to the main table, or put it in the place of the one there is."""
    return _request(
        RouteMessage(),
        RTM_NEWROUTE,
        NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL),
        f"add route {what}",
        family=AF_INET6,
        dst_len=destination.prefixlen,
        table=RT_TABLE_MAIN,
        proto=RTPROT_STATIC,
        type=RTN_UNICAST,
        attrs=[("RTA_DST", str(destination.network_address)), ("RTA_OIF", oif), *attributes],
    )


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
