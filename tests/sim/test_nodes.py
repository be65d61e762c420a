"""Nodes of several NICs in virtual time: rails, a fault of a whole node, what is measured."""

from pathlib import Path
from typing import Any

import pytest

from testbed.model.fabric.topology import Topology
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.results.records import OPERATIONS
from testbed.results.run_data import RunData, load_run
from testbed.runs.making import simulate_into

pytestmark = [pytest.mark.simulated, pytest.mark.long]

FABRIC = {
    "name": "nodes",
    "planes": 2,
    "t0_per_plane": 2,
    "t1_per_plane": 1,
    "hosts_per_t0": 2,
    "nics_per_node": 2,
    "rails": True,
}
"""Two nodes of two NICs; T1s have half the rate of the NICs below a T0."""

RING = {"kind": "allreduce", "size": "512 KiB"}


def run(directory: Path, fabric: dict[str, Any], **keys: Any) -> tuple[Summary, RunData]:
    """Simulate a collective of all NICs, or what keys say; returns what it comes to."""
    content = {"name": "nodes", "topology": fabric, "duration": "20 RTT", "workload": RING, **keys}
    directory.mkdir()
    rtt = Topology.model_validate(fabric).round_trip
    scenario = Scenario.model_validate(content, context=rtt)
    return simulate_into(directory, scenario), load_run(directory)


def crossing_t1s(summary: Summary) -> int:
    """Packets that arrived at a T1."""
    return sum(link.packets for link in summary.links if "_t1_" in link.direction.split(">")[1])


@pytest.mark.parametrize("kind", ["allreduce", "alltoall", "sendrecv", "training"])
def test_on_rails_no_packet_crosses_a_t1(tmp_path: Path, kind: str) -> None:
    workload = {"kind": kind, "size": "512 KiB"}
    if kind == "training":
        workload["compute"] = "1 RTT"
    on, data = run(tmp_path / "on", FABRIC, workload=workload)
    off, _ = run(tmp_path / "off", FABRIC | {"rails": False}, workload=workload)
    assert crossing_t1s(on) == 0 < crossing_t1s(off)
    for summary in (on, off):
        assert summary.integrity.intact
        (operation,) = summary.operations
        assert operation.count >= 2
        assert operation.unfinished == 0
        assert operation.hosts == (2 if kind == "sendrecv" else 4)
        assert [node.name for node in summary.nodes] == ["n0", "n1"]
    times = [summary.operations[0].median.real_us for summary in (on, off)]
    assert times[0] < times[1]
    if kind == "allreduce":
        assert times[1] > 1.3 * times[0]
    rows = data.tables[OPERATIONS]
    assert {*rows["host"]} == ({"h0", "h2"} if kind == "sendrecv" else {f"h{i}" for i in range(4)})


def test_a_node_has_the_goodput_of_its_nics(tmp_path: Path) -> None:
    pairs = [["h0", "h2"], ["h1", "h2"], ["h3", "h1"]]
    workload = {"pairs": pairs, "bidirectional": False, "message_size": "64 KiB", "depth": 16}
    summary, _ = run(tmp_path / "run", FABRIC, workload=workload)
    goodput = [flow.goodput_run_bps for flow in summary.flows]
    first, second = summary.nodes
    assert (first.nics, second.nics) == (2, 2)
    assert first.goodput_sent_bps == second.goodput_received_bps == goodput[0] + goodput[1]
    assert first.goodput_received_bps == second.goodput_sent_bps == goodput[2]
    attainable = [flow.attainable_run_bps for flow in summary.flows]
    assert first.run_fraction == first.goodput_sent_bps / (attainable[0] + attainable[1])
    ideal = [flow.ideal_run_bps for flow in summary.flows if flow.src in ("h0", "h1")]
    assert first.ideal_fraction == first.goodput_sent_bps / sum(ideal)


def test_without_nodes_the_summary_does_not_speak_of_them(tmp_path: Path) -> None:
    fabric = {key: value for key, value in FABRIC.items() if key not in {"nics_per_node", "rails"}}
    summary, _ = run(tmp_path / "run", fabric)
    assert summary.nodes == ()
    assert "nodes" not in summary.model_dump(mode="json")


def test_a_fault_of_a_node_takes_all_its_nics_and_no_other(tmp_path: Path) -> None:
    fault = {"kind": "cut", "target": "n1", "at": "8 RTT", "for": "8 RTT"}
    summary, data = run(tmp_path / "run", FABRIC, timeline=[fault], duration="40 RTT")
    (record,) = data.faults
    assert record.target == "n1"
    links = {place.split(">")[place.startswith("p")] for place in record.places}
    assert links == {"h2", "h3"}
    assert len(record.places) == 2 * 2 * 2  # two NICs with two ports, each way
    assert any(record.proof.values())
    assert summary.integrity.intact
    (operation,) = summary.operations
    assert operation.max.rtt > 8


def test_a_rail_that_fails_stalls_the_whole_node(tmp_path: Path) -> None:
    """As in NCCL: a collective is over for a rank when all its channels are."""
    fault = {"kind": "cut", "target": "h0", "at": "8 RTT", "for": "8 RTT"}
    summary, data = run(tmp_path / "run", FABRIC, timeline=[fault], duration="40 RTT")
    rows = data.tables[OPERATIONS]
    ends = {host: rows.filter(rows["host"] == host)["t"].to_list() for host in ("h0", "h1")}
    round_s = data.topology.propagation_rtt_ns / 40 / 1e9
    assert len(ends["h0"]) > 2
    for one, other in zip(*ends.values(), strict=False):
        assert abs(one - other) <= 2 * round_s
    assert summary.operations[0].max.rtt > 8


def test_expectations_of_nodes_are_judged(tmp_path: Path) -> None:
    expect = {"nodes": {"run_fraction": {"at_least": 2}, "packets_lost": 0}}
    summary, _ = run(tmp_path / "run", FABRIC, expect=expect)
    first, second = (each for each in summary.expectations if each.scope == "nodes")
    assert (first.figure, first.holds, second.holds) == ("run_fraction", False, True)
    assert first.where in {"n0", "n1"}
