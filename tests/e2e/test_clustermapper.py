"""The Clustermapper in a whole run: what it finds reaches the endpoints."""

from pathlib import Path

import polars as pl
import pytest

from tests.e2e.conftest import CommandLine

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.alone]

ONE_WAY = "p0_t0_0>p0_t1_1"
PATH = "p0/t1_1"


def test_an_accused_direction_is_denied_until_it_is_well(testbed: CommandLine) -> None:
    """One way only: probes of six uSIDs tell, and the endpoint that sends that way hears of it."""
    fault = {"kind": "blackhole", "target": ONE_WAY, "at": "1 s", "for": "2 s"}
    scenario = testbed.scenario(
        topology="clos-tiny",
        duration="6 s",
        workload={"kind": "write_bw", "pairs": [["h0", "h1"]], "message_size": "64 KiB"},
        timeline=[fault],
        clustermapper={"period": "25 us"},
    )
    summary = testbed.run(scenario)
    (seen,) = summary["faults"]
    (found,) = summary["localisation"]["faults"]
    assert found["named"] == ONE_WAY
    assert found["after_s"] < seen["healed_s"] - seen["effective_s"]
    flow = next(one for one in summary["flows"] if one["src"] == "h0")
    evs = [ev["ev"] for ev in flow["evs"] if ev["path"] == PATH]
    events = pl.read_parquet(Path(summary["run"]) / "ev_events.parquet").filter(
        (pl.col("flow") == flow["flow"]) & pl.col("ev").is_in(evs)
    )
    denied = events.filter(pl.col("new") == "DENIED")["t"]
    allowed = events.filter(pl.col("old") == "DENIED")["t"]
    assert len(denied) == len(allowed) > 0
    assert min(denied) > seen["effective_s"]
    assert max(allowed) > seen["healed_s"]
