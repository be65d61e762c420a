"""Every workload once on the simulated fabric: all arrives, and its operations are counted."""

from pathlib import Path
from typing import Any

import pytest

from testbed.model.files.goal import read_goal
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.results.analyse import analyse
from testbed.results.analysis.verdict import NOTHING_FINISHED
from testbed.results.report.figures import style
from testbed.sim import simulate

pytestmark = [pytest.mark.simulated, pytest.mark.long]

HOSTS = ["h0", "h4", "h1", "h5"]
MS = 1_000_000
RING = {"hosts": HOSTS, "size": "512 KiB"}


def _scenario(workload: dict[str, Any], duration: str = "1500 ms", **keys: Any) -> Scenario:
    content = {"name": "x", "topology": load_topology("clos-4plane"), "duration": duration}
    return Scenario.model_validate(content | {"workload": workload} | keys)


def _goal(file: Path) -> Scenario:
    workload = {"kind": "goal", "file": "x", "operations": read_goal(file)}
    return _scenario(workload, "400 ms")


@pytest.mark.parametrize(
    ("workload", "qps", "kind", "fewest"),
    [
        ({"kind": "permutation", "hosts": HOSTS, "message_size": "128 KiB"}, 2, None, 0),
        (
            {"kind": "incast", "senders": ["h1", "h4"], "target": "h0", "victim": ["h5", "h1"]},
            1,
            None,
            0,
        ),
        ({"kind": "sendrecv", **RING}, 1, "sendrecv", 3),
        ({"kind": "allreduce", **RING}, 2, "allreduce", 1),
        ({"kind": "alltoall", **RING}, 2, "alltoall", 3),
        ({"kind": "training", "compute": "100 ms", **RING}, 1, "step", 1),
    ],
)
def test_a_workload_runs(
    tmp_path: Path, workload: dict[str, Any], qps: int, kind: str | None, fewest: int
) -> None:
    scenario = _scenario(workload, transport={"congestion": "nscc", "qps": qps})
    outcome = simulate(scenario, tmp_path)
    for flow in outcome.flows:
        assert flow.bytes_verified == flow.bytes_completed == flow.bytes_sent > 0
        assert (flow.bytes_lost, flow.bytes_corrupted, flow.errors) == (0, 0, ())
    drawn = kind == "step"  # operations are drawn alike
    summary = analyse(tmp_path, drawn=drawn)
    assert (tmp_path / "figures/operations.png").exists() is drawn
    assert (summary.verdict, summary.reasons) == ("trusted", ())
    assert [operation.kind for operation in summary.operations] == ([kind] if kind else [])
    for operation in summary.operations:
        assert operation.count >= fewest
        assert operation.hosts == len(HOSTS)
        host_bps = scenario.topology.planes * scenario.topology.port_rate_bps
        assert 0 < operation.algbw_bps < host_bps
        assert operation.median.ms <= operation.p99.ms <= operation.max.ms < 1500


def test_a_matrix_runs_to_its_end_and_says_how_long_each_transfer_took(tmp_path: Path) -> None:
    matrix = [
        {"src": "h0", "dst": "h4", "start": "0 s", "size": 100_000},
        {"src": "h1", "dst": "h4", "start": "10 us", "size": 3_000_000},
        {"src": "h0", "dst": "h4", "start": "20 us", "size": 1},
    ]
    outcome = simulate(_scenario({"kind": "connections", "matrix": matrix}), tmp_path)
    summary = analyse(tmp_path, drawn=False)
    (transfers,) = summary.operations
    assert (transfers.kind, transfers.count) == ("transfer", 3)
    assert sum(flow.bytes_verified for flow in outcome.flows) == 3_100_001 + 4096  # the base RTT's
    ideal_ms = 3_000_000 * 8 / (4 * 10e6) * 1e3
    assert ideal_ms < transfers.max.ms < 1.5 * ideal_ms
    assert summary.verdict == "trusted"


def _matrix_run(tmp_path: Path, matrix: list[dict[str, Any]]) -> Summary:
    simulate(_scenario({"kind": "connections", "matrix": matrix}), tmp_path)
    return analyse(tmp_path, drawn=False)


@pytest.mark.parametrize("endless", [1, 3])
def test_short_transfers_do_not_wait_long_behind_transfers_without_end(
    tmp_path: Path, endless: int
) -> None:
    """In htsim each is a flow of its own: a short one is done in little more than an RTT."""
    pair = {"src": "h0", "dst": "h4"}
    short = [{**pair, "start": f"{start} us", "size": 50_000} for start in (40, 80, 100)]
    summary = _matrix_run(tmp_path, [{**pair, "size": 0}] * endless + short)
    (transfers,), (flow,) = summary.operations, summary.flows
    assert transfers.count == 3
    assert transfers.max.rtt is not None
    assert transfers.max.rtt < 4
    assert flow.run_fraction is not None
    assert flow.run_fraction > 0.97


def test_a_transfer_has_begun_when_something_of_it_was_posted(tmp_path: Path) -> None:
    pair = {"src": "h0", "dst": "h4"}
    summary = _matrix_run(tmp_path, [{**pair, "size": 100_000_000}, {**pair, "size": 1000}])
    (transfers,) = summary.operations
    assert (transfers.planned, transfers.begun, transfers.unfinished) == (2, 1, 2)
    assert "1 was under way, 1 had not begun" in transfers.finished


def test_a_rank_without_messages_computes_and_what_never_ends_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.goal"
    file.write_text(
        "num_ranks 4\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from -1 tag 5\n}\n"
        "rank 2 {\ncalc 0\n}\nrank 3 {\nr: recv 1b from -1\nc: calc 10\nc requires r\n}\n"
    )
    simulate(_goal(file), tmp_path)
    operations = analyse(tmp_path, svg=True).operations
    counts = {each.kind: (each.count, each.planned) for each in operations}
    assert counts == {"send": (1, 1), "recv": (0, 2), "calc": (1, 2)}
    assert "<image" not in (tmp_path / "figures/operations.svg").read_text()
    monkeypatch.setattr(style, "RASTER_ABOVE", 0)
    analyse(tmp_path)
    assert "<image" in (tmp_path / "figures/operations.svg").read_text()


def test_a_run_in_which_nothing_is_sent_contradicts_nothing(tmp_path: Path) -> None:
    """All that arrives is the packet that measures the base RTT, before the start."""
    file = tmp_path / "x.goal"
    file.write_text(
        "num_ranks 2\nrank 0 {\nc: calc 1000000000\ns: send 9b to 1\ns requires c\n}\n"
        "rank 1 {\nrecv 9b from 0\n}\n"
    )
    simulate(_goal(file), tmp_path)
    assert analyse(tmp_path, drawn=False).reasons == (NOTHING_FINISHED,)
