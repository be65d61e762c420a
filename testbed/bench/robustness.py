"""Damaged packets and random faults by the thousand: the long forms of the tests, counted.

They are run as `TESTBED_SOAK=1 pytest` runs them, and tell in their report how much they tried.
"""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

import testbed
from testbed.bench.figure import Figure, at_least, at_most
from testbed.bench.setting import Setting
from testbed.model.errors import MachineError, RunFailedError

ROOT = Path(testbed.__file__).parents[1]
TESTS = {
    "a million mutated packets": "tests/mrc/test_fuzz.py::test_a_million_mutated_packets",
    "random schedules": "tests/sim/test_stateful.py",
}
PACKETS, SCHEDULES = 1_000_000, 1_000
_ALL_PASSED, _SOME_FAILED = 0, 1
"""pytest's exit status where it has tested."""

_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Tried:
    """What tests tell: how much of what they tried, and how many of them failed."""

    counts: Counter[str]
    failed: int


def robustness(setting: Setting) -> list[Figure]:
    """Throw mutated packets at a queue pair, and random faults at a simulated fabric.

    Raises:
        MachineError: this is no checkout: an installed package has no tests.
        RunFailedError: pytest could not test.
    """
    counts: Counter[str] = Counter()
    failed = 0
    for what, test in TESTS.items():
        setting.progress(what)
        tried = soak(test, setting)
        counts += tried.counts
        failed += tried.failed
    return [
        at_least("mutated packets, decoded and taken in", "", [counts["packets"]], PACKETS),
        at_least("random schedules of faults, simulated", "", [counts["schedules"]], SCHEDULES),
        at_most("failures", "", [failed], 0),
    ]


def soak(test: str, setting: Setting) -> Tried:
    """Run the long form of a test; what failed goes to the progress."""
    if not (ROOT / "tests").is_dir():
        raise MachineError(f"no tests beside {ROOT / 'testbed'}", "measure in a checkout")
    with TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        done = subprocess.run(  # noqa: S603 - our own tests
            [sys.executable, "-m", "pytest", "-q", "-n", "0", f"--junit-xml={report}", test],
            check=False,
            cwd=ROOT,
            env=os.environ | {"TESTBED_SOAK": "1"},
            capture_output=True,
            text=True,
        )
        if done.returncode not in (_ALL_PASSED, _SOME_FAILED):
            raise RunFailedError(f"pytest could not test {test}: {done.stdout}{done.stderr}")
        if done.returncode == _SOME_FAILED:
            setting.progress("\n".join(done.stdout.splitlines()[-_LAST_LINES:]))
        return _read(report)


def _read(report: Path) -> Tried:
    tree = ET.parse(report)  # noqa: S314 - pytest has just written it
    counts: Counter[str] = Counter()
    for one in tree.iter("property"):
        counts[one.attrib["name"]] += int(one.attrib["value"])
    return Tried(counts, sum(one.tag in ("failure", "error") for one in tree.iter()))
