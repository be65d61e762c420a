"""The outcome of a simulated run."""

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.model.faults.record import FaultRecord
from testbed.model.run_files.run import FlowRecord, LinkCounts


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """The outcome of a simulated run.

    Attributes:
        t0_ns: when the workload started, in virtual time.
        base_rtt_ns: from handing a full packet to a port to processing its SACK, idle fabric.
        duration_ns: the duration of the workload.
        flows: the record of every flow.
        faults: the record of every fault that took effect.
        counts: the counters of every link direction in use, by its name.
        packet_hops: the number of packets times the link directions that they crossed.
    """

    t0_ns: int
    base_rtt_ns: int
    duration_ns: int
    flows: tuple[FlowRecord, ...]
    faults: tuple[FaultRecord, ...]
    counts: Mapping[str, LinkCounts]
    packet_hops: int
