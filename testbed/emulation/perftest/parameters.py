"""What is measured: perftest's options."""

import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple, Self

import typer

from testbed.model.errors import InputError, MachineError, Problem

ALL_SIZES: Final = tuple(1 << power for power in range(1, 24))
"""perftest's `--all`: 2 bytes to 8 MiB."""

MAX_SIZE: Final = 1 << 30
MAX_QPS: Final = 16_384
"""perftest's own bound."""

_MAX_TX_DEPTH: Final = 16_384
"""The device's."""


_QP_BYTES: Final = 64 << 10
"""Memory of a queue pair, rounded up (measured: 24 kB when it is connected)."""

_OUTSTANDING_BYTES: Final = 832
"""Memory of a message that is posted and has not completed: 304 of its ring, 503 in the NIC."""

_TIMES_BYTES: Final = 80
"""Memory of the times of a message: two places in lists, and the numbers."""

_CONTENT_COPIES: Final = 3
"""Messages' worth of memory for their content, while it is made."""

_SIZE = re.compile(r"([0-9]{1,12})([KMG]?)", re.ASCII | re.IGNORECASE)
_FACTORS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size_of(text: str | int) -> int:
    """A size in bytes as perftest's `--size` takes it: `65536`, `64K`, `1M`, powers of 1024.

    Raises:
        InputError: it is none.
    """
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        expected = "a whole number of bytes, or of KiB, MiB or GiB: 65536, 64K, 1M"
        raise InputError.of("--size", str(text), expected)
    return int(match[1]) * _FACTORS[match[2].upper()]


class Tool(StrEnum):
    """A measurement."""

    BANDWIDTH = "write_bw"
    LATENCY = "write_lat"


@dataclass(frozen=True, slots=True)
class Parameters:
    """One measurement.

    Attributes:
        tool: which.
        sizes: bytes of a message, one measurement each.
        iters: messages of each queue pair and direction.
        qps: queue pairs.
        tx_depth: messages that are outstanding on a queue pair.
        bidirectional: whether both ends send.
    """

    tool: Tool
    sizes: tuple[int, ...]
    iters: int
    qps: int = 1
    tx_depth: int = 128
    bidirectional: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be measured.

        Raises:
            InputError: an option is out of its range.
        """
        checks = (
            ("--size", max(self.sizes, default=0), 1, MAX_SIZE),
            ("--size", min(self.sizes, default=0), 1, MAX_SIZE),
            ("--iters", self.iters, 1, 1 << 32),
            ("--qp", self.qps, 1, MAX_QPS),
            ("--tx-depth", self.tx_depth, 1, _MAX_TX_DEPTH),
        )
        problems = {
            Problem(option, str(value), f"a whole number from {least} to {most}")
            for option, value, least, most in checks
            if not least <= value <= most
        }
        if problems:
            raise InputError(list(problems))

    @property
    def memory_bytes(self) -> int:
        """What both ends take together, which are on one machine."""
        of_messages = max(self.sizes) * (self.qps + _CONTENT_COPIES)
        of_queues = min(self.tx_depth, self.iters) * _OUTSTANDING_BYTES + self.iters * _TIMES_BYTES
        senders = 2 if self.bidirectional else 1
        return 2 * (of_messages + self.qps * _QP_BYTES) + senders * self.qps * of_queues

    def require_memory(self, available: float) -> None:
        """Check that the ends fit into the memory that is available, in bytes.

        Raises:
            MachineError: they do not.
        """
        from testbed.model.units import show_size  # noqa: PLC0415 - it takes long, and --help is quick

        if self.memory_bytes > available:
            raise MachineError(
                f"{self.qps:,} queue pairs with messages of {show_size(max(self.sizes))} take "
                f"{show_size(self.memory_bytes)} of memory, {show_size(available)} are available",
                "a smaller --size, --tx-depth or --iters, or fewer queue pairs (--qp)",
            )

    def as_dict(self) -> dict[str, Any]:
        """The parameters as they are sent to the other end."""
        return asdict(self)

    @classmethod
    def from_dict(cls, received: dict[str, Any]) -> Self:
        """The parameters that the other end has sent."""
        return cls(
            **{**received, "tool": Tool(received["tool"]), "sizes": tuple(received["sizes"])}
        )


@dataclass(frozen=True, slots=True)
class Show:
    """How results are printed: perftest's table, in MiB/s or Gbit/s, or JSON."""

    gbits: bool = False
    as_json: bool = False


Size = Annotated[
    int,
    typer.Option(
        "--size", "-s", metavar="BYTES", parser=size_of, help="Bytes of a message: 65536, 64K, 1M."
    ),
]
Iters = Annotated[int, typer.Option("--iters", "-n", help="Messages of each QP and direction.")]
All = Annotated[bool, typer.Option("--all", "-a", help="Sizes from 2 bytes to 8 MiB.")]
Qps = Annotated[int, typer.Option("--qp", "-q", help="Queue pairs.")]
TxDepth = Annotated[int, typer.Option("--tx-depth", "-t", help="Messages outstanding on a QP.")]
Bidirectional = Annotated[bool, typer.Option("--bidirectional", "-b", help="Both ends send.")]
ReportGbits = Annotated[bool, typer.Option("--report_gbits", help="Gbit/s instead of MiB/s.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, a line a pair, for programs.")]


class Request(NamedTuple):
    """What is measured, and how it is printed."""

    parameters: Parameters
    show: Show


def bandwidth(
    size: Size = 65_536,
    iters: Iters = 500,
    all_sizes: All = False,
    qp: Qps = 1,
    tx_depth: TxDepth = 128,
    bidirectional: Bidirectional = False,
    report_gbits: ReportGbits = False,
    as_json: Json = False,
) -> Request:
    """The options of write_bw.

    The defaults are perftest's own, but for the iterations, 5000 there, and 1000 of write_lat: one
    takes 10,000 times longer here.
    """
    sizes = ALL_SIZES if all_sizes else (size,)
    parameters = Parameters(Tool.BANDWIDTH, sizes, iters, qp, tx_depth, bidirectional)
    return Request(parameters, Show(report_gbits, as_json))


def latency(
    size: Size = 2, iters: Iters = 100, all_sizes: All = False, as_json: Json = False
) -> Request:
    """The options of write_lat."""
    sizes = ALL_SIZES if all_sizes else (size,)
    return Request(Parameters(Tool.LATENCY, sizes, iters), Show(as_json=as_json))
