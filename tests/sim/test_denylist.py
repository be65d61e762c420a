"""The Clustermapper's denylist, where it accuses every path of a flow."""

from pathlib import Path

import polars as pl
import pytest

from testbed.model.files.scenarios import load_scenario
from testbed.model.operator.commands import parse_command
from testbed.mrc import EvState, QueuePair
from testbed.sim import Simulation, simulate

pytestmark = [pytest.mark.simulated, pytest.mark.long]

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


@pytest.mark.parametrize("taken", ["denied by hand", "on a port that is down"])
def test_a_path_that_the_clustermapper_releases_may_be_out_of_use_all_the_same(taken: str) -> None:
    """So what it denies instead may be the last path."""
    scenario = load_scenario("healthy")
    host = Simulation(scenario).hosts[scenario.topology.host_named("h0")]
    operator, (connection, *_) = host.traffic.operator, host.traffic.connections.values()
    qp = connection.qp
    assert isinstance(qp, QueuePair)
    first, *others = (f"h0>p{plane}_t0_0" for plane in range(scenario.topology.planes))
    operator.deny_crossing(frozenset({first}), 1)
    if taken == "denied by hand":
        deny = parse_command({"kind": "deny", "flow": "h0->h4", "ev": ["p0"]})
        operator.handle(deny, 2, lambda _answer: None)
    else:
        host.traffic.port_changed(0, up=False, now_ns=2)
    operator.deny_crossing(frozenset(others), 3)
    usable = [ev.plane for ev in qp.evs() if ev.state is not EvState.DENIED]
    assert {*usable} - qp.down_planes() == {1, 2, 3}
