"""Tests that cannot be judged: made again in calm, neither passed nor failed, except in CI."""

import os
import sys
from pathlib import Path

import pytest

from tests.commands import Completed, completed

ROOT = Path(__file__).parents[1]

CONFTEST = """\
from tests import judging
from tests.judging import *
judging._WATCHED_S = 1
judging.PATIENCE_S = {patience}
judging.CALM_SHARE = {calm}
"""

TESTS = """\
import pytest
from tests.judging import skip_without, until_trusted

TRIES = []

def run(slower):
    TRIES.append(slower)
    trusted = len(TRIES) > {untrusted}
    return {{"verdict": "trusted" if trusted else "degraded", "reasons": ["cpu0: 100% busy"]}}

def test_emulated(tmp_path):
    (tmp_path / "run").mkdir()
    assert until_trusted(run)["slower"] == 1

def test_plain(): pass

@skip_without("no-such-program", "some-package")
def test_program(): pass

def test_other_program(): pytest.skip("no other-program: apt-get install another-package")
"""


def _session(
    directory: Path, untrusted: int, calm: float, patience: int = 2, **environment: str
) -> Completed:
    """A session with a test of which so many runs cannot be trusted."""
    (directory / "conftest.py").write_text(CONFTEST.format(patience=patience, calm=calm))
    (directory / "test_them.py").write_text(TESTS.format(untrusted=untrusted))
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    return completed(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "."],
        cwd=directory,
        env=kept | {"PYTHONPATH": str(ROOT)} | environment,
    )


NEVER = 1000
MISSING = "apt-get install --no-install-recommends another-package some-package"
COUNTED = "{} passed, {} failed, 2 skipped for missing programs (all of them: " + MISSING + "), {}"


def test_what_cannot_be_judged_is_named_and_fails_nothing(tmp_path: Path) -> None:
    done = _session(tmp_path, NEVER, calm=-1)
    assert done.returncode == 0, done.stdout
    assert "test_them.py::test_emulated: waiting for a calm machine" in done.stderr
    assert "no run can be trusted, even 4 times slower: ['cpu0: 100% busy']" in done.stdout
    assert 'make test ARGS="-n 0 test_them.py::test_emulated"' in done.stdout
    assert "1 passed, 2 skipped, 1 not judged in" in done.stdout  # pytest's own
    assert done.stdout.splitlines()[-1] == COUNTED.format(1, 0, "1 not judged")


def test_in_ci_it_fails(tmp_path: Path) -> None:
    done = _session(tmp_path, NEVER, calm=-1, CI="true")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert done.stdout.splitlines()[-1] == COUNTED.format(1, 1, "0 not judged")


def test_it_is_made_again_once_the_machine_is_calm(tmp_path: Path) -> None:
    """A CPU that is at most wholly busy counts as calm here."""
    done = _session(tmp_path, untrusted=3, calm=1.01)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == COUNTED.format(2, 0, "0 not judged")


def test_a_test_that_fails_once_it_is_judged_fails(tmp_path: Path) -> None:
    """Its run can be trusted only at twice the dilation, which this test does not accept."""
    done = _session(tmp_path, untrusted=4, calm=1.01)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert done.stdout.splitlines()[-1] == COUNTED.format(1, 1, "0 not judged")


def test_nobody_waits_longer_than_is_allowed(tmp_path: Path) -> None:
    done = _session(tmp_path, untrusted=3, calm=1.01, patience=0)
    assert "waiting" not in done.stderr
    assert done.stdout.splitlines()[-1] == COUNTED.format(1, 0, "1 not judged")


def test_a_file_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import no_such_module")
    done = _session(tmp_path, untrusted=0, calm=1.01)
    assert "No module named 'no_such_module'" in done.stdout
    assert "Traceback" not in done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr
