"""Nodes, ports and links of a fabric, as values with the names that scenarios and records use."""

from dataclasses import dataclass
from enum import StrEnum

FIRST_IFINDEX = 100
"""Interface indexes of the fabric begin here: below are lo and what a namespace brings."""


class Tier(StrEnum):
    """Where a node stands."""

    HOST = "host"
    T0 = "t0"
    T1 = "t1"


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A host or a switch.

    Attributes:
        tier: host, T0 or T1.
        plane: the switch's plane; 0 for a host, which stands in all of them.
        index: number within the plane and tier; of the fabric for a host. From 0.
    """

    tier: Tier
    plane: int
    index: int

    @property
    def name(self) -> str:
        """The node's name: `h3`, `p0_t0_1`, `p2_t1_0`."""
        return (
            f"h{self.index}"
            if self.tier is Tier.HOST
            else f"p{self.plane}_{self.tier}_{self.index}"
        )


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link.

    Attributes:
        node: the node that it belongs to.
        name: the interface's name, unique in the fabric, 15 characters at most.
        ifindex: the interface's index, unique in the fabric.
    """

    node: Node
    name: str
    ifindex: int

    @property
    def mac(self) -> str:
        """The interface's MAC address: locally administered, from the index."""
        high, low = divmod(self.ifindex, 1 << 16)
        raw = bytes((0x02, 0x4D, 0x52, high, low >> 8, low & 0xFF))
        return raw.hex(":")


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex link; `lower` is the end nearer to the hosts."""

    lower: Port
    upper: Port
    plane: int

    @property
    def name(self) -> str:
        """The link's name: `h0--p0_t0_0`, `p0_t0_0--p0_t1_2`."""
        return f"{self.lower.node.name}--{self.upper.node.name}"

    @property
    def is_fabric(self) -> bool:
        """Whether it joins a T0 and a T1, rather than a NIC and a T0."""
        return self.upper.node.tier is Tier.T1

    @property
    def ports(self) -> tuple[Port, Port]:
        """Both ends, the lower first."""
        return self.lower, self.upper

    @property
    def directions(self) -> tuple[str, str]:
        """The names of both directions, up first: `h0>p0_t0_0`, `p0_t0_0>h0`."""
        lower, upper = self.lower.node.name, self.upper.node.name
        return f"{lower}>{upper}", f"{upper}>{lower}"


def numbered_link(
    number: int, plane: int, lower: tuple[Node, str], upper: tuple[Node, str]
) -> Link:
    """The link with a number, unique in the fabric, which its interface indexes come from.

    Args:
        number: from 0.
        plane: the link's plane.
        lower: the node nearer to the hosts, and what its port is called.
        upper: the other node and its port.
    """
    index = FIRST_IFINDEX + 2 * number
    (below, up), (above, down) = lower, upper
    return Link(
        Port(below, f"{below.name}-{up}", index),
        Port(above, f"{above.name}-{down}", index + 1),
        plane,
    )
