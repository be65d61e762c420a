"""The tables of a run: their columns, how processes record them, and how they are collected.

A process appends fixed-size binary rows to a raw file of its own (`Recorder`: standard library
only, well below a microsecond a row, of constant memory). After the run `collect` turns the raw
files of all processes into one Parquet file for each table. Raw times are CLOCK_MONOTONIC in ns; in
Parquet they are seconds since the start of the run.
"""

import shutil
import struct
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from io import BytesIO
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.model.closeable import Closeable
from testbed.model.errors import MachineError
from testbed.model.run_files.content import LinkSample, RunRecord
from testbed.model.run_files.layout import RAW, RUN, table_file
from testbed.model.units import NS_PER_S
from testbed.results.whole_file import remove_parts, write_file

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

RAW_SUFFIX = ".bin"
WORDS_SUFFIX = ".words"

FLUSH_BYTES = 1 << 16
"""Rows are buffered up to this size: writing it takes some tens of microseconds."""


class Kind(Enum):
    """Type of a column: its `struct` code in raw files, its NumPy type, its Polars type.

    `TIME` is given in ns on CLOCK_MONOTONIC, and becomes seconds since the start of the run.
    `WORD` is given as a str from a small vocabulary, and is stored as a number.
    """

    TIME = ("q", "<i8", "Float64")
    I8 = ("b", "<i1", "Int8")
    I32 = ("i", "<i4", "Int32")
    I64 = ("q", "<i8", "Int64")
    U32 = ("I", "<u4", "UInt32")
    F64 = ("d", "<f8", "Float64")
    BOOL = ("?", "?", "Boolean")
    WORD = ("H", "<u2", "String")

    def __init__(self, code: str, numpy_type: str, polars_type: str) -> None:
        self.code = code
        self.numpy_type = numpy_type
        self.polars_type = polars_type

    # TIME and I64 are stored alike. Members with equal values would be aliases, so the Polars
    # type, which differs, is part of the value.


class Table:
    """A table of a run directory.

    Attributes:
        name: its name, which is also its file's.
        columns: its columns in order.
    """

    def __init__(self, name: str, /, **columns: Kind) -> None:
        """Declare a table; its first column is `t`, the time of what a row records."""
        self.name = name
        self.columns = {"t": Kind.TIME, **columns}

    @property
    def file(self) -> str:
        return table_file(self.name)

    @property
    def row(self) -> struct.Struct:
        """A row in a raw file: little endian, without padding."""
        return struct.Struct("<" + "".join(kind.code for kind in self.columns.values()))

    def frame_schema(self) -> dict[str, "pl.DataType"]:
        import polars as pl  # noqa: PLC0415 - endpoints record without loading it

        return {name: getattr(pl, kind.polars_type)() for name, kind in self.columns.items()}


_EV = {"flow": Kind.I32, "plane": Kind.I8, "ev": Kind.U32}
"""The flow, and its EV and the EV's plane."""

_PACKET = {**_EV, "seq": Kind.I64}
"""The same of a packet, and its unwrapped PSN."""

ARRIVALS = Table("arrivals", **_PACKET, bytes=Kind.I32, retransmitted=Kind.BOOL)
"""A data packet at the receiver: `bytes` newly placed, 0 for a duplicate."""

TRANSMISSIONS = Table("transmissions", **_PACKET, bytes=Kind.I32, retransmitted=Kind.BOOL)
"""A data packet handed to the socket."""

LOSSES = Table("losses", **_PACKET, sent_t=Kind.TIME, spurious=Kind.BOOL)
"""A transmission declared lost.

If it later turns out to have been delivered, the recorder appends the same flow, seq and `sent_t`
again with `spurious` set; in Parquet there is one row for each declaration.
"""

