"""Cumulative counters of link directions and of SIDs, cheap enough to sample every 250 ms."""

import struct
from collections.abc import Mapping

from pyroute2.netlink.rtnl import RTM_GETQDISC

from testbed.emulation.fabric import routes
from testbed.emulation.fabric.interfaces import (
    DROPPED_IN_SENDING,
    SENT_BYTES,
    SENT_PACKETS,
    read_counters,
)
from testbed.emulation.fabric.layout import Layout
from testbed.emulation.fabric.link_model import shaping
from testbed.emulation.fabric.link_model.link_model import LinkModel
from testbed.emulation.fabric.netlink.messages import QdiscMessage
from testbed.emulation.fabric.netlink.socket import Netlink, NodeNamespaces, attributes
from testbed.model.fabric.nodes import Node
from testbed.model.run_files.health import LinkSample

TCA_STATS2 = 7
TCA_STATS_QUEUE = 3

_SENT = SENT_PACKETS, SENT_BYTES, DROPPED_IN_SENDING
_QDISC_MESSAGE = struct.Struct("=16x4xiII4x")  # header, family and padding, ifindex, handle, parent
_QUEUE_STATS = struct.Struct("=4xII")  # qlen, backlog, drops


class LinkCounters:
    """Reads the counters of the fabric of this sandbox, from any process in it."""

    def __init__(self, layout: Layout, namespaces: NodeNamespaces) -> None:
        """Open the link model, if there is one."""
        self._topology = layout.topology
        self._namespaces = namespaces
        self._model = LinkModel.open(layout.topology)

    def directions(self) -> Mapping[str, LinkSample]:
        """Read every link direction, by its name, such as `p0_t0_0>p0_t1_2`."""
        if self._model is not None:
            counts = self._model.all_counts()
            backlog = self._model.backlog_bytes().tolist()
            return {
                name: LinkSample(n.packets, n.bytes, n.dropped, n.marked, n.trimmed, queued)
                for (name, n), queued in zip(counts.items(), backlog, strict=True)
            }
        directions: dict[str, LinkSample] = {}
        for node, ports in self._topology.adjacency.items():
            namespace = self._namespaces[node.name]
            queues = read_queues(namespace.netlink)
            with namespace.entered():
                sent = read_counters()
            for near, far, _ in ports:
                packets, size, lost = (sent[near.name][column] for column in _SENT)
                queued, dropped = queues.get(near.ifindex, (0, 0))
                directions[f"{near.node.name}>{far.node.name}"] = LinkSample(
                    packets, size, lost + dropped, 0, 0, queued
                )
        return directions

    def sids(self) -> Mapping[Node, int]:
        """The packets that every switch's uN route has processed so far."""
        return {
            switch: read_sid(self._namespaces[switch.name].netlink)
            for switch in self._topology.switches
        }


def read_sid(netlink: Netlink) -> int:
    """The packets that a switch's own SID has processed so far; 0 if it has none."""
    for message in routes.dump_routes(netlink):
        encap = message.get_attr("RTA_ENCAP")
        counters = encap.get_attr("SEG6_LOCAL_COUNTERS") if encap is not None else None
        if counters is not None:
            return int(counters.get_attr("SEG6_LOCAL_CNT_PACKETS"))
    return 0


def read_queues(netlink: Netlink) -> dict[int, tuple[int, int]]:
    """Bytes queued in each interface's HTB and packets dropped by it, by ifindex."""
    queues = {}
    for reply in netlink.dump_raw(QdiscMessage, RTM_GETQDISC):
        data, start, end = reply.buffer, reply.start, reply.end
        ifindex, handle, _parent = _QDISC_MESSAGE.unpack_from(data, start)
        if handle != shaping.HTB_HANDLE:
            continue
        for kind, first, last in attributes(data, start + _QDISC_MESSAGE.size, end):
            if kind == TCA_STATS2:
                for inner, offset, _ in attributes(data, first, last):
                    if inner == TCA_STATS_QUEUE:
                        queues[ifindex] = _QUEUE_STATS.unpack_from(data, offset)
    return queues
