"""The kernel's TCP and Multipath TCP in place of MRC: the same run, records and metrics."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.e2e.conftest import CommandLine
from tests.machine import skip_without

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.alone, pytest.mark.long]

PAIR = {"kind": "write_bw", "pairs": [["h0", "h1"]], "message_size": "256 KiB"}


def _run(testbed: CommandLine, **changes: Any) -> dict[str, Any]:
    asked = {"topology": "clos-tiny", "duration": "4 s", "workload": PAIR} | changes
    return testbed.run(testbed.scenario(**asked))


def test_tcp_is_held_up_by_a_dead_path_and_delivers_everything(testbed: CommandLine) -> None:
    fault = {"kind": "blackhole", "target": "p1_t0_0--p1_t1_1", "at": "1500 ms", "for": "500 ms"}
    transport = {"kind": "tcp", "congestion": "reno"}
    summary = _run(testbed, transport=transport, timeline=[fault])
    integrity = summary["integrity"]
    assert integrity["bytes_lost"] == integrity["bytes_corrupted"] == 0
    assert integrity["bytes_verified"] > 1_000_000
    # Propagation delay is in it: a kernel alone would answer in well below a millisecond.
    assert 125_000 < summary["base_rtt_us"] / summary["slower"] < 250_000
    (seen,) = summary["faults"]
    assert seen["stall_rtt"] > 3, "for as long as the fault lasted, at least"
    sent = pl.read_parquet(Path(summary["run"]) / "transmissions.parquet")
    for flow in summary["flows"]:
        assert flow["transport"] == "tcp"
        assert [ev["path"] for ev in flow["evs"]] == ["p1/t1_1"]
        assert flow["packets_retransmitted"] > 0
        again = sent.filter((pl.col("flow") == flow["flow"]) & pl.col("retransmitted"))
        assert again.height == flow["packets_retransmitted"]


def test_mptcp_has_a_subflow_in_every_plane(testbed: CommandLine) -> None:
    skip_without("MPTCP")
    fault = {"kind": "blackhole", "target": "p1_t0_0--p1_t1_1", "at": "2 s", "for": "800 ms"}
    summary = _run(testbed, transport={"kind": "mptcp"}, timeline=[fault])
    integrity = summary["integrity"]
    assert integrity["bytes_lost"] == integrity["bytes_corrupted"] == 0
    for flow in summary["flows"]:
        assert set(flow["goodput_by_plane_bps"]) == {"0", "1"}
        share = flow["goodput_before_bps"] / flow["ports_bps"]
        assert share > 0.6, "more than one plane alone could carry"
        lost = {ev["path"]: ev["packets_lost"] for ev in flow["evs"]}
        assert lost["p1/t1_1"] > 0


def test_mptcp_sends_both_ways_without_pausing(testbed: CommandLine) -> None:
    """What is dropped at the edge of a window comes again only by a timer of about a second."""
    skip_without("MPTCP")
    pair = {"kind": "write_bw", "pairs": [["h0", "h4"]], "message_size": "1 MiB"}
    summary = _run(testbed, topology="clos-4plane", transport={"kind": "mptcp"}, workload=pair)
    arrivals = pl.read_parquet(Path(summary["run"]) / "arrivals.parquet").filter(pl.col("t") > 1)
    for flow in summary["flows"]:
        assert set(flow["goodput_by_plane_bps"]) == {"0", "1", "2", "3"}
        times = arrivals.filter(pl.col("flow") == flow["flow"])["t"].sort()
        assert max(times.diff().drop_nulls().to_list()) < 0.6
