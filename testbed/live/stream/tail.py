"""The rows that a run's processes have recorded since the last look, while it goes on.

The processes append to raw files (`results/records.py`). Nothing is asked of them, so they are not
slowed down.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from testbed.live.stream.measures import Tables
from testbed.model.closeable import Closeable
from testbed.model.units import NS_PER_S
from testbed.results.records import RAW_SUFFIX, TABLE_OF_NAME, TABLES, WORDS_SUFFIX, Kind, Table

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
        """Close all files."""
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()

    def read(self) -> None:
        """Read all rows that are new."""
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
