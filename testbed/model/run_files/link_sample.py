"""A sample of the counters of a link direction: the columns of the table `links`."""

from typing import NamedTuple


class LinkSample(NamedTuple):
    """What one direction of a link has carried so far.

    Attributes:
        packets: packets that arrived at the far port; without the link model, packets sent.
        bytes: their bytes, Ethernet header included.
        dropped: packets lost on the way, by a full queue or a fault; without the link model also
            by the kernel's own receive backlog.
        marked: packets that the sending port marked with ECN.
        trimmed: packets that the sending port trimmed.
        backlog_bytes: bytes queued at the sending port now.
    """

    packets: int
    bytes: int
    dropped: int
    marked: int
    trimmed: int
    backlog_bytes: int
