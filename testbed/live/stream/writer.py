"""Writes the event stream of a run that goes on into its directory."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from pydantic import ValidationError

from testbed.live.stream.measures import Tables
from testbed.live.stream.records import StreamRecord, to_line
from testbed.live.stream.stream import Beginning, Stream, first_states
from testbed.model.closeable import Closeable
from testbed.model.faults.record import FaultRecord
from testbed.model.run_files.content import FLOWS, HealthSample, OpenedFlow
from testbed.model.run_files.layout import HEALTH, MANIFEST, RAW, SUMMARY
from testbed.model.summary import Summary
from testbed.model.summary.unit import SHARE
from testbed.model.units import NS_PER_S
from testbed.results.records import RAW_SUFFIX, TABLE_OF_NAME, TABLES, WORDS_SUFFIX, Kind, Table
from testbed.results.run_directory import is_locked

# --------------------------------------------------------------------------------------------------
# The rows that a run's processes have recorded since the last look, while it goes on.
#
# The processes append to raw files (`results/records.py`). Nothing is asked of them, so they are
# not slowed down.


_CHUNK_BYTES = 1 << 22


@dataclass(slots=True)
class _RawFile:
    """One raw file, with what of it has been read."""

    table: Table
    descriptor: int
    words_path: Path
    offset: int = 0
    words: list[str] = field(default_factory=list)
    dtype: "np.dtype[np.void]" = field(init=False)

    def __post_init__(self) -> None:
        """Take the form of a row from the table."""
        columns = self.table.columns.items()
        self.dtype = np.dtype([(name, kind.numpy_type) for name, kind in columns])


def _joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The rows of several parts of one table, of which there is at least one."""
    if len(parts) == 1:
        return parts[0]
    return {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}


