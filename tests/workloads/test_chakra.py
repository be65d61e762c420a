"""Chakra traces: how they are read, and what hosts do when they follow one."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

import testbed.model.graph as graph_module
from testbed.host.workloads.programs import Operation
from testbed.model.checks import remarks
from testbed.model.errors import InputError
from testbed.model.fabric.topology import Topology
from testbed.model.files import chakra
from testbed.model.files.chakra import read_chakra
from testbed.model.graph import Graph
from testbed.mrc import NEVER

from .crew import LOOK_NS, NODES, TOPOLOGY, Crew

pytest.importorskip("google.protobuf", reason="the extra chakra is not installed")

DILATION = int(TOPOLOGY.dilation)
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
ALL_REDUCE, REDUCE, ALL_GATHER, GATHER, SCATTER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = range(8)
BARRIER = 9
FIELDS = {bool: "v27", int: "v9", str: "v29"}
"""The fields bool_val, int64_val and string_val of an attribute."""


def _message(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    length, size = b"", len(data)
    while size >= 128:
        length += bytes([size & 127 | 128])
        size >>= 7
    return length + bytes([size]) + data


def _node(number: int, kind: int, *needs: int, us: int = 0, **values: int | str) -> bytes:
    _, node_class = chakra.messages()
    node = node_class(id=number, name=f"n{number}", type=kind, duration_micros=us, data_deps=needs)
    for name, value in values.items():
        field = FIELDS[type(value)]
        node.attr.add(name=name, **{field: value})
    return _message(node)


def _write(directory: Path, *ranks: list[bytes], name: str = "x") -> Path:
    metadata, _ = chakra.messages()
    for rank, nodes in enumerate(ranks):
        file = directory / f"{name}.{rank}.et"
        file.write_bytes(_message(metadata(version="0.0.4")) + b"".join(nodes))
    return directory / name


def _run(graph: Graph, topology: Topology = TOPOLOGY, **keys: object) -> list[Operation]:
    workload = {"kind": "chakra", "file": "x", "operations": graph, **keys}
    crew = Crew(workload, topology=topology)
    crew.run(NEVER)
    return [each for done in crew.finished.values() for each in done]


def test_ranks_compute_send_and_receive_in_the_order_of_their_dependences(tmp_path: Path) -> None:
    prefix = _write(
        tmp_path,
        [
            _node(7, COMPUTE, us=3),
            _node(9, SEND, 7, comm_src=0, comm_dst=1, comm_size=5000, comm_tag=4),
        ],
        [
            _node(1, COMPUTE, 2, us=2),  # before what it depends on
            _node(2, RECEIVE, comm_src=0, comm_dst=1, comm_size=5000, comm_tag=4),
        ],
    )
    done = {each.kind + str(each.number): each for each in _run(read_chakra(prefix))}
    assert done["send1"].start_ns == done["compute0"].end_ns == 3000 * DILATION
    assert done["compute2"].start_ns == done["recv3"].end_ns > done["send1"].start_ns
    twice = {each.kind: each for each in _run(read_chakra(prefix), duration_scale=2.0)}
    assert twice["send"].start_ns == 6000 * DILATION


@pytest.mark.parametrize(
    ("kind", "messages", "size"),
    [
        (ALL_REDUCE, 3 * 4, 300),
        (ALL_GATHER, 3 * 2, 900),
        (REDUCE_SCATTER, 3 * 2, 300),
        (ALL_TO_ALL, 3 * 2, 300),
        (BROADCAST, 2, 900),
        (REDUCE, 2, 900),
        (GATHER, 2, 900),
        (SCATTER, 2, 900),
        (BARRIER, 4, 1),
    ],
)
def test_each_collective_is_done_at_all_ranks_and_then_followed(
    tmp_path: Path, kind: int, messages: int, size: int
) -> None:
    nodes = [
        _node(1, COMPUTE, us=5),
        _node(2, COLLECTIVE, 1, comm_type=kind, comm_size=900),
        _node(3, COMPUTE, 2, us=1),
    ]
    graph = read_chakra(_write(tmp_path, nodes, nodes, nodes))
    done = _run(graph)
    sent = [each for each in done if each.kind == "send"]
    assert [each.size for each in sent] == [size] * messages
    (name,) = {each.kind for each in done} - {"send", "compute"}
    parts = [each for each in done if each.kind == name]
    assert [(each.number, each.hosts) for each in parts] == [(0, 3)] * 3
    assert {each.start_ns for each in parts} == {5000 * DILATION}
    ends = sorted(each.end_ns for each in parts)
    last = [each for each in done if each.kind == "compute" and each.start_ns > 0]
    assert sorted(each.start_ns for each in last) == ends
    assert len(graph.planned()[name]) == 1


@pytest.mark.parametrize(
    ("kind", "messages", "size"),
    [(ALL_REDUCE, 10, 100), (ALL_GATHER, 5, 600), (REDUCE_SCATTER, 5, 100)],
)
def test_of_nodes_there_is_a_ring_on_each_rail(
    tmp_path: Path, kind: int, messages: int, size: int
) -> None:
    """As those of the workload `allreduce`: h0, h2 and h4 on rail 0, h1, h3 and h5 on rail 1."""
    nodes = [
        [_node(1, COMPUTE, us=rank), _node(2, COLLECTIVE, 1, comm_type=kind, comm_size=1200)]
        for rank in range(6)
    ]
    graph = read_chakra(_write(tmp_path, *nodes), place=lambda rank: divmod(rank, 2))
    graph.join([rank // 2 for rank in range(6)])
    rails = [("h0", "h2"), ("h2", "h4"), ("h4", "h0"), ("h1", "h3"), ("h3", "h5"), ("h5", "h1")]
    assert {*graph.pairs()} == {*rails}
    done = _run(graph, topology=NODES)
    assert [each.size for each in done if each.kind == "send"] == [size] * messages * 6
    ends = [each for each in done if each.kind not in {"send", "compute"}]
    assert [(each.hosts, each.size) for each in ends] == [(6, 1200)] * 6
    for first, second in zip(*[iter(ends)] * 2, strict=True):
        assert abs(first.end_ns - second.end_ns) <= LOOK_NS  # the last rank of a node ends both
    assert min(each.start_ns for each in done if each.kind == "send") >= 1000 * NODES.dilation


def test_groups_are_read_from_the_file_of_astra_sim(tmp_path: Path) -> None:
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps({"1": [0, 2], "2": [1, 3]}))
    ranks = [
        [_node(1, COLLECTIVE, comm_type=ALL_REDUCE, comm_size=8, pg_name=name)]
        for name in ("1", "2", "1", "2")
    ]
    graph = read_chakra(_write(tmp_path, *ranks), groups)
    assert {*graph.pairs()} == {("h0", "h2"), ("h2", "h0"), ("h1", "h3"), ("h3", "h1")}
    assert len({(each.kind, each.number) for each in _run(graph) if each.hosts == 2}) == 2


@pytest.mark.parametrize("is_cpu", [True, 1])
def test_a_collective_of_the_cpu_is_the_call_that_launches_one(tmp_path: Path, is_cpu: int) -> None:
    """As PyTorch's traces have it: `c10d::allreduce_`, then the kernel of NCCL."""
    nodes = [
        _node(1, COLLECTIVE, us=4, is_cpu_op=is_cpu),
        _node(2, COLLECTIVE, 1, is_cpu_op=False, comm_type=ALL_REDUCE, comm_size=8),
    ]
    done = _run(read_chakra(_write(tmp_path, nodes, nodes)))
    (start_ns,) = {each.start_ns for each in done if each.kind == "all_reduce"}
    assert start_ns == 4000 * DILATION


