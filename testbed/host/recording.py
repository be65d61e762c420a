"""What one host writes down: a recorder for each of its tables."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from testbed.results import records
from testbed.results.records import Recorder, raw_path

_Append = Callable[..., None]
_Extend = Callable[[Sequence[tuple[int, ...]]], None]


class Tables:
    """The recorders of one host, each a function that appends a row.

    What there is a row of for each packet is appended by many. With no directory they record
    nothing.
    """

    def __init__(self, directory: Path | None, host: str) -> None:
        """Create the raw files."""
        self._files = ExitStack()
        self._recorders: list[Recorder] = []

        def recorder(table: records.Table) -> Recorder | None:
            if directory is None:
                return None
            made = Recorder(raw_path(directory, host, table), table)
            self._recorders.append(self._files.enter_context(made))
            return made

        def extender(table: records.Table) -> _Extend:
            made = recorder(table)
            return _forget if made is None else made.extend

        def appender(table: records.Table) -> _Append:
            made = recorder(table)
            return _forget if made is None else made.append

        self.arrivals = extender(records.ARRIVALS)
        self.transmissions = extender(records.TRANSMISSIONS)
        self.losses = appender(records.LOSSES)
        self.ev_events = appender(records.EV_EVENTS)
        self.qp = appender(records.QP)
        self.completions = appender(records.COMPLETIONS)
        self.operations = appender(records.OPERATIONS)

    def flush(self) -> None:
        """Hand everything recorded so far to the kernel: a process that is killed leaves it."""
        for recorder in self._recorders:
            recorder.flush()

    def close(self) -> None:
        """Close every file."""
        self._files.close()

    def __enter__(self) -> Self:
        """Return the tables themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close every file."""
        self.close()


def _forget(*_: object) -> None:
    pass
