"""Nodes of several NICs with real packets: they work in step, and a fault takes a whole node."""

import json
from pathlib import Path

import polars as pl
import pytest

from testbed.model.faults.record import FAULTS
from testbed.model.summary import Summary
from tests.e2e.conftest import CommandLine

pytestmark = [pytest.mark.root, pytest.mark.e2e]

FABRIC = {
    "name": "nodes",
    "planes": 2,
    "t0_per_plane": 2,
    "t1_per_plane": 1,
    "hosts_per_t0": 2,
    "nics_per_node": 2,
    "rails": True,
}
"""Two nodes of two NICs: h0 h1 and h2 h3."""


def test_a_node_is_frozen_cut_off_and_killed_with_all_its_nics(testbed: CommandLine) -> None:
    run = testbed.run(
        testbed.scenario(
            topology=FABRIC,
            workload={"kind": "allreduce", "size": "256 KiB"},
            duration="8 s",
            drain="1 s",
            timeline=[
                {"kind": "cut", "target": "h0", "at": "1500 ms", "for": "1500 ms"},
                {"kind": "cut", "target": "n1", "at": "3500 ms", "for": "500 ms"},
                {"kind": "freeze", "target": "n1", "at": "5 s", "for": "200 ms"},
                {"kind": "kill", "target": "n1", "at": "7 s"},
            ],
        ),
        timed=False,
    )
    directory = Path(run["run"])
    summary = Summary.model_validate(run_summary(directory))
    assert summary.integrity.intact
    records = [json.loads(line) for line in (directory / FAULTS).read_text().splitlines()]
    assert [record["error"] for record in records] == [None] * 4
    _, cut, freeze, kill = records
    ports = [f"h{2 + rail}>p{plane}_t0_{rail}" for rail in range(2) for plane in range(2)]
    assert {place for place in cut["places"] if place.startswith("h")} == {*ports}
    assert len(cut["places"]) == 2 * len(ports)
    assert cut["proof"]["injected"]["carrier"] is False
    assert cut["proof"]["healed"]["carrier"] is True
    assert freeze["places"] == kill["places"] == ["h2", "h3"]
    for link in (link for link in summary.links if "_t1_" in link.direction):
        assert link.packets < 100, "of the sweep of the idle fabric, not of the rings"
    operations = pl.read_parquet(directory / "operations.parquet")
    ends = {
        host: operations.filter(pl.col("host") == host).sort("number")["t"].to_list()
        for host in ("h0", "h1")
    }
    assert min(map(len, ends.values())) > 2
    numbers = [{*operations.filter(pl.col("host") == host)["number"]} for host in ends]
    assert len(numbers[0] ^ numbers[1]) <= 1, "neither rail is ahead by a round"
    during = [t for t in ends["h1"] if 2.0 < t < 3.0]
    assert not during, "rail 1 of n0 waits for rail 0, whose NIC has no carrier"
    assert [node.name for node in summary.nodes] == ["n0", "n1"]


def run_summary(directory: Path) -> object:
    """The content of a run's `summary.json`."""
    return json.loads((directory / "summary.json").read_text())