EV_EVENTS = Table(
    "ev_events", **_EV, old=Kind.WORD, new=Kind.WORD, active=Kind.BOOL, reason=Kind.WORD
)
"""An EV changes its state, or enters or leaves the active set (`active`: whether it is in it then).

The start is an event as well: every EV of the QP, from "" to GOOD, with its role.
"""

QP = Table("qp", flow=Kind.I32, cwnd_bytes=Kind.I64, inflight_bytes=Kind.I64, srtt_ns=Kind.I64)
"""A QP's requester, sampled."""

ROUND_TRIPS = Table("round_trips", **_EV, rtt_ns=Kind.I64)
"""A round trip that a requester has measured on an EV, by the time at which it was over.

From handing a data packet to the socket to processing the SACK that it triggered; of RoCE, the ACK.
"""

COMPLETIONS = Table(
    "completions", flow=Kind.I32, message=Kind.I64, bytes=Kind.I64, verified=Kind.BOOL
)
"""A message in place at the receiver, in order, compared byte by byte.

In Parquet `start_t` is when its first packet was handed to the socket, as the sender recorded it.
"""

OPERATIONS = Table(
    "operations",
    start_t=Kind.TIME,
    host=Kind.WORD,
    kind=Kind.WORD,
    number=Kind.I32,
    bytes=Kind.I64,
    hosts=Kind.I32,
)
"""An operation of the workload, finished at one host: a collective, a training step, a transfer.

`number` is the same at all of the `hosts` that take part; `bytes` is the size of a host's buffer
as it is sent.
"""

OPERATOR = Table(
    "operator",
    by=Kind.WORD,
    kind=Kind.WORD,
    host=Kind.WORD,
    flow=Kind.I32,
    plane=Kind.I8,
    ev=Kind.U32,
    result=Kind.WORD,
    rtt_ns=Kind.I64,
)
"""A command of the operator, or of the Clustermapper, took effect: a row for each EV or port.

`result` is the state of the EV or the port then; of a probe, whether it was answered; or why the
command was refused. `flow` is -1 for a port, and `rtt_ns` is -1 without an answered probe.
"""

LINKS = Table(
    "links",
    link=Kind.WORD,
    direction=Kind.WORD,
    **dict.fromkeys(LinkSample._fields, Kind.I64),
)
"""The counters of a link direction (`a>b`), cumulative, sampled, and the backlog of its port."""

PROBES = Table("probes", path=Kind.WORD, lost=Kind.BOOL)
"""A probe of the Clustermapper, by its time of sending; `path` names its nodes in order."""

FINDINGS = Table(
    "findings",
    raised=Kind.BOOL,
    kind=Kind.WORD,
    suspect=Kind.WORD,
    loss_ppm=Kind.I32,
    evidence_millinats=Kind.I64,
)
"""The Clustermapper accuses a link, a direction of a link or a switch, or lifts an accusation.

`loss_ppm` is the estimated loss in millionths, the evidence a gain in log-likelihood.
"""

CONTROL = Table(
    "control",
    flow=Kind.I32,
    plane=Kind.I8,
    ev=Kind.U32,
    kind=Kind.WORD,
    icrc=Kind.U32,
    sent=Kind.BOOL,
    back=Kind.BOOL,
)
"""A control packet handed to the socket (`sent`), or arrived; only from `CONTROL_DILATION` on.

`kind`: `PacketKind.recorded` of `mrc/wire/kinds.py`; RoCE's acknowledgements are `ack`. `back`: it
goes from the flow's receiver to its sender. Both rows of a packet have its iCRC. An arrival has no
flow, plane and EV: they are -1, -1 and 0.
"""

CONTROL_DILATION = 100_000
"""From this dilation on control packets are recorded: a person can follow them, and they are few
enough in a second."""

ALGORITHM = Table(
    "algorithm", flow=Kind.I32, key=Kind.WORD, kind=Kind.WORD, name=Kind.WORD, value=Kind.F64
)
"""What a class of the user's own records (docs/algorithms.md); only of runs with such a class.

`key`: that of the transport, `spray` or `congestion`. `kind`: `event`, or `count`, whose value is
the sum so far: a row when it has changed since the last sample.
"""

