"""Writes the event stream of a run that goes on into its directory."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from testbed.live.stream.records import StreamRecord, to_line
from testbed.live.stream.snapshot import Beginning
from testbed.live.stream.stream import Stream, first_states
from testbed.live.stream.tail import RawTail
from testbed.model.closeable import Closeable
from testbed.model.faults.record import FaultRecord
from testbed.model.run_files.health import HealthSample
from testbed.model.run_files.layout import HEALTH, MANIFEST, RAW, SUMMARY
from testbed.model.run_files.raw import FLOWS, OpenedFlow
from testbed.model.summary import Summary
from testbed.results.run_directory import is_locked

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
        """The time up to which the stream is written."""
        return round(self._steps * self._step_s, 9)

    @property
    def next_s(self) -> float:
        """The end of the step that is written next."""
        return round((self._steps + 1) * self._step_s, 9)

    def close(self) -> None:
        """Close all files."""
        for file in (self._tail, self._file, self._health, self._flows):
            file.close()

    def advance(self, until_s: float, faults: Sequence[FaultRecord]) -> None:
        """Write every step that is over at a time of the run, by which all its rows are recorded.

        Args:
            until_s: the time.
            faults: the newest record of every fault so far.
        """
        if self.next_s <= until_s:
            self._tail.read()
        while (end_s := self.next_s) <= until_s:
            tables, health = self._tail.rows_before(end_s), self._new_health()
            times = self.end_s, end_s
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

    def _new_health(self) -> list[HealthSample]:
        return [HealthSample.model_validate_json(line) for line in self._health.new_lines()]


class _Lines(Closeable):
    """The lines of a file that may not exist yet, and that others add to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._part = b""

    def close(self) -> None:
        """Close the file."""
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


def outcome_of(summary: Summary) -> str:
    """How a run ended, in words."""
    missed = sum(not expectation.holds for expectation in summary.expectations)
    met = f"{missed} expectations not met" if missed else "as expected"
    return "; ".join((met, *(f"{each.kind}: {each.finished}" for each in summary.operations)))
