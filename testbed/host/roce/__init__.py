"""RoCEv2 reliable connections as a sans-IO core: the baseline of the MRC paper.

A queue pair uses one path and accepts packets in order only; go-back-N, DCQCN. RDMA WRITE only, as
in MRC. Docs: docs/baselines.md.
"""

from testbed.host.roce.config import RoceConfig, RoceCounters
from testbed.host.roce.dcqcn import CNP_INTERVAL_NS, TUNINGS, Dcqcn, DcqcnProfile
from testbed.host.roce.qp import Demux, RoceQp
from testbed.host.roce.wire import Packet, decode

__all__ = [
    "CNP_INTERVAL_NS",
    "TUNINGS",
    "Dcqcn",
    "DcqcnProfile",
    "Demux",
    "Packet",
    "RoceConfig",
    "RoceCounters",
    "RoceQp",
    "decode",
]
