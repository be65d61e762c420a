"""What hosts send: the workloads that a scenario can choose, each with its parameters.

A workload is a class here, which says what can be set and who sends to whom, and a program in
`workloads/`, which says what each host posts when. Every workload has

- `directions`: who sends to whom, in order, each once;
- `longest_bytes`: the longest message of any flow, where each direction has so many lanes;
- `depth`: how many messages a flow has outstanding at most;
- `continuous`: whether every flow sends without a pause until the run ends.
"""

from math import ceil
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from testbed.model.fabric.topology import Topology
from testbed.model.part import ByKind, Part
from testbed.model.units import Duration, RunTime, Size, parse_size, show_size

MAX_MESSAGE = parse_size("128 MiB")
"""Longest message. RDMA allows 2 GiB, of which not one would complete in a run."""


def _message_size(size: int) -> int:
    if not 1 <= size <= MAX_MESSAGE:
        raise ValueError(f"a size from 1 B to {show_size(MAX_MESSAGE)}")
    return size


MessageSize = Annotated[Size, AfterValidator(_message_size), Field(description="of one WRITE")]
Depth = Annotated[int, Field(ge=1, le=64, strict=True, description="WRITEs outstanding per flow")]
Members = Annotated[
    tuple[str, ...],
    Field(min_length=2, description="the hosts that take part, in order; all if not given"),
]
BufferSize = Annotated[
    Size, AfterValidator(_message_size), Field(description="of each host's buffer, as nccl-tests")
]
Slices = Annotated[
    int,
    Field(ge=1, le=16, strict=True, description="parts of a chunk that go around one by one"),
]

PIECE = parse_size("1 MiB")
"""Transfers are cut in messages of this size: ours, so that memory does not grow with them."""

_ONE_MIB = parse_size("1 MiB")
_DEFAULT_DEPTH = 4


class _BackToBack(Part):
    """What sends without a pause: WRITEs of one size, some of them outstanding."""

    kind: str
    message_size: MessageSize = _ONE_MIB
    depth: Depth = _DEFAULT_DEPTH

    @property
    def continuous(self) -> bool:
        """It never pauses."""
        return True

    def longest_bytes(self, _topology: Topology, _lanes: int) -> int:
        """Every message is of one size."""
        return self.message_size


class WriteBw(_BackToBack):
    """RDMA WRITEs back to back between pairs of hosts, as perftest's `ib_write_bw`."""

    kind: Literal["write_bw"] = "write_bw"
    pairs: Annotated[
        tuple[tuple[str, str], ...],
        Field(min_length=1, description="pairs of hosts, such as [[h0, h4], [h1, h5]]"),
    ]
    bidirectional: Annotated[
        bool, Field(strict=True, description="whether both hosts of a pair write")
    ] = True

    def directions(self, _topology: Topology) -> tuple[tuple[str, str], ...]:
        """Both ways where the workload is bidirectional."""
        back = [(b, a) for a, b in self.pairs] if self.bidirectional else []
        return (*self.pairs, *back)


class Permutation(_BackToBack):
    """Every host writes to one other, back to back, and is written to by one."""

    kind: Literal["permutation"] = "permutation"
    hosts: Members | None = None
    shift: (
        Annotated[
            int,
            Field(ge=1, strict=True, description="how far in the list; half of it if not given"),
        ]
        | None
    ) = None

    def directions(self, topology: Topology) -> tuple[tuple[str, str], ...]:
        """From each member to the one `shift` places on."""
        hosts = members(self.hosts, topology)
        shift = len(hosts) // 2 if self.shift is None else self.shift
        return tuple((host, hosts[(i + shift) % len(hosts)]) for i, host in enumerate(hosts))


class Incast(_BackToBack):
    """Many hosts write to one, back to back; a victim may write to another meanwhile."""

    kind: Literal["incast"] = "incast"
    senders: Annotated[
        tuple[str, ...], Field(min_length=1, description="the hosts that write to `target`")
    ]
    target: Annotated[str, Field(description="the host that they write to")]
    victim: (
        Annotated[tuple[str, str], Field(description="a flow beside them, such as [h7, h1]")] | None
    ) = None

    def directions(self, _topology: Topology) -> tuple[tuple[str, str], ...]:
        """Each sender to the target; the victim last."""
        victim = [self.victim] if self.victim is not None else []
        return (*((sender, self.target) for sender in self.senders), *victim)


class _InStep(Part):
    """A collective: hosts with a buffer each, which wait for one another."""

    kind: str
    hosts: Members | None = None
    size: BufferSize = _ONE_MIB

    @property
    def depth(self) -> int:
        """One round at a time."""
        return 1

    @property
    def continuous(self) -> bool:
        """A host waits for others."""
        return False


