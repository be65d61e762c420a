"""Operations: what was asked for and what finished; times and bandwidths as nccl-tests has them."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from testbed.model.files.scenarios import load_scenario
from testbed.model.run_files.content import HostRecord, OpenOperation, ProgramRecord, RunRecord
from testbed.model.run_files.manifest import Manifest
from testbed.model.scenario import Job
from testbed.model.summary import OperationSummary
from testbed.model.summary.unit import NEVER
from testbed.model.workload import (
    AllReduce,
    AllToAll,
    Collective,
    Connections,
    Program,
    SendRecv,
    Training,
    Workload,
)
from testbed.results.analysis.operations import completed, summarise_jobs, summarise_operations
from testbed.results.records import OPERATIONS
from testbed.results.run_data import RunData

HOSTS = ("h0", "h1", "h2", "h3")
Row = tuple[float, float, str, str, int, int, int]


def _table(*rows: Row) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=OPERATIONS.frame_schema(), orient="row")


def _measured(
    workload: Workload, *rows: Row, duration_s: float = 3, begun: int = 0
) -> OperationSummary:
    (measured,) = _measured_all(workload, _table(*rows), duration_s, begun)
    return measured


def _measured_all(
    workload: Workload,
    table: pl.DataFrame,
    duration_s: float,
    begun: int = 0,
    left: tuple[OpenOperation, ...] = (),
) -> tuple[OperationSummary, ...]:
    return summarise_operations(_run_data(workload, table, duration_s, begun, left))


def _run_data(
    workload: Workload,
    table: pl.DataFrame,
    duration_s: float,
    begun: int = 0,
    left: tuple[OpenOperation, ...] = (),
) -> RunData:
    """A run on a fabric with a dilation of 10,000."""
    changes = {"workload": workload, "duration": round(duration_s * 1e9)}
    return RunData(
        directory=Path(),
        scenario=load_scenario("permutation").model_copy(update=changes),
        manifest=Manifest(),
        run=RunRecord(
            t0_ns=0,
            duration_s=duration_s,
            base_rtt_ns=10**8,
            flows=(),
            hosts={"h0": HostRecord(begun={"transfer": begun})},
            open_operations=left,
        ),
        faults=(),
        health=(),
        tables={OPERATIONS: table},
    )


def _rounds(kind: str, *seconds: float, start: float = 0.0) -> list[Row]:
    """Rounds that follow each other, each finished by all hosts at once."""
    rows: list[Row] = []
    for number, lasted in enumerate(seconds):
        rows += [(start + lasted, start, host, kind, number, 10**6, 4) for host in HOSTS]
        start += lasted
    return rows


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
def test_bus_bandwidth(kind: type[AllReduce | AllToAll | SendRecv], factor: float) -> None:
    workload = kind(hosts=HOSTS, size="1 MB")
    measured = _measured(workload, *_rounds(workload.kind, 0.5, 1.0, 2.0), duration_s=3.5)
    assert (measured.kind, measured.hosts, measured.bytes) == (workload.kind, 4, 10**6)
    assert (measured.values["median_ms"], measured.values["max_ms"]) == pytest.approx((1000, 2000))
    assert (measured.values["median_rtt"], measured.values["median_real_us"]) == pytest.approx(
        (10, 100)
    )
    assert measured.algbw_bps == pytest.approx(8e6)
    assert measured.busbw_bps == pytest.approx(8e6 * factor)


@pytest.mark.parametrize("workload", [AllToAll(hosts=HOSTS), Training(hosts=HOSTS, compute="1 ms")])
def test_a_round_that_the_end_cuts_off_is_begun_and_says_nothing_of_times(
    workload: Collective,
) -> None:
    measured = _measured(workload, *_rounds(workload.operation, 1.0, 1.2), duration_s=3.3)
    assert (measured.planned, measured.begun, measured.count) == (None, 3, 2)
    assert measured.unfinished == 0
    assert measured.max.ms == pytest.approx(1200)
    assert measured.finished == "2 of 3 begun finished"


def test_a_round_that_lasted_longer_than_any_other_counts_as_never() -> None:
    measured = _measured(AllToAll(hosts=HOSTS), *_rounds("alltoall", 1.0, 1.2), duration_s=3.5)
    assert (measured.begun, measured.count, measured.unfinished) == (3, 2, 1)
    assert measured.median.ms == pytest.approx(1200)
    assert measured.p99.ms == measured.max.ms == NEVER


def test_rounds_that_only_some_hosts_finished_are_begun() -> None:
    rows = _rounds("alltoall", 1.0)
    rows += [(1.5, 1.0, "h0", "alltoall", 1, 10**6, 4), (1.9, 1.5, "h0", "alltoall", 2, 10**6, 4)]
    measured = _measured(AllToAll(hosts=HOSTS), *rows, duration_s=4)
    assert (measured.begun, measured.count, measured.unfinished) == (4, 1, 3)
    assert measured.median.ms == NEVER


def test_a_loop_that_finishes_nothing_has_begun_one_operation() -> None:
    measured = _measured(AllReduce(hosts=HOSTS))
    assert (measured.begun, measured.count, measured.unfinished) == (1, 0, 1)
    assert measured.median.ms == NEVER
    assert measured.algbw_bps == measured.busbw_bps == 0


def _matrix(*starts_us: int) -> Connections:
    transfers = [
        {"src": "h0", "dst": "h4", "start": f"{start} us", "size": 1000 * (i + 1)}
        for i, start in enumerate(starts_us)
    ]
    return Connections.model_validate({"matrix": transfers})


def _transfer(number: int, start: float, end: float) -> Row:
    return (end, start, "h0", "transfer", number, 1000 * (number + 1), 1)


@pytest.mark.parametrize(
    ("done", "words", "median_ms"),
    [
        ((0, 1, 2), "3 of 3 finished", 500),
        ((0, 1), "2 of 3 finished, 1 was under way when the run ended", 500),
        ((0,), "1 of 3 finished, 2 were under way when the run ended", NEVER),
        ((), "0 of 3 finished, 3 were under way when the run ended", NEVER),
    ],
)
def test_transfers_that_did_not_end_count_as_never(
    done: tuple[int, ...], words: str, median_ms: float
) -> None:
    measured = _measured(_matrix(0, 0, 0), *(_transfer(i, 0, 0.5) for i in done), begun=3)
    assert (measured.planned, measured.begun, measured.count) == (3, 3, len(done))
    assert measured.unfinished == 3 - len(done)
    assert measured.finished == words
    assert measured.median.ms == pytest.approx(median_ms)
    assert measured.bytes == 2000
    assert OperationSummary.model_validate_json(measured.model_dump_json()) == measured


def test_transfers_of_which_nothing_was_posted_have_not_begun() -> None:
    measured = _measured(_matrix(0, 1, 2, 5_000_000), _transfer(0, 0, 0.5), begun=2)
    assert (measured.planned, measured.begun, measured.count, measured.unfinished) == (4, 2, 1, 3)
    assert measured.finished == (
        "1 of 4 finished, 1 was under way, 2 had not begun when the run ended"
    )


def test_a_transfer_without_end_is_no_operation() -> None:
    matrix = [*_matrix(0, 0, 0).matrix]
    matrix[0] = matrix[0].model_copy(update={"size": 0})
    measured = _measured(Connections(matrix=tuple(matrix)), _transfer(1, 0, 0.5), begun=2)
    assert (measured.planned, measured.begun, measured.count, measured.unfinished) == (2, 2, 1, 1)


def _reported(
    *rows: tuple[str, int, float, float], still_open: tuple[str, int, float] | None = None
) -> tuple[OperationSummary, ...]:
    """What is measured of steps that two programs report: host, number, begin and end."""
    table = _table(*((end, begin, host, "step", number, 0, 2) for host, number, begin, end in rows))
    host, number, start_s = still_open or ("", 0, 0.0)
    left = OpenOperation(host=host, kind="step", number=number, start_s=start_s)
    return _measured_all(
        Program(command=("sh",)), table, duration_s=10, left=(left,) if still_open else ()
    )


def test_a_step_that_a_host_reports_again_lasts_until_its_last_end() -> None:
    (step,) = _reported(("h0", 0, 0.0, 1.0), ("h0", 0, 2.0, 3.0), ("h1", 0, 0.5, 2.5))
    assert (step.begun, step.count, step.unfinished) == (1, 1, 0)
    assert step.max.ms == pytest.approx(3000)
    (step,) = _reported(("h0", 0, 0.0, 1.0), ("h1", 0, 0.0, 1.0), *[("h0", 1, 1.0, 2.0)] * 2)
    assert (step.begun, step.count, step.unfinished) == (2, 1, 1)


def test_steps_of_which_each_host_has_another_number_never_finish() -> None:
    (step,) = _reported(("h0", 0, 0.0, 1.0), ("h1", 1, 0.0, 1.0))
    assert (step.hosts, step.begun, step.count, step.unfinished) == (2, 2, 0, 2)
    assert step.median.ms == NEVER


def test_a_step_that_begins_after_the_run_is_none_of_it() -> None:
    """A program may report while it ends."""
    assert _reported(still_open=("h0", 0, 10.5)) == ()


def test_a_job_of_which_a_program_failed_has_no_time() -> None:
    """It would compare well with its run alone; nor has one that was never started."""
    ends = {"done": (0, 2.5), "broken": (3, 0.5), "stopped": (None, 3.0), "never": None}
    jobs = tuple(Job(name=name, workload=Program(command=("sh",))) for name in ends)
    programs = tuple(
        ProgramRecord(host="h0", rank=0, status=end[0], ended_s=end[1], job=name)
        for name, end in ends.items()
        if end is not None
    )
    data = _run_data(Program(command=("sh",)), _table(), duration_s=3)
    scenario = data.scenario.model_copy(update={"workload": None, "jobs": jobs})
    run = data.run.model_copy(update={"programs": programs})
    found = summarise_jobs(replace(data, scenario=scenario, run=run))
    times = [None if job.time is None else job.time.ms for job in found]
    assert times == [2500, NEVER, NEVER, NEVER]
