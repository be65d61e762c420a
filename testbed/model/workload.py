"""What hosts send: the workloads that a scenario can choose, each with its parameters.

A workload is a class here, which says what can be set and who sends to whom, and a program in
`workloads/`, which says what each host posts when.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from testbed.model.kinds import ByKind, Part
from testbed.model.topology import Topology
from testbed.model.units import Size, parse_size, show_size

MAX_MESSAGE = parse_size("128 MiB")
"""Longest message. RDMA allows 2 GiB, of which not one would complete in a run."""


def _message_size(size: int) -> int:
    if not 1 <= size <= MAX_MESSAGE:
        raise ValueError(f"a size from 1 B to {show_size(MAX_MESSAGE)}")
    return size


class WriteBw(Part):
    """RDMA WRITEs back to back between pairs of hosts, as perftest's `ib_write_bw`."""

    kind: Literal["write_bw"] = "write_bw"
    pairs: Annotated[
        tuple[tuple[str, str], ...],
        Field(min_length=1, description="pairs of hosts, such as [[h0, h4], [h1, h5]]"),
    ]
    bidirectional: Annotated[
        bool, Field(strict=True, description="whether both hosts of a pair write")
    ] = True
    message_size: Annotated[Size, AfterValidator(_message_size)] = Field(
        default=parse_size("1 MiB"), description="of one WRITE"
    )
    depth: Annotated[int, Field(ge=1, le=64, strict=True)] = Field(
        default=4, description="WRITEs outstanding per flow"
    )

    def directions(self, _topology: Topology) -> tuple[tuple[str, str], ...]:
        """Who sends to whom, in order: both ways where the workload is bidirectional."""
        back = [(b, a) for a, b in self.pairs] if self.bidirectional else []
        return (*self.pairs, *back)

    def longest_bytes(self, _topology: Topology, _lanes: int) -> int:
        """The longest message of a flow."""
        return self.message_size


Workload = Annotated[WriteBw, ByKind()]
