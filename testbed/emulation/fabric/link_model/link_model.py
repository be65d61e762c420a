"""The link model: every link direction as a switch port and a wire, decided in the kernel.

`bpf/linkmodel.bpf.c` decides what happens to a packet; this module has its loader and its memory.
All directions are records of one array in memory that the kernel's programs and every process of
the sandbox share: a change is one store, in force for the next packet, and reading all counters
reads memory.

Faults act at the receiving port, on the wire behind the queue: packets that are queued when a
blackhole begins are lost as they leave. A packet capture at the receiving port still sees them.
"""

import contextlib
import ctypes
import mmap
import os
import re
import time
from collections.abc import Iterator, Mapping
from ctypes import CDLL, CFUNCTYPE, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass, fields
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from testbed.model.closeable import Closeable
from testbed.model.errors import MachineError
from testbed.model.fabric.nodes import FIRST_IFINDEX, Port, Tier
from testbed.model.fabric.topology import Shape, Topology, shape_of
from testbed.model.faults.impairment import PPM
from testbed.model.run_files.content import LinkCounts
from testbed.model.units import NS_PER_S
from testbed.mrc.constants import DscpClasses
from testbed.mrc.wire.kinds import TRIMMED_BYTES
from testbed.sandbox import namespaces
from testbed.sandbox.system_calls import last_error

# --------------------------------------------------------------------------------------------------
# The functions of libbpf that the fabric needs, through ctypes: load an object, share its maps.
#
# Only the shared library is needed at run time; every distribution installs it with iproute2.


LIBRARY = "libbpf.so.1"

_Print = CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)


@cache
def _library() -> CDLL:
    """Load the library and declare the functions that are used.

    Raises:
        OSError: it is not installed.
    """
    library = CDLL(LIBRARY, use_errno=True)
    for name, result, *arguments in (
        ("bpf_object__open_file", c_void_p, c_char_p, c_void_p),
        ("bpf_object__load", c_int, c_void_p),
        ("bpf_object__close", None, c_void_p),
        ("bpf_object__find_map_by_name", c_void_p, c_void_p, c_char_p),
        ("bpf_object__find_program_by_name", c_void_p, c_void_p, c_char_p),
        ("bpf_map__set_max_entries", c_int, c_void_p, c_uint32),
        ("bpf_map__fd", c_int, c_void_p),
        ("bpf_program__fd", c_int, c_void_p),
        ("bpf_obj_pin", c_int, c_int, c_char_p),
        ("bpf_obj_get", c_int, c_char_p),
        ("libbpf_set_print", c_void_p, _Print),
    ):
        function = getattr(library, name)  # the library keeps it, unlike library[name]
        function.restype, function.argtypes = result, arguments
    return library


@cache
def _vsnprintf() -> Any:
    function = CDLL(None).vsnprintf
    function.restype, function.argtypes = c_int, (c_char_p, c_size_t, c_char_p, c_void_p)
    return function


class _Messages:
    """Collects the warnings that libbpf would print to stderr: the reasons of a failure."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._callback = _Print(self._append)  # kept alive: libbpf holds a plain pointer
        _library().libbpf_set_print(self._callback)

    def _append(self, level: int, template: bytes, arguments: int) -> int:
        if level == 0:  # LIBBPF_WARN
            text = ctypes.create_string_buffer(1024)
            _vsnprintf()(text, len(text), template, arguments)
            self._lines.append(text.value.decode(errors="replace").strip())
        return 0

    def stop(self) -> str:
        """Stop collecting; returns the first lines."""
        _library().libbpf_set_print(_Print())
        return "; ".join(self._lines[:3])


class BpfObject(Closeable):
    """An object file of programs and maps, loaded into the kernel until it is closed.

    Attached programs, and pinned or mapped maps, stay in the kernel afterwards.
    """

    def __init__(self, file: Path) -> None:
        """Read the file.

        Raises:
            OSError: the file or the library does not exist, or the file is not an object file.
        """
        self._messages = _Messages()
        self._object = _library().bpf_object__open_file(os.fsencode(file), None)
        if not self._object:
            raise self._error(f"open {file}")

    def close(self) -> None:
        _library().bpf_object__close(self._object)
        self._messages.stop()

    def resize_map(self, name: str, entries: int) -> None:
        """Set how many entries a map has; to be called before `load`."""
        if _library().bpf_map__set_max_entries(self._find("map", name), entries):
            raise self._error(f"resize the map {name}")

    def load(self) -> None:
        """Have the kernel verify and load the programs.

        Raises:
            OSError: the kernel refused; with the reason that libbpf reports.
        """
        if _library().bpf_object__load(self._object):
            raise self._error("load")

    def map_fd(self, name: str) -> int:
        """Descriptor of a loaded map, valid until `close`."""
        return int(_library().bpf_map__fd(self._find("map", name)))

    def program_fd(self, name: str) -> int:
        """Descriptor of a loaded program, valid until `close`."""
        return int(_library().bpf_program__fd(self._find("program", name)))

    def _find(self, kind: str, name: str) -> int:
        """A pointer to a map or a program."""
        find = getattr(_library(), f"bpf_object__find_{kind}_by_name")
        pointer: int | None = find(self._object, name.encode())
        if not pointer:
            raise self._error(f"find the {kind} {name}")
        return pointer

    def _error(self, action: str) -> OSError:
        return last_error(action, self._messages.stop())


def pin(fd: int, place: Path) -> None:
    """Give a map or program a name in a BPF file system, so that other processes can open it.

    Raises:
        OSError: there is no BPF file system.
    """
    if _library().bpf_obj_pin(fd, os.fsencode(place)):
        raise last_error(f"pin {place}")


def open_pinned(place: Path) -> int:
    """Open what was pinned; the caller closes the descriptor.

    Raises:
        OSError: there is nothing of that name.
    """
    fd: int = _library().bpf_obj_get(os.fsencode(place))
    if fd < 0:
        raise last_error(f"open {place}")
    return fd


SOURCES = Path(__file__).parent / "bpf"
HEADER = SOURCES / "linkmodel.h"
OBJECT = SOURCES / "linkmodel.bpf.o"
SUMS = SOURCES / "linkmodel.sha256"
"""What sha256sum wrote of the object and the sources that it was built from."""

BPF_DIRECTORY = Path("/run/bpf")
"""Mount point of the sandbox's own BPF file system."""

