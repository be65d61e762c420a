"""Carrier of the own ports, as the kernel tells it."""

import select
import subprocess

import pytest

from testbed.emulation.endpoint.event_loop import PortMonitor
from tests.sandbox import run_in_sandbox

pytestmark = [pytest.mark.root, pytest.mark.kernel]

ANSWER_S = 2.0


def _ip(*words: str) -> None:
    subprocess.run(["ip", "link", *words], check=True, capture_output=True)


def _next(monitor: PortMonitor) -> list[tuple[int, bool]]:
    """What changes, once something does."""
    while select.select([monitor], [], [], ANSWER_S)[0]:
        changes = list(monitor.changes())
        if changes:
            return changes
    return []


def _watch() -> list[list[tuple[int, bool]]]:
    for plane in (0, 1):
        near, far = f"p{plane}", f"far{plane}"
        _ip("add", near, "index", str(100 + plane), "type", "veth", "peer", "name", far)
        _ip("set", near, "up")
        _ip("set", far, "up")
    _ip("set", "far1", "down")
    monitor = PortMonitor({100: 0, 101: 1})
    seen = [_next(monitor)]
    _ip("set", "far1", "up")
    seen.append(_next(monitor))
    _ip("set", "far0", "down")
    seen.append(_next(monitor))
    _ip("set", "p1", "down")
    seen.append(_next(monitor))
    _ip("set", "far0", "mtu", "4000")
    seen.append(list(monitor.changes()))
    monitor.close()
    return seen


def test_a_port_that_loses_its_carrier_is_told_and_one_that_gets_it_back() -> None:
    """At either end of the link, and also what was so before anybody listened."""
    assert run_in_sandbox(_watch) == [[(1, False)], [(1, True)], [(0, False)], [(1, False)], []]
