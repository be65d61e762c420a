"""Tests that run alone and tests that run beside others take turns, also across processes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from tests import turns

HOLDER = """
import sys
from tests import turns
with getattr(turns, sys.argv[1])():
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """This test itself holds a place: use other sockets."""
    monkeypatch.setattr(turns, "PREFIX", "mrc-testbed-turns-test")


@contextmanager
def holder(kind: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A process that holds a place, or all, until it is told to end or killed."""
    program = f"from tests import turns; turns.PREFIX = {turns.PREFIX!r}\n{HOLDER}"
    with subprocess.Popen(
        [sys.executable, "-c", program, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()


def test_many_run_beside_others() -> None:
    with holder("beside_others") as (_, first), holder("beside_others") as (_, second):
        assert first.readline() == second.readline() == "held\n"


@pytest.mark.parametrize("kind", ["beside_others", "alone"])
def test_a_test_that_runs_alone_waits_for_the_others_even_if_they_are_killed(kind: str) -> None:
    with holder(kind) as (process, output):
        assert output.readline() == "held\n"
        assert not _can_run_alone()
        process.kill()
        process.wait()
    with turns.alone():
        assert not _can_run_alone()


def test_others_wait_for_one_that_waits_to_run_alone() -> None:
    """Otherwise tests in turn would keep it waiting for ever."""
    with turns.beside_others(), holder("alone"):
        while _gate_is_free():
            pass
        with holder("beside_others") as (late, _):
            assert late.poll() is None
    with turns.alone():
        pass


def _can_run_alone() -> bool:
    return turns.is_free("gate") and turns.is_free("place-0")


def _gate_is_free() -> bool:
    return turns.is_free("gate")
