"""The file `faults.jsonl` while a run goes on: the newest record of every fault so far.

At every change the whole file is written anew beside the old one and renamed over it. So a reader
never sees half a line or a fault twice, and the file is complete even if the controller is killed
the moment after.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from testbed.model.faults.record import FaultRecord


class FaultLog:
    """The records of a run by the faults' numbers, in memory and in the file."""

    def __init__(self, path: Path) -> None:
        """Write an empty file."""
        self._path = path
        self._lines: dict[int, tuple[FaultRecord, str]] = {}
        self.records: dict[int, FaultRecord] = {}
        self._write()

    def write(self, record: FaultRecord) -> None:
        """Replace a fault's record, and write the file."""
        self.records[record.index] = record
        self._write()

    def update(self, record: FaultRecord) -> None:
        """Replace a fault's record; the file is written later, as the record changes again soon."""
        self.records[record.index] = record

    @property
    def has_errors(self) -> bool:
        """Whether any fault failed to take effect, to hold or to heal."""
        return any(record.error is not None for record in self.records.values())

    def _write(self) -> None:
        _replace(self._path, [self._line(record) for _, record in sorted(self.records.items())])

    def _line(self, record: FaultRecord) -> str:
        """The record's line; only changed records are formatted, as other faults wait meanwhile."""
        formatted = self._lines.get(record.index)
        if formatted is None or formatted[0] is not record:
            formatted = self._lines[record.index] = record, record.to_line()
        return formatted[1]


def amend(path: Path, change: Callable[[FaultRecord], FaultRecord]) -> None:
    """Change every record of a file whose writer has ended."""
    records = map(FaultRecord.from_line, path.read_text(encoding="utf-8").splitlines())
    _replace(path, [change(record).to_line() for record in records])


def _replace(path: Path, lines: Iterable[str]) -> None:
    new = path.with_name(f".{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.writelines(lines)
    new.replace(path)
