"""Several jobs with real packets: each is recorded for itself, beside the others and alone."""

import json
from pathlib import Path

import polars as pl
import pytest
import yaml

from testbed.model.errors import ExitStatus
from tests.e2e.test_programs import run

pytestmark = [pytest.mark.root, pytest.mark.e2e]


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
