"""A run that is killed, or for which the disk is full, can be reported or removed."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.model.run_files.layout import RAW, RUN, SUMMARY
from testbed.results.analyse import analyse
from testbed.results.records import TABLES, collect
from testbed.results.run_directory import RunDirectory, find_run, is_locked, runs
from tests.results.synthetic import Plan, generate

SIMULATE = """
import os, signal, sys
from pathlib import Path
from testbed.model.files.scenarios import load_scenario
from testbed.results.analyse import analyse
from testbed.results.run_directory import making_run
from testbed.sim import simulate

results, limit = Path(sys.argv[1]), int(sys.argv[2])
scenario = load_scenario(sys.argv[3])
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "shutil.rmtree"}
changes = 0

def count(event, arguments):
    global changes
    opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
    if (event in CHANGES or opens) and str(results) in "".join(map(str, arguments)):
        changes += 1
        if changes == limit:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
with making_run(results, "x", 1) as run:
    simulate(scenario, run.path)
    analyse(run.path, drawn=False)
print(changes)
"""
"""A simulation that kills itself before its Nth change of a file below its results."""

SCENARIO = "{name: x, topology: clos-tiny, duration: 10 RTT, workload: {kind: permutation}}\n"


def _simulate(place: Path, limit: int) -> "subprocess.CompletedProcess[str]":
    (place / "x.yaml").write_text(SCENARIO, encoding="utf-8")
    shutil.rmtree(place / "results", ignore_errors=True)
    return subprocess.run(
        [sys.executable, "-c", SIMULATE, place / "results", str(limit), place / "x.yaml"],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )


def _summary(run: RunDirectory) -> str:
    return (run.path / SUMMARY).read_text(encoding="utf-8").replace(run.path.name, "")


@pytest.mark.simulated
def test_a_run_that_is_killed_at_any_change_can_be_reported_or_removed(tmp_path: Path) -> None:
    results = tmp_path / "results"
    changes = int(_simulate(tmp_path, 0).stdout)
    whole = _summary(find_run(results / "x"))
    # while it simulates, now and then; while it collects and analyses, much more often
    seen = set()
    for limit in (12, changes // 3, *range(changes * 3 // 5, changes + 1, 9)):
        assert _simulate(tmp_path, limit).returncode == -signal.SIGKILL
        (run,) = runs(results)
        latest = results / "x" / "latest"
        assert latest.is_symlink() <= run.complete
        assert not is_locked(run.path)
        seen.add((run.complete, run.finished))
        if run.complete:
            assert find_run(results / "x").path == run.path
            analyse(run.path, drawn=False)
            assert _summary(run) == whole
            assert not [path for path in run.path.iterdir() if path.name.startswith((".", RAW))]
        else:
            run.remove()
            assert [*results.iterdir()] == []
    assert {(False, False), (True, False), (True, True)} <= seen


@pytest.fixture
def uncollected(tmp_path: Path) -> RunDirectory:
    """A run that was recorded, but of whose raw records no tables were made."""
    run = RunDirectory(tmp_path / "run")
    generate(run.path, Plan(duration=1.0, failures=()))
    for table in TABLES:
        (run.path / table.file).unlink(missing_ok=True)
    (run.path / RAW).mkdir()
    return run


def test_a_disk_that_fills_up_while_collecting_loses_nothing(
    uncollected: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 5

    def full(_: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            collect(uncollected.path)
    assert uncollected.complete
    assert not [path for path in uncollected.path.iterdir() if path.name.startswith(".")]
    collect(uncollected.path)
    assert uncollected.complete
    assert not (uncollected.path / RAW).exists()
    assert (uncollected.path / RUN).is_file()
