"""A NIC port that loses its carrier: the host knows at once, and its peer is told."""

from pathlib import Path

import polars as pl
import pytest

from tests.e2e.conftest import CommandLine

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.alone]


def test_both_ends_leave_the_plane_because_they_know(testbed: CommandLine) -> None:
    cut = {"kind": "cut", "target": "h0--p1_t0_0", "at": "1500 ms", "for": "1 s"}
    summary = testbed.run(testbed.scenario(timeline=[cut], duration="4 s"))
    assert summary["integrity"]["bytes_lost"] == summary["integrity"]["bytes_corrupted"] == 0
    (fault,) = summary["faults"]
    cut_s, healed_s = fault["effective_s"], fault["healed_s"]
    rtt_s = summary["base_rtt_us"] / 1e6
    events = pl.read_parquet(Path(summary["run"]) / "ev_events.parquet")
    went_and_came = []
    for flow in summary["flows"]:
        own = events.filter((pl.col("flow") == flow["flow"]) & (pl.col("plane") == 1))
        left = own.filter((pl.col("reason") == "port down") & ~pl.col("active"))
        others = events.filter((pl.col("reason") == "port down") & (pl.col("plane") != 1))
        assert left.height > 0
        assert others.height == 0
        back = own.filter(pl.col("active") & (pl.col("t") > healed_s - 0.25))
        assert back.height >= left.height  # losses may have condemned one before
        went_and_came.append((flow["src"], left["t"].max(), back["t"].max()))
    for src, left_s, back_s in went_and_came:
        assert left_s < cut_s + (0.2 if src == "h0" else 2) * rtt_s
        assert back_s < healed_s + 6 * rtt_s
