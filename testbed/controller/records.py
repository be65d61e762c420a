"""What happened to each fault, kept in `faults.jsonl`.

The file holds one line for each fault so far, its newest state: at every change the whole file is
written anew beside it and renamed over it. So a reader never sees half a line nor a fault twice,
and what the file says stands even if the controller is killed the moment after.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testbed.model.faults import FaultKind


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One fault's ground truth. Times are CLOCK_MONOTONIC in ns, None where it did not come to it.

    Attributes:
        index: its place in the scenario's timeline.
        kind: what it was.
        target: the link.
        actuator: `openflow` or `link`.
        asked_ns: when the timeline asked for it.
        effective_after_ns: nothing had changed before this.
        effective_ns: it held for every packet from here on.
        heal_asked_ns: when the timeline asked to heal it.
        heal_after_ns: it held until this, at least.
        healed_ns: the link was whole again by here.
        proof: what shows it: carrier at both ends, packets dropped and forwarded meanwhile.
        error: why it did not take effect or did not heal; None if all is well.
    """

    index: int
    kind: FaultKind
    target: str
    actuator: str
    asked_ns: int | None
    effective_after_ns: int | None = None
    effective_ns: int | None = None
    heal_asked_ns: int | None = None
    heal_after_ns: int | None = None
    healed_ns: int | None = None
    proof: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The record as the values of a JSON object."""
        return asdict(self)


class FaultLog:
    """The records of a run, in memory and in its file."""

    def __init__(self, path: Path) -> None:
        """Write an empty file."""
        self._path = path
        self.records: dict[int, FaultRecord] = {}
        self._write()

    def put(self, record: FaultRecord) -> None:
        """Keep a fault's newest state."""
        self.records[record.index] = record
        self._write()

    @property
    def has_errors(self) -> bool:
        """Whether any fault did not go as asked."""
        return any(record.error is not None for record in self.records.values())

    def _write(self) -> None:
        beside = self._path.with_name(f".{self._path.name}.new")
        with beside.open("w") as file:
            for _, record in sorted(self.records.items()):
                file.write(json.dumps(record.as_json()) + "\n")
        beside.replace(self._path)
