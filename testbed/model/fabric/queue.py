"""The queues of switch ports: how much they hold, when they mark and when they trim."""

from typing import Annotated

from pydantic import Field

from testbed.model.part import Part
from testbed.model.units import Depth, QueueDepth, parse_depth


class Ecn(Part):
    """Random early marking; a step where both are the same."""

    min: QueueDepth = Field(
        default=parse_depth("0.2 BDP"), description="backlog from which packets are marked"
    )
    max: QueueDepth = Field(
        default=parse_depth("0.8 BDP"), description="backlog from which all are marked"
    )


class Queue(Part):
    """The queue of a switch port; BDPs are those of the link behind it.

    Defaults are the Ultra Ethernet guidance: ECN from 0.2 to 0.8 BDP, trimming from 1 BDP on.
    """

    limit: QueueDepth = Field(
        default=parse_depth("4 BDP"), description="what it holds; the rest is dropped"
    )
    ecn: Annotated[Ecn | None, Field(description="when it marks; null: never")] = Ecn()
    trim: Annotated[
        QueueDepth | None,
        Field(description="backlog from which trimmable packets lose their payload; null: never"),
    ] = parse_depth("1 BDP")

    def depths(self) -> dict[str, Depth]:
        """Every threshold that it has, by its key path."""
        found = {"limit": self.limit}
        if self.ecn is not None:
            found |= {"ecn.min": self.ecn.min, "ecn.max": self.ecn.max}
        if self.trim is not None:
            found["trim"] = self.trim
        return found


class LastHopQueue(Queue):
    """The queue of a T0's port to a host.

    It does not mark: a mark then means uneven load inside the fabric, never incast (MRC paper,
    section 3). DCQCN wants it on.
    """

    ecn: Annotated[Ecn | None, Field(description="when it marks; null: never")] = None
    trim: Annotated[
        QueueDepth | None,
        Field(description="backlog from which trimmable packets lose their payload; null: never"),
    ] = parse_depth("1.5 BDP")


class Queues(Part):
    """The queues of a fabric by where they stand."""

    t0_up: Queue = Field(default=Queue(), description="of a T0's port to a T1")
    t1_down: Queue = Field(default=Queue(), description="of a T1's port to a T0")
    last_hop: LastHopQueue = Field(default=LastHopQueue(), description="of a T0's port to a host")


class Pause(Part):
    """Priority flow control (IEEE 802.1Qbb) of the data class; BDPs are those of the link.

    Of the packets that came over a link, so many bytes may wait in a switch before it pauses the
    link's sender.
    """

    xoff: QueueDepth = Field(
        default=parse_depth("1 BDP"), description="waiting bytes that pause the sender"
    )
    xon: QueueDepth = Field(
        default=parse_depth("0.5 BDP"), description="waiting bytes that let it go on"
    )
