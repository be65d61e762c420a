"""Requests for routes with several next hops, and for rules that read a packet's source port."""

from ipaddress import IPv6Address
from socket import AF_INET6, IPPROTO_UDP

from pyroute2.netlink import NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, rtnl

from testbed.emulation.fabric.netlink import messages
from testbed.emulation.fabric.netlink.requests import (
    RT_TABLE_MAIN,
    RTN_UNICAST,
    RTPROT_STATIC,
    encoded,
)
from testbed.emulation.fabric.netlink.socket import Request

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
        messages.RouteMessage(),
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
        messages.RuleMessage(),
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
