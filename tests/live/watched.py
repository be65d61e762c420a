"""Runs with their page, for the tests that watch them in a browser."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.commands import TESTBED

LINK = "p1_t0_0--p1_t1_1"
EV = "p1/t1_1"
SCENARIO = """
name: watched
topology: {base: clos-tiny, dilation: 100000}
duration: 3 s
workload: {kind: write_bw, pairs: [[h0, h1]], message_size: 256 KiB}
"""


MAPPED = SCENARIO + "clustermapper: {period: 10 us}\n"


@contextmanager
def started(command: str, directory: Path, scenario: str) -> Iterator[subprocess.Popen[str]]:
    """A live run by `run`, `simulate` or `device`; it is killed at the end of the block."""
    file = directory / "watched.yaml"
    file.write_text(scenario)
    options = ["--live", "--no-figures", "--results", str(directory)]
    of_device = ["--allow-code", "--scenario"] if command == "device" else []
    process = subprocess.Popen(
        [TESTBED, command, *of_device, file, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_below(place: Path) -> Path:
    """The directory of the only run in a directory of results."""
    (run,) = (place / "watched").glob("2*")
    return run


def address(run: subprocess.Popen[str]) -> str:
    assert run.stderr is not None
    for line in run.stderr:
        if match := re.search(r"http://\S+", line):
            return match[0]
    raise AssertionError("no address")