QUEUES = Table(
    "queues",
    direction=Kind.WORD,
    backlog_bytes=Kind.I64,
    marked=Kind.I64,
    trimmed=Kind.I64,
    dropped=Kind.I64,
)
"""The backlog of a switch's port, sampled finely: a row while packets wait, and one when none do.

The counters are cumulative; `dropped` counts the drops of the full queue.
"""

TABLES = tuple(declared for declared in vars().values() if isinstance(declared, Table))
"""Every table above."""

OF_SOME_RUNS = frozenset({CONTROL, ALGORITHM})
"""Tables that most runs do not have: a run without such rows has no file."""

TABLE_OF_NAME = {table.name: table for table in TABLES}

MAX_WORDS = 1 << 16


class Recorder(Closeable):
    """Appends a process's rows of one table to a raw file.

    The vocabulary of `WORD` columns goes into a file beside it, one word a line, each before the
    first row that uses it. A process that records for many hosts lets each open its file only while
    it writes (`stays_open`): a process may have a thousand open files, by default.

    Raises:
        FileExistsError: the file exists: a recorder never overwrites.
    """

    def __init__(self, path: Path, table: Table, *, stays_open: bool = True) -> None:
        self.table = table
        self._path = path
        self._file = path.open("xb", buffering=0)
        self._stays_open = stays_open
        if not stays_open:
            self._file.close()
        self._words_path = path.with_suffix(WORDS_SUFFIX)
        self._buffer = bytearray()
        self._pack = table.row.pack
        self._words: dict[str, int] = {}
        kinds = table.columns.values()
        self._word_columns = [i for i, kind in enumerate(kinds) if kind is Kind.WORD]

    def append(self, *values: int | str) -> None:
        """Record one row, its values in the order of the table's columns.

        Raises:
            struct.error: a value does not fit its column, or their number is wrong.
        """
        self.extend((values,))

    def extend(self, rows: Iterable[Sequence[int | str]]) -> None:
        """Record many rows; cheaper than `append` for each.

        Raises:
            struct.error: a value does not fit its column, or their number is wrong.
        """
        if self._word_columns:
            rows = map(self._encoded, rows)
        buffer = self._buffer
        buffer += b"".join(starmap(self._pack, rows))
        if len(buffer) >= FLUSH_BYTES:
            self.flush()

    def _encoded(self, values: Sequence[int | str]) -> tuple[int | str, ...]:
        row = list(values)
        for i in self._word_columns:
            word = str(row[i])
            code = self._words.get(word)
            row[i] = self._learn(word) if code is None else code
        return tuple(row)

    def _learn(self, word: str) -> int:
        if len(self._words) == MAX_WORDS or "\n" in word:
            raise ValueError(f"{self.table.name}: too many words, or no word: {word!r}")
        with self._words_path.open("a", encoding="utf-8") as words:
            words.write(word + "\n")
        self._words[word] = len(self._words)
        return self._words[word]

    def flush(self) -> None:
        """Hand all recorded rows to the kernel, which keeps them if the process dies."""
        if not self._buffer:
            return
        view = memoryview(bytes(self._buffer))
        self._buffer.clear()
        if not self._stays_open:
            self._file = self._path.open("ab", buffering=0)
        while view:
            view = view[self._file.write(view) or 0 :]
        if not self._stays_open:
            self._file.close()

    def close(self) -> None:
        if self._file.closed and self._stays_open:
            return
        self.flush()
        self._file.close()


def raw_path(directory: Path, process: str, table: Table) -> Path:
    """Where a process records a table: `<directory>/<process>.<table>.bin`."""
    return directory / f"{process}.{table.name}{RAW_SUFFIX}"


