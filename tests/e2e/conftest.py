"""Whole runs through the command line, as a user starts them."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.model.errors import ExitStatus

TESTBED = Path(sys.executable).with_name("testbed")

UNDRAWN = "--no-figures"
"""Of a run whose figures and report nobody looks at: they take longer than all else after it."""

TINY: dict[str, Any] = {
    "topology": "clos-tiny",
    "workload": {"kind": "write_bw", "pairs": [["h0", "h1"]], "message_size": "256 KiB"},
}
"""Of a scenario that says nothing of the fabric: the smallest one is soon up."""

ATTEMPTS = 2
"""Runs that may be tried until one can be trusted."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The `testbed` command with scenarios and results of its own."""

    directory: Path

    @property
    def results(self) -> Path:
        """Where its runs are written."""
        return self.directory / "results"

    def scenario(self, **changes: Any) -> Path:
        """Write a scenario file: one bidirectional pair, nothing wrong, unless changed."""
        content = {
            "name": "e2e",
            "topology": "clos-4plane",
            "duration": "5 s",
            "workload": {"kind": "write_bw", "pairs": [["h0", "h4"]], "message_size": "256 KiB"},
        }
        path = self.directory / "e2e.yaml"
        path.write_text(yaml.safe_dump(content | changes))
        return path

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start `testbed` with these arguments."""
        return subprocess.Popen(
            [TESTBED, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"NO_COLOR": "1", "COLUMNS": "200"},
        )

    def run(
        self, scenario: Path, *options: str, timed: bool = True, drawn: bool = False
    ) -> dict[str, Any]:
        """Run a scenario to its end; returns its summary with the key `run` added.

        With figures and report only where they are looked at (`drawn`).

        A shared machine stumbles: what the run itself says cannot be trusted, or is degraded, is
        tried again. Where the test is about no times (not `timed`), a machine that was too busy
        does no harm.
        """
        asked = ["--json", *options, *([] if drawn else [UNDRAWN])]
        for _ in range(ATTEMPTS):
            process = self.start("run", scenario, "--results", self.results, *asked)
            out, err = process.communicate(timeout=120)
            assert process.returncode in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, err
            answer = json.loads(out)
            summary: dict[str, Any] = answer["summary"] | {"run": answer["run"]}
            if summary["verdict"] == "trusted" or not timed:
                break
        assert process.returncode == ExitStatus.AS_EXPECTED or not timed, err
        return summary


def need_trust(summary: dict[str, Any]) -> None:
    """Leave a test, and say why, before it asserts on times that this machine stretched."""
    if summary["verdict"] != "trusted":
        pytest.skip(f"no times asserted, the runs were {summary['verdict']}: {summary['reasons']}")


def wait_until_running(process: subprocess.Popen[str]) -> None:
    """Read what a run says until data is about to flow."""
    assert process.stderr is not None
    for line in process.stderr:
        if "running" in line:
            return
    pytest.fail("the run did not start")


@pytest.fixture
def testbed(tmp_path: Path) -> CommandLine:
    """A command line that writes below the test's own directory."""
    return CommandLine(tmp_path)
