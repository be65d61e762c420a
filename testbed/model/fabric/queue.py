"""The queues of switch ports: their limits and their thresholds for ECN, trimming and pause."""

from typing import Annotated

from pydantic import Field

from testbed.model.part import Part
from testbed.model.units import Depth, QueueDepth, parse_depth


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
