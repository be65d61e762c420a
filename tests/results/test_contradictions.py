"""A run whose metrics contradict each other is invalid; a reason names the broken rule."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from testbed.host.workloads import programs
from testbed.host.workloads.programs import FlowEnd, Operations
from testbed.model.files.topologies import load_topology
from testbed.model.graph import Graph
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.results.analyse import analyse
from testbed.results.analysis import fault_metrics
from testbed.results.analysis.attainable import AttainableRate
from testbed.results.analysis.contradictions import (
    FAR_ABOVE,
    LEFT,
    LINKS,
    NOTHING,
    QUEUE_PAIRS,
    RECOVERY,
    SUM,
    VERIFIED,
)
from testbed.results.analysis.fault_metrics import FaultMetrics, Shortfall
from testbed.results.analysis.metrics import flow_tables, summarise
from testbed.results.records import ARRIVALS
from testbed.results.run_data import RunData, load_run
from testbed.sim import simulate

from .synthetic import Failure, Plan, generate

DARK = tuple(Failure(f"h0--p{plane}_t0_0", at=2.0, until=4.0, detect=None) for plane in range(4))


@pytest.fixture
def data(tmp_path: Path) -> RunData:
    """A run of which a host has no port for two seconds."""
    generate(tmp_path / "run", Plan(failures=DARK, duration=7.0))
    return load_run(tmp_path / "run")


def _summary(data: RunData) -> Summary:
    return summarise(data, flow_tables(data))


def _breaks(summary: Summary, rule: str) -> bool:
    named = [reason for reason in summary.reasons if rule in reason]
    return summary.verdict == "invalid" and bool(named)


def _with_arrivals(data: RunData, arrivals: pl.DataFrame) -> RunData:
    return replace(data, tables={**data.tables, ARRIVALS: arrivals})


def test_what_was_measured_rightly_breaks_none(data: RunData) -> None:
    assert not [reason for reason in _summary(data).reasons if "contradict" in reason]


def test_bytes_that_were_not_verified_are_no_goodput(data: RunData) -> None:
    arrivals = data.tables[ARRIVALS]
    assert _breaks(_summary(_with_arrivals(data, arrivals.head(arrivals.height // 2))), VERIFIED)


def test_links_carry_no_more_than_they_can(data: RunData) -> None:
    arrivals = data.tables[ARRIVALS].with_columns(pl.col("bytes") * 2)
    assert _breaks(_summary(_with_arrivals(data, arrivals)), LINKS)


def test_a_recovery_is_not_shorter_than_the_outage(
    data: RunData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FaultMetrics, "recovery", 0.0)
    assert _breaks(_summary(data), RECOVERY)


def test_capacity_lost_and_deficit_add_up(data: RunData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_metrics, "shortfall", lambda *_: Shortfall(0.01, 0.0, 0.0, 1e6))
    assert _breaks(_summary(data), SUM)


def test_a_flow_takes_no_more_than_others_leave(data: RunData) -> None:
    third = AttainableRate((-np.inf,), (12e6,))
    tables = [replace(table, attainable=third, ideal=third) for table in flow_tables(data)]
    unaffected = replace(data, faults=())
    assert _breaks(summarise(unaffected, tables), LEFT)
    assert not _breaks(summarise(unaffected, tables), NOTHING)


def test_most_flows_have_something_beside_one_far_above_its_share(data: RunData) -> None:
    low, high = AttainableRate((-np.inf,), (12e6,)), AttainableRate((-np.inf,), (90e6,))
    first, second = flow_tables(data)
    nothing = replace(second.delivery, times=np.array([]), placed=np.array([], dtype=np.int64))
    tables = [
        replace(first, attainable=low, ideal=low),
        *[replace(second, attainable=high, ideal=high, delivery=nothing)] * 2,
    ]
    summary = summarise(replace(data, faults=()), tables)
    assert _breaks(summary, NOTHING)
    assert not _breaks(summary, LEFT)


@pytest.mark.parametrize(("count", "qps"), [(4, 3), (2, 3), (1, 1)])
def test_short_transfers_on_several_queue_pairs_contradict_nothing(
    tmp_path: Path, count: int, qps: int
) -> None:
    summary = _simulated(tmp_path, [400_000] * count, qps)
    assert (summary.verdict, summary.reasons) == ("trusted", ())
    idle = [flow for flow in summary.flows if flow.idle]
    assert len(idle) == max(qps - count, 0)
    assert all(flow.ideal_fraction is None and flow.goodput_run_bps == 0 for flow in idle)
    assert summary.over_flows == {} or summary.over_flows["goodput_run_bps"].median > 0


def test_flows_that_are_done_within_a_round_trip_leave_the_rest_to_one_that_is_not(
    tmp_path: Path,
) -> None:
    summary = _simulated(tmp_path, [2_000_000, 10_000, 10_000], 3)
    assert (summary.verdict, summary.reasons) == ("trusted", ())
    assert max(flow.reached for flow in summary.flows) > FAR_ABOVE


def test_a_queue_pair_without_messages_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnTheFirst(Operations):
        def __init__(self, graph: Graph, host: str, ends: Sequence[FlowEnd], **of: Any) -> None:
            super().__init__(graph, host, [end for end in ends if not end.lane], **of)

    monkeypatch.setattr(programs, "Operations", OnTheFirst)
    summary = _simulated(tmp_path, [10_000] * 4, 3)
    assert _breaks(summary, QUEUE_PAIRS)
    assert "h0 → h4: 4 messages, none on #1, #2" in "".join(summary.reasons)


def _simulated(directory: Path, sizes: Sequence[int], qps: int) -> Summary:
    """A run of transfers of these sizes between two hosts."""
    matrix = [{"src": "h0", "dst": "h4", "start": "0 s", "size": size} for size in sizes]
    scenario = Scenario.model_validate(
        {
            "name": "x",
            "topology": load_topology("clos-4plane"),
            "duration": "1 s",
            "workload": {"kind": "connections", "matrix": matrix},
            "transport": {"qps": qps},
        }
    )
    simulate(scenario, directory)
    return analyse(directory, drawn=False)
