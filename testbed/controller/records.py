"""What happened to each fault, kept in `faults.jsonl`.

The file holds one line for each fault so far, its newest state: at every change the whole file is
written anew beside it and renamed over it. So a reader never sees half a line nor a fault twice,
and what the file says stands even if the controller is killed the moment after.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a fault's course.

    Attributes:
        asked_ns: when it was due.
        after_ns: nothing had changed before this.
        by_ns: it held for every packet from here on.
        state: what was wrong from then on; empty where nothing was.
    """

    asked_ns: int
    after_ns: int
    by_ns: int
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One fault's ground truth. Times are CLOCK_MONOTONIC in ns, None where it did not come to it.

    Attributes:
        index: its number among all faults of the run.
        kind: what it was.
        target: what it struck, in words.
        places: the directions of links, or the hosts, that it struck.
        actuator: `openflow`, `link` or `endpoint`; several, joined by +, where it took several.
        asked_ns: when it was asked for.
        effective_after_ns: nothing had changed before this.
        effective_ns: it held for every packet from here on.
        heal_asked_ns: when it was asked to heal.
        heal_after_ns: it held until this, at least.
        healed_ns: the places were whole again by here, but for other faults.
        steps: every step of its course so far.
        proof: what shows it: carrier at both ends, what counters say became of packets meanwhile.
        error: why it did not take effect or did not heal; None if all is well.
    """

    index: int
    kind: str
    target: str
    places: tuple[str, ...]
    actuator: str
    asked_ns: int | None
    effective_after_ns: int | None = None
    effective_ns: int | None = None
    heal_asked_ns: int | None = None
    heal_after_ns: int | None = None
    healed_ns: int | None = None
    steps: tuple[StepRecord, ...] = ()
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
        self._lines: dict[int, tuple[FaultRecord, str]] = {}
        self.records: dict[int, FaultRecord] = {}
        self._write()

    def put(self, record: FaultRecord) -> None:
        """Keep a fault's newest state."""
        self.records[record.index] = record
        self._write()

    def keep(self, record: FaultRecord) -> None:
        """Keep a fault's newest state in memory: it will change again soon."""
        self.records[record.index] = record

    @property
    def has_errors(self) -> bool:
        """Whether any fault did not go as asked."""
        return any(record.error is not None for record in self.records.values())

    def _write(self) -> None:
        _replace(self._path, [self._line(record) for _, record in sorted(self.records.items())])

    def _line(self, record: FaultRecord) -> str:
        """What the file says of a fault; of hundreds only those that changed are written out anew.

        Other faults wait meanwhile.
        """
        written = self._lines.get(record.index)
        if written is None or written[0] is not record:
            written = self._lines[record.index] = record, _as_line(record.as_json())
        return written[1]


def amend(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change every line of a file whose writer is no more."""
    changed = [change(json.loads(line)) for line in path.read_text().splitlines()]
    _replace(path, map(_as_line, changed))


def _as_line(record: dict[str, Any]) -> str:
    return json.dumps(record) + "\n"


def _replace(path: Path, lines: Iterable[str]) -> None:
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w") as file:
        file.writelines(lines)
    beside.replace(path)
