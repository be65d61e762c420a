"""A run whose metrics contradict each other is invalid; a reason names the broken rule."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from testbed.model.summary import Summary
from testbed.results.analysis import fault_metrics
from testbed.results.analysis.fault_metrics import FaultMetrics, Shortfall
from testbed.results.analysis.metrics import flow_tables, summarise
from testbed.results.analysis.trust.contradictions import LINKS, RECOVERY, SUM, VERIFIED
from testbed.results.records import ARRIVALS
from testbed.results.run_data import RunData, load_run

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
    monkeypatch.setattr(fault_metrics, "shortfall", lambda *_: Shortfall(0.01, 0.0, 1e6))
    assert _breaks(_summary(data), SUM)
