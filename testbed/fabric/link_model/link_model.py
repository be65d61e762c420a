"""The link model: every link direction as a switch port and a wire, decided in the kernel.

`bpf/linkmodel.bpf.c` says what happens to a packet; here are its loader and its memory. All
directions stand in one array in memory that the kernel's programs and every process of the sandbox
share: a change is one store, in force for the next packet, and reading all counters reads memory.

Faults act at the receiving port, on the wire behind the queue: what waits in the queue when a
blackhole begins is lost as it leaves. A packet capture at the receiving port still sees it.
"""

import contextlib
import mmap
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from testbed.fabric.link_model import libbpf
from testbed.fabric.link_model.libbpf import BpfObject
from testbed.model.errors import MachineError
from testbed.model.fabric.nodes import FIRST_IFINDEX, Port, Tier
from testbed.model.fabric.shape import Shape, shape_of
from testbed.model.fabric.topology import Topology
from testbed.model.run_files.run import LinkCounts
from testbed.model.units import NS_PER_S
from testbed.mrc.constants import DscpClasses
from testbed.mrc.wire.codec import TRIMMED_BYTES
from testbed.sandbox import namespaces

SOURCES = Path(__file__).parent / "bpf"
OBJECT = SOURCES / "linkmodel.bpf.o"
BPF_DIRECTORY = Path("/run/bpf")
"""A BPF file system of the sandbox's own is mounted there."""

PINNED = BPF_DIRECTORY / "directions"
PPM = 1_000_000

READ_NS = 100_000
READ_TRIES = 5
"""Reading all ports takes some microseconds; after so long another program has had the CPU."""

BUILD_REMEDY = (
    "make setup, with clang, libbpf-dev and linux-libc-dev installed, builds it; "
    "until then links have their rate and drop the tail of a full queue, no more"
)

EPOCH = np.dtype([("since_ns", "<u8"), ("served_bytes", "<u8"), ("rate", "<u8")])
DIRECTION = np.dtype(
    [
        ("epochs", EPOCH, (2,)),
        ("epoch", "<u8"),
        ("limit_bytes", "<u8"),
        ("trim_bytes", "<u8"),
        ("ecn_min_bytes", "<u8"),
        ("ecn_max_bytes", "<u8"),
        ("priority_classes", "<u8"),
        ("trimmable_classes", "<u8"),
        ("trimmed_dscp", "<u8"),
        ("kept_bytes", "<u8"),
        ("seed", "<u8"),
        ("blackhole", "<u8"),
        ("loss_ppm", "<u8"),
        ("corrupt_ppm", "<u8"),
        ("path_loss_ppm", "<u8"),
        ("path_mask", "<u8"),
        ("path_value", "<u8"),
        ("delay_ns", "<u8"),
        ("labels_paths", "<u8"),
        ("finish", "<u8"),
        ("finish_priority", "<u8"),
        ("offered_packets", "<u8"),
        ("offered_bytes", "<u8"),
        ("marked_packets", "<u8"),
        ("trimmed_packets", "<u8"),
        ("trimmed_off_bytes", "<u8"),
        ("full_packets", "<u8"),
        ("full_priority_packets", "<u8"),
        ("peak_bytes", "<u8"),
        ("ecn_draws", "<u8"),
        ("_queue", "<u8", (5,)),
        ("packets", "<u8"),
        ("bytes", "<u8"),
        ("lost_packets", "<u8"),
        ("path_lost_packets", "<u8"),
        ("blackholed_packets", "<u8"),
        ("corrupted_packets", "<u8"),
        ("loss_draws", "<u8"),
        ("path_draws", "<u8"),
        ("corrupt_draws", "<u8"),
        ("_wire", "<u8", (7,)),
    ]
)
"""`struct direction` of bpf/linkmodel.h."""

DROPS = (
    "full_packets",
    "full_priority_packets",
    "lost_packets",
    "path_lost_packets",
    "blackholed_packets",
)


_COUNTS = {
    "offered": "offered_packets",
    "offered_bytes": "offered_bytes",
    "packets": "packets",
    "bytes": "bytes",
    "marked": "marked_packets",
    "trimmed": "trimmed_packets",
    "trimmed_off_bytes": "trimmed_off_bytes",
    "full": "full_packets",
    "full_priority": "full_priority_packets",
    "lost": "lost_packets",
    "path_lost": "path_lost_packets",
    "blackholed": "blackholed_packets",
    "corrupted": "corrupted_packets",
    "peak_bytes": "peak_bytes",
}
"""The fields of `LinkCounts` that the link model counts, and their names in `DIRECTION`."""


