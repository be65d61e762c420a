"""The transports that a scenario can choose, each with its parameters.

A transport is a class here, which declares its keys and chooses the EVs of its queue pairs, and a
case in `host/queue_pairs.py`, which opens them.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from testbed.model.ecmp import HashedFlow
from testbed.model.errors import RefusedValueError
from testbed.model.fabric.addressing import ev_for_path, ordinary_path
from testbed.model.fabric.ev_set import AutoProfile, EvChoice, EvProfileKind, choose_evs, listed_evs
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import ETHERNET_HEADER, HEADERS, PAYLOAD_MTU, Topology
from testbed.model.own_code import OrOwnCode, OwnCode
from testbed.model.part import ByKind, Part, kinds_of
from testbed.model.units import RealTime, parse_duration

Qps = Annotated[
    int,
    Field(
        ge=1,
        le=16,
        strict=True,
        description="queue pairs between two hosts; each carries a flow in each direction",
    ),
]


WIRE_BYTES = ETHERNET_HEADER + HEADERS + PAYLOAD_MTU
"""Size of a full data packet of MRC on the wire, and of the kernel's largest."""

_ONLY_MRC = 4 + 4 + 16
"""METH, TSETH and RETH, which RoCE's packets behind the first of a message do not have."""

_TCP = ETHERNET_HEADER + 40 + 40 + 20 + 12
"""Headers of the kernel's TCP: Ethernet, outer and inner IPv6, TCP, timestamps."""

_MPTCP_OPTION = 20
"""Of Multipath TCP: the data sequence signal (RFC 8684, 3.3), with a 64-bit sequence number."""


class MrcCapabilities(Part):
    """The limits of each end of a queue pair, announced to the other end at connection."""

    mpr: Annotated[int, Field(ge=1, le=255, strict=True)] = Field(
        default=8, description="responder window in units of 128 packets"
    )
    dynamic_mpr: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="whether SACKs advertise the responder window"
    )
    immediates: Annotated[int, Field(ge=1, le=65535, strict=True)] = Field(
        default=64, description="WRITEs with immediate that may be outstanding at once"
    )
    trim_nack: Annotated[bool, Field(strict=True)] = Field(
        default=True, description="whether a trimmed packet is answered by a NACK"
    )


class Dialect(Part):
    """What sources disagree on, or leave open."""

    capabilities: MrcCapabilities = MrcCapabilities()
    judgement: Literal["absolute", "relative"] = Field(
        default="absolute",
        description="what condemns an EV. absolute: a lost packet; relative: more losses than "
        "those of the other EVs explain",
    )
    congestion_scope: Literal["queue-pair", "destination"] = Field(
        default="queue-pair",
        description="whether each queue pair has a congestion controller of its own, or all of a "
        "host to the same destination share one",
    )


class Mrc(Part):
    """Multipath Reliable Connection."""

    kind: Literal["mrc"] = "mrc"
    evs: Annotated[int, Field(ge=1, le=65536, strict=True)] | None = Field(
        default=None, description="EVs per QP; default: the number of distinct paths, up to 256"
    )
    backups: Annotated[float, Field(ge=0, lt=1, strict=True)] | None = Field(
        default=None,
        description="share of each plane's EVs that are backups; default: a quarter if a plane has "
        "more paths than EVs, otherwise none",
    )
    ev_profile: EvProfileKind = Field(
        default=AutoProfile(),
        description="the EVs: auto: chosen for the fabric; explicit: listed; generated: made of "
        "fields (docs/ev-modes.md)",
    )
    congestion: Annotated[Literal["fixed", "nscc"] | OwnCode, OrOwnCode(("fixed", "nscc"))] = Field(
        default="nscc",
        description="nscc: delay and ECN change the window; fixed: it never changes; or "
        "FILE.py:CLASS, a congestion controller of your own",
    )
    nscc: Literal["incast", "uec"] = Field(
        default="incast",
        description="the rules of NSCC. uec: those of Ultra Ethernet 1.0; incast: with changes of "
        "our own, for a last hop that does not mark",
    )
    window: Annotated[float, Field(gt=0, le=16, strict=True)] = Field(
        default=1.5, description="fixed congestion window in BDPs of the host (uet-htsim's maximum)"
    )
    probe_successes: Annotated[int, Field(ge=1, strict=True)] = Field(
        default=3, description="successful probes in a row after which an EV is used again"
    )
    grey_probe_successes: Annotated[int, Field(ge=1, strict=True)] = Field(
        default=48, description="the same for an EV that loses only some packets"
    )
    spray: Annotated[Literal["adaptive", "blind"] | OwnCode, OrOwnCode(("adaptive", "blind"))] = (
        Field(
            default="adaptive",
            description="adaptive: EVs have states; blind: all EVs are always used, no backups; or "
            "FILE.py:CLASS, a path selector of your own",
        )
    )
    ecn_skip: Annotated[bool, Field(strict=True)] = Field(
        default=True, description="whether an EV is skipped once after an ECN mark"
    )
    repair: Literal["selective", "go-back"] = Field(
        default="selective",
        description="selective: only lost packets are sent again; go-back: all packets after a "
        "lost one too",
    )
    dialect: Dialect = Dialect()
    remap_delay: Annotated[RealTime, Field(ge=0)] = Field(
        default=0,
        description="time after which a host that loses the carrier of a port moves off it; real "
        "NICs take seconds to map EVs to other ports",
    )
    routing: Literal["srv6", "ecmp"] = Field(
        default="srv6",
        description="what decides the path of an EV. srv6: the sender, by the address that it "
        "writes; ecmp: the hash of a switch, so that EVs of a plane are spread over its paths by "
        "chance, and the sender does not know which of them share one",
    )
    qps: Qps = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.evs is not None and not isinstance(self.ev_profile, AutoProfile):
            raise RefusedValueError(
                "no number of EVs together with an ev_profile, which lists them", key="evs"
            )
        return self

    @property
    def backup_share(self) -> float | None:
        """`backups`; 0 with blind spraying, which never activates a backup."""
        return 0.0 if self.spray == "blind" else self.backups

    @property
    def payload_share(self) -> float:
        """Payload of a full packet over its size on the wire, Ethernet header included."""
        return PAYLOAD_MTU / WIRE_BYTES

    def choose_evs(
        self, topology: Topology, src: Node, dst: Node, *, lane: int, seed: int
    ) -> tuple[EvChoice, ...]:
        """The EVs of a queue pair in the direction from `src` to `dst`."""
        if not isinstance(self.ev_profile, AutoProfile):
            values = self.ev_profile.values(seed)
            return listed_evs(topology, src, dst, values, self.backup_share or 0.0)
        return choose_evs(
            topology,
            src,
            dst,
            evs=self.evs,
            backups=self.backup_share,
            lane=lane,
            seed=seed,
            hashed=self.routing == "ecmp",
        )


