"""Claims that tests hold, as figures: how much was tried of each, and how many tests failed.

pytest runs the tests, and each tells in its report how much it tried (`record_property`).
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

import testbed
from testbed.bench.figure import Figure, at_least, at_most, not_measured
from testbed.bench.setting import Setting
from testbed.model.errors import MachineError, RunFailedError

ROOT = Path(testbed.__file__).parents[1]
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-n", "0", "-o", "junit_family=xunit1")
"""Of the families of reports the one that has properties of single tests."""

_ALL_PASSED, _SOME_FAILED = 0, 1
"""pytest's exit status where it has tested."""

_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that one or more tests hold.

    Attributes:
        what: they try, as the name of a figure.
        counted: the property in which each test tells how much of it it tried.
        least: how much all of them must have tried.
        tests: as pytest names them: a file, or one test in it.
        environment: variables to run them with.
    """

    what: str
    counted: str
    least: int
    tests: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Told:
    counted: int
    failed: int
    skipped: str


def figures(claims: Sequence[Claim], setting: Setting, *, at_once: int = 1) -> list[Figure]:
    """Run tests, so many `at_once` in processes of their own; what failed goes to the progress.

    Raises:
        MachineError: this is no checkout: an installed package has no tests.
        RunFailedError: pytest could not test.
    """
    if not (ROOT / "tests").is_dir():
        raise MachineError(f"no tests beside {ROOT / 'testbed'}", "measure in a checkout")
    with ThreadPoolExecutor(at_once) as pool:
        told = list(pool.map(lambda one: _run(one, setting), claims))
    counts = [_figure(one, its) for one, its in zip(claims, told, strict=True)]
    return [*counts, at_most("tests that failed", "", [sum(its.failed for its in told)], 0)]


def _figure(one: Claim, told: _Told) -> Figure:
    figure = at_least(one.what, "", [told.counted], one.least)
    return not_measured(figure, told.skipped) if told.skipped else figure


def _run(one: Claim, setting: Setting) -> _Told:
    setting.progress(one.what)
    with TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        done = subprocess.run(  # noqa: S603 - our own tests
            [*_PYTEST, f"--junit-xml={report}", one.tests],
            check=False,
            cwd=ROOT,
            env=os.environ | one.environment,
            capture_output=True,
            text=True,
        )
        if done.returncode not in (_ALL_PASSED, _SOME_FAILED):
            raise RunFailedError(f"pytest could not test {one.tests}: {done.stdout}{done.stderr}")
        if done.returncode == _SOME_FAILED:
            setting.progress("\n".join(done.stdout.splitlines()[-_LAST_LINES:]))
        return _read(report, one.counted)


def _read(report: Path, counted: str) -> _Told:
    tree = ET.parse(report)  # noqa: S314 - pytest has just written it
    told = [int(p.attrib["value"]) for p in tree.iter("property") if p.attrib["name"] == counted]
    failed = sum(one.tag in ("failure", "error") for one in tree.iter())
    skipped = next((one.attrib["message"] for one in tree.iter("skipped")), "")
    return _Told(sum(told), failed, skipped)