def test_a_compressed_trace_is_read(tmp_path: Path) -> None:
    prefix = _write(tmp_path, [_node(1, COMPUTE, us=1)])
    file = Path(f"{prefix}.0.et")
    file.write_bytes(gzip.compress(file.read_bytes()))
    assert len(read_chakra(prefix)) == 1


ONE = {"comm_type": ALL_REDUCE, "comm_size": 8}


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([], "x.0.et: found no such file, expected the trace of rank 0"),
        ([[]], "x.0.et: found no node"),
        ([[_node(1, 8)]], "x.0.et: node 1 (n1): found the type 8, expected a type of 0 to 7"),
        ([[_node(1, COMPUTE), _node(1, COMPUTE)]], "node 1 (n1): found this id a second time"),
        ([[_node(1, COMPUTE, 5)]], "node 1 (n1): found a dependence on 5, expected nodes of the"),
        (
            [[_node(1, COMPUTE, 2), _node(2, COMPUTE, 1)]],
            "node 1 (n1): found a computation of h0 that never ends (and 1 more)",
        ),
        ([[_node(1, COLLECTIVE, comm_size=9)]], "found no comm_type, expected comm_type, a number"),
        ([[_node(1, COLLECTIVE, comm_type=10)]], "found comm_type 10, expected comm_type, a numb"),
        ([[_node(1, SEND, comm_dst=3, comm_size=9)]], "found comm_dst 3, expected comm_dst, a nu"),
        (
            [[_node(1, COLLECTIVE, **ONE)], [_node(1, COMPUTE)]],
            "found all_reduce without rank 1, expected a collective of all 2 ranks of its group",
        ),
        (
            [[_node(1, COLLECTIVE, **ONE)], [_node(1, COLLECTIVE, comm_type=0, comm_size=9)]],
            "x.1.et: node 1 (n1): found all_reduce of 9 bytes, expected all_reduce of 8, as rank 0",
        ),
        (
            [[_node(1, COLLECTIVE, pg_name="5", **ONE)]],
            "found the group 5, expected a group of the file of groups (there is none)",
        ),
        ([[_node(1, SEND, comm_dst=True, comm_size=9)]], "found comm_dst True, expected comm_dst"),
        (
            [[_node(1, COLLECTIVE, pg_name="5\nerror: y", **ONE)]],
            "found the group 5 error: y, expected a group of the file of groups (there is none)",
        ),
        ([[b"\xff" * 40]], "x.0.et: message 1: found one of"),
        ([[_node(1, COMPUTE)[:-2]]], "x.0.et: message 1: found one of"),
        ([[b"\x02\xff\xff"]], "x.0.et: after 0 nodes: found Error parsing"),
        ([[b"\x80" * 5000 + b"\x01"]], "x.0.et: message 1: found one of 0 bytes"),
        ([[_node(1, COMPUTE) + b"\x80"]], "x.0.et: message 2: found one of 0 bytes"),
    ],
)
def test_wrong_traces(tmp_path: Path, ranks: list[list[bytes]], message: str) -> None:
    prefix = _write(tmp_path, *ranks)
    with pytest.raises(InputError) as error:
        read_chakra(prefix)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzip.compress(b"x" * 5000, 0, mtime=0)[:3000], "compressed data and no end of them"),
        (gzip.compress(b"", mtime=0) * 2, "compressed data and more bytes after them"),
        (gzip.compress(bytes(2000), mtime=0), "a larger file"),
        (gzip.compress(b"\1\2", mtime=0)[:-6] + b"xxxxxx", "incorrect data check"),
    ],
    ids=["cut", "members", "bomb", "check"],
)
def test_wrong_compressed_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, message: str
) -> None:
    monkeypatch.setattr(chakra, "MAX_FILE", 1000 if message == "a larger file" else 5000)
    (tmp_path / "x.0.et").write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_chakra(tmp_path / "x")