class SendRecv(_InStep):
    """Every host sends its buffer to the next and receives another's, again and again (NCCL)."""

    kind: Literal["sendrecv"] = "sendrecv"

    def directions(self, topology: Topology) -> tuple[tuple[str, str], ...]:
        """Around the ring."""
        return _ring(members(self.hosts, topology))

    def longest_bytes(self, _topology: Topology, lanes: int) -> int:
        """The buffer, divided among the lanes."""
        return ceil(self.size / lanes)


class _Reducing(_InStep):
    """A ring all-reduce, or what has one: every chunk goes around in slices."""

    slices: Slices = 2

    @property
    def depth(self) -> int:
        """A slice may follow another before it has been acknowledged."""
        return 2 * self.slices

    def directions(self, topology: Topology) -> tuple[tuple[str, str], ...]:
        """Around the ring."""
        return _ring(members(self.hosts, topology))

    def longest_bytes(self, topology: Topology, lanes: int) -> int:
        """A slice of a chunk: the buffer is cut in as many chunks as there are hosts."""
        return ceil(self.size / (len(members(self.hosts, topology)) * self.slices * lanes))


class AllReduce(_Reducing):
    """Ring all-reduce, again and again: reduce-scatter, then all-gather, around the ring."""

    kind: Literal["allreduce"] = "allreduce"


class AllToAll(_InStep):
    """Every host sends a part of its buffer to every other, again and again."""

    kind: Literal["alltoall"] = "alltoall"

    def directions(self, topology: Topology) -> tuple[tuple[str, str], ...]:
        """All pairs; each host begins with the one behind it, so that not all begin with one."""
        hosts = members(self.hosts, topology)
        return tuple(
            (host, hosts[(i + step) % len(hosts)])
            for i, host in enumerate(hosts)
            for step in range(1, len(hosts))
        )

    def longest_bytes(self, topology: Topology, lanes: int) -> int:
        """One host's part of the buffer."""
        return ceil(self.size / (len(members(self.hosts, topology)) * lanes))


class Training(_Reducing):
    """Synchronous training steps: compute, all-reduce the gradients, wait for everybody."""

    kind: Literal["training"] = "training"
    compute: Annotated[
        RunTime, Field(ge=0, description="time of each step in which nothing is sent")
    ]

    def directions(self, topology: Topology) -> tuple[tuple[str, str], ...]:
        """Around the ring; for the barrier to the first host and back."""
        hosts = members(self.hosts, topology)
        first, *others = hosts
        barrier = [pair for other in others for pair in ((other, first), (first, other))]
        return tuple(dict.fromkeys((*super().directions(topology), *barrier)))


class Connection(Part):
    """One transfer of a connection matrix."""

    src: Annotated[str, Field(description="the sending host")]
    dst: Annotated[str, Field(description="the receiving host")]
    start: Annotated[Duration, Field(ge=0, description="when it begins, in real units")]
    size: Annotated[int, Field(ge=1, strict=True, description="in bytes")]


class Connections(Part):
    """The transfers of a connection matrix, in the format of htsim."""

    kind: Literal["connections"] = "connections"
    matrix: Annotated[
        tuple[Connection, ...],
        Field(min_length=1, description="the file of a connection matrix, or its transfers"),
    ]

    @property
    def depth(self) -> int:
        """A transfer longer than `PIECE` is posted in pieces, so many at once."""
        return _DEFAULT_DEPTH

    @property
    def continuous(self) -> bool:
        """Transfers begin and end."""
        return False

    def directions(self, _topology: Topology) -> tuple[tuple[str, str], ...]:
        """In order of first mention."""
        return tuple(dict.fromkeys((one.src, one.dst) for one in self.matrix))

    def longest_bytes(self, _topology: Topology, _lanes: int) -> int:
        """A piece of the longest transfer."""
        return min(max(one.size for one in self.matrix), PIECE)


Collective = SendRecv | AllReduce | AllToAll | Training

Workload = Annotated[
    WriteBw | Permutation | Incast | SendRecv | AllReduce | AllToAll | Training | Connections,
    ByKind(),
]


def members(hosts: tuple[str, ...] | None, topology: Topology) -> tuple[str, ...]:
    """The hosts that take part: those named, or all of the fabric."""
    if hosts is not None:
        return hosts
    return tuple(f"h{i}" for i in range(topology.t0_per_plane * topology.hosts_per_t0))


def _ring(hosts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(hosts, (*hosts[1:], hosts[0]), strict=True))
