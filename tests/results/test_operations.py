"""Operations: complete when every host is done; times and bandwidths as nccl-tests defines them."""

from pathlib import Path

import polars as pl
import pytest

from testbed.files.scenarios import load_scenario
from testbed.model.run_files.manifest import Manifest
from testbed.model.run_files.run import RunRecord
from testbed.model.workload import AllReduce, AllToAll, SendRecv
from testbed.results.analysis.operations import completed, summarise_operations
from testbed.results.records import OPERATIONS
from testbed.results.run_data import RunData


def _table(*rows: tuple[float, float, str, str, int, int, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=OPERATIONS.frame_schema(), orient="row")


def test_an_operation_lasts_from_the_first_beginning_to_the_last_end() -> None:
    table = _table(
        (1.0, 0.0, "h0", "allreduce", 0, 100, 2),
        (1.5, 0.2, "h1", "allreduce", 0, 100, 2),
        (3.0, 1.0, "h0", "allreduce", 1, 100, 2),  # never finished at h1
    )
    assert completed(table).select("number", "start", "end").rows() == [(0, 0.0, 1.5)]


@pytest.mark.parametrize(
    ("kind", "factor"), [(AllReduce, 2 * 3 / 4), (AllToAll, 3 / 4), (SendRecv, 1.0)]
)
def test_bus_bandwidth(
    tmp_path: Path, kind: type[AllReduce | AllToAll | SendRecv], factor: float
) -> None:
    workload = kind(size="1 MB")
    rows = [
        (i + seconds, float(i), f"h{host}", workload.kind, i, 10**6, 4)
        for i, seconds in enumerate((0.5, 1.0, 2.0))
        for host in range(4)
    ]
    scenario = load_scenario("permutation").model_copy(update={"workload": workload})
    record = RunRecord(t0_ns=0, duration_s=3, base_rtt_ns=10**8, flows=())
    data = RunData(
        directory=tmp_path,
        scenario=scenario,
        manifest=Manifest(),
        run=record,
        faults=(),
        health=(),
        tables={OPERATIONS: _table(*rows)},
    )
    (measured,) = summarise_operations(data)
    assert (measured.kind, measured.count, measured.hosts, measured.bytes) == (
        workload.kind,
        3,
        4,
        10**6,
    )
    assert (measured.values["median_ms"], measured.values["max_ms"]) == pytest.approx((1000, 2000))
    assert (measured.values["median_rtt"], measured.values["median_real_us"]) == pytest.approx(
        (10, 100)
    )
    assert measured.algbw_bps == pytest.approx(8e6)
    assert measured.busbw_bps == pytest.approx(8e6 * factor)
