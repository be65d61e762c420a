"""Nodes of several NICs: where their NICs are, and how collectives map ranks to them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.model.checks import problems, remarks
from testbed.model.errors import InputError
from testbed.model.fabric.topology import Topology
from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.model.workload import AllReduce, AllToAll, InStep, SendRecv, Training

from .fabrics import topologies

RIGHT = {"name": "x", "planes": 2, "t0_per_plane": 4, "t1_per_plane": 2, "hosts_per_t0": 4}
RAILS = Topology.model_validate(RIGHT | {"nics_per_node": 4, "rails": True})
RACKS = Topology.model_validate(RIGHT | {"nics_per_node": 2})

several = st.integers(2, 3)
COLLECTIVES: list[InStep] = [SendRecv(), AllReduce(), AllToAll(), Training(compute="1 us")]


@given(topologies())
def test_every_host_is_below_one_downlink_and_every_downlink_leads_to_one(t: Topology) -> None:
    places = [(t.rack(host), t.downlink(host)) for host in t.hosts]
    every = [(rack, place) for rack in range(t.t0_per_plane) for place in range(t.hosts_per_t0)]
    assert sorted(places) == every
    for host, place in zip(t.hosts, places, strict=True):
        assert t.host_below(*place) == host
        assert t.rack_named(host.name) == place[0]
    assert [t.hosts_below(rack) for rack in range(t.t0_per_plane)] == [
        tuple(host for host in t.hosts if t.rack(host) == rack) for rack in range(t.t0_per_plane)
    ]


@given(topologies(several))
def test_the_nics_of_a_node_are_below_one_t0_or_each_below_that_of_its_rail(t: Topology) -> None:
    assert [nic for node in range(t.node_count) for nic in t.nics(node)] == [*t.hosts]
    for node in range(t.node_count):
        assert [t.node_of(nic) for nic in t.nics(node)] == [
            (node, rail) for rail in range(t.nics_per_node)
        ]
        racks = [t.rack(nic) for nic in t.nics(node)]
        if t.rails:
            assert racks == [*range(racks[0], racks[0] + t.nics_per_node)]
            assert racks[0] % t.nics_per_node == 0
        else:
            assert len({*racks}) == 1
    if t.rails:  # as many nodes in a row share all their T0s as a T0 has downlinks
        rows = Counter(t.rack(t.nics(node)[0]) for node in range(t.node_count))
        assert {*rows.values()} == {t.hosts_per_t0}


@given(topologies(several).filter(lambda t: t.node_count > 1), st.sampled_from(COLLECTIVES))
def test_between_nodes_a_collective_stays_on_a_rail(t: Topology, workload: InStep) -> None:
    assert not [*workload.problems(t)]
    ends = [[t.node_of(t.host_named(host)) for host in pair] for pair in workload.directions(t)]
    assert all(src[0] != dst[0] and src[1] == dst[1] for src, dst in ends)
    assert len(ends) == len({*workload.directions(t)}) <= workload.direction_count(t)
    rails = {src[1] for src, _ in ends}
    assert rails == ({0} if isinstance(workload, SendRecv) else {*range(t.nics_per_node)})
    for rail in workload.rails(t):
        nodes = [t.node_of(t.host_named(host))[0] for host in rail]
        assert nodes == [*range(t.node_count)]
        if t.rails and t.node_count == t.hosts_per_t0:
            assert len({t.rack_named(host) for host in rail}) == 1, "no packet crosses a T1"


@given(topologies(several).filter(lambda t: t.node_count > 1), st.integers(1, 3))
def test_what_is_sent_is_what_nccl_sends_over_the_network(t: Topology, lanes: int) -> None:
    nodes, nics = t.node_count, t.nics_per_node
    ranks = nodes * nics
    size = 1 << 20
    for workload, of_buffer in (
        (AllReduce(size="1 MiB", slices=1), 2 * (ranks - 1) / ranks / nics),
        (AllToAll(size="1 MiB"), (nodes - 1) / nodes),
        (SendRecv(size="1 MiB"), 1.0),
    ):
        sent = workload.outgoing_bytes(t, lanes)
        assert workload.sent_bytes(t, lanes) >= size
        assert sent == pytest.approx(workload.sent_bytes(t, lanes) * of_buffer)


@given(topologies(st.just(1)), st.sampled_from(COLLECTIVES))
def test_where_each_node_has_one_nic_there_is_one_rail(t: Topology, workload: InStep) -> None:
    (rail,) = workload.rails(t)
    assert rail == tuple(host.name for host in t.hosts)


def test_a_group_may_have_some_nics_of_some_nodes_in_its_order() -> None:
    hosts = ("h12", "h0", "h14", "h2", "h4", "h6")
    assert AllReduce(hosts=hosts).rails(RAILS) == (("h12", "h0", "h4"), ("h14", "h2", "h6"))
    assert not [*AllReduce(hosts=hosts).problems(RAILS)]
    (data_parallel,) = AllReduce(hosts=("h1", "h5", "h9")).rails(RAILS)
    assert data_parallel == ("h1", "h5", "h9")


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        (["h0", "h1"], "workload.hosts: found NICs of n0 only, expected hosts of two nodes"),
        (
            ["h0", "h1", "h4", "h6"],
            "workload.hosts: found h4, h6 of n1, expected the same NICs of each node: h4, h5 of n1",
        ),
        (["h0", "h99"], "workload.hosts[1]: found h99, expected a host of x: h0 to h15"),
        (["h0", "n1"], "workload.hosts[1]: found n1, expected a host of x: h0 to h15"),
    ],
)
@pytest.mark.parametrize("kind", ["allreduce", "alltoall", "sendrecv", "training"])
def test_a_group_that_nccl_could_not_put_on_rails_is_refused(
    kind: str, hosts: list[str], message: str
) -> None:
    workload: dict[str, Any] = {"kind": kind, "hosts": hosts}
    if kind == "training":
        workload["compute"] = "1 us"
    scenario = Scenario.model_validate({"name": "x", "topology": RAILS, "workload": workload})
    (problem,) = problems(scenario)
    assert str(problem).startswith(message)


def test_a_single_node_has_no_collective_on_the_fabric() -> None:
    one = Topology.model_validate(RIGHT | {"t0_per_plane": 1, "nics_per_node": 4})
    (problem,) = AllReduce().problems(one)
    assert str(problem).startswith("workload: found NICs of n0 only")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rails": True}, "rails: false where a node has one NIC.*set nics_per_node"),
        (
            {"nics_per_node": 3},
            r"hosts_per_t0: a multiple of nics_per_node \(3\), which 4 is not.*6, or rails: true",
        ),
        (
            {"nics_per_node": 3, "rails": True},
            r"t0_per_plane: a multiple of nics_per_node \(3\), which 4 is not: each rail.*6",
        ),
        ({"nics_per_node": 0}, "nics_per_node"),
        ({"nics_per_node": 4.0}, "nics_per_node"),
        ({"rails": "yes", "nics_per_node": 4}, "rails"),
    ],
)
def test_nodes_that_the_fabric_cannot_have_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=f"(?s){message}"):
        Topology.model_validate(RIGHT | changes)


def test_messages_of_files_within_a_node_use_no_fabric(tmp_path: Path) -> None:
    goal = "num_ranks 3\nrank 0 { send 9b to 1 }\nrank 1 { recv 9b from 0 }\n"
    (tmp_path / "x.goal").write_text(f"{goal}rank 2 {{ send 9b to 0 }}")

    def scenario(topology: dict[str, Any], hosts: str) -> Scenario:
        file = tmp_path / "x.yaml"
        workload = f"{{kind: goal, file: x.goal, hosts: {hosts}}}"
        text = f"name: x\ntopology: {json.dumps(topology)}\nworkload: {workload}\n"
        file.write_text(text)
        return load_scenario(str(file))

    racks = {**RIGHT, "nics_per_node": 2}
    apart = scenario(racks, "[h0, h2, h1]")
    assert apart.flows == (("h0", "h2", 0),)
    (remark,) = remarks(apart)
    assert str(remark).startswith("workload: messages within a node use no fabric")
    recorded = json.loads(apart.model_dump_json())
    for nics, flows in ((1, 2), (2, 1)):
        recorded["topology"]["nics_per_node"] = nics
        (tmp_path / "again.yaml").write_text(json.dumps(recorded))
        assert len(load_scenario(str(tmp_path / "again.yaml")).flows) == flows
    for each in (scenario(RIGHT, "[h0, h2, h1]"), scenario(racks, "[h0, h2, h5]")):
        assert len(each.flows) == 2
        assert not remarks(each)
    within = "found messages within a node only, .*\n.*nics_per_node to 1"
    with pytest.raises(InputError, match=within):
        scenario({**RIGHT, "nics_per_node": 4}, "[h0, h2, h1]")
