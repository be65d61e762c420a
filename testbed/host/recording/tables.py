"""The recorders of one process, and those of a host's tables."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from testbed.model.closeable import Closeable
from testbed.results import records
from testbed.results.records import Recorder, raw_path


class _NoRecorder:
    """Takes rows like a `Recorder`, and records nothing."""

    def append(self, *_: object) -> None:
        """Drop a row."""

    def extend(self, _: object) -> None:
        """Drop rows."""


class Recorders(Closeable):
    """The recorders that one process has opened; without a directory they record nothing."""

    def __init__(self, directory: Path | None, *, stay_open: bool = True) -> None:
        """Open recorders in `directory` from now on; `stay_open` is for each one's file."""
        self._directory = directory
        self._stay_open = stay_open
        self._files = ExitStack()
        self._recorders: list[Recorder] = []

    def open(self, process: str, table: records.Table) -> Recorder | _NoRecorder:
        """Create the raw file of a table, with the rows of a process."""
        if self._directory is None:
            return _NoRecorder()
        path = raw_path(self._directory, process, table)
        recorder = Recorder(path, table, stays_open=self._stay_open)
        self._recorders.append(self._files.enter_context(recorder))
        return recorder

    def flush(self) -> None:
        """Hand everything recorded so far to the kernel: it remains if the process is killed."""
        for recorder in self._recorders:
            recorder.flush()

    def close(self) -> None:
        """Close every file."""
        self._files.close()


class Tables(Recorders):
    """The tables of one host, each a function that records a row.

    `arrivals`, `transmissions` and `round_trips` take many rows at once.
    """

    def __init__(self, directory: Path | None, host: str, *, stay_open: bool = True) -> None:
        """Create the raw files."""
        super().__init__(directory, stay_open=stay_open)
        self.host = host
        self.arrivals = self.open(host, records.ARRIVALS).extend
        self.transmissions = self.open(host, records.TRANSMISSIONS).extend
        self.round_trips = self.open(host, records.ROUND_TRIPS).extend
        self.losses = self.open(host, records.LOSSES).append
        self.ev_events = self.open(host, records.EV_EVENTS).append
        self.qp = self.open(host, records.QP).append
        self.completions = self.open(host, records.COMPLETIONS).append
        self.operations = self.open(host, records.OPERATIONS).append
        self.operator = self.open(host, records.OPERATOR).append

    def control(self) -> Callable[..., None]:
        """A function that records a control packet; its raw file is created now."""
        return self.open(self.host, records.CONTROL).append
