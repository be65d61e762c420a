"""How the kernel shapes a link direction: HTB for its rate, two queues behind, strictly by class.

    clsact       the link model's programs: egress decides on what is sent, ingress is the wire
    root HTB 1:  (size table: charge the bytes that are left after trimming)
      └─ class 1:1, the link's rate, burst of 1 ms
           ├─ class 1:10, up to that rate, served first ── 10: bfifo
           └─ class 1:20, what is left of it            ── 20: bfifo, or 30: blackhole

With the link model its fluid queue decides what is dropped, and the queues here are too deep to
drop anything. Without it everything goes through 1:20, whose queue drops its tail.

HTB paces but does not delay; propagation delay is the receiver's business. The burst is smaller
than a full packet at slow rates, which HTB allows (its debt carries over) and TBF would not.
"""

import struct
from collections.abc import Iterator

from pyroute2.netlink.rtnl import TC_H_ROOT

from testbed.fabric.netlink.requests import (
    change_class,
    delete_qdisc,
    new_bpf_filter,
    new_class,
    new_qdisc,
)
from testbed.fabric.netlink.socket import Request
from testbed.model.fabric.shape import Shape
from testbed.model.fabric.topology import ETHERNET_HEADER, LINK_MTU

HTB_HANDLE = 0x1_0000
LINK_CLASS = 0x1_0001
PRIORITY_CLASS = 0x1_0010
ORDINARY_CLASS = 0x1_0020
"""The last two are written into packets by bpf/linkmodel.bpf.c."""

PRIORITY_QUEUE_HANDLE = 0x10_0000
QUEUE_HANDLE = 0x20_0000
BLACKHOLE_HANDLE = 0x30_0000
CLSACT_HANDLE = 0xFFFF_0000
CLSACT_PARENT = 0xFFFF_FFF1
CLSACT_INGRESS = 0xFFFF_FFF2
CLSACT_EGRESS = 0xFFFF_FFF3
HTB_VERSION = 3
LINKLAYER_ETHERNET = 1
TICK_NS = 64
"""Unit of HTB's buffers: PSCHED_TICKS2NS in linux/net/pkt_sched.h."""

BURST_NS = 1_000_000
LEAST_RATE = 1000
"""Bytes/s that the ordinary class has of its own, as HTB wants it to have some."""

DEEPER = 4
"""How many times deeper than the fluid queue the kernel's is, where the fluid one decides."""


def attach(ifindex: int, shape: Shape, *, deep: bool = False) -> Iterator[Request]:
    """Yield the requests that shape what an interface sends.

    `deep` says that the link model decides what is dropped.
    """
    size_table = {"attrs": [("TCA_STAB_BASE", {"linklayer": LINKLAYER_ETHERNET})]}
    init = {"version": HTB_VERSION, "rate2quantum": 10, "defcls": ORDINARY_CLASS & 0xFFFF}
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
    for handle, parent, options in _classes(shape.rate_bps):
        yield new_class(
            ifindex,
            "htb",
            handle=handle,
            parent=parent,
            attributes=[("TCA_OPTIONS", {"attrs": options})],
        )
    yield queue(ifindex, shape, deep=deep)
    yield _fifo(ifindex, shape, PRIORITY_QUEUE_HANDLE, PRIORITY_CLASS, deep=deep, replace=False)


def detach(ifindex: int) -> Request:
    """The request that leaves what an interface sends unshaped: no rate, no queue."""
    return delete_qdisc(ifindex, "htb", handle=HTB_HANDLE, parent=TC_H_ROOT)


def attach_model(ifindex: int, port: int, wire: int) -> Iterator[Request]:
    """Yield the requests that run the link model's two programs on an interface."""
    yield new_qdisc(ifindex, "clsact", handle=CLSACT_HANDLE, parent=CLSACT_PARENT, attributes=[])
    yield new_bpf_filter(ifindex, CLSACT_EGRESS, port, "port")
    yield new_bpf_filter(ifindex, CLSACT_INGRESS, wire, "wire")


def detach_model(ifindex: int) -> Request:
    """The request that takes the link model's programs off an interface again."""
    return delete_qdisc(ifindex, "clsact", handle=CLSACT_HANDLE, parent=CLSACT_PARENT)


def change_rate(ifindex: int, rate_bps: int) -> Iterator[Request]:
    """Yield the requests that give an interface another rate."""
    for handle, parent, options in _classes(rate_bps):
        yield change_class(
            ifindex,
            "htb",
            handle=handle,
            parent=parent,
            attributes=[("TCA_OPTIONS", {"attrs": options})],
        )


_Options = list[tuple[str, object]]


def _classes(rate_bps: int) -> Iterator[tuple[int, int, _Options]]:
    """Yield (handle, parent, options) of the classes, parents first."""
    rate = max(rate_bps // 8, 1)
    yield LINK_CLASS, HTB_HANDLE, _class_options(rate, rate, 0)
    yield PRIORITY_CLASS, LINK_CLASS, _class_options(rate, rate, 0)
    yield ORDINARY_CLASS, LINK_CLASS, _class_options(min(LEAST_RATE, rate), rate, 1)


def _class_options(rate: int, ceil: int, priority: int) -> _Options:
    most = (1 << 32) - 1
    options: _Options = [
        (
            "TCA_HTB_PARMS",
            {
                "rate_cell_log": 0,
                "rate___reserved": LINKLAYER_ETHERNET,
                "ceil___reserved": LINKLAYER_ETHERNET,
                "rate": min(rate, most),
                "ceil": min(ceil, most),
                "buffer": BURST_NS // TICK_NS,
                "cbuffer": BURST_NS // TICK_NS,
                "quantum": LINK_MTU + ETHERNET_HEADER,
                "prio": priority,
            },
        )
    ]
    if ceil > most:
        options += [("TCA_HTB_RATE64", rate), ("TCA_HTB_CEIL64", ceil)]
    return options


def queue(ifindex: int, shape: Shape, *, deep: bool = False, replace: bool = False) -> Request:
    """The queue before the wire: first in, first out, so many bytes."""
    return _fifo(ifindex, shape, QUEUE_HANDLE, ORDINARY_CLASS, deep=deep, replace=replace)


def _fifo(
    ifindex: int, shape: Shape, handle: int, parent: int, *, deep: bool, replace: bool
) -> Request:
    limit = min(shape.limit_bytes * (DEEPER if deep else 1), (1 << 32) - 1)
    return new_qdisc(
        ifindex,
        "bfifo",
        handle=handle,
        parent=parent,
        attributes=[("TCA_OPTIONS", struct.pack("=I", limit))],
        replace=replace,
    )


def blackhole(ifindex: int) -> Request:
    """Swallow all that an interface sends, instead of the queue; for where no link model is.

    What waits in the queue is lost too, at once. Both are counted as drops of the root HTB.
    """
    return new_qdisc(
        ifindex,
        "blackhole",
        handle=BLACKHOLE_HANDLE,
        parent=ORDINARY_CLASS,
        attributes=[],
        replace=True,
    )
