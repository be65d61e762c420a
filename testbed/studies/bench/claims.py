"""Claims that tests prove, as figures: how much was tried for each, and how many tests failed.

pytest runs the tests; each reports how much it tried (`record_property`).
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

import testbed
from testbed import interpreter
from testbed.model.errors import MachineError, RunFailedError
from testbed.studies.bench.measure import Measurement, Setting, at_least, at_most, not_measured

ROOT = Path(testbed.__file__).parents[1]
_PYTEST = ("-m", "pytest", "-q", "-n", "0", "-o", "junit_family=xunit1")
"""The reports of this family hold the properties of single tests."""

_ALL_PASSED, _SOME_FAILED = 0, 1
"""pytest's exit statuses if the tests were run."""

_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that one or more tests prove.

    Attributes:
        what: what they try, as the name of a figure.
        counted: the property in which each test reports how much it tried.
        least: how much all of them together must have tried.
        tests: the tests as pytest names them: a file, or one test in it.
        environment: variables to run them with.
    """

    what: str
    counted: str
    least: int
    tests: str
    environment: Mapping[str, str] = field(default_factory=dict)


def figures(claims: Sequence[Claim], setting: Setting, *, at_once: int = 1) -> list[Measurement]:
    """Run the tests of claims, each claim in a process of its own.

    Args:
        claims: what is tested.
        setting: its progress is called with each claim, and with the output of failed tests.
        at_once: how many processes run at a time.

    Raises:
        MachineError: this is no checkout: an installed package has no tests.
        RunFailedError: pytest could not run the tests.
    """
    if not (ROOT / "tests").is_dir():
        raise MachineError(f"no tests beside {ROOT / 'testbed'}", "measure in a checkout")
    with ThreadPoolExecutor(at_once) as pool:
        results = list(pool.map(lambda claim: _run(claim, setting), claims))
    figures, failed = zip(*results, strict=True)
    return [*figures, at_most("tests that failed", "", [sum(failed)], 0)]


def _run(claim: Claim, setting: Setting) -> tuple[Measurement, int]:
    """How much the tests of a claim tried, and how many failed."""
    setting.progress(claim.what)
    with TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        done = interpreter.run(
            interpreter.python(*_PYTEST, f"--junit-xml={report}", claim.tests),
            cwd=ROOT,
            env=claim.environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        if done.returncode not in (_ALL_PASSED, _SOME_FAILED):
            raise RunFailedError(f"pytest could not test {claim.tests}: {done.stdout}{done.stderr}")
        if done.returncode == _SOME_FAILED:
            setting.progress("\n".join(done.stdout.splitlines()[-_LAST_LINES:]))
        return _read(report, claim)


def _read(report: Path, claim: Claim) -> tuple[Measurement, int]:
    tree = ET.parse(report)  # noqa: S314 - pytest has just written it
    properties = (element.attrib for element in tree.iter("property"))
    count = sum(int(entry["value"]) for entry in properties if entry["name"] == claim.counted)
    figure = at_least(claim.what, "", [count], claim.least)
    skipped = next(tree.iter("skipped"), None)
    if skipped is not None:
        figure = not_measured(figure, skipped.attrib["message"])
    return figure, sum(element.tag in ("failure", "error") for element in tree.iter())
