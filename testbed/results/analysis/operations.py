"""Completion times of a workload's operations: collectives, training steps, transfers.

An operation lasts from when the first of its hosts began it until the last of them is done. The bus
bandwidth is that of nccl-tests (doc/PERFORMANCE.md there): the algorithm's bandwidth, size over
time, times a factor that makes it comparable to the rate of a host's ports.
"""

from types import SimpleNamespace

import numpy as np
import polars as pl

from testbed.model.summary import OperationSummary
from testbed.model.workload import BUS_FACTORS
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


def summarise_operations(data: RunData) -> tuple[OperationSummary, ...]:
    """Every kind of operation that the run completed."""
    operations = completed(data.tables[OPERATIONS])
    return tuple(
        _summary(data, kind, operations.filter(pl.col("kind") == kind))
        for kind in operations["kind"].unique(maintain_order=True)
    )


def _summary(data: RunData, kind: str, operations: pl.DataFrame) -> OperationSummary:
    seconds = (operations["end"] - operations["start"]).to_numpy()
    sizes = operations["bytes"].to_numpy()
    hosts = int(operations["hosts"][0])
    algorithm_bps = float(np.median(sizes * 8 / seconds))
    factor = BUS_FACTORS.get(kind)
    metrics = SimpleNamespace(
        **vars(Percentiles(seconds)),
        hosts=hosts,
        bytes=int(np.median(sizes)),
        algbw_bps=algorithm_bps,
        busbw_bps=algorithm_bps * factor(hosts) if factor is not None else None,
    )
    return OperationSummary.measured(metrics, data.scale, kind=kind)
