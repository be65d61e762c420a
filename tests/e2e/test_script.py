"""`testbed shell --script`: commands of the prompt as a run, with summary, verdict and JUnit."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from testbed.model.errors import ExitStatus
from tests.commands import TESTBED, completed

pytestmark = [pytest.mark.root, pytest.mark.e2e]


def carried_out(directory: Path, commands: str, *options: str) -> tuple[int, dict[str, Any], Path]:
    """The exit status of a script, its summary and its run directory."""
    (directory / "checks.txt").write_text(commands)
    called = completed(
        [TESTBED, "shell", "clos-tiny", "--script", "checks.txt", "--json", *options], cwd=directory
    )
    assert called.stdout, called.stderr
    answer = json.loads(called.stdout)
    return called.returncode, answer["summary"], directory / answer["run"]


def cases_of(run: Path) -> dict[str, bool]:
    """Whether each command failed, as `junit.xml` says it."""
    suite = ET.parse(run / "junit.xml").getroot()  # noqa: S314 - our own
    return {
        str(case.get("name")): case.find("failure") is not None
        for case in suite.iter("testcase")
        if str(case.get("classname")).endswith(".programs")
    }


def test_a_script_is_a_run(tmp_path: Path) -> None:
    """What RDMA programs send is measured, a fault by hand is a fault of the run."""
    status, summary, run = carried_out(
        tmp_path,
        "# a comment\n"
        "h1 write_bw --size 65536 --iters 20 > /dev/null 2>&1 &\n"
        "fault inject cut p0_t0_0--p0_t1_0 for=60s\n"
        "h0 write_bw --size 65536 --iters 20 h1\n"
        "fault heal 0\n"
        "h0 sh -c 'exit 7'\n"
        "link nonsense\n",
        "--no-figures",
    )
    assert status == ExitStatus.FAILED
    assert cases_of(run) == {
        "1: h1 write_bw --size 65536 --iters 20 > /dev/null 2>&1 &": False,
        "2: fault inject cut p0_t0_0--p0_t1_0 for=60s": False,
        "3: h0 write_bw --size 65536 --iters 20 h1": False,
        "4: fault heal 0": False,
        "5: h0 sh -c 'exit 7'": True,
        "6: link nonsense": True,
    }
    assert [each["status"] for each in summary["programs"]] == [0, 0, 0, 0, 7, 2]
    assert summary["integrity"]["bytes_lost"] == 0
    assert sum(flow["goodput_run_bps"] > 0 for flow in summary["flows"]) >= 1
    assert [fault["kind"] for fault in summary["faults"]] == ["cut"]
    assert "mininet> link nonsense\nusage: link A B" in (run / "programs/script.log").read_text()
    assert (run / "manifest.json").is_file()


def test_a_script_that_does_not_end_is_ended(tmp_path: Path) -> None:
    commands = "h0 sleep 7654329\nh0 echo never\n"
    status, summary, run = carried_out(tmp_path, commands, "--no-figures", "--limit", "2 s")
    assert status == ExitStatus.FAILED
    (program,) = summary["programs"]
    assert program["stopped"]
    assert program["failed"]
    assert cases_of(run) == {"1: h0 sleep 7654329": True}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--script", "nothing.txt"), "--script: found nothing.txt"),
        (("--script", "checks.txt", "--live"), "one of the two"),
        (("--script", "checks.txt", "--limit", "long"), "--limit: found long, expected a number"),
    ],
)
def test_wrong_options_leave_nothing(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    (tmp_path / "checks.txt").write_text("nodes\n")
    called = completed([TESTBED, "shell", "clos-tiny", *options], cwd=tmp_path)
    assert called.returncode == ExitStatus.WRONG_INPUT
    assert said in called.stderr
    assert not (tmp_path / "results").exists()
