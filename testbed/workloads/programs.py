"""Which program a host runs for a workload."""

from collections.abc import Sequence

from testbed.model import workload as model
from testbed.workloads.program import Program
from testbed.workloads.write_bw import WriteBw


def program_of(workload: model.Workload, sends: Sequence[int]) -> Program:
    """The program of a host from which the flows `sends` leave."""
    match workload:
        case model.WriteBw():
            return WriteBw(sends, workload.message_size, workload.depth)
