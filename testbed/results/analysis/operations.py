"""Completion times of a workload's operations: collectives, training steps, transfers.

An operation lasts from when the first of its hosts began it until the last of them is done. The bus
bandwidth is that of nccl-tests (doc/PERFORMANCE.md there): the algorithm's bandwidth, size over
time, times a factor that makes it comparable to the rate of a host's ports.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import polars as pl

from testbed.model.summary import OperationSummary
from testbed.model.summary.metric import NEVER
from testbed.model.workload import BUS_FACTORS, Collective, Connections, members
from testbed.results.analysis.estimates import Percentiles
from testbed.results.records import OPERATIONS
from testbed.results.run_data import RunData


def completed(table: pl.DataFrame) -> pl.DataFrame:
    """The operations that all of their hosts finished, in order of their end.

    Columns: kind, number, bytes, hosts, `start` and `end` in seconds of the run.
    """
    return (
        table.group_by("kind", "number", "bytes", "hosts")
        .agg(start=pl.col("start_t").min(), end=pl.col("t").max(), done=pl.len())
        .filter(pl.col("done") == pl.col("hosts"))
        .drop("done")
        .sort("end", "number")
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a workload asked for.

    Attributes:
        kind: what its operations are called.
        hosts: how many hosts take part in each.
        bytes: the size of an operation; of transfers the median.
        planned: how many it has in all; None if it repeats them until the run ends.
        begun: how many were begun.
        unfinished: how many should have finished and did not.
    """

    kind: str
    hosts: int
    bytes: int
    planned: int | None
    begun: int
    unfinished: int


def summarise_operations(data: RunData) -> tuple[OperationSummary, ...]:
    """The operations of the workload, if it has any: what it asked for, and what finished."""
    workload = data.scenario.workload
    if isinstance(workload, Connections):
        return (_summary(data, _transfers(data, workload)),) if workload.with_end else ()
    if isinstance(workload, Collective):
        return (_summary(data, _rounds(data, workload)),)
    return ()


def _transfers(data: RunData, workload: Connections) -> _Asked:
    done = set(data.tables[OPERATIONS]["number"])
    planned = workload.with_end
    begun = {
        number
        for number, transfer in planned.items()
        if transfer.start_ns(data.topology) < data.scenario.duration
    }
    return _Asked(
        kind=workload.operation,
        hosts=1,
        bytes=int(np.median([transfer.size for transfer in planned.values()])),
        planned=len(planned),
        begun=len(begun | done),
        unfinished=len(planned) - len(done),
    )


def _rounds(data: RunData, workload: Collective) -> _Asked:
    """A host begins a round when it has finished the one before, the first when the run starts."""
    hosts = members(workload.hosts, data.topology)
    table, whole = data.tables[OPERATIONS], completed(data.tables[OPERATIONS])
    running = dict.fromkeys(hosts, (0, 0.0))  # by host: its round, and when it began it
    for host, number, end in table.select("host", "number", "t").iter_rows():
        running[host] = max(running[host], (number + 1, end))
    begun = 1 + max(number for number, _ in running.values())
    starts: dict[int, float] = dict(
        table.group_by("number").agg(pl.col("start_t").min()).iter_rows()
    )
    for number, start in running.values():
        starts[number] = min(starts.get(number, start), start)
    longest = max(whole["end"] - whole["start"], default=0.0)
    finished = set(whole["number"])
    return _Asked(
        kind=workload.operation,
        hosts=len(hosts),
        bytes=workload.sent_bytes(data.topology, data.scenario.transport.qps),
        planned=None,
        begun=begun,
        unfinished=sum(
            number not in finished and data.run.duration_s - start > longest
            for number, start in starts.items()
        ),
    )


def _summary(data: RunData, asked: _Asked) -> OperationSummary:
    operations = completed(data.tables[OPERATIONS])
    never = np.full(asked.unfinished, NEVER)
    finished_s = (operations["end"] - operations["start"]).to_numpy()
    seconds = np.concatenate([finished_s, never])
    bits = np.concatenate([operations["bytes"].to_numpy() * 8.0, np.zeros(asked.unfinished)])
    algorithm_bps = float(np.median(bits / seconds))
    factor = BUS_FACTORS.get(asked.kind)
    metrics = SimpleNamespace(
        **{**vars(Percentiles(seconds)), "count": operations.height},
        hosts=asked.hosts,
        bytes=asked.bytes,
        planned=asked.planned,
        begun=asked.begun,
        unfinished=asked.unfinished,
        algbw_bps=algorithm_bps,
        busbw_bps=algorithm_bps * factor(asked.hosts) if factor is not None else None,
    )
    return OperationSummary.measured(metrics, data.scale, kind=asked.kind)
