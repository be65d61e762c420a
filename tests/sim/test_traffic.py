"""What a run sent, written as a connection matrix with triggers and as CSV, and run again."""

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from testbed.model.errors import InputError
from testbed.model.files.matrices import read_matrix
from testbed.model.files.topologies import load_topology
from testbed.model.graph import COMPUTE, NO_STREAM, SEND, Collective, Graph, Operation
from testbed.model.scenario import Scenario
from testbed.model.workload import Connections
from testbed.results.run_data import load_run
from testbed.results.traffic import matrix_of_run, transfers_of_run
from testbed.sim.run import simulate

HOSTS = ["h0", "h3", "h5"]


def _run(
    directory: Path, workload: dict[str, Any], lanes: int = 1, topology: str = "clos-4plane"
) -> Scenario:
    scenario = Scenario.model_validate(
        {
            "name": "x",
            "topology": load_topology(topology),
            "duration": "400 ms",
            "workload": workload,
            "transport": {"qps": lanes},
        }
    )
    directory.mkdir()
    simulate(scenario, directory)
    return scenario


def _read_back(directory: Path, text: str) -> dict[str, Any]:
    file = directory / "run.cm"
    file.write_text(text)
    read = read_matrix(file)
    return {"kind": "connections", "matrix": read.transfers, "triggers": read.triggers}


def test_a_matrix_comes_back_as_it_was_run(tmp_path: Path) -> None:
    workload = {
        "kind": "connections",
        "matrix": [
            {"src": "h0", "dst": "h4", "start": "1500 ns", "size": 30_000, "recv_done_trigger": 7},
            {"src": "h4", "dst": "h1", "trigger": 7, "size": 20_000, "send_done_trigger": 9},
            {"src": "h4", "dst": "h2", "trigger": 7, "size": 20_000, "send_done_trigger": 9},
            {"src": "h5", "dst": "h6", "trigger": 9, "size": 10_000},
        ],
        "triggers": [{"id": 7, "kind": "oneshot"}, {"id": 9, "kind": "barrier", "count": 2}],
    }
    before = _run(tmp_path / "first", workload).workload
    data = load_run(tmp_path / "first")
    again = Connections.model_validate(_read_back(tmp_path, matrix_of_run(data)))
    assert isinstance(before, Connections)
    renumbered = [row.model_dump() for row in before.matrix]
    for row in renumbered:
        for key in ("trigger", "send_done_trigger", "recv_done_trigger"):
            row[key] = {7: 1, 9: 2}.get(row[key])
    assert [row.model_dump() for row in again.matrix] == renumbered
    assert [(each.kind, each.count) for each in again.triggers] == [("oneshot", 0), ("barrier", 2)]
    rows = [*csv.DictReader(io.StringIO(transfers_of_run(data).write_csv()))]
    sent = {int(row["number"]): (row["src"], row["dst"], int(row["bytes"])) for row in rows}
    assert sent == {i: (row.src, row.dst, row.size) for i, row in enumerate(before.matrix)}
    assert {row["kind"] for row in rows} == {"transfer"}  # and no signal
    ends = {int(row["number"]): float(row["end_s"]) for row in rows}
    assert max(ends[1], ends[2]) < ends[3]


@pytest.mark.parametrize("kind", ["sendrecv", "allreduce", "alltoall"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_collectives_come_as_transfers_that_wait_for_one_another(
    tmp_path: Path, kind: str, lanes: int
) -> None:
    """The same bytes between the same hosts; run again they all finish."""
    workload = {"kind": kind, "hosts": HOSTS, "size": "30 KB"}
    scenario = _run(tmp_path / "first", workload, lanes)
    data = load_run(tmp_path / "first")
    matrix = _read_back(tmp_path, matrix_of_run(data))
    again = Connections.model_validate(matrix)
    assert not [*again.problems(scenario.topology)]
    assert {(row.src, row.dst) for row in again.matrix} == {
        (src, dst) for src, dst, _ in scenario.flows
    }
    messages = transfers_of_run(data)
    assert {*messages["bytes"]} == {row.size for row in again.matrix}
    assert 0 < len(again.matrix) <= messages.height
    _run(tmp_path / "again", matrix, lanes)
    done = transfers_of_run(load_run(tmp_path / "again"))
    assert done.height == len(again.matrix)


@pytest.mark.parametrize("kind", ["sendrecv", "allreduce", "alltoall"])
def test_collectives_of_nodes_come_rail_by_rail(tmp_path: Path, kind: str) -> None:
    """As many bytes between the same NICs as in the rounds that all hosts finished."""
    scenario = _run(tmp_path / "run", {"kind": kind, "size": "64 KB"}, topology="clos-rails")
    data = load_run(tmp_path / "run")
    matrix = Connections.model_validate(_read_back(tmp_path, matrix_of_run(data)))
    assert not [*matrix.problems(scenario.topology)]
    sent = Counter((row.src, row.dst, row.size) for row in matrix.matrix)
    rows = transfers_of_run(data).group_by("src", "dst", "bytes").len().iter_rows()
    messages = {(src, dst, size): count for src, dst, size, count in rows}
    assert sent.keys() == messages.keys()
    assert all(
        0 <= messages[of] - count <= 2 * max(messages.values()) for of, count in sent.items()
    )


def test_a_row_of_a_collective_has_no_receiver(tmp_path: Path) -> None:
    """Its number is that of the collective, not that of an operation."""
    graph = Graph({SEND: "send", COMPUTE: "compute"})
    graph.add(Operation(SEND, "h0", "h4", 100))
    graph.collectives.append(Collective("barrier", 0, 1, 1))
    for ends in (False, True):
        last = graph.add(Operation(COMPUTE, "h1", "", 0, stream=NO_STREAM, counted=ends, part=0))
    graph.after(last, last - 1)
    _run(tmp_path / "run", {"kind": "chakra", "file": "x", "operations": graph})
    rows = transfers_of_run(load_run(tmp_path / "run")).rows_by_key("kind", named=True, unique=True)
    assert (rows["send"]["dst"], rows["barrier"]["dst"]) == ("h4", "")


def test_what_a_matrix_cannot_say_is_refused(tmp_path: Path) -> None:
    workload = {"kind": "permutation", "hosts": HOSTS, "message_size": "30 KB"}
    _run(tmp_path / "first", workload)
    data = load_run(tmp_path / "first")
    with pytest.raises(InputError, match="the workload permutation"):
        matrix_of_run(data)
    messages = transfers_of_run(data)
    assert {*messages["kind"]} == {"message"}
    assert messages["bytes"].sum() > 0
