"""How hosts send: the transports that a scenario can choose, each with its parameters.

A transport is a class here, which says what can be set and which EVs its queue pairs use, and a
case in `host/queue_pairs.py`, which opens them.
"""

from typing import Annotated, Literal

from pydantic import Field

from testbed.model.ecmp import HashedFlow
from testbed.model.fabric.addressing import ev_for_path, ordinary_path
from testbed.model.fabric.ev_set import EvChoice, choose_evs
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.part import ByKind, Part
from testbed.model.units import Duration, parse_duration

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
        default="nscc",
        description="nscc: delay and ECN move the window; fixed: it never moves",
    )
    window: Annotated[float, Field(gt=0, le=16, strict=True)] = Field(
        default=1.5,
        description="fixed congestion window in BDPs of the host (uet-htsim's maximum)",
    )
    probe_successes: Annotated[int, Field(ge=1, strict=True)] = Field(
        default=3, description="probes in a row that bring an EV back"
    )
    grey_probe_successes: Annotated[int, Field(ge=1, strict=True)] = Field(
        default=48, description="the same for an EV that was condemned though it delivers"
    )
    spray: Literal["adaptive", "blind"] = Field(
        default="adaptive",
        description="blind: no EV states and no backups; every EV is used, whatever is learnt",
    )
    ecn_skip: Annotated[bool, Field(strict=True)] = Field(
        default=True, description="whether a mark makes its EV be passed over once"
    )
    repair: Literal["selective", "go-back"] = Field(
        default="selective",
        description="go-back: a loss makes everything in flight behind it be sent again",
    )
    qps: Qps = 1

    @property
    def spare(self) -> float | None:
        """`backups`; none where nothing would call them up."""
        return self.backups if self.spray == "adaptive" else 0.0

    def choose_evs(
        self, topology: Topology, src: Node, dst: Node, *, lane: int, seed: int
    ) -> tuple[EvChoice, ...]:
        """The EVs of a queue pair in the direction from `src` to `dst`."""
        return choose_evs(
            topology, src, dst, evs=self.evs, backups=self.spare, lane=lane, seed=seed
        )


class Roce(Part):
    """RoCEv2 reliable connections: one path a QP, go-back-N, DCQCN."""

    kind: Literal["roce"] = "roce"
    qps: Qps = 1
    convergence: Annotated[Duration, Field(ge=0)] | None = Field(
        default=None,
        description="real time after which routing takes a QP off a dead path; null: never",
    )
    ack_timeout: Annotated[Duration, Field(gt=0)] = Field(
        default=parse_duration("262.144 us"),
        description="real time without an acknowledgement after which everything is sent again",
    )

    def choose_evs(
        self, topology: Topology, src: Node, dst: Node, *, lane: int, seed: int
    ) -> tuple[EvChoice, ...]:
        """The one EV of a queue pair: of the path that ECMP hashes it into."""
        path = self.hashed_flow(src, dst, lane=lane, seed=seed).path(topology)
        return (EvChoice(ev_for_path(path), path, active=True),)

    def hashed_flow(self, src: Node, dst: Node, *, lane: int, seed: int) -> HashedFlow:
        """What ECMP hashes: each direction by itself."""
        return HashedFlow(src, dst, lane, seed)


Congestion = Annotated[
    Literal["cubic", "reno", "bbr", "dctcp"],
    Field(description="the kernel's congestion control; its window and timers are its own"),
]
RtoMin = Annotated[
    Annotated[Duration, Field(gt=0)] | None,
    Field(
        description="least retransmission timeout in real time; null: the kernel's 200 ms, which "
        "time dilation does not stretch"
    ),
]
Ecn = Annotated[
    bool, Field(strict=True, description="whether connections ask for ECN; dctcp always does")
]


class Tcp(Part):
    """The kernel's TCP over one path, both ways the same."""

    kind: Literal["tcp"] = "tcp"
    congestion: Congestion = "cubic"
    ecn: Ecn = False
    rto_min: RtoMin = None
    qps: Qps = 1
    convergence: Annotated[Duration, Field(ge=0)] | None = Field(
        default=None,
        description="real time after which routing takes a connection off a dead path; null: never",
    )

    def choose_evs(
        self, topology: Topology, src: Node, dst: Node, *, lane: int, seed: int
    ) -> tuple[EvChoice, ...]:
        """The one EV of a connection: of the path that ECMP hashes it into."""
        path = self.hashed_flow(src, dst, lane=lane, seed=seed).path(topology)
        return (EvChoice(ev_for_path(path), path, active=True),)

    def hashed_flow(self, src: Node, dst: Node, *, lane: int, seed: int) -> HashedFlow:
        """What ECMP hashes: both directions alike, as the plane is in the addresses of both."""
        return HashedFlow(min(src, dst), max(src, dst), lane, seed)


class Mptcp(Part):
    """The kernel's Multipath TCP, a subflow in every plane."""

    kind: Literal["mptcp"] = "mptcp"
    congestion: Congestion = "cubic"
    ecn: Ecn = False
    rto_min: RtoMin = None
    qps: Qps = 1

    def choose_evs(
        self, topology: Topology, src: Node, dst: Node, *, lane: int, seed: int
    ) -> tuple[EvChoice, ...]:
        """An EV in every plane, of the path that ordinary traffic takes there."""
        ways = (
            ordinary_path(topology, src, dst, plane, seed + lane)
            for plane in range(topology.planes)
        )
        return tuple(EvChoice(ev_for_path(path), path, active=True) for path in ways)


Transport = Annotated[Mrc | Roce | Tcp | Mptcp, ByKind()]
