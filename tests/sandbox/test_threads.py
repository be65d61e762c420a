"""Whatever forks has one thread: a fork may leave locks of others held for ever in the child.

Python 3.12 and later warn of it. Tests themselves fork beside the threads of pytest-xdist.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import WATCHDOG_S

pytestmark = [pytest.mark.root, pytest.mark.e2e]

_RECORDING = """
import os
fork = os.fork

def record_and_fork():
    tasks = os.listdir("/proc/self/task")
    threads = [open(f"/proc/self/task/{task}/comm").read() for task in tasks]
    with open(os.environ["FORKS"], "a") as file:
        file.write(" ".join(thread.strip() for thread in threads) + "\\n")
    return fork()

os.fork = record_and_fork
"""
"""What Python loads before anything else: each fork writes down the threads beside it."""

_SCENARIO = "name: forks\ntopology: clos-tiny\nduration: 300 ms\nworkload: {pairs: [[h0, h1]]}\n"


@pytest.mark.parametrize(
    ("arguments", "forks"),
    [
        pytest.param(("run", "./x.yaml"), 6, id="run"),
        pytest.param(("run", "./x.yaml", "--repeat", "2", "--no-figures"), 12, id="repeat"),
        pytest.param(("bench", "rate", "link-model", "--repeats", "1"), 8, id="bench"),
    ],
)
def test_what_forks_has_one_thread(tmp_path: Path, arguments: tuple[str, ...], forks: int) -> None:
    site = tmp_path / "site"  # not the current directory, from which no process of a run imports
    site.mkdir()
    (site / "sitecustomize.py").write_text(_RECORDING)
    (tmp_path / "x.yaml").write_text(_SCENARIO)
    record = tmp_path / "forks"
    command = [sys.executable, "-c", "from testbed.cli import main; main()", *arguments]
    subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site), "FORKS": str(record)},
        timeout=WATCHDOG_S,
        check=False,
    )
    threads = record.read_text().splitlines()
    assert len(threads) >= forks
    assert [line for line in threads if " " in line] == []