PINNED = BPF_DIRECTORY / "directions"

READ_NS = 100_000
READ_TRIES = 5
"""Reading all ports takes some microseconds; if it takes longer, another program had the CPU."""

BUILD_REMEDY = (
    "in a checkout, make setup builds it, with clang, libbpf-dev and linux-libc-dev installed; "
    "until then links have their rate and drop the tail of a full queue, no more"
)

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_STRUCT = re.compile(r"(struct \w+) \{(.*?)\n\};", re.DOTALL)
_FIELD = re.compile(r"(__u64|struct \w+) (\w+)(?:\[(\d+)\])?;")


@cache
def direction_type() -> np.dtype[np.void]:
    """The record of one direction, as `struct direction` of bpf/linkmodel.h declares it."""
    types: dict[str, np.dtype[Any]] = {"__u64": np.dtype("<u8")}
    for struct, body in _STRUCT.findall(_COMMENT.sub("", HEADER.read_text(encoding="utf-8"))):
        types[struct] = np.dtype(
            [
                (name, types[kind], (int(count),)) if count else (name, types[kind])
                for kind, name, count in _FIELD.findall(body)
            ]
        )
    return types["struct direction"]


class LinkModel:
    """The shared memory of a sandbox's link model.

    Attributes:
        records: a record of `direction_type` for every direction, in the order of `names`; a change
            of its configuration holds from the next packet on.
        names: every direction, such as `p0_t0_0>p0_t1_2`.
    """

    def __init__(self, topology: Topology, fd: int) -> None:
        """Map the memory behind a map's descriptor."""
        count, record = 2 * len(topology.links), direction_type()
        self._memory = mmap.mmap(fd, (FIRST_IFINDEX + count) * record.itemsize)
        self.records: npt.NDArray[np.void] = np.frombuffer(
            self._memory, record, count, FIRST_IFINDEX * record.itemsize
        )
        self.names = tuple(name for link in topology.links.values() for name in link.directions)
        self._index = {name: i for i, name in enumerate(self.names)}
        self._counters = {
            field.name: column
            for field in fields(LinkCounts)
            for column in (field.name, f"{field.name}_packets")
            if column in (record.names or ())
        }

    @classmethod
    def open(cls, topology: Topology) -> Self | None:
        """Open the model of this sandbox's fabric, from any process in it; None if it has none."""
        if not PINNED.exists():
            return None
        fd = open_pinned(PINNED)
        try:
            return cls(topology, fd)
        finally:
            os.close(fd)

    # --- directions ---------------------------------------------------------------------------

    def index(self, direction: str | Port) -> int:
        """The index of a direction in `records`, by its name or by the port that sends."""
        if isinstance(direction, Port):
            return direction.ifindex - FIRST_IFINDEX
        return self._index[direction]

    def counts(self, direction: str | Port) -> LinkCounts:
        row = self.records[list(self._counters.values())][self.index(direction)]
        return LinkCounts(**dict(zip(self._counters, map(int, row), strict=True)))

    def all_counts(self) -> Mapping[str, LinkCounts]:
        rows = self.records[list(self._counters.values())].tolist()
        return {
            name: LinkCounts(**dict(zip(self._counters, row, strict=True)))
            for name, row in zip(self.names, rows, strict=True)
        }

    def backlog_bytes(self) -> npt.NDArray[np.int64]:
        """Bytes queued at every port now, in the order of `names`."""
        finish, now = self._finish_now()
        records = self.records
        epochs = records["epochs"][np.arange(len(records)), records["epoch"].astype(np.intp) & 1]
        elapsed = np.maximum(now, epochs["since_ns"]) - epochs["since_ns"]
        second = np.uint64(NS_PER_S)
        served = epochs["served_bytes"] + elapsed // second * epochs["rate"]
        served += elapsed % second * epochs["rate"] // second
        backlog: npt.NDArray[np.int64] = (np.maximum(finish, served) - served).astype(np.int64)
        return backlog

    def _finish_now(self) -> tuple[npt.NDArray[np.uint64], np.uint64]:
        """Every port's `finish` and the time at which they were read, in ns.

        Reads again if this process lost the CPU between the two, since the time that passed there
        would count as backlog.
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
        """Set a direction up: its queue, its classes, no faults. It must not carry packets yet."""
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
        """Change the rate at which the queue drains; its packets stay in it."""
        record = self.records[self.index(direction)]
        now, active = time.monotonic_ns(), int(record["epoch"])
        other = record["epochs"][1 - active]
        other["since_ns"] = now
        other["served_bytes"] = _served(record["epochs"][active], now)
        other["rate"] = _bytes_per_s(rate_bps)
        record["epoch"] = 1 - active

    def empty(self, direction: str | Port) -> None:
        """Empty the fluid queue, after the kernel has emptied the port's queue."""
        record = self.records[self.index(direction)]
        record["finish"] = record["finish_priority"] = 0

    def set_faults(self, direction: str | Port, **values: int) -> None:
        """Set faults of the wire, by the names of their fields; other faults stay."""
        record = self.records[self.index(direction)]
        for field, value in values.items():
            record[field] = value

    def field(self, direction: str | Port, field: str) -> int:
        """Read one field of a direction's record, such as a fault."""
        return int(self.records[self.index(direction)][field])

    def rate_bps(self, direction: str | Port) -> int:
        """The present rate at which a direction's queue drains."""
        record = self.records[self.index(direction)]
        return 8 * int(record["epochs"][int(record["epoch"])]["rate"])

    @staticmethod
    def kept_rate_bps(rate_bps: int) -> int:
        """A rate after rounding to whole bytes per second, as the model keeps it."""
        return 8 * _bytes_per_s(rate_bps)


