"""The Clustermapper's denylist, where it accuses every path of a flow."""

from pathlib import Path

import polars as pl
import pytest

from testbed.files.scenarios import load_scenario
from testbed.sim import simulate

pytestmark = pytest.mark.simulated

SCENARIO = """
name: one-plane
topology: clos-1plane
duration: 80 RTT
workload: {kind: write_bw, pairs: [[h0, h4]]}
clustermapper: {}
timeline:
  - {kind: loss, target: h0--p0_t0_0, probability: 0.3, at: 5 RTT, for: 70 RTT}
"""


def test_a_denial_that_leaves_a_flow_no_path_is_refused(tmp_path: Path) -> None:
    """The only NIC link of h0 loses packets: all paths cross it, and h0 goes on sending."""
    file = tmp_path / "one-plane.yaml"
    file.write_text(SCENARIO)
    run = tmp_path / "run"
    run.mkdir()
    simulate(load_scenario(str(file)), run)
    rows = pl.read_parquet(run / "operator.parquet").filter(pl.col("by") == "clustermapper")
    refused = rows.filter((pl.col("kind") == "deny") & (pl.col("flow") == 0))
    assert set(refused["result"]) == {"refused: it leaves the flow no path"}
    sent = pl.read_parquet(run / "transmissions.parquet").filter(pl.col("flow") == 0)
    assert max(sent["t"].to_list()) > min(refused["t"].to_list()) + 1