class RawTail(Closeable):
    """Reads the raw files below a directory from where it stopped."""

    def __init__(self, directory: Path, t0_ns: int, tables: Collection[Table] = TABLES) -> None:
        """Follow some tables, or all; `t0_ns` is the start of the run on their clock."""
        self._directory = directory
        self._tables = frozenset(tables)
        self._t0_ns = t0_ns
        self._changed_ns = 0
        self._is_settled = False
        self._files: dict[str, _RawFile] = {}
        self._later: dict[Table, list[dict[str, np.ndarray]]] = {}

    def close(self) -> None:
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()

    def read(self) -> None:
        self._open_new()
        for file in self._files.values():
            for rows in self._new_rows(file):
                self._later.setdefault(file.table, []).append(rows)

    def rows_before(self, end_s: float) -> Tables:
        """Of the rows that were read, those before a time that have not been returned yet."""
        due: dict[Table, dict[str, np.ndarray]] = {}
        later: dict[Table, list[dict[str, np.ndarray]]] = {}
        for table, parts in self._later.items():
            rows = _joined(parts)
            is_due = rows["t"] < end_s
            if is_due.all():
                due[table] = rows
                continue
            if is_due.any():
                due[table] = {column: values[is_due] for column, values in rows.items()}
                rows = {column: values[~is_due] for column, values in rows.items()}
            later[table] = [rows]
        self._later = later
        return due

    def _open_new(self) -> None:
        """Open new files: twice after a change, as the time of a change is coarse."""
        changed_ns = self._directory.stat().st_mtime_ns if self._directory.is_dir() else 0
        is_known, self._changed_ns = changed_ns == self._changed_ns, changed_ns
        if is_known and self._is_settled:
            return
        self._is_settled = is_known
        for path in self._directory.glob(f"*{RAW_SUFFIX}"):
            table = TABLE_OF_NAME.get(path.stem.rpartition(".")[2])
            if path.name not in self._files and table in self._tables:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                words = path.with_suffix(WORDS_SUFFIX)
                self._files[path.name] = _RawFile(table, descriptor, words)

    def _new_rows(self, file: _RawFile) -> Iterator[dict[str, np.ndarray]]:
        """The rows that are new in a file; one that is written only in part comes next time."""
        is_more = True
        while is_more:
            raw = os.pread(file.descriptor, _CHUNK_BYTES, file.offset)
            is_more = len(raw) == _CHUNK_BYTES
            dtype = file.dtype
            rows = np.frombuffer(raw, dtype=dtype, count=len(raw) // dtype.itemsize)
            if not len(rows):
                return
            file.offset += len(rows) * dtype.itemsize
            kinds = file.table.columns
            yield {name: self._column(file, kinds[name], rows[name]) for name in kinds}

    def _column(self, file: _RawFile, kind: Kind, values: np.ndarray) -> np.ndarray:
        if kind is Kind.TIME:
            return (values - self._t0_ns) / NS_PER_S
        if kind is not Kind.WORD:
            return values.copy()
        if len(file.words) <= values.max():  # each word is written before the rows that use it
            file.words = file.words_path.read_text(encoding="utf-8").split("\n")[:-1]
        words: np.ndarray = np.array(file.words, dtype=object)[values]
        return words


STREAM = "stream.ndjson"
"""The event stream of a run that was watched, in its directory."""


def is_of_prompt(directory: Path) -> bool:
    """Whether a directory is that of a watched prompt, which has its event stream only."""
    return (directory / STREAM).is_file() and not (directory / MANIFEST).is_file()


class StreamWriter(Closeable):
    """Follows the records of a run, and appends to its event stream.

    Attributes:
        end_s: the time up to which the stream is written, in seconds of the run.
    """

    def __init__(self, directory: Path, beginning: Beginning, t0_ns: int) -> None:
        """Write the snapshot; the first rows of all EVs are recorded already.

        Args:
            directory: the run directory; `stream.ndjson` in it may exist, empty.
            beginning: what the run is.
            t0_ns: the start of the workload on the clock of its records.
        """
        self._directory = directory
        self._tail = RawTail(directory / RAW, t0_ns)
        self._stream = Stream(beginning, t0_ns)
        self._step_s = beginning.step_s
        self._file = (directory / STREAM).open("ab", buffering=0)
        self._health = _Lines(directory / HEALTH)
        self._flows = _Lines(directory / RAW / FLOWS)
        self._programs: dict[int, Path] = {}
        self._steps = 0
        self._tail.read()
        rows = self._tail.rows_before(0.0)
        self._write([self._stream.snapshot(first_states(rows))])

    @property
    def end_s(self) -> float:
        return round(self._steps * self._step_s, 9)

    @property
    def next_s(self) -> float:
        return round((self._steps + 1) * self._step_s, 9)

    def close(self) -> None:
        for file in (self._tail, self._file, self._health, self._flows):
            file.close()

    def advance(self, until_s: float, faults: Sequence[FaultRecord]) -> None:
        """Write each step that is over at a time of the run, by which all its rows are recorded.

        `faults` has the newest record of every fault so far.
        """
        if self.next_s <= until_s:
            self._tail.read()
        while (end_s := self.next_s) <= until_s:
            tables, times = self._tail.rows_before(end_s), (self.end_s, end_s)
            health = [HealthSample.model_validate_json(line) for line in self._health.new_lines()]
            opened, ended = self._new_flows(), self._ended_flows()
            self._write(self._stream.step(tables, faults, health, *times, opened, ended))
            self._steps += 1

    def _new_flows(self) -> list[OpenedFlow]:
        """The flows that programs have opened; each is written before the rows that name it."""
        new = [OpenedFlow.model_validate_json(line) for line in self._flows.new_lines()]
        self._programs |= {flow.flow: self._directory / RAW / flow.program for flow in new}
        return new

    def _ended_flows(self) -> set[int]:
        """The flows whose programs have ended since the last call."""
        ended = {flow for flow, file in self._programs.items() if not is_locked(file)}
        for flow in ended:
            del self._programs[flow]
        return ended

    def finish(self, outcome: str | None = None) -> None:
        """Write the end of the stream: with the verdict, if the run has been analysed.

        `outcome`, if given, says how it ended in its stead.
        """
        if outcome is not None:
            self._write(self._stream.end(outcome, self.end_s))
            return
        try:
            text = (self._directory / SUMMARY).read_text(encoding="utf-8")
            summary = Summary.model_validate_json(text)
        except (OSError, ValidationError):
            self._write(self._stream.end("the run broke off", self.end_s))
            return
        outcome = outcome_of(summary)
        self._write(self._stream.end(outcome, self.end_s, str(summary.verdict), summary.reasons))

    def _write(self, records: Iterable[StreamRecord]) -> None:
        view = memoryview("".join(map(to_line, records)).encode())
        while view:
            view = view[self._file.write(view) or 0 :]


class _Lines(Closeable):
    """The lines of a file that may not exist yet, and that others add to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._part = b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def new_lines(self) -> list[bytes]:
        """The whole lines that have come since the last call."""
        if self._file is None:
            if not self._path.exists():
                return []
            self._file = self._path.open("rb", buffering=0)
        *lines, self._part = (self._part + self._file.read()).split(b"\n")
        return lines


_MOST_LEVELS = 3
"""Of so many faults the level is told."""


def outcome_of(summary: Summary) -> str:
    """How a run ended, in words."""
    missed = sum(not expectation.holds for expectation in summary.expectations)
    met = f"{missed} expectations not met" if missed else "as expected"
    faults = (
        f"{fault.name}: level {SHARE.show(fault.level)} of the ideal split, "
        f"{SHARE.show(fault.level_even)} of an even one"
        for fault in summary.faults[:_MOST_LEVELS]
        if fault.level is not None and fault.level_even is not None
    )
    operations = (f"{each.kind}: {each.finished}" for each in summary.operations)
    return "; ".join((met, *faults, *operations))
