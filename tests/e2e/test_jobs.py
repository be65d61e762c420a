"""Several jobs with real packets: each is recorded for itself, beside the others and alone."""

import json
from pathlib import Path

import polars as pl
import pytest
import yaml

from testbed.model.errors import ExitStatus
from tests.e2e.test_programs import run
from tests.judging import skip_without

pytestmark = [pytest.mark.root, pytest.mark.e2e]


def test_a_program_runs_beside_a_ring_on_other_hosts(tmp_path: Path) -> None:
    steps = (
        "for i in 0 1 2; do echo begin step $i >&$TESTBED_REPORTS; sleep 0.5; "
        "echo end step $i >&$TESTBED_REPORTS; done"
    )
    program = {"kind": "program", "hosts": ["h0", "h2"], "command": ["sh", "-c", steps]}
    ring = {"kind": "allreduce", "hosts": ["h1", "h3"], "size": "64 KiB"}
    content = {
        "name": "beside",
        "topology": {"base": "clos-tiny", "hosts_per_t0": 2},
        "duration": "5 s",
        "interference": True,
        "jobs": [{"name": "mine", "workload": program}, {"name": "ring", "workload": ring}],
    }
    file = tmp_path / "beside.yaml"
    file.write_text(yaml.safe_dump(content))
    status, summary, directory = run(file)
    assert status in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, summary["reasons"]
    assert summary["duration_s"] >= 5, "the ring goes on when the programs have ended"
    assert summary["integrity"]["bytes_lost"] == 0
    assert [(flow["src"], flow["dst"]) for flow in summary["flows"]] == [("h1", "h3"), ("h3", "h1")]
    assert summary["integrity"]["bytes_verified"] > 0
    counts = {each["kind"]: each["count"] for each in summary["operations"]}
    assert counts["mine/step"] == 3
    assert counts["ring/allreduce"] > 0
    for job in summary["jobs"]:
        alone = json.loads((directory / "alone" / job["job"] / "summary.json").read_text())
        assert [each["job"] for each in alone["jobs"]] == [job["job"]]
        assert (job["interference"] is None) == bool(job["interference_unknown"])


@skip_without("ib_write_bw")
def test_perftest_and_a_ring_share_the_nics_of_their_hosts(tmp_path: Path) -> None:
    """Its queue pair numbers, ports and answers to probes; a fault strikes the flows of both."""
    script = (
        "test $RANK = 0 && exec ib_write_bw -d mrc0 -n 30\n"
        "sleep 2; exec ib_write_bw -d mrc0 -n 30 $MASTER_ADDR"
    )
    program = {"kind": "program", "hosts": ["h0", "h1"], "command": ["sh", "-c", script]}
    ring = {"kind": "allreduce", "hosts": ["h0", "h1"], "size": "64 KiB"}
    content = {
        "name": "shared",
        "topology": "clos-tiny",
        "duration": "12 s",
        "jobs": [{"name": "mine", "workload": program}, {"name": "ring", "workload": ring}],
        "timeline": [{"kind": "cut", "target": "h0--p0_t0_0", "at": "4 s", "for": "2 s"}],
    }
    file = tmp_path / "shared.yaml"
    file.write_text(yaml.safe_dump(content))
    status, summary, _ = run(file)
    assert status in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, summary["programs"]
    assert summary["integrity"]["bytes_lost"] == summary["integrity"]["bytes_corrupted"] == 0
    ends = {(flow["src"], flow["dst"], flow["lane"]) for flow in summary["flows"]}
    assert ends == {("h0", "h1", 0), ("h1", "h0", 0), ("h1", "h0", 1)}
    assert summary["operations"][0]["count"] > 0
    (fault,) = summary["faults"]
    assert fault["flows_affected"] >= 2


def test_a_job_that_starts_later_is_beside_the_other_and_alone(tmp_path: Path) -> None:
    writes = {"kind": "write_bw", "pairs": [["h0", "h1"]], "message_size": "64 KiB"}
    ring = {"kind": "allreduce", "hosts": ["h0", "h1"], "size": "64 KiB"}
    content = {
        "name": "jobs",
        "topology": "clos-tiny",
        "duration": "5 s",
        "jobs": [
            {"name": "writes", "workload": writes},
            {"name": "ring", "start": "2 s", "workload": ring},
        ],
    }
    file = tmp_path / "jobs.yaml"
    file.write_text(yaml.safe_dump(content))
    status, summary, directory = run(file, "--set", "interference=true")
    assert status in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, summary["reasons"]
    assert summary["integrity"]["bytes_lost"] == summary["integrity"]["bytes_corrupted"] == 0
    (operation,) = summary["operations"]
    assert operation["kind"] == "ring/allreduce"
    assert operation["count"] > 0
    assert [job["job"] for job in summary["jobs"]] == ["writes", "ring"]
    sent = pl.read_parquet(directory / "transmissions.parquet").filter(pl.col("t") > 0)
    first = dict(sent.group_by("flow").agg(pl.col("t").min()).iter_rows())
    assert max(first[0], first[1]) < 2 <= min(first[2], first[3])
    for job in summary["jobs"]:
        alone = json.loads((directory / "alone" / job["job"] / "summary.json").read_text())
        assert [each["job"] for each in alone["jobs"]] == [job["job"]]
        assert alone["integrity"]["bytes_lost"] == 0
        assert (job["interference"] is None) == bool(job["interference_unknown"])
