"""A run in a process of its own: it is asked in JSON, answers in JSON, and ends when not wanted."""

import json
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from testbed import interpreter
from testbed.model.errors import SIGNALLED, ExitStatus, InputError
from testbed.model.files.scenarios import load_scenario
from testbed.runs.job import UNDRAWN, JobRecord, as_recorded
from testbed.sandbox.channel import decode_error
from tests.waiting import WATCHDOG_S, wait_until

pytestmark = pytest.mark.simulated


def _started(directory: Path, **changes: Any) -> "subprocess.Popen[str]":
    """A simulation, asked for; its standard input is open."""
    scenario = as_recorded(load_scenario("healthy")) | changes
    request = {"scenario": scenario, "results": str(directory), "folder": "x"}
    process = interpreter.start(
        (*interpreter.TESTBED, "simulate", "--job"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(request | {"how": asdict(UNDRAWN)}) + "\n")
    process.stdin.flush()
    return process


def _record(process: "subprocess.Popen[str]") -> JobRecord:
    """What became of it, which is all that it prints there."""
    assert process.stdout is not None
    said = process.stdout.read()
    record = JobRecord(**json.loads(said))
    assert process.wait(WATCHDOG_S) == record.status
    return record


def test_a_finished_run_is_named(tmp_path: Path) -> None:
    with _started(tmp_path) as process:
        record = _record(process)
    assert (record.status, record.message, record.error) == (0, "", None)
    assert record.run is not None
    assert Path(record.run).parent == tmp_path / "x"
    assert (Path(record.run) / "summary.json").is_file()


def test_an_error_comes_with_its_parts(tmp_path: Path) -> None:
    with _started(tmp_path, transport={"kind": "tcp"}) as process:
        record = _record(process)
    assert record.status == ExitStatus.WRONG_INPUT
    assert record.run is None
    error = decode_error(dict(record.error or {}))
    assert isinstance(error, InputError)
    (problem,) = error.problems
    assert (problem.where, problem.found) == ("transport.kind", "tcp")
    assert problem.remedy == "testbed run, where the real stack sends"
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("said", ["", "{}\n", "no JSON\n"])
def test_who_asks_for_nothing_is_told_what_it_is_for(said: str) -> None:
    done = interpreter.run(
        (*interpreter.TESTBED, "simulate", "--job"), input=said, capture_output=True, text=True
    )
    assert done.returncode == ExitStatus.WRONG_INPUT
    assert done.stderr.startswith("error: --job: expected a run as JSON on standard input")
    assert "Traceback" not in done.stderr
    assert not done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of a closed pipe")
def test_a_run_that_is_not_wanted_any_more_ends_and_leaves_nothing(tmp_path: Path) -> None:
    """As when who asked for it is killed: the kernel closes its end of the pipe."""
    with _started(tmp_path, duration="600 s") as process:
        wait_until(lambda: [*tmp_path.glob("x/2*/raw")])
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(WATCHDOG_S) == SIGNALLED + signal.SIGTERM
    assert not [*tmp_path.iterdir()]