Congestion = Annotated[
    Literal["cubic", "reno", "bbr", "dctcp"],
    Field(description="the kernel's congestion control, with the kernel's window and timers"),
]


class HashedPath(Part):
    """A transport whose queue pairs have one path each, which ECMP selects."""

    kind: str
    qps: Qps = 1
    convergence: Annotated[RealTime, Field(ge=0)] | None = Field(
        default=None,
        description="time after which routing moves flows off a dead path; null: never",
    )

    def choose_evs(
        self, topology: Topology, src: Node, dst: Node, *, lane: int, seed: int
    ) -> tuple[EvChoice, ...]:
        """The EV of a queue pair: that of the path which ECMP selects."""
        path = self.hashed_flow(src, dst, lane=lane, seed=seed).path(topology)
        return (EvChoice(ev_for_path(path), path, active=True),)

    def hashed_flow(self, src: Node, dst: Node, *, lane: int, seed: int) -> HashedFlow:
        """The input of the hash: by default each direction has its own."""
        return HashedFlow(src, dst, lane, seed)


class KernelTransport(Part):
    """A transport that runs in the kernel of each host, not in the testbed's endpoint."""

    kind: str
    congestion: Congestion = "cubic"
    ecn: Annotated[
        bool, Field(strict=True, description="whether connections use ECN; dctcp always does")
    ] = False
    rto_min: Annotated[RealTime, Field(gt=0)] | None = Field(
        default=None,
        description="least retransmission timeout; null: the kernel's 200 ms, which "
        "is not multiplied by dilation",
    )
    qps: Qps = 1


class Roce(HashedPath):
    """RoCEv2 reliable connections: one path for each QP, go-back-N, DCQCN."""

    kind: Literal["roce"] = "roce"
    ack_timeout: Annotated[RealTime, Field(gt=0)] = Field(
        default=parse_duration("262.144 us"),
        description="time without an acknowledgement after which everything is sent again",
    )
    dcqcn: Literal["default", "aggressive", "most-aggressive", "off"] = Field(
        default="default",
        description="congestion control: `default`: at most one CNP in 50 us, as in the DCQCN "
        "paper, and alpha as in ConnectX NICs; `aggressive`: a CNP each 4 us, as these NICs send "
        "them; `most-aggressive`: also alpha as in the DCQCN paper, so that each CNP cuts deeper; "
        "`off`: only the fabric's priority flow control holds senders back",
    )

    @property
    def payload_share(self) -> float:
        """Payload of a full packet over its size on the wire, Ethernet header included."""
        return PAYLOAD_MTU / (WIRE_BYTES - _ONLY_MRC)


class Tcp(KernelTransport, HashedPath):
    """The kernel's TCP over one path, the same in both directions."""

    kind: Literal["tcp"] = "tcp"

    @property
    def payload_share(self) -> float:
        """Payload of a full packet over its size on the wire, Ethernet header included."""
        return (WIRE_BYTES - _TCP) / WIRE_BYTES

    def hashed_flow(self, src: Node, dst: Node, *, lane: int, seed: int) -> HashedFlow:
        """The same for both directions, as the addresses of both name the plane."""
        return HashedFlow(min(src, dst), max(src, dst), lane, seed)


class Mptcp(KernelTransport):
    """The kernel's Multipath TCP with a subflow in each plane."""

    kind: Literal["mptcp"] = "mptcp"

    @property
    def payload_share(self) -> float:
        """Payload of a full packet over its size on the wire, Ethernet header included."""
        return (WIRE_BYTES - _TCP - _MPTCP_OPTION) / WIRE_BYTES

    def choose_evs(
        self, topology: Topology, src: Node, dst: Node, *, lane: int, seed: int
    ) -> tuple[EvChoice, ...]:
        """An EV in each plane: that of the path which ordinary traffic takes there."""
        planes = range(topology.planes)
        paths = [ordinary_path(topology, src, dst, plane, seed + lane) for plane in planes]
        return tuple(EvChoice(ev_for_path(path), path, active=True) for path in paths)


Transport = Annotated[Mrc | Roce | Tcp | Mptcp, ByKind()]

KERNEL_KINDS = frozenset(kinds_of((Tcp, Mptcp)))
"""The kinds of the transports that run in the kernel."""
