"""Whole runs through the command line, as a user starts them."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.model.errors import ExitStatus
from testbed.model.files.scenarios import load_scenario
from tests.commands import TESTBED
from tests.judging import until_trusted
from tests.waiting import WATCHDOG_S

UNDRAWN = "--no-figures"
"""Of a run whose figures and report nobody looks at: they take longer than all else after it."""

TINY: dict[str, Any] = {
    "topology": "clos-tiny",
    "workload": {"kind": "write_bw", "pairs": [["h0", "h1"]], "message_size": "256 KiB"},
}
"""Of a scenario that says nothing of the fabric: the smallest one is soon up."""


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
        """Start `testbed` with these arguments.

        No run is refused: how busy this machine was when it was measured is no matter of the test.
        """
        forced = ("--force",) if arguments[0] == "run" else ()
        return subprocess.Popen(
            [TESTBED, *arguments, *forced],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"NO_COLOR": "1", "COLUMNS": "200", "TESTBED_PROGRESS": "all"},
        )

    def run(
        self, scenario: Path, *options: str, timed: bool = True, drawn: bool = False
    ) -> dict[str, Any]:
        """Run a scenario to its end; return its summary with the keys `run` and `slower` added.

        `run` is the run's directory, `slower` says how many times slower than written it ran. With
        figures and report only where they are looked at (`drawn`). A `timed` test looks at times:
        a run that cannot be trusted is made again, slower; if none can be, the test is not judged.
        """
        arguments = (*options, *(() if drawn else (UNDRAWN,)), "--json", "--results")

        def run_slowed(times: int) -> dict[str, Any]:
            process = self.start("run", self._slowed(scenario, times), *arguments, self.results)
            out, err = process.communicate(timeout=WATCHDOG_S)
            assert process.returncode in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, err
            answer = json.loads(out)
            summary: dict[str, Any] = answer["summary"] | {"run": answer["run"]}
            return summary

        return until_trusted(run_slowed) if timed else run_slowed(1) | {"slower": 1}

    @staticmethod
    def _slowed(scenario: Path, times: int) -> Path:
        """The same scenario at so many times its dilation, in a file of its own."""
        if times == 1:
            return scenario
        loaded = load_scenario(str(scenario))
        slowed = loaded.at_dilation(times * loaded.topology.dilation)
        path = scenario.with_stem(f"{scenario.stem}-{times}")
        path.write_text(yaml.safe_dump(slowed.model_dump(mode="json", by_alias=True)))
        return path


def wait_until_running(process: subprocess.Popen[str]) -> None:
    """Read what a run says until data is about to flow."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        if "running" in line:
            return
        lines.append(line)
    pytest.fail(f"the run did not start:\n{''.join(lines)}")


@pytest.fixture
def testbed(tmp_path: Path) -> CommandLine:
    """A command line that writes below the test's own directory."""
    return CommandLine(tmp_path)
