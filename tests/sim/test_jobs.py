"""Several jobs in virtual time: what is measured of each, beside the others and alone."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from testbed.model.scenario import Scenario
from testbed.model.summary import JobSummary, Summary
from testbed.results.records import TRANSMISSIONS
from testbed.results.run_data import RunData, load_run
from testbed.runs.making import simulate_into

pytestmark = [pytest.mark.simulated, pytest.mark.long]

NARROW = {
    "name": "narrow",
    "planes": 1,
    "t0_per_plane": 2,
    "t1_per_plane": 1,
    "hosts_per_t0": 2,
    "port_rate": "100 Gbit/s",
}
"""Two hosts of a rack share a link to the other rack: two jobs across take each other's half."""

RING = {"kind": "allreduce", "hosts": ["h0", "h2"], "size": "64 KiB"}
WRITES = {"pairs": [["h1", "h3"]], "message_size": "64 KiB"}


def run(directory: Path, *jobs: dict[str, Any], **keys: Any) -> tuple[Summary, RunData]:
    """Simulate jobs; returns what it comes to, and its records."""
    scenario = Scenario.model_validate(
        {"name": "jobs", "topology": NARROW, "duration": "4 s", "jobs": jobs, **keys}
    )
    directory.mkdir()
    return simulate_into(directory, scenario), load_run(directory)


def test_jobs_that_share_a_link_slow_each_other_down(tmp_path: Path) -> None:
    fault = {"kind": "degrade", "target": "p0_t0_0--p0_t1_0", "at": "2 s", "for": "1 s"}
    summary, data = run(
        tmp_path / "run",
        {"name": "ring", "workload": RING, "expect": {"job": {"interference": {"at_most": 1.1}}}},
        {"name": "writes", "workload": WRITES, "expect": {"flows": {"run_fraction": 2}}},
        timeline=[{**fault, "factor": 0.5}],
        expect={"jobs": {"interference": {"at_least": 1.1}}, "operations": {"unfinished": 0}},
    )
    ring, writes = summary.jobs
    assert (ring.job, ring.kind, ring.hosts, ring.alone) == ("ring", "allreduce", 2, "alone/ring")
    assert ring.interference is not None
    assert 1.2 < ring.interference < 3
    assert writes.time is None
    assert writes.interference is not None
    assert 1.1 < writes.interference < 3
    (operation,) = summary.operations
    assert operation.kind == "ring/allreduce"
    assert ring.time == operation.median
    (struck,) = ring.faults
    assert struck.before is not None
    assert struck.during is not None
    assert struck.after is not None
    assert struck.before.rtt < struck.during.rtt > struck.after.rtt
    assert ring.slowdown is not None
    assert ring.slowdown > 1.2
    assert writes.faults == ()
    whose = [(each.job, each.scope, each.holds) for each in summary.expectations]
    every = [("", "operations", True), ("", "jobs", True)]
    assert whose == [*every, ("ring", "jobs", False), ("writes", "flows", False)]
    alone = load_run(data.directory / "alone/ring")
    assert [flow.src for flow in alone.run.flows] == ["h0", "h2"]
    assert len(alone.faults) == 1


def test_a_factor_that_was_not_measured_is_not_known(tmp_path: Path) -> None:
    jobs = {"name": "a", "workload": RING}, {"name": "b", "workload": WRITES}
    summary, data = run(tmp_path / "run", *jobs, interference=False)
    assert [job.interference for job in summary.jobs] == [None, None]
    (line,) = summary.interference_unknown
    assert line.startswith("interference factor of a, b not known: it was not run alone")
    assert not (data.directory / "alone").exists()
    only, _ = run(tmp_path / "only", jobs[0], expect={"jobs": {"interference": 1}})
    assert [each.holds for each in only.expectations] == [False]
    assert "it is the only job" in only.interference_unknown[0]


def test_a_job_sends_from_its_start_on_and_then_takes_its_share(tmp_path: Path) -> None:
    late = {"name": "late", "start": "2 s", "workload": WRITES}
    early = {"name": "early", "workload": {**WRITES, "pairs": [["h0", "h2"]]}}
    summary, data = run(tmp_path / "run", early, late, interference=False)
    sent = data.tables[TRANSMISSIONS]
    first = dict(sent.filter(pl.col("t") > 0).group_by("flow").agg(pl.col("t").min()).iter_rows())
    assert all(first[flow] < 0.5 for flow in (0, 1))
    assert all(2 <= first[flow] < 2.5 for flow in (2, 3))
    rates = [flow.attainable_run_bps for flow in summary.flows]
    assert rates[0] == pytest.approx(1.5 * rates[2], rel=0.1)
    assert all(0.7 < (flow.run_fraction or 0) < 1.1 for flow in summary.flows)
    assert summary.verdict == "trusted", summary.reasons
    assert _goodput(summary.jobs[0]) > 1.2 * _goodput(summary.jobs[1])


def test_two_jobs_on_the_same_hosts_have_flows_of_their_own(tmp_path: Path) -> None:
    matrix = [{"src": "h0", "dst": "h2", "size": 50_000}]
    summary, _ = run(
        tmp_path / "run",
        {"name": "a", "workload": RING},
        {"name": "b", "workload": {"kind": "alltoall", "hosts": ["h0", "h2"], "size": "8 KiB"}},
        {"name": "c", "start": "1 s", "workload": {"kind": "connections", "matrix": matrix}},
        interference=False,
    )
    names = [flow.name for flow in summary.flows]
    assert names == ["h0 -> h2", "h2 -> h0", "h0 -> h2 #1", "h2 -> h0 #1", "h0 -> h2 #2"]
    kinds = {each.kind: each for each in summary.operations}
    assert [*kinds] == ["a/allreduce", "b/alltoall", "c/transfer"]
    assert all(each.count for each in kinds.values())
    assert kinds["c/transfer"].planned == 1
    assert summary.integrity.bytes_lost == 0
    assert summary.verdict == "trusted", summary.reasons


def test_a_single_job_is_the_workload_to_the_bit(tmp_path: Path) -> None:
    _, several = run(tmp_path / "several", {"name": "a", "workload": RING})
    summary, single = run(tmp_path / "single", workload=RING)
    assert summary.jobs == ()
    for table, frame in single.tables.items():
        other = several.tables[table]
        if "kind" in frame.columns:
            other = other.with_columns(pl.col("kind").str.strip_prefix("a/"))
        assert frame.equals(other), table.name


def _goodput(job: JobSummary) -> float:
    assert job.goodput_bps is not None
    return job.goodput_bps
