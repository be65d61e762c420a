"""How the kernel shapes a link direction: HTB for its rate, two queues behind, strictly by class.

    clsact       the link model's programs: egress is the sending port, ingress the wire
    root HTB 1:  (size table: charge the bytes that are left after trimming)
      └─ class 1:1, the link's rate, burst of 1 ms
           ├─ class 1:10, up to that rate, served first ── 10: bfifo
           └─ class 1:20, what is left of it            ── 20: bfifo, or 30: blackhole

With the link model, its fluid queue decides which packets are dropped, and the queues here are too
deep to drop any. Without it everything goes through 1:20, whose queue drops its tail.

HTB paces but does not delay; the receiver adds the propagation delay. The burst is smaller than a
full packet at slow rates, which HTB allows (its debt carries over) and TBF would not.
"""

import struct
from collections.abc import Iterator

from pyroute2.netlink.rtnl import TC_H_ROOT

from testbed.emulation.fabric.netlink import Request
from testbed.emulation.fabric.requests import (
    delete_qdisc,
    new_bpf_filter,
    new_qdisc,
    set_class,
)
from testbed.model.fabric.topology import ETHERNET_HEADER, LINK_MTU, Shape

HTB_HANDLE = 0x1_0000
LINK_CLASS = 0x1_0001
PRIORITY_CLASS = 0x1_0010
ORDINARY_CLASS = 0x1_0020
"""bpf/linkmodel.bpf.c writes the last two into packets."""

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
"""Guaranteed rate of the ordinary class in bytes/s: HTB needs one that is not 0."""

DEEPER = 4
"""How many times deeper the kernel's queue is than the fluid queue, where that one decides."""

_MAX_U32 = (1 << 32) - 1


def attach(ifindex: int, shape: Shape, *, deep: bool = False) -> Iterator[Request]:
    """Yield the requests that shape what an interface sends.

    `deep` means that the link model decides which packets are dropped.
    """
    size_table = {"attrs": [("TCA_STAB_BASE", {"linklayer": LINKLAYER_ETHERNET})]}
    init = {"version": HTB_VERSION, "rate2quantum": 10, "defcls": ORDINARY_CLASS & 0xFFFF}
    yield new_qdisc(
        ifindex,
        "htb",
        handle=HTB_HANDLE,
        parent=TC_H_ROOT,
        attributes=[("TCA_OPTIONS", {"attrs": [("TCA_HTB_INIT", init)]}), ("TCA_STAB", size_table)],
    )
    yield from set_rate(ifindex, shape.rate_bps, new=True)
    yield queue(ifindex, shape, deep=deep)
    yield _fifo(ifindex, shape, PRIORITY_QUEUE_HANDLE, PRIORITY_CLASS, deep=deep, replace=False)


def detach(ifindex: int) -> Request:
    """The request that removes the shaping of an interface: no rate, no queue."""
    return delete_qdisc(ifindex, "htb", handle=HTB_HANDLE, parent=TC_H_ROOT)


def attach_model(ifindex: int, port: int, wire: int) -> Iterator[Request]:
    """Yield the requests that run the link model's two programs on an interface."""
    yield new_qdisc(ifindex, "clsact", handle=CLSACT_HANDLE, parent=CLSACT_PARENT)
    yield new_bpf_filter(ifindex, CLSACT_EGRESS, port, "port")
    yield new_bpf_filter(ifindex, CLSACT_INGRESS, wire, "wire")


def detach_model(ifindex: int) -> Request:
    """The request that removes the link model's programs from an interface."""
    return delete_qdisc(ifindex, "clsact", handle=CLSACT_HANDLE, parent=CLSACT_PARENT)


def set_rate(ifindex: int, rate_bps: int, *, new: bool = False) -> Iterator[Request]:
    """Yield the requests that give an interface's HTB a rate, in new classes or the existing."""
    rate = max(rate_bps // 8, 1)
    for handle, parent, least, priority in (
        (LINK_CLASS, HTB_HANDLE, rate, 0),
        (PRIORITY_CLASS, LINK_CLASS, rate, 0),
        (ORDINARY_CLASS, LINK_CLASS, min(LEAST_RATE, rate), 1),
    ):
        attributes = [("TCA_OPTIONS", {"attrs": _class_options(least, rate, priority)})]
        yield set_class(
            ifindex, "htb", handle=handle, parent=parent, attributes=attributes, new=new
        )


def _class_options(rate: int, ceil: int, priority: int) -> list[tuple[str, object]]:
    parameters = {
        "rate_cell_log": 0,
        "rate___reserved": LINKLAYER_ETHERNET,
        "ceil___reserved": LINKLAYER_ETHERNET,
        "rate": min(rate, _MAX_U32),
        "ceil": min(ceil, _MAX_U32),
        "buffer": BURST_NS // TICK_NS,
        "cbuffer": BURST_NS // TICK_NS,
        "quantum": LINK_MTU + ETHERNET_HEADER,
        "prio": priority,
    }
    options: list[tuple[str, object]] = [("TCA_HTB_PARMS", parameters)]
    if ceil > _MAX_U32:
        options += [("TCA_HTB_RATE64", rate), ("TCA_HTB_CEIL64", ceil)]
    return options


def queue(ifindex: int, shape: Shape, *, deep: bool = False, replace: bool = False) -> Request:
    """The request for the ordinary class's queue: first in, first out, limited in bytes."""
    return _fifo(ifindex, shape, QUEUE_HANDLE, ORDINARY_CLASS, deep=deep, replace=replace)


def _fifo(
    ifindex: int, shape: Shape, handle: int, parent: int, *, deep: bool, replace: bool
) -> Request:
    limit = struct.pack("=I", min(shape.limit_bytes * (DEEPER if deep else 1), _MAX_U32))
    options = [("TCA_OPTIONS", limit)]
    return new_qdisc(
        ifindex, "bfifo", handle=handle, parent=parent, attributes=options, replace=replace
    )


def blackhole(ifindex: int) -> Request:
    """Swallow all that an interface sends, instead of queueing it; for links without link model.

    What waits in the queue is lost too, at once. Both are counted as drops of the root HTB.
    """
    return new_qdisc(
        ifindex, "blackhole", handle=BLACKHOLE_HANDLE, parent=ORDINARY_CLASS, replace=True
    )
