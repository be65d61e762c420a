"""Nodes, ports and links of a fabric, as values with the names that scenarios and records use."""

from dataclasses import dataclass, field
from enum import StrEnum

FIRST_IFINDEX = 100
"""The first interface index of the fabric; lower ones are those of lo and other devices."""


class Tier(StrEnum):
    """The tier of a node."""

    HOST = "host"
    T0 = "t0"
    T1 = "t1"


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A host or a switch.

    Attributes:
        tier: host, T0 or T1.
        plane: the switch's plane; 0 for a host, which is in all planes.
        index: number from 0, of a switch within its plane and tier, of a host within the fabric.
    """

    tier: Tier
    plane: int
    index: int

    @property
    def name(self) -> str:
        """The node's name: `h3`, `p0_t0_1`, `p2_t1_0`."""
        prefix = "h" if self.tier is Tier.HOST else f"p{self.plane}_{self.tier}_"
        return f"{prefix}{self.index}"


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link.

    Attributes:
        node: the node of the port.
        name: the interface's name, unique in the fabric, at most 15 characters.
        ifindex: the interface's index, unique in the fabric.
    """

    node: Node
    name: str
    ifindex: int

    @property
    def mac(self) -> str:
        """The interface's MAC address: locally administered, made from the index."""
        high, low = divmod(self.ifindex, 1 << 16)
        raw = bytes((0x02, 0x4D, 0x52, high, low >> 8, low & 0xFF))
        return raw.hex(":")


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex link; `lower` is the end nearer to the hosts.

    Attributes:
        lower: its end at a host, or at a T0.
        upper: its other end.
        plane: its plane.
        directions: the names of both directions, up first: `h0>p0_t0_0`, `p0_t0_0>h0`.
    """

    lower: Port
    upper: Port
    plane: int
    directions: tuple[str, str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Name the directions once: they are asked for with every path."""
        lower, upper = self.lower.node.name, self.upper.node.name
        object.__setattr__(self, "directions", (f"{lower}>{upper}", f"{upper}>{lower}"))

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


def numbered_link(
    number: int, plane: int, lower: tuple[Node, str], upper: tuple[Node, str]
) -> Link:
    """A link whose ports have the interface indexes of its number.

    Args:
        number: the link's number in the fabric, from 0.
        plane: the link's plane.
        lower: the node nearer to the hosts, and the short name of its port.
        upper: the other node, and the short name of its port.
    """
    index = FIRST_IFINDEX + 2 * number
    (below, up), (above, down) = lower, upper
    return Link(
        Port(below, f"{below.name}-{up}", index),
        Port(above, f"{above.name}-{down}", index + 1),
        plane,
    )
