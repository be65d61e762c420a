"""A real run that is stopped or killed: what it says, and that none of its processes is left."""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.waiting import wait_until

SCENARIO = """\
name: ending
topology: clos-tiny
duration: 60 s
workload: {pairs: [[h0, h1]]}
"""
MARK = "TESTBED_TEST"


def _marked(mark: str) -> list[str]:
    """The processes that descend from a command with that mark in its environment."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in environ.read_bytes():
                found.append((environ.parent / "cmdline").read_text())
        except OSError:  # it ended while we looked
            continue
    return found


LOADED = (sys.executable, "-X", "importtime", "-m", "testbed", "paths", "clos-tiny", "h0", "h1")
"""Python tells of each module that it has imported: of typer's first long before the last."""


def _interrupted_while_it_is_loaded(*command: str) -> tuple[int, str, str]:
    """Exit status of a command, and what it says."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as loading:
        assert loading.stdout is not None
        assert loading.stderr is not None
        for line in loading.stderr:
            if "typer" in line:
                break
        loading.send_signal(signal.SIGINT)
        err = [line for line in loading.stderr if not line.startswith("import time:")]
        return loading.wait(), loading.stdout.read(), "".join(err)


def test_ctrl_c_while_the_command_line_is_loaded_ends_it_without_a_word() -> None:
    assert _interrupted_while_it_is_loaded(*LOADED) == (-signal.SIGINT, "", "")


def test_ctrl_c_that_is_ignored_stays_so() -> None:
    """As behind nohup, or in a shell's background."""
    ignoring = ("/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh")
    status, out, err = _interrupted_while_it_is_loaded(*ignoring, *LOADED)
    assert (status, err) == (0, "")
    assert "carrier address" in out


@pytest.mark.root
@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_a_run_is_left(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "x.yaml").write_text(SCENARIO)
    mark = uuid.uuid4().hex
    command = [sys.executable, "-c", "from testbed.cli import main; main()", "run", "./x.yaml"]
    environment = os.environ | {MARK: mark, "TESTBED_PROGRESS": "all"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.endswith("running\n"):
                break
        processes = _marked(mark)
        run.send_signal(number)
        err = run.stderr.read()
        status = run.wait()
    assert len(processes) >= 4, "the command, the sandbox's first process, two endpoints"
    (directory,) = (path for path in tmp_path.glob("results/*/*") if not path.is_symlink())
    if number == signal.SIGKILL:
        assert status == -number
    else:
        assert status == 128 + number
        said = [line for line in err.splitlines() if " running" not in line]  # progress on its way
        assert said[0].startswith(f"error: interrupted by {number.name}; kept so far")
        assert str(directory.relative_to(tmp_path)) in err
    wait_until(lambda: not _marked(mark), "the processes of the run end")
