"""What is measured: perftest's options."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, Self

from testbed.model.errors import InputError, Problem

ALL_SIZES: Final = tuple(1 << power for power in range(1, 24))
"""perftest's `--all`: 2 bytes to 8 MiB."""

MAX_SIZE: Final = 1 << 30
MAX_QPS: Final = 16_384
"""perftest's own bound."""


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
            ("--tx-depth", self.tx_depth, 1, 1 << 16),
        )
        problems = {
            Problem(option, str(value), f"a whole number from {least} to {most}")
            for option, value, least, most in checks
            if not least <= value <= most
        }
        if problems:
            raise InputError(list(problems))

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