class LinkModel:
    """The shared memory of a sandbox's link model.

    Attributes:
        records: one record (`DIRECTION`) for every direction, in the order of `names`; what is
            written to its configuration holds from the next packet on.
        names: every direction, such as `p0_t0_0>p0_t1_2`.
    """

    def __init__(self, topology: Topology, fd: int) -> None:
        """Map the memory behind a map's descriptor."""
        count = 2 * len(topology.links)
        self._memory = mmap.mmap(fd, (FIRST_IFINDEX + count) * DIRECTION.itemsize)
        self.records: npt.NDArray[np.void] = np.frombuffer(
            self._memory, DIRECTION, count, FIRST_IFINDEX * DIRECTION.itemsize
        )
        self.names = tuple(_names(topology))
        self._index = {name: i for i, name in enumerate(self.names)}

    @classmethod
    def open(cls, topology: Topology) -> Self | None:
        """Open the model of this sandbox's fabric, from any process in it; None if it has none."""
        if not PINNED.exists():
            return None
        fd = libbpf.open_pinned(PINNED)
        try:
            return cls(topology, fd)
        finally:
            os.close(fd)

    # --- directions ---------------------------------------------------------------------------

    def index(self, direction: str | Port) -> int:
        """Where a direction stands in `records`: by name, or by the port that sends."""
        if isinstance(direction, Port):
            return direction.ifindex - FIRST_IFINDEX
        return self._index[direction]

    def counts(self, direction: str | Port) -> LinkCounts:
        """Read one direction's counters."""
        row = self.records[list(_COUNTS.values())][self.index(direction)]
        return LinkCounts(**dict(zip(_COUNTS, map(int, row), strict=True)))

    def all_counts(self) -> Mapping[str, LinkCounts]:
        """Read every direction's counters."""
        rows = self.records[list(_COUNTS.values())].tolist()
        return {
            name: LinkCounts(**dict(zip(_COUNTS, row, strict=True)))
            for name, row in zip(self.names, rows, strict=True)
        }

    def dropped(self, direction: str | Port) -> int:
        """Packets that a direction has dropped so far, for whatever reason."""
        record = self.records[self.index(direction)]
        return sum(int(record[field]) for field in DROPS)

    def backlog_bytes(self) -> npt.NDArray[np.int64]:
        """What waits at every port now, in bytes, in the order of `names`."""
        finish, now = self._finish_now()
        records = self.records
        epochs = records["epochs"][np.arange(len(records)), records["epoch"].astype(np.intp) & 1]
        elapsed = np.maximum(now, epochs["since_ns"]) - epochs["since_ns"]
        second = np.uint64(NS_PER_S)
        served = epochs["served_bytes"] + elapsed // second * epochs["rate"]
        served += elapsed % second * epochs["rate"] // second
        waiting: npt.NDArray[np.int64] = (np.maximum(finish, served) - served).astype(np.int64)
        return waiting

    def _finish_now(self) -> tuple[npt.NDArray[np.uint64], np.uint64]:
        """The work of every port, and when that was: again where this process lost the CPU between.

        Time that passed between would count as backlog that never was.
        """
        for _ in range(READ_TRIES):
            before = time.monotonic_ns()
            finish = self.records["finish"].copy()
            now = time.monotonic_ns()
            if now - before < READ_NS:
                break
        return finish, np.uint64(now)

    # --- configuration ------------------------------------------------------------------------

    def configure(self, direction: str | Port, shape: Shape, seed: int) -> None:
        """Set a direction up: its queue, its classes, no faults. Nothing may be under way."""
        classes = DscpClasses()
        served = (classes.control, classes.trimmable_retx, classes.trimmed, classes.trimmed_lasthop)
        record = self.records[self.index(direction)]
        record["limit_bytes"] = shape.limit_bytes
        record["trim_bytes"] = shape.trim_bytes
        record["ecn_min_bytes"] = shape.ecn_min_bytes
        record["ecn_max_bytes"] = shape.ecn_max_bytes
        record["priority_classes"] = sum(1 << dscp for dscp in served)
        record["trimmable_classes"] = 1 << classes.trimmable | 1 << classes.trimmable_retx
        record["trimmed_dscp"] = classes.trimmed_lasthop if shape.last_hop else classes.trimmed
        record["kept_bytes"] = TRIMMED_BYTES
        record["seed"] = seed
        record["epochs"][0]["since_ns"] = time.monotonic_ns()
        record["epochs"][0]["rate"] = _bytes_per_s(shape.rate_bps)

    def set_rate(self, direction: str | Port, rate_bps: int) -> None:
        """Have the queue drain at another rate from now on; what is in it stays."""
        record = self.records[self.index(direction)]
        now, active = time.monotonic_ns(), int(record["epoch"])
        other = record["epochs"][1 - active]
        other["since_ns"] = now
        other["served_bytes"] = _served(record["epochs"][active], now)
        other["rate"] = _bytes_per_s(rate_bps)
        record["epoch"] = 1 - active

    def empty(self, direction: str | Port) -> None:
        """Forget what waits: the kernel has emptied the port's queue."""
        record = self.records[self.index(direction)]
        record["finish"] = record["finish_priority"] = 0

    def set_faults(self, direction: str | Port, **values: int) -> None:
        """Set faults of the wire, by the names of their fields; the others stay."""
        record = self.records[self.index(direction)]
        for field, value in values.items():
            record[field] = value

    def fault(self, direction: str | Port, field: str) -> int:
        """Read one of a direction's faults back, by the name of its field."""
        return int(self.records[self.index(direction)][field])

    def delays_ns(self) -> npt.NDArray[np.uint64]:
        """What faults add to the delay of every direction, in the order of `names`.

        Only kept here: no queue of the kernel delays. Receiving endpoints hold packets longer.
        """
        delays: npt.NDArray[np.uint64] = self.records["delay_ns"]
        return delays

    def rate_bps(self, direction: str | Port) -> int:
        """The rate at which a direction's queue drains now."""
        record = self.records[self.index(direction)]
        return 8 * int(record["epochs"][int(record["epoch"])]["rate"])

    @staticmethod
    def kept_rate_bps(rate_bps: int) -> int:
        """What is left of a rate after rounding to whole bytes."""
        return 8 * _bytes_per_s(rate_bps)


