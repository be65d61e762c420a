"""Emulated tests that cannot be judged here, and what `make test` says at its end.

Other programs may keep the CPUs so busy that no emulated run of a test can be trusted. That says
nothing about the code, so the test is neither passed nor failed. It is made again after waiting for
calm, for five minutes in all. What still cannot be judged is *not judged* on a person's machine,
and fails where `CI` is set: a change is accepted, and a release made, only when all was judged.

Where a test runs (with xdist in its worker process), the hooks here wait and repeat, and mark the
report. Where the reports come together, they are counted for the last line.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from testbed.emulation.experiment import machine

SLOWER = (1, 2, 4)
"""A run that cannot be trusted is made again at twice the dilation, at most twice."""

PATIENCE_S = 300
"""How long all tests of a session may wait for calm, together."""

CALM_SHARE = 0.1
"""A CPU that others keep less busy than this is calm."""

_WATCHED_S = 5
_NOT_JUDGED = "not judged"
_INSTALL = "apt-get install --no-install-recommends"
_TO_INSTALL = re.compile(r"apt-get install (?:--no-install-recommends )?(.*)")


class NotJudgedError(Exception):
    """No run of a test can be trusted, so nothing can be said of the code."""


def until_trusted(run: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """Call a function that makes a run so many times slower and returns its summary.

    Returns:
        the first summary that can be trusted, with the key `slower` added.

    Raises:
        NotJudgedError: there is none.
    """
    for slower in SLOWER:
        summary = run(slower)
        if summary["verdict"] == "trusted":
            return summary | {"slower": slower}
    raise NotJudgedError(f"no run can be trusted, even {slower} times slower: {summary['reasons']}")


def lacks(program: str, package: str | None = None) -> str | None:
    """Why a test that needs a program is skipped; None where the program is there."""
    if shutil.which(program):
        return None
    return f"no {program}: {_INSTALL} {package or program}"


def skip_without(program: str, package: str | None = None) -> pytest.MarkDecorator:
    """Mark tests that need a program."""
    missing = lacks(program, package)
    return pytest.mark.skipif(missing is not None, reason=str(missing))


# ---- where a test runs --------------------------------------------------------------------------


class Patience:
    """What is left of the time for waiting; each of xdist's processes has its share."""

    def __init__(self) -> None:
        """Begin with all of it."""
        self.left_s = PATIENCE_S / int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

    def wait_for_calm(self) -> bool:
        """Wait until no CPU is busy; return whether that was so before the time was over."""
        while self.left_s > 0:
            before = machine.cpu_ticks()
            time.sleep(_WATCHED_S)
            self.left_s -= _WATCHED_S
            after = machine.cpu_ticks()
            spent = [
                [new - old for new, old in zip(after[cpu], before[cpu], strict=True)]
                for cpu in after.keys() & before.keys()
            ]
            if all(machine.busy_share(ticks) < CALM_SHARE for ticks in spent):
                return True
        return False


_PATIENCE = pytest.StashKey[Patience]()
_UNJUDGED = pytest.StashKey[bool]()


@pytest.hookimpl(specname="pytest_runtest_protocol")
def pytest_made_again(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Make a test again, when the machine is calm, if it could not be judged.

    Its fixtures are new ones then: what it has made in `tmp_path` would be in its way.
    """
    hooks, named = item.ihook, {"nodeid": item.nodeid, "location": item.location}
    hooks.pytest_runtest_logstart(**named)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if item.stash.get(_UNJUDGED, False):
        patience = item.config.stash.setdefault(_PATIENCE, Patience())
        if patience.left_s > 0:
            _say(item.config, f"{item.nodeid}: waiting for a calm machine, to make it again")
        if patience.wait_for_calm():
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        hooks.pytest_runtest_logreport(report=report)
    hooks.pytest_runtest_logfinish(**named)
    return True


def _say(config: pytest.Config, text: str) -> None:
    """Write on the screen, past the capturing of a test's output."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        os.write(2, f"\n{text}\n".encode())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a test that cannot be judged as neither passed nor failed, except in CI."""
    report = yield
    if call.excinfo is None or not call.excinfo.errisinstance(NotJudgedError):
        return report
    item.stash[_UNJUDGED] = True
    if not os.environ.get("CI"):
        report.outcome = "skipped"
        path, line, _ = report.location
        report.longrepr = (path, line or 0, str(call.excinfo.value))
        report.user_properties.append((_NOT_JUDGED, True))
    return report


# ---- where the reports come together ------------------------------------------------------------


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Count what is not judged by itself."""
    # The report of a file that cannot be imported has no properties.
    if (_NOT_JUDGED, True) in getattr(report, "user_properties", ()):
        return _NOT_JUDGED, "N", "NOT JUDGED"
    return None


_LAST_LINE = pytest.StashKey[str]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each test that was not judged, with its reason and the command to repeat it."""
    stats = terminalreporter.stats
    unjudged = stats.get(_NOT_JUDGED, [])
    if unjudged:
        terminalreporter.section("not judged: this machine was too busy to tell")
        for report in unjudged:
            terminalreporter.write_line(f"{report.nodeid}: {report.longrepr[2]}")
        tests = " ".join(report.nodeid for report in unjudged)
        terminalreporter.write_line(f'Once it is calm: make test ARGS="-n 0 {tests}"')
    reasons = [str(report.longrepr[2]) for report in stats.get("skipped", [])]
    packages = [found[1] for why in reasons if (found := _TO_INSTALL.search(why))]
    counts = [
        f"{len(stats.get('passed', []))} passed",
        f"{len(stats.get('failed', [])) + len(stats.get('error', []))} failed",
        f"{len(packages)} skipped for missing programs",
        f"{len(unjudged)} not judged",
    ]
    if packages:
        each = sorted({package for several in packages for package in several.split()})
        counts[2] += f" (all of them: {_INSTALL} {' '.join(each)})"
    terminalreporter.config.stash[_LAST_LINE] = ", ".join(counts)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Write the last line, below pytest's own."""
    if line := config.stash.get(_LAST_LINE, None):
        reporter = config.pluginmanager.getplugin("terminalreporter")
        reporter.write_line(line)
