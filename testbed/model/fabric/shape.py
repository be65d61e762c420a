"""The shape of a link direction: its rate, the queue before it, the delays around it.

What the emulation's links are set up with and the simulator's, so that both are the same fabric.
"""

from dataclasses import dataclass

from testbed.model.fabric.nodes import Link, Port, Tier
from testbed.model.fabric.topology import LINK_MTU, Topology

NEVER = 1 << 62
"""A backlog that no queue reaches."""

NIC_QUEUE_BDP = 256
"""A NIC does not drop what its own host sends: as deep as never matters."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a direction behaves.

    Attributes:
        rate_bps: bits/s on the wire, Ethernet header included.
        limit_bytes: most bytes that wait in a queue; what comes then is dropped.
        trim_bytes: backlog from which a packet of a trimmable class is trimmed.
        ecn_min_bytes: backlog from which packets are marked, with a probability that rises to 1 ...
        ecn_max_bytes: ... here; a step where both are the same.
        last_hop: whether it leads from a T0 to a host.
        before_ns: delay between the port and the wire (a sending NIC's).
        behind_ns: delay between the wire and the next queue or host.
        xoff_bytes: of what came over it so many may wait at the next switch before it is paused,
        xon_bytes: until no more than these do.
        at_once: whether a packet leaves the port as its service begins, not as it ends.

    Delays, pause and `at_once` are the simulator's: in the emulation the receiving endpoint holds a
    packet back by the delay of its path, and nothing pauses.
    """

    rate_bps: int
    limit_bytes: int = NEVER
    trim_bytes: int = NEVER
    ecn_min_bytes: int = NEVER
    ecn_max_bytes: int = NEVER
    last_hop: bool = False
    before_ns: int = 0
    behind_ns: int = 0
    xoff_bytes: int = NEVER
    xon_bytes: int = NEVER
    at_once: bool = False

    @property
    def pauses(self) -> bool:
        """Whether its sender is ever paused."""
        return self.xoff_bytes < NEVER


def shape_of(topology: Topology, link: Link, sender: Port) -> Shape:
    """The shape of the direction that leaves a port.

    The delay of the NICs lies half at either end, that of a switch before its queue: the sum over
    a path is `topology.one_way_ns`.
    """
    both_nics_ns = topology.one_way_ns(0)
    switch_ns = topology.one_way_ns(1) - both_nics_ns
    rate_bps, bdp = topology.rate_bps(link), topology.link_bdp_bytes(link)
    pause = topology.pause
    xoff, xon = (pause.xoff.in_bytes(bdp), pause.xon.in_bytes(bdp)) if pause else (NEVER, NEVER)
    queue = topology.queue_of(link, sender)
    if queue is None:  # a NIC; one that is paused holds all that its host has outstanding
        return Shape(
            rate_bps,
            NEVER if pause else max(NIC_QUEUE_BDP * bdp, LINK_MTU),
            before_ns=both_nics_ns // 2,
            behind_ns=switch_ns,
            xoff_bytes=xoff,
            xon_bytes=xon,
        )
    last_hop = not link.is_fabric and sender.node.tier is Tier.T0
    ecn, trim = queue.ecn, queue.trim
    return Shape(
        rate_bps,
        queue.limit.in_bytes(bdp),
        NEVER if trim is None else trim.in_bytes(bdp),
        NEVER if ecn is None else ecn.min.in_bytes(bdp),
        NEVER if ecn is None else ecn.max.in_bytes(bdp),
        last_hop=last_hop,
        behind_ns=both_nics_ns - both_nics_ns // 2 if last_hop else switch_ns,
        xoff_bytes=xoff,
        xon_bytes=xon,
    )
