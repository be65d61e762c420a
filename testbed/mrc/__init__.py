"""MRC as a sans-IO protocol core: bytes and times in, bytes and deadlines out.

`decode` turns bytes into packets, a `QueuePair` consumes and produces packets, `respond` answers
requests to the endpoint itself (QPN 2). A `Demux` does all of this for the arrivals of a host. The
I/O layer owns sockets, clocks and outer headers.
"""

from testbed.mrc.config import NOT_BUSY, BusyState, QpConfig
from testbed.mrc.congestion.control import (
    CongestionController,
    FixedWindow,
    LossReport,
    ReceiverWindow,
    SackReport,
    Window,
)
from testbed.mrc.congestion.nscc_incast import CcProfile, Nscc
from testbed.mrc.congestion.nscc_uec import UecNscc, UecProfile
from testbed.mrc.constants import NEVER, DscpClasses, NackReason
from testbed.mrc.demux import Demux
from testbed.mrc.endpoint import PortAttributes, respond
from testbed.mrc.entropy import EvEntry, EvProfile, EvState
from testbed.mrc.ev.selection import EvInfo, PathSelector
from testbed.mrc.events import (
    Counters,
    EvChanged,
    Event,
    Lost,
    MessageDelivered,
    Placed,
    QpSample,
    RoundTrip,
    Spurious,
)
from testbed.mrc.message import (
    AccessError,
    Completion,
    CompletionStatus,
    MemoryRegion,
    MemoryTable,
    PayloadRegion,
    ReceiveCompletion,
    Region,
)
from testbed.mrc.qp import QpState, QpStateError, QueuePair
from testbed.mrc.wire.codec import decode
from testbed.mrc.wire.control import EndpointRequest, Packet
from testbed.mrc.wire.datagram import Arrival, Datagram, Outbound
from testbed.mrc.wire.kinds import DecodeError, DecodeReason

__all__ = [
    "NEVER",
    "NOT_BUSY",
    "AccessError",
    "Arrival",
    "BusyState",
    "CcProfile",
    "Completion",
    "CompletionStatus",
    "CongestionController",
    "Counters",
    "Datagram",
    "DecodeError",
    "DecodeReason",
    "Demux",
    "DscpClasses",
    "EndpointRequest",
    "EvChanged",
    "EvEntry",
    "EvInfo",
    "EvProfile",
    "EvState",
    "Event",
    "FixedWindow",
    "LossReport",
    "Lost",
    "MemoryRegion",
    "MemoryTable",
    "MessageDelivered",
    "NackReason",
    "Nscc",
    "Outbound",
    "Packet",
    "PathSelector",
    "PayloadRegion",
    "Placed",
    "PortAttributes",
    "QpConfig",
    "QpSample",
    "QpState",
    "QpStateError",
    "QueuePair",
    "ReceiveCompletion",
    "ReceiverWindow",
    "Region",
    "RoundTrip",
    "SackReport",
    "Spurious",
    "UecNscc",
    "UecProfile",
    "Window",
    "decode",
    "respond",
]