def _names(topology: Topology) -> Iterator[str]:
    for link in topology.links.values():
        yield from link.directions


def _bytes_per_s(rate_bps: int) -> int:
    return max(round(rate_bps / 8), 1)


def _served(epoch: np.void, now: int) -> int:
    """Bytes served by now: as `served_by` of the kernel's program."""
    since, served, rate = (int(epoch[field]) for field in ("since_ns", "served_bytes", "rate"))
    return served + max(now - since, 0) * rate // NS_PER_S


# --- loading ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Programs:
    """The loaded programs, to be attached while they are open.

    Attributes:
        model: the memory.
        port: descriptor of the program for tc egress.
        wire: descriptor of the program for tc ingress.
    """

    model: LinkModel
    port: int
    wire: int


@contextlib.contextmanager
def load(topology: Topology, seed: int = 1) -> Iterator[Programs]:
    """Load the model into this sandbox, with every direction set up.

    Args:
        topology: the fabric.
        seed: repeats every random choice; each direction makes its own from it.

    Raises:
        MachineError: it is not built, or this machine cannot run it.
    """
    with _loaded(2 * len(topology.links)) as loaded:
        try:
            BPF_DIRECTORY.mkdir(exist_ok=True)
            if not os.path.ismount(BPF_DIRECTORY):
                namespaces.mount("bpf", str(BPF_DIRECTORY), "bpf")
            PINNED.unlink(missing_ok=True)
            libbpf.pin(loaded.map_fd("directions"), PINNED)
        except OSError as error:
            raise MachineError(f"the link model cannot be shared: {error}", BUILD_REMEDY) from error
        model = LinkModel(topology, loaded.map_fd("directions"))
        for link in topology.links.values():
            for port in link.ports:
                own = seed * PPM + port.ifindex
                model.configure(port, shape_of(topology, link, port), own)
                model.records[model.index(port)]["labels_paths"] = port.node.tier is Tier.HOST
        yield Programs(model, loaded.program_fd("port"), loaded.program_fd("wire"))


def missing() -> MachineError | None:
    """What keeps this machine from running the link model; None if it can. Needs root."""
    try:
        with _loaded(2):
            return None
    except MachineError as error:
        return error


@contextlib.contextmanager
def _loaded(directions: int) -> Iterator[BpfObject]:
    if not OBJECT.exists():
        raise MachineError("the link model is not built", BUILD_REMEDY)
    try:
        opened = BpfObject(OBJECT)
    except OSError as error:
        remedy = "install libbpf1 (Debian, Ubuntu) or libbpf (Fedora)"
        raise MachineError(f"the link model cannot be read: {error}", remedy) from error
    with opened:
        if opened.value_size("directions") != DIRECTION.itemsize:
            raise MachineError("the link model is built from other sources", BUILD_REMEDY)
        try:
            opened.resize_map("directions", FIRST_IFINDEX + directions)
            opened.load()
        except OSError as error:
            remedy = "a kernel from 5.15 on with CONFIG_BPF_SYSCALL; in a container, CAP_BPF"
            raise MachineError(f"the kernel refuses the link model: {error}", remedy) from error
        yield opened
