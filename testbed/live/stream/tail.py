"""The rows that a run's processes have recorded since the last look, while it goes on.

The processes append to raw files (`results/records.py`). Nothing is asked of them, so they are not
slowed down.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from testbed.live.stream.measures import Tables
from testbed.model.closeable import Closeable
from testbed.model.units import NS_PER_S
from testbed.results.records import RAW_SUFFIX, TABLES, WORDS_SUFFIX, Kind, Table

_TABLES = {table.name: table for table in TABLES}
_CHUNK_BYTES = 1 << 22


@dataclass(slots=True)
class _RawFile:
    """One raw file, with what of it has been read.

    Attributes:
        table: whose rows it has.
        descriptor: of the open file.
        words_path: the file with the words that its rows use.
        t0_ns: the start of the run on the rows' clock.
        offset: up to which byte it has been read.
        later: rows that have been read, but not returned yet.
        words: those that have been read.
        dtype: the form of a row.
    """

    table: Table
    descriptor: int
    words_path: Path
    t0_ns: int
    offset: int = 0
    words: list[str] = field(default_factory=list)
    dtype: "np.dtype[np.void]" = field(init=False)
    later: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """Take the form of a row from the table."""
        columns = self.table.columns.items()
        self.dtype = np.dtype([(name, kind.numpy_type) for name, kind in columns])
        self.later = np.empty(0, self.dtype)

    def rows_before(self, end_s: float) -> np.ndarray:
        """The rows before a time of the run that have not been returned yet, as they were read."""
        rows = np.concatenate([self.later, *self._new_rows()])
        ripe = self.column(rows, "t") < end_s
        self.later = rows[~ripe]
        due: np.ndarray = rows[ripe]
        return due

    def _new_rows(self) -> Iterator[np.ndarray]:
        """The rows that are new; one that is written only in part comes next time."""
        is_more = True
        while is_more:
            raw = os.pread(self.descriptor, _CHUNK_BYTES, self.offset)
            is_more = len(raw) == _CHUNK_BYTES
            rows = np.frombuffer(raw, self.dtype, count=len(raw) // self.dtype.itemsize)
            self.offset += rows.nbytes
            yield rows

    def column(self, rows: np.ndarray, name: str) -> np.ndarray:
        """A column of rows of this file: times in seconds of the run, words as texts."""
        kind, values = self.table.columns[name], rows[name]
        if kind is Kind.TIME:
            return (values - self.t0_ns) / NS_PER_S
        if kind is not Kind.WORD:
            return values
        if len(self.words) <= values.max():  # each word is written before the rows that use it
            self.words = self.words_path.read_text(encoding="utf-8").split("\n")[:-1]
        words: np.ndarray = np.array(self.words, dtype=object)[values]
        return words


class _DueRows(Mapping[str, np.ndarray]):
    """Rows of one table, out of several files. A column is made when it is asked for."""

    def __init__(self, parts: Sequence[tuple[_RawFile, np.ndarray]]) -> None:
        self._parts = parts
        self._columns = parts[0][0].table.columns
        self._made: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._made:
            self._made[name] = np.concatenate(
                [file.column(rows, name) for file, rows in self._parts]
            )
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class RawTail(Closeable):
    """Reads the raw files below a directory from where it stopped."""

    def __init__(self, directory: Path, names: tuple[str, ...], t0_ns: int) -> None:
        """Follow the tables of these names; `t0_ns` is the start of the run on their clock."""
        self._directory = directory
        self._names = frozenset(names)
        self._t0_ns = t0_ns
        self._changed_ns = 0
        self._is_settled = False
        self._files: dict[str, _RawFile] = {}

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()

    def rows_before(self, end_s: float) -> Tables:
        """The rows before a time of the run that have not been returned yet."""
        self._open_new()
        parts: dict[str, list[tuple[_RawFile, np.ndarray]]] = defaultdict(list)
        for file in self._files.values():
            rows = file.rows_before(end_s)
            if len(rows):
                parts[file.table.name].append((file, rows))
        return {name: _DueRows(of_table) for name, of_table in parts.items()}

    def _open_new(self) -> None:
        """Open new files: twice after a change, as the time of a change is coarse."""
        changed_ns = self._directory.stat().st_mtime_ns if self._directory.is_dir() else 0
        is_known, self._changed_ns = changed_ns == self._changed_ns, changed_ns
        if is_known and self._is_settled:
            return
        self._is_settled = is_known
        for path in self._directory.glob(f"*{RAW_SUFFIX}"):
            table = _TABLES.get(path.stem.rpartition(".")[2])
            if path.name not in self._files and table is not None and table.name in self._names:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                words = path.with_suffix(WORDS_SUFFIX)
                self._files[path.name] = _RawFile(table, descriptor, words, self._t0_ns)
