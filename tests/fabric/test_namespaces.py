"""Processes of a sandbox go before the machine's other programs, in whatever session those are."""

import os

import pytest

from testbed.fabric.namespaces import AUTOGROUP, go_first
from tests.sandbox import run_in_sandbox

pytestmark = pytest.mark.root


def _first() -> tuple[int, str]:
    go_first(-5)
    return os.getpriority(os.PRIO_PROCESS, 0), AUTOGROUP.read_text()


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel does not schedule by session")
def test_going_first_counts_for_the_sandbox_and_for_no_other_session() -> None:
    ours = os.getpriority(os.PRIO_PROCESS, 0), AUTOGROUP.read_text()
    niceness, session = run_in_sandbox(_first)
    assert niceness == -5
    assert session.endswith("nice -5\n")
    assert (os.getpriority(os.PRIO_PROCESS, 0), AUTOGROUP.read_text()) == ours
