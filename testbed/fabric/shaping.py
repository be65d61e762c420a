"""The shape of a link direction: its rate by HTB, its queue behind it.

    root HTB 1:  (size table: charge the bytes on the wire)
      └─ class 1:20, the link's rate, burst of 1 ms
           └─ 20: bfifo, or 30: blackhole while the direction swallows everything

HTB paces but does not delay; propagation delay is the receiver's business. The burst is smaller
than a full packet at slow rates, which HTB allows (its debt carries over) and TBF would not.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pyroute2.netlink.rtnl import TC_H_ROOT

from testbed.fabric.netlink import Request
from testbed.fabric.requests import new_class, new_qdisc
from testbed.model.topology import ETHERNET_HEADER, LINK_MTU, Link, Port, Tier, Topology

HTB_HANDLE = 0x1_0000
HTB_CLASS = 0x1_0020
QUEUE_HANDLE = 0x20_0000
BLACKHOLE_HANDLE = 0x30_0000
HTB_VERSION = 3
LINKLAYER_ETHERNET = 1
TICK_NS = 64
"""Unit of HTB's buffers: PSCHED_TICKS2NS in linux/net/pkt_sched.h."""

BURST_NS = 1_000_000
SWITCH_QUEUE_BDP = 4
NIC_QUEUE_BDP = 256
"""A NIC does not drop what its own host sends: as deep as never matters."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How one direction of a link behaves.

    Attributes:
        rate_bps: bits/s on the wire, Ethernet header included.
        queue_bytes: most bytes that wait for the wire; what comes then is dropped.
    """

    rate_bps: int
    queue_bytes: int


def shape_of(topology: Topology, link: Link, sender: Port) -> Shape:
    """The shape of the direction that leaves a port."""
    depth = NIC_QUEUE_BDP if sender.node.tier is Tier.HOST else SWITCH_QUEUE_BDP
    return Shape(topology.rate_bps(link), max(depth * topology.bdp_bytes, LINK_MTU))


def attach(ifindex: int, shape: Shape) -> Iterator[Request]:
    """Yield the requests that shape what an interface sends."""
    size_table = {"attrs": [("TCA_STAB_BASE", {"linklayer": LINKLAYER_ETHERNET})]}
    init = {"version": HTB_VERSION, "rate2quantum": 10, "defcls": HTB_CLASS & 0xFFFF}
    yield new_qdisc(
        ifindex,
        "htb",
        handle=HTB_HANDLE,
        parent=TC_H_ROOT,
        attributes=[
            ("TCA_OPTIONS", {"attrs": [("TCA_HTB_INIT", init)]}),
            ("TCA_STAB", size_table),
        ],
    )
    yield new_class(
        ifindex,
        "htb",
        handle=HTB_CLASS,
        parent=HTB_HANDLE,
        attributes=[("TCA_OPTIONS", {"attrs": _class_options(shape)})],
    )
    yield queue(ifindex, shape)


def _class_options(shape: Shape) -> list[tuple[str, object]]:
    bytes_per_s = shape.rate_bps // 8
    most = (1 << 32) - 1
    options: list[tuple[str, object]] = [
        (
            "TCA_HTB_PARMS",
            {
                "rate_cell_log": 0,
                "rate___reserved": LINKLAYER_ETHERNET,
                "ceil___reserved": LINKLAYER_ETHERNET,
                "rate": min(bytes_per_s, most),
                "ceil": min(bytes_per_s, most),
                "buffer": BURST_NS // TICK_NS,
                "cbuffer": BURST_NS // TICK_NS,
                "quantum": LINK_MTU + ETHERNET_HEADER,
            },
        )
    ]
    if bytes_per_s > most:
        options += [("TCA_HTB_RATE64", bytes_per_s), ("TCA_HTB_CEIL64", bytes_per_s)]
    return options


def queue(ifindex: int, shape: Shape, *, replace: bool = False) -> Request:
    """The queue before the wire: first in, first out, so many bytes."""
    limit = struct.pack("=I", shape.queue_bytes)
    return new_qdisc(
        ifindex,
        "bfifo",
        handle=QUEUE_HANDLE,
        parent=HTB_CLASS,
        attributes=[("TCA_OPTIONS", limit)],
        replace=replace,
    )


def blackhole(ifindex: int) -> Request:
    """Swallow all that an interface sends, instead of the queue.

    What waits in the queue is lost too, at once. Both are counted as drops of the root HTB.
    """
    return new_qdisc(
        ifindex,
        "blackhole",
        handle=BLACKHOLE_HANDLE,
        parent=HTB_CLASS,
        attributes=[],
        replace=True,
    )
