"""One sending of a data packet, as requester, loss detection and NIC know it."""

from testbed.mrc.ev.path import Path
from testbed.mrc.message import Message


class Transmission:
    """One sending of one data packet.

    `order` counts what the queue pair sends; `previous` is the transmission that this one repeats;
    `done` says that it is no longer in flight: acknowledged or taken for lost.

    `wait_ns` is for the I/O layer to set: how long after `sent_ns` the NIC's port will begin to
    send it. That wait is the sender's own and tells congestion control nothing, whose round trip
    begins on the wire: NICs take their timestamps there, and Swift (Kumar et al., SIGCOMM 2020,
    section 3) counts no delay before it as the fabric's. When an answer is due is another question:
    loss detection and timeouts count from `sent_ns`, with the wait.
    """

    __slots__ = (
        "done",
        "length",
        "message",
        "offset",
        "order",
        "path",
        "previous",
        "sent_ns",
        "seq",
        "suspected",
        "wait_ns",
    )

    def __init__(
        self,
        seq: int,
        message: Message,
        offset: int,
        length: int,
        path: Path,
        order: int,
        sent_ns: int,
        previous: "Transmission | None",
    ) -> None:
        self.seq = seq
        self.message = message
        self.offset = offset
        self.length = length
        self.path = path
        self.order = order
        self.sent_ns = sent_ns
        self.previous = previous
        self.done = False
        self.suspected = False
        self.wait_ns = 0
