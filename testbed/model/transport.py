"""How hosts send: the transports that a scenario can choose, each with its parameters.

A transport is a class here, which says what can be set and which EVs its queue pairs use, and a
case in `endpoint/queue_pairs.py`, which opens them.
"""

from typing import Annotated, Literal

from pydantic import Field

from testbed.model.ev_set import Ev, choose_evs
from testbed.model.kinds import ByKind, Part
from testbed.model.topology import Node, Topology

Qps = Annotated[
    int,
    Field(
        ge=1,
        le=16,
        strict=True,
        description="queue pairs of each pair of hosts, every one a flow each way",
    ),
]


class Mrc(Part):
    """Multipath Reliable Connection."""

    kind: Literal["mrc"] = "mrc"
    evs: Annotated[int, Field(ge=1, le=65536, strict=True)] | None = Field(
        default=None, description="EVs per QP; the distinct paths, up to 256, if not given"
    )
    backups: Annotated[float, Field(ge=0, lt=1, strict=True)] | None = Field(
        default=None,
        description="share of each plane's EVs that stand by; if not given, a quarter where a "
        "plane has more paths than EVs, else none",
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
    qps: Qps = 1

    def choose_evs(
        self, topology: Topology, src: Node, dst: Node, *, lane: int, seed: int
    ) -> tuple[Ev, ...]:
        """The EVs of a queue pair in the direction from `src` to `dst`."""
        return choose_evs(
            topology, src, dst, evs=self.evs, backups=self.backups, lane=lane, seed=seed
        )


Transport = Annotated[Mrc, ByKind()]