def _bytes_per_s(rate_bps: int) -> int:
    return max(round(rate_bps / 8), 1)


def _served(epoch: np.void, now: int) -> int:
    """Bytes served up to now, as `served_by` of the kernel's program computes them."""
    since, served, rate = (int(epoch[field]) for field in ("since_ns", "served_bytes", "rate"))
    return served + max(now - since, 0) * rate // NS_PER_S


# --- loading ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Programs:
    """The loaded programs; they can be attached while they are open.

    Attributes:
        model: the shared memory.
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
        seed: repeats every random choice; each direction derives its own seed from it.

    Raises:
        MachineError: it is not built, or this machine cannot run it.
    """
    with _loaded(2 * len(topology.links)) as programs:
        try:
            BPF_DIRECTORY.mkdir(exist_ok=True)
            if not os.path.ismount(BPF_DIRECTORY):
                namespaces.mount("bpf", str(BPF_DIRECTORY), "bpf")
            PINNED.unlink(missing_ok=True)
            pin(programs.map_fd("directions"), PINNED)
        except OSError as error:
            raise MachineError(f"the link model cannot be shared: {error}", BUILD_REMEDY) from error
        model = LinkModel(topology, programs.map_fd("directions"))
        for link in topology.links.values():
            for port in link.ports:
                model.configure(port, shape_of(topology, link, port), seed * PPM + port.ifindex)
                model.records[model.index(port)]["labels_paths"] = port.node.tier is Tier.HOST
        yield Programs(model, programs.program_fd("port"), programs.program_fd("wire"))


def missing() -> MachineError | None:
    """Why this machine cannot run the link model; None if it can. Needs root."""
    try:
        with _loaded(2):
            return None
    except MachineError as error:
        return error


def _has_other_sources() -> bool:
    """Whether the object or a source is not as it was when the object was built."""
    sums = (line.split() for line in SUMS.read_text(encoding="utf-8").splitlines())
    return any(sha256((SOURCES / name).read_bytes()).hexdigest() != digest for digest, name in sums)


@contextlib.contextmanager
def _loaded(directions: int) -> Iterator[BpfObject]:
    if not OBJECT.exists():
        raise MachineError("the link model is not built", BUILD_REMEDY)
    if _has_other_sources():
        raise MachineError("the link model is built from other sources", BUILD_REMEDY)
    try:
        programs = BpfObject(OBJECT)
    except OSError as error:
        remedy = "install libbpf1 (Debian, Ubuntu) or libbpf (Fedora)"
        raise MachineError(f"the link model cannot be read: {error}", remedy) from error
    with programs:
        try:
            programs.resize_map("directions", FIRST_IFINDEX + directions)
            programs.load()
        except OSError as error:
            remedy = "a kernel from 5.15 on with CONFIG_BPF_SYSCALL; in a container, CAP_BPF"
            raise MachineError(f"the kernel refuses the link model: {error}", remedy) from error
        yield programs
