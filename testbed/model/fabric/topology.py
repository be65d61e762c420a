"""The fabric as data: planes, switches with queues, hosts, links and the shape of each direction.

A topology is written in real units. The fabric runs slower by the factor `dilation`: every rate is
divided by it and every time is multiplied by it, so that bandwidth-delay products, and with them
the transport's behaviour, are the same as at full speed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Annotated, Self

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from testbed.model.errors import RefusedValueError
from testbed.model.fabric.nodes import Link, Node, Port, Tier, numbered_link
from testbed.model.part import Part
from testbed.model.units import (
    NS_PER_S,
    BaseRtt,
    Depth,
    Duration,
    QueueDepth,
    Rate,
    parse_depth,
    parse_duration,
    parse_rate,
    parse_size,
    show_duration,
    show_rate,
    show_size,
    shown_at_most,
)


class Ecn(Part):
    """ECN by random early marking; a step if both thresholds are equal."""

    min: QueueDepth = Field(
        default=parse_depth("0.2 BDP"), description="backlog from which some packets are marked"
    )
    max: QueueDepth = Field(
        default=parse_depth("0.8 BDP"), description="backlog from which all packets are marked"
    )


_Ecn = Annotated[Ecn | None, Field(description="thresholds of ECN marking; null: none")]
_Trim = Annotated[
    QueueDepth | None,
    Field(description="backlog from which trimmable packets lose their payload; null: never"),
]


class Queue(Part):
    """The queue of a switch port; `BDP` is that of the link that the port sends into.

    Defaults are the Ultra Ethernet guidance: ECN from 0.2 to 0.8 BDP, trimming from 1 BDP on.
    """

    limit: QueueDepth = Field(
        default=parse_depth("4 BDP"), description="capacity; further packets are dropped"
    )
    ecn: _Ecn = Ecn()
    trim: _Trim = parse_depth("1 BDP")

    def depths(self) -> dict[str, Depth]:
        """Its thresholds by key path, those that are null left out."""
        thresholds = {"limit": self.limit}
        if self.ecn is not None:
            thresholds |= {"ecn.min": self.ecn.min, "ecn.max": self.ecn.max}
        if self.trim is not None:
            thresholds["trim"] = self.trim
        return thresholds


class LastHopQueue(Queue):
    """The queue of a T0's port to a host.

    It does not mark by default, so that a mark means uneven load inside the fabric, never incast
    (MRC paper, section 3). DCQCN needs marks here.
    """

    ecn: _Ecn = None
    trim: _Trim = parse_depth("1.5 BDP")


class Queues(Part):
    """The queues of a fabric by the kind of port."""

    t0_up: Queue = Field(default=Queue(), description="of a T0's port to a T1")
    t1_down: Queue = Field(default=Queue(), description="of a T1's port to a T0")
    last_hop: LastHopQueue = Field(default=LastHopQueue(), description="of a T0's port to a host")


class Pause(Part):
    """Priority flow control (IEEE 802.1Qbb) of the data class; `BDP` is that of the link.

    A switch pauses the sender of a link when too many bytes that came over this link wait in it.
    """

    xoff: QueueDepth = Field(
        default=parse_depth("1 BDP"), description="waiting bytes that pause the sender"
    )
    xon: QueueDepth = Field(
        default=parse_depth("0.5 BDP"), description="waiting bytes at which it may send again"
    )


NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Pattern of the names of topologies and scenarios, which become names of files."""

MAX_NAME = 100
"""Most characters of such a name: that of a file has 255, and others are made of it."""

MAX_PLANES = 8
MAX_INDEX = 512
"""Most T0s or T1s of a plane, and most hosts of a T0: the range of a uSID's index."""

AUTO = "auto"
"""In a file: the dilation is chosen when the scenario is loaded (`files/scenarios.py`)."""

NOMINAL_DILATION = 10_000
"""The default, and the value for `auto` where nothing is emulated."""

PAYLOAD_MTU = 4096
"""Bytes of payload in a full packet (RDMA path MTU)."""

ETHERNET_HEADER = 14
HEADERS = 40 + 40 + 8 + 12 + 4 + 4 + 16 + 4
"""Outer IPv6, inner IPv6, UDP, BTH, METH, TSETH, RETH and iCRC of a data packet, in bytes."""