def read_raw(path: Path, table: Table, t0_ns: int) -> "pl.DataFrame":
    """Read a raw file; an incomplete last row, of a killed process, is left out."""
    import numpy as np  # noqa: PLC0415 - endpoints record without loading them
    import polars as pl  # noqa: PLC0415

    raw = path.read_bytes()
    dtype = np.dtype([(name, kind.numpy_type) for name, kind in table.columns.items()])
    rows = np.frombuffer(raw, dtype=dtype, count=len(raw) // dtype.itemsize)
    words_path = path.with_suffix(WORDS_SUFFIX)
    words = words_path.read_text(encoding="utf-8").split("\n")[:-1] if words_path.exists() else []

    def column(name: str, kind: Kind) -> "pl.Series | np.ndarray":
        values = np.ascontiguousarray(rows[name])
        if kind is Kind.TIME:
            return (values - t0_ns) / NS_PER_S
        if kind is Kind.WORD:
            return pl.Series(words, dtype=pl.String).gather(values)
        return values

    return pl.DataFrame(
        {name: column(name, kind) for name, kind in table.columns.items()},
        schema=table.frame_schema(),
    )


def to_frame(paths: Iterable[Path], table: Table, t0_ns: int) -> "pl.DataFrame":
    """Read the raw files of several processes into one table, in order of time."""
    import polars as pl  # noqa: PLC0415 - endpoints record without loading it

    frames = [read_raw(path, table, t0_ns) for path in paths]
    frame = pl.concat([pl.DataFrame(schema=table.frame_schema()), *frames])
    if table is LOSSES:
        frame = (
            frame.group_by("flow", "seq", "sent_t", maintain_order=True)
            .agg(pl.col("t").min(), pl.col("plane", "ev").first(), pl.col("spurious").any())
            .select(list(table.columns))
        )
    return frame.sort("t", maintain_order=True)


def collect(directory: Path) -> None:
    """Turn what a run has recorded into tables, if that was not done before.

    A process that is killed meanwhile leaves raw records or all tables: raw records lose their name
    when all tables are there. What such a process has left is removed.

    Args:
        directory: the run's; `run.json` says that raw records are complete.
    """
    raw, collected = directory / RAW, directory / f".{RAW}"
    remove_parts(directory)
    if raw.is_dir():
        run = RunRecord.model_validate_json((directory / RUN).read_text(encoding="utf-8"))
        write_tables(raw, directory, run.t0_ns)
        raw.rename(collected)
    if collected.is_dir():
        shutil.rmtree(collected)


def write_tables(raw_directory: Path, run_directory: Path, t0_ns: int) -> None:
    """Write every table's Parquet file from the raw files of all processes.

    A table that nobody recorded becomes a file without rows, so that readers find all of them; but
    for those that most runs do not have.
    """
    from testbed.results.analysis.delivery import with_starts  # noqa: PLC0415 - as Polars

    require_threads()
    frames = {}
    for table in TABLES:
        paths = sorted(raw_directory.glob(f"*.{table.name}{RAW_SUFFIX}"))
        if table in OF_SOME_RUNS and not paths:
            continue
        frames[table] = to_frame(paths, table, t0_ns)
    frames[COMPLETIONS] = with_starts(frames[COMPLETIONS], frames[TRANSMISSIONS])
    for table, frame in frames.items():
        content = BytesIO()  # not by its path: in other encodings than UTF-8 Polars finds another
        frame.write_parquet(content)
        write_file(run_directory / table.file, content.getbuffer())


def require_threads() -> None:
    """Check that Polars can work here; otherwise it waits for its threads without end.

    Raises:
        MachineError: this process was forked after Polars had been loaded.
    """
    # Not imported, as the package imports what needs this.
    if vars(sys.modules[__name__.partition(".")[0]])["forked_after"]:
        raise MachineError(
            "this process was forked from one that had loaded Polars, whose threads it lacks",
            'start it anew: multiprocessing.get_context("spawn")',
        )