def test_a_missing_trace_of_a_rank_is_named(tmp_path: Path) -> None:
    nodes = [_node(1, COMPUTE, us=1)]
    prefix = _write(tmp_path, nodes, nodes, nodes, name="[x]")
    (tmp_path / "[x].1.et").unlink()
    with pytest.raises(InputError, match=r"\[x\]\.1\.et: found no such file, but \[x\]\.2\.et"):
        read_chakra(prefix)
    with pytest.raises(InputError, match="found no such file, expected the trace of rank 0"):
        read_chakra(tmp_path / ("x" * 300))


def test_a_trace_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    prefix = _write(tmp_path, [_node(1, COMPUTE, us=1)])
    os.mkfifo(f"{prefix}.1.et")
    with pytest.raises(InputError, match=r"x\.1\.et: found a pipe, expected a Chakra execution tr"):
        read_chakra(prefix)


def test_a_trace_without_its_version_loses_no_node(tmp_path: Path) -> None:
    (tmp_path / "x.0.et").write_bytes(_node(1, COMPUTE, us=1) + _node(2, COMPUTE, us=1))
    with pytest.raises(InputError, match=r"x\.0\.et: message 0: found a node, expected the versio"):
        read_chakra(tmp_path / "x")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ('{"1": [0], "1": [0, 1]}', "found the group 1 a second time, expected JSON of groups"),
        ('{"0": [0]}', r"g\.json: 0: found \[0\], expected all 2 ranks\n.*another name"),
        ("[" * 100_000, "found maximum recursion depth"),
        ("\0", "found Expecting value"),
        ('{"1\\n": [2]}', r"g\.json: 1: found \[2\], expected JSON of groups and their ranks"),
    ],
)
def test_wrong_groups(tmp_path: Path, groups: str, message: str) -> None:
    file = tmp_path / "g.json"
    file.write_text(groups)
    nodes = [_node(1, COLLECTIVE, **ONE)]
    with pytest.raises(InputError, match=message):
        read_chakra(_write(tmp_path, nodes, nodes), file)


@pytest.mark.parametrize(
    ("bounds", "place"),
    [
        ({"MAX_OPERATIONS": 8}, "node 1 .*: found all_to_all of 3 ranks, expected 8 operations at"),
        ({"MAX_OPERATIONS": 2}, "1.et: node 1 .*: found one more, expected 2 operations at most"),
        ({"MAX_EDGES": 22}, "node 2 .*: found one more, expected 22 dependences at most"),
    ],
)
def test_messages_of_collectives_count_as_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int], place: str
) -> None:
    """A node of a few bytes stands for as many as there are pairs of ranks."""
    for name, bound in bounds.items():
        monkeypatch.setattr(graph_module, name, bound)
    nodes = [_node(1, COLLECTIVE, comm_type=ALL_TO_ALL, comm_size=9), _node(2, COMPUTE, 1)]
    with pytest.raises(InputError, match=place):
        read_chakra(_write(tmp_path, nodes, nodes, nodes))


@pytest.mark.parametrize(("us", "remarked"), [(0, True), (1, False)])
def test_a_remark_says_that_traces_have_no_durations(
    tmp_path: Path, us: int, remarked: bool
) -> None:
    nodes = [_node(1, COMPUTE, num_ops=1000), _node(2, COMPUTE, us=us), _node(3, COLLECTIVE, **ONE)]
    graph = read_chakra(_write(tmp_path, nodes, nodes))
    crew = Crew({"kind": "chakra", "file": "x", "operations": graph})
    said = [remark.what for remark in remarks(crew.scenario) if remark.where == "workload.file"]
    assert [what.startswith("all 4 computations take no time") for what in said] == [
        True
    ] * remarked
