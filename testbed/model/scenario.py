"""An experiment as data: a fabric, what runs on it, and what goes wrong when."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from testbed.model.faults import Fault
from testbed.model.topology import NAME_PATTERN, Topology
from testbed.model.units import Duration, Size, parse_duration, parse_size, show_size

MAX_SEED = (1 << 31) - 1

MAX_MESSAGE = parse_size("128 MiB")
"""Longest message. RDMA allows 2 GiB, of which not one would complete in a run."""


def _message_size(size: int) -> int:
    if not 1 <= size <= MAX_MESSAGE:
        raise ValueError(f"a size from 1 B to {show_size(MAX_MESSAGE)}")
    return size


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class WriteBw(_Model):
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


class Mrc(_Model):
    """Multipath Reliable Connection."""

    kind: Literal["mrc"] = "mrc"
    evs: Annotated[int, Field(ge=1, le=65536, strict=True)] | None = Field(
        default=None, description="EVs per QP; the distinct paths, up to 256, if not given"
    )
    backups: Annotated[float, Field(ge=0, lt=1, strict=True)] = Field(
        default=0.25, description="share of each plane's EVs that stand by"
    )
    congestion: Literal["fixed", "nscc"] = Field(
        default="fixed",
        description="fixed: the window never moves; nscc: delay and ECN move it, as in uet-htsim",
    )
    window: Annotated[float, Field(gt=0, le=16, strict=True)] = Field(
        default=1.5,
        description="fixed congestion window in BDPs of the host (uet-htsim's maximum)",
    )
    probe_successes: Annotated[int, Field(ge=1, strict=True)] = Field(
        default=3, description="probes in a row that bring an EV back"
    )


class Scenario(_Model):
    """One experiment, complete: the fabric is part of it."""

    name: Annotated[
        str, Field(pattern=NAME_PATTERN, description="its name, and that of its results")
    ]
    description: Annotated[str, Field(description="what to expect, for lists")] = ""
    topology: Annotated[Topology, Field(description="a topology's name, its file, or itself")]
    seed: Annotated[
        int, Field(ge=0, le=MAX_SEED, strict=True, description="repeats every random choice")
    ] = 1
    duration: Annotated[Duration, Field(gt=0, description="of the run")] = parse_duration("10 s")
    workload: Annotated[WriteBw, Field(description="what the hosts send")]
    transport: Annotated[Mrc, Field(description="how they send it")] = Mrc()
    timeline: Annotated[tuple[Fault, ...], Field(description="the faults, in any order")] = ()

    @property
    def flows(self) -> tuple[tuple[str, str], ...]:
        """Every (source, destination) in order; both ways where the workload is bidirectional."""
        back = [(b, a) for a, b in self.workload.pairs] if self.workload.bidirectional else []
        return (*self.workload.pairs, *back)
