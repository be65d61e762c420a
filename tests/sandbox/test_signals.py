"""A sandbox's start and end; its processes go before others, in whatever session those are."""

import os
import sys

import pytest

from testbed.sandbox.system_calls import AUTOGROUP, raise_priority
from tests.commands import completed
from tests.sandbox import run_in_sandbox

pytestmark = pytest.mark.root


def _first() -> tuple[int, str]:
    raise_priority(-5)
    return os.getpriority(os.PRIO_PROCESS, 0), AUTOGROUP.read_text()


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel does not schedule by session")
def test_going_first_counts_for_the_sandbox_and_for_no_other_session() -> None:
    ours = os.getpriority(os.PRIO_PROCESS, 0), AUTOGROUP.read_text()
    niceness, session = run_in_sandbox(_first)
    assert niceness == -5
    assert session.endswith("nice -5\n")
    assert (os.getpriority(os.PRIO_PROCESS, 0), AUTOGROUP.read_text()) == ours


_INTERRUPTED = """
import os, signal, time
from testbed.sandbox.processes import spawn

parent = os.getpid()
os.register_at_fork(before=lambda: os.getpid() == parent and os.kill(parent, signal.SIGINT))
try:
    spawn(lambda _: time.sleep(60))
except KeyboardInterrupt:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        print("ended, and nothing is left")
"""


def test_an_interrupt_that_falls_into_the_fork_ends_what_was_forked() -> None:
    """What a handler raises there is otherwise printed by Python, and lost."""
    done = completed([sys.executable, "-c", _INTERRUPTED], timeout=30)
    assert (done.stdout, done.stderr) == ("ended, and nothing is left\n", "")
