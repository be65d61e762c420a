"""The event stream of a finished run, from its tables."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from testbed.live.stream.measures import Rows, Tables, flow_in_slow_motion
from testbed.live.stream.records import StreamRecord
from testbed.live.stream.stream import Beginning, Stream, first_states
from testbed.live.stream.writer import outcome_of
from testbed.model.run_files.layout import SUMMARY
from testbed.model.summary import Summary
from testbed.model.units import NS_PER_S
from testbed.results.run_data import RunData, load_run


def recorded_stream(directory: Path, slow_motion: str | None = None) -> Iterator[StreamRecord]:
    """The stream of the run in a directory: as if it had been watched.

    Args:
        directory: the run's.
        slow_motion: the flow whose packets are in the stream, such as `h0,h4`; None: the first
            where time is slow enough for them, otherwise none.

    Raises:
        InputError: a file is missing or is not what a run writes; or there is no such flow.
    """
    data = load_run(directory)
    beginning = Beginning(
        topology=data.scenario.topology,
        scenario=data.scenario,
        run=data.directory.name,
        simulated=data.simulated,
        live=False,
        base_rtt_s=data.base_rtt_s,
        duration_s=data.run.duration_s,
        slow_flow=flow_in_slow_motion(data.scenario, slow_motion, data.run.flows),
        recorded=data.run.flows,
    )
    stream = Stream(beginning, data.run.t0_ns)
    tables = {table: _columns(frame) for table, frame in data.tables.items()}
    yield stream.snapshot(first_states(tables))
    begin_s = 0.0
    for number in range(1, round(data.run.duration_s / beginning.step_s) + 1):
        end_s = round(number * beginning.step_s, 9)
        health = [
            sample for sample in data.health if begin_s <= _seconds(data, sample.t_ns) < end_s
        ]
        rows = _between(tables, begin_s, end_s)
        yield from stream.step(rows, data.faults, health, begin_s, end_s)
        begin_s = end_s
    yield from stream.end(*_outcome(directory, begin_s))


def _seconds(data: RunData, time_ns: int) -> float:
    return (time_ns - data.run.t0_ns) / NS_PER_S


def _columns(frame: pl.DataFrame) -> Rows:
    return {name: column.to_numpy() for name, column in frame.to_dict().items()}


def _between(tables: Tables, begin_s: float, end_s: float) -> Tables:
    """The rows of [begin, end) of every table that has any; rows are in order of time."""
    chosen = {}
    for table, rows in tables.items():
        first, last = np.searchsorted(rows["t"], (begin_s, end_s))
        if first < last:
            chosen[table] = {column: values[first:last] for column, values in rows.items()}
    return chosen


def _outcome(directory: Path, t: float) -> tuple[str, float, str | None, tuple[str, ...]]:
    file = directory / SUMMARY
    if not file.is_file():
        return "not analysed: testbed report does that", t, None, ()
    summary = Summary.model_validate_json(file.read_text(encoding="utf-8"))
    return outcome_of(summary), t, str(summary.verdict), tuple(summary.reasons)
