"""The shape of one direction of a link: its rate, its queue and its delays.

Emulation and simulator take it from here, so that both have the same fabric.
"""

from dataclasses import dataclass, replace

from testbed.model.fabric.nodes import Link, Port, Tier
from testbed.model.fabric.topology import LINK_MTU, Topology

NO_LIMIT = 1 << 62
"""A threshold in bytes that no queue reaches."""

NIC_QUEUE_BDP = 256
"""The limit of a NIC's queue in BDPs: so deep that a NIC never drops what its host sends."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of one direction of a link.

    Only the simulator uses delays, pause thresholds and `at_once`: in the emulation the receiving
    endpoint holds each packet back by the delay of its path, and nothing pauses.

    Attributes:
        rate_bps: rate on the wire in bits/s, Ethernet headers included.
        limit_bytes: most bytes that wait in the queue; further packets are dropped.
        trim_bytes: backlog from which packets of a trimmable class are trimmed.
        ecn_min_bytes: backlog from which packets are marked.
        ecn_max_bytes: backlog from which all packets are marked; the probability rises in between.
        last_hop: whether it leads from a T0 to a host.
        before_ns: delay between the port and the wire (of a sending NIC).
        behind_ns: delay between the wire and the next queue or host.
        xoff_bytes: bytes that came over this link and wait at the next switch when it pauses.
        xon_bytes: bytes that still wait there when it may send again.
        at_once: whether a packet leaves the port when its service begins, not when it ends.
    """

    rate_bps: int
    limit_bytes: int = NO_LIMIT
    trim_bytes: int = NO_LIMIT
    ecn_min_bytes: int = NO_LIMIT
    ecn_max_bytes: int = NO_LIMIT
    last_hop: bool = False
    before_ns: int = 0
    behind_ns: int = 0
    xoff_bytes: int = NO_LIMIT
    xon_bytes: int = NO_LIMIT
    at_once: bool = False

    @property
    def pauses(self) -> bool:
        """Whether the sender can be paused."""
        return self.xoff_bytes < NO_LIMIT


def shape_of(topology: Topology, link: Link, sender: Port) -> Shape:
    """The shape of the direction that a port sends into.

    Half of the NICs' delay is at each end of a path, the delay of a switch is before its queue: the
    sum over a path is `topology.one_way_ns`.
    """
    both_nics_ns = topology.one_way_ns(0)
    switch_ns = topology.one_way_ns(1) - both_nics_ns
    rate_bps, bdp = topology.rate_bps(link), topology.link_bdp_bytes(link)
    pause = topology.pause
    xoff, xon = (
        (pause.xoff.in_bytes(bdp), pause.xon.in_bytes(bdp)) if pause else (NO_LIMIT, NO_LIMIT)
    )
    queue = topology.queue_of(link, sender)
    if queue is None:  # a NIC; while paused it holds all that its host has outstanding
        limit, before_ns = max(NIC_QUEUE_BDP * bdp, LINK_MTU), both_nics_ns // 2
        nic = Shape(rate_bps, limit, before_ns=before_ns, behind_ns=switch_ns)
        return replace(nic, limit_bytes=NO_LIMIT, xoff_bytes=xoff, xon_bytes=xon) if pause else nic
    last_hop = not link.is_fabric and sender.node.tier is Tier.T0
    ecn, trim = queue.ecn, queue.trim
    return Shape(
        rate_bps,
        queue.limit.in_bytes(bdp),
        NO_LIMIT if trim is None else trim.in_bytes(bdp),
        NO_LIMIT if ecn is None else ecn.min.in_bytes(bdp),
        NO_LIMIT if ecn is None else ecn.max.in_bytes(bdp),
        last_hop=last_hop,
        behind_ns=both_nics_ns - both_nics_ns // 2 if last_hop else switch_ns,
        xoff_bytes=xoff,
        xon_bytes=xon,
    )