LINK_MTU = 9000
MIN_BDP_PACKETS = 8
"""Least bandwidth-delay product of a NIC port, in full packets."""

LONGEST_WAIT_NS = parse_duration("60 s")
"""Longest serialisation of a packet, and longest round trip, as emulated. HTB does not pace packets
that take longer (`mbuffer` in net/sched/sch_htb.c)."""

LARGEST_QUEUE = parse_size("1 GiB")
"""Largest queue limit. The kernel's queue is four times as deep as the limit in the link model, and
holds 4 GiB at most (bfifo's limit has 32 bits)."""

MIN_THRESHOLD_PACKETS = 2
"""Least threshold of a queue, in full packets."""


_Count = Annotated[int, Field(ge=1, le=MAX_INDEX, strict=True)]


class PropagationDelay(Part):
    """Propagation delay, one way, in real time (MRC paper, table 5.2.1: 5.09 us, 6.54 us)."""

    nic: Duration = Field(default=parse_duration("4.365 us"), description="of both NICs together")
    switch: Duration = Field(
        default=parse_duration("0.725 us"), description="of each switch on the path"
    )


class Topology(Part):
    """A multi-plane two-tier Clos fabric, in real units."""

    model_config = ConfigDict(ignored_types=(cached_property,))

    name: str = Field(pattern=NAME_PATTERN, max_length=MAX_NAME, description="its name")
    description: str = Field(default="", description="one line, shown in lists")
    planes: int = Field(
        ge=1, le=MAX_PLANES, strict=True, description="planes, and ports of each NIC"
    )
    t0_per_plane: _Count = Field(description="T0 switches in each plane")
    t1_per_plane: _Count = Field(description="T1 switches in each plane")
    hosts_per_t0: _Count = Field(description="hosts below each T0")
    nics_per_node: _Count = Field(
        default=1, description="NICs of each node (machine); each NIC is a host of the fabric"
    )
    rails: bool = Field(
        default=False,
        strict=True,
        description="whether NIC k of all nodes is below the same T0s; else all NICs of a node are",
    )
    port_rate: Rate = Field(default=parse_rate("100 Gbit/s"), description="rate of a NIC port")
    fabric_rate: Rate | None = Field(
        default=None, description="rate of a T0-T1 link; default: port_rate"
    )
    delay: PropagationDelay = PropagationDelay()
    queue: Queues = Field(default=Queues(), description="queues of the switches' ports")
    pause: Pause | None = Field(
        default=None, description="priority flow control (simulator only); null: none"
    )
    dilation: Annotated[
        float,
        Field(
            ge=1,
            allow_inf_nan=False,
            strict=True,
            description="factor by which the fabric runs slower; "
            "auto: the least that this machine carries",
        ),
        WithJsonSchema({"anyOf": [{"type": "number", "minimum": 1}, {"const": AUTO}]}),
    ] = NOMINAL_DILATION

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.port_rate < self.dilation or self.t0_t1_rate < self.dilation:
            raise ValueError("rates that leave at least 1 bit/s after division by dilation")
        self._check_nodes()
        self._check_times()
        if self.bdp_packets < MIN_BDP_PACKETS:
            raise RefusedValueError(
                f"a bandwidth-delay product of {MIN_BDP_PACKETS} packets or more a port "
                f"(this fabric has {self.bdp_packets:.1f})",
                remedy="a higher port_rate or a longer delay",
            )
        self._check_queues()
        return self

    def _check_nodes(self) -> None:
        nics = self.nics_per_node
        if self.rails and nics == 1:
            expected = "false where a node has one NIC: NIC k of each node makes rail k"
            raise RefusedValueError(expected, key="rails", remedy="set nics_per_node")
        key = "t0_per_plane" if self.rails else "hosts_per_t0"
        count = int(getattr(self, key))
        if count % nics == 0:
            return
        why, other = (
            ("each rail has T0s of its own", "")
            if self.rails
            else ("all NICs of a node are below the same T0", ", or rails: true")
        )
        more = min(-(-count // nics) * nics, MAX_INDEX // nics * nics)
        expected = f"a multiple of nics_per_node ({nics}), which {count} is not: {why}"
        raise RefusedValueError(expected, key=key, remedy=f"{more}{other}")

    def _check_times(self) -> None:
        slowest, largest = min(self.port_rate, self.t0_t1_rate), LINK_MTU + ETHERNET_HEADER
        longest_ns = largest * 8 * NS_PER_S * self.dilation / slowest
        fits = shown_at_most(
            self.dilation * LONGEST_WAIT_NS / max(longest_ns, self.propagation_rtt_ns)
        )
        slower = f"a dilation of {fits:.10g} at most, or " if fits >= 1 else ""
        if longest_ns > LONGEST_WAIT_NS:
            raise RefusedValueError(
                f"links that send a packet of {largest} bytes within "
                f"{show_duration(LONGEST_WAIT_NS)}, so that HTB can pace it (a link of "
                f"{show_rate(slowest / self.dilation)} takes {show_duration(longest_ns)})",
                remedy=f"{slower}a higher rate",
            )
        if self.propagation_rtt_ns > LONGEST_WAIT_NS:
            raise RefusedValueError(
                f"a round trip of {show_duration(LONGEST_WAIT_NS)} at most (this fabric has "
                f"{show_duration(self.propagation_rtt_ns)})",
                remedy=f"{slower}shorter delays",
            )

    def _check_queues(self) -> None:
        least = MIN_THRESHOLD_PACKETS * self.wire_bytes
        for place, queue, bdp in (
            ("t0_up", self.queue.t0_up, self._bdp_bytes(self.t0_t1_rate)),
            ("t1_down", self.queue.t1_down, self._bdp_bytes(self.t0_t1_rate)),
            ("last_hop", self.queue.last_hop, self.bdp_bytes),
        ):
            limit, key = queue.limit.in_bytes(bdp), f"queue.{place}"
            if limit > LARGEST_QUEUE:
                raise RefusedValueError(
                    f"at most {show_size(LARGEST_QUEUE)}, which the kernel can hold "
                    f"({queue.limit} is {show_size(limit)} here)",
                    key=f"{key}.limit",
                )
            for name, depth in queue.depths().items():
                size = depth.in_bytes(bdp)
                if not least <= size <= limit:
                    bound = (
                        f"at least {MIN_THRESHOLD_PACKETS} full packets ({show_size(least)})"
                        if size < least
                        else f"at most the limit ({queue.limit})"
                    )
                    expected = f"{bound}; {depth} is {show_size(size)} here"
                    raise RefusedValueError(expected, key=f"{key}.{name}")
            if queue.ecn is not None:
                _require_order(bdp, f"{key}.ecn", min=queue.ecn.min, max=queue.ecn.max)
        if self.pause is not None:
            _require_order(self.bdp_bytes, "pause", xon=self.pause.xon, xoff=self.pause.xoff)

    # --- rates and times as the emulation runs them -------------------------------------------

    @property
    def t0_t1_rate(self) -> int:
        """Real rate of a T0-T1 link in bits/s."""
        return self.fabric_rate or self.port_rate

    def rate_bps(self, link: Link) -> int:
        """Emulated rate of a link, each way, in bits/s."""
        return round((self.t0_t1_rate if link.is_fabric else self.port_rate) / self.dilation)

    @property
    def port_rate_bps(self) -> int:
        """Emulated rate of a NIC port in bits/s."""
        return round(self.port_rate / self.dilation)

    def one_way_ns(self, switches: int) -> int:
        """Emulated propagation delay from NIC to NIC over that many switches, in ns."""
        return round((self.delay.nic + switches * self.delay.switch) * self.dilation)

    @property
    def propagation_rtt_ns(self) -> int:
        """Emulated round-trip propagation delay over a T1, in ns."""
        return 2 * self.one_way_ns(3)

    @property
    def round_trip(self) -> BaseRtt:
        """The round-trip propagation delay over a T1: the unit `RTT` of times in a scenario."""
        emulated_ns = self.propagation_rtt_ns
        return BaseRtt(round(emulated_ns / self.dilation), emulated_ns)

    def path_rtt_ns(self, a: Node, b: Node, *, serialised: bool) -> int:
        """Emulated round trip between two hosts with empty queues, in ns.

        Args:
            a: one host.
            b: the other host.
            serialised: whether to add the serialisation of a full packet at each hop, one way (its
                acknowledgement is small). Not for kernel links: HTB sends a lone packet at once.
        """
        local = self.rack(a) == self.rack(b)
        rtt_ns = 2 * self.one_way_ns(1 if local else 3)
        if serialised:
            rates = [self.port_rate] * 2 + [self.t0_t1_rate] * (0 if local else 2)
            bits = self.wire_bytes * 8 * NS_PER_S * self.dilation
            rtt_ns += round(sum(bits / rate for rate in rates))
        return rtt_ns

    @property
    def wire_bytes(self) -> int:
        """Size of a full data packet on the wire in bytes, Ethernet header included."""
        return ETHERNET_HEADER + HEADERS + PAYLOAD_MTU

    @property
    def bdp_bytes(self) -> int:
        """Bandwidth-delay product of a NIC port in bytes, for the round trip over a T1."""
        return self._bdp_bytes(self.port_rate)

    def _bdp_bytes(self, real_rate: int) -> int:
        return round(real_rate / self.dilation) * self.propagation_rtt_ns // (8 * NS_PER_S)

    def link_bdp_bytes(self, link: Link) -> int:
        """Bandwidth-delay product of a link in bytes: the unit `BDP` of its queues."""
        return self._bdp_bytes(self.t0_t1_rate if link.is_fabric else self.port_rate)

    def queue_of(self, link: Link, sender: Port) -> Queue | None:
        """The queue of the port that sends into a link; None for a NIC, which drops nothing."""
        match sender.node.tier:
            case Tier.HOST:
                return None
            case Tier.T1:
                return self.queue.t1_down
            case _:
                return self.queue.t0_up if link.is_fabric else self.queue.last_hop

    @property
    def bdp_packets(self) -> float:
        """Bandwidth-delay product of a NIC port in full packets."""
        return self.bdp_bytes / self.wire_bytes

    @property
    def link_count(self) -> int:
        """The number of all links, without listing them."""
        return self.planes * (self.host_count + self.t0_per_plane * self.t1_per_plane)

    # --- nodes and links ----------------------------------------------------------------------

    def host(self, index: int) -> Node:
        """The host with this number."""
        return Node(Tier.HOST, 0, index)

    def host_named(self, name: str) -> Node:
        """The host with a name, which is right; nothing builds the whole fabric for it."""
        return self.host(int(name.removeprefix("h")))

    def t0(self, plane: int, index: int) -> Node:
        """The T0 switch with this number in a plane."""
        return Node(Tier.T0, plane, index)

    def t1(self, plane: int, index: int) -> Node:
        """The T1 switch with this number in a plane."""
        return Node(Tier.T1, plane, index)

    def rack(self, host: Node) -> int:
        """The number of a host's T0s, which is the same in each plane."""
        return self._below(host.index)[0]

    def rack_named(self, host: str) -> int:
        """The rack of a host with a name, which is right."""
        return self._below(int(host.removeprefix("h")))[0]

    def downlink(self, host: Node) -> int:
        """The number of the T0's downlink that leads to a host."""
        return self._below(host.index)[1]

    def _below(self, index: int) -> tuple[int, int]:
        """The rack of a host by its number, and its place there."""
        if not self.rails:
            return divmod(index, self.hosts_per_t0)
        node, nic = divmod(index, self.nics_per_node)
        row, place = divmod(node, self.hosts_per_t0)
        return row * self.nics_per_node + nic, place

    def host_below(self, rack: int, downlink: int) -> Node:
        """The host to which a downlink of a rack's T0s leads."""
        if not self.rails:
            return self.host(rack * self.hosts_per_t0 + downlink)
        row, nic = divmod(rack, self.nics_per_node)
        return self.host((row * self.hosts_per_t0 + downlink) * self.nics_per_node + nic)

    def hosts_below(self, rack: int) -> tuple[Node, ...]:
        """The hosts of a rack, in the order of its T0s' downlinks."""
        return tuple(self.host_below(rack, place) for place in range(self.hosts_per_t0))

    @property
    def host_count(self) -> int:
        """The number of all hosts."""
        return self.t0_per_plane * self.hosts_per_t0

    @cached_property
    def hosts(self) -> tuple[Node, ...]:
        """All hosts, node by node."""
        return tuple(self.host(i) for i in range(self.host_count))

    # --- nodes in the sense of a cluster: machines, each with one NIC or several ---------------

    @property
    def node_count(self) -> int:
        """The number of nodes: machines, each with `nics_per_node` hosts."""
        return self.host_count // self.nics_per_node

    @property
    def nodes_in_words(self) -> str:
        """How many nodes of how many NICs there are, and where these are."""
        where = "NIC k of all below the same T0s" if self.rails else "each below its own T0s"
        return f"{self.node_count} of {self.nics_per_node} NICs, {where}"

    def node_of(self, host: Node) -> tuple[int, int]:
        """The number of a host's node, and which of the node's NICs it is: the number of its rail.

        Node 0 (`n0`) has the first `nics_per_node` hosts, node 1 (`n1`) the next ones.
        """
        return divmod(host.index, self.nics_per_node)

    def nics(self, node: int) -> tuple[Node, ...]:
        """The hosts that are a node's NICs, rail by rail."""
        first = node * self.nics_per_node
        return tuple(self.host(first + nic) for nic in range(self.nics_per_node))

    @cached_property
    def switches(self) -> tuple[Node, ...]:
        """All switches, plane by plane, T0s first."""
        tiers = ((Tier.T0, self.t0_per_plane), (Tier.T1, self.t1_per_plane))
        return tuple(
            Node(tier, plane, index)
            for plane in range(self.planes)
            for tier, count in tiers
            for index in range(count)
        )

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """All nodes by name, hosts first."""
        return {node.name: node for node in (*self.hosts, *self.switches)}

    @cached_property
    def links(self) -> dict[str, Link]:
        """All links by name: NIC links first, then T0-T1 links plane by plane."""
        return {link.name: link for link in (*self.nic_links(), *self.fabric_links())}

    def nic_links(self) -> Iterator[Link]:
        """All links between a NIC and a T0, host by host."""
        return (self.nic_link(host, plane) for host in self.hosts for plane in range(self.planes))

    def fabric_links(self) -> Iterator[Link]:
        """All links between a T0 and a T1, plane by plane."""
        places = product(range(self.planes), range(self.t0_per_plane), range(self.t1_per_plane))
        return (self.fabric_link(*place) for place in places)

    def nic_link(self, host: Node, plane: int) -> Link:
        """The link between a host and its T0 of a plane."""
        number = host.index * self.planes + plane
        if number not in self._made:
            t0 = self.t0(plane, self.rack(host))
            upper = t0, f"d{self.downlink(host)}"
            self._made[number] = numbered_link(number, plane, (host, f"p{plane}"), upper)
        return self._made[number]

    def fabric_link(self, plane: int, t0: int, t1: int) -> Link:
        """The link between a T0 and a T1 of a plane."""
        nic_links = self.host_count * self.planes
        number = nic_links + (plane * self.t0_per_plane + t0) * self.t1_per_plane + t1
        if number not in self._made:
            lower, upper = (self.t0(plane, t0), f"u{t1}"), (self.t1(plane, t1), f"d{t0}")
            self._made[number] = numbered_link(number, plane, lower, upper)
        return self._made[number]

    @cached_property
    def _made(self) -> dict[int, Link]:
        """Links that were asked for, by number: a fabric may have far more of them."""
        return {}

    @cached_property
    def adjacency(self) -> dict[Node, tuple[tuple[Port, Port, Link], ...]]:
        """For each node its links in order, as triples (own port, far port, link)."""
        neighbours: dict[Node, list[tuple[Port, Port, Link]]] = {n: [] for n in self.nodes.values()}
        for link in self.links.values():
            neighbours[link.lower.node].append((link.lower, link.upper, link))
            neighbours[link.upper.node].append((link.upper, link.lower, link))
        return {node: tuple(triples) for node, triples in neighbours.items()}

    def port_of(self, host: Node, plane: int) -> Port:
        """The host's NIC port in a plane."""
        return self.nic_link(host, plane).lower


def _require_order(bdp_bytes: int, key: str, **thresholds: Depth) -> None:
    """Refuse two thresholds, named as in the file, if the first is above the second."""
    (low, low_depth), (high, high_depth) = thresholds.items()
    if low_depth.in_bytes(bdp_bytes) > high_depth.in_bytes(bdp_bytes):
        expected = f"at most {high} ({high_depth}); it is {low_depth}"
        raise RefusedValueError(expected, key=f"{key}.{low}")


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
