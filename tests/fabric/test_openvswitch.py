"""Open vSwitch: noticed at once where it does not run; what its datapath may keep."""

import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.emulation.fabric.openvswitch import FlowCache, OpenVSwitch, available
from testbed.model.errors import RunFailedError
from tests.sandbox import in_sandbox

pytestmark = pytest.mark.kernel


@pytest.mark.root
def test_a_daemon_that_ends_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "not installed" in available().reason:
        pytest.skip("Open vSwitch is not installed")
    broken = tmp_path / "ovs-vswitchd"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = available()
    assert found.datapath is None
    assert "ovs-vswitchd ended with 3" in found.reason


@pytest.mark.root
@in_sandbox
def test_the_datapath_in_user_space_keeps_no_decision(tmp_path: Path) -> None:
    """Asked of the daemon itself."""
    found = available(("netdev",))
    if found.datapath is None:
        pytest.skip(f"Open vSwitch: {found.reason}; {found.remedy}")
    switch = OpenVSwitch.start((), tmp_path, datapaths=("netdev",))
    cache = FlowCache()
    cache.query()
    switch.stop()
    assert not cache.is_used


Daemon = Callable[[str], tuple[FlowCache, list[str]]]


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    """What answers as ovs-vswitchd does to `upcall/show`; and a list of what it was asked."""

    def start(shown: str) -> tuple[FlowCache, list[str]]:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "ovs-vswitchd.ctl"))
        listener.listen()
        asked: list[str] = []

        def answer() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    asked.append(json.loads(connection.recv(4096))["method"])
                    result = shown if asked[-1] == "upcall/show" else ""
                    reply = {"id": 0, "result": result, "error": None}
                    connection.sendall(json.dumps(reply).encode())

        threading.Thread(target=answer, daemon=True).start()
        return FlowCache(tmp_path), asked

    return start


FLOWS = "{0}@ovs-{0}:\n  flows         : (current 2) (avg 1) (max 3) (limit {1})\n"


def test_only_a_datapath_that_keeps_decisions_is_told_to_forget_them(daemon: Daemon) -> None:
    cache, asked = daemon(FLOWS.format("system", 10000))
    cache.query()
    cache.purge()
    assert asked == ["upcall/show", "revalidator/purge"]


def test_one_that_keeps_none_is_left_alone(daemon: Daemon) -> None:
    cache, asked = daemon(FLOWS.format("netdev", 0))
    cache.query()
    cache.purge()
    assert asked == ["upcall/show"]


def test_decisions_are_taken_to_be_kept_as_long_as_nobody_has_looked(daemon: Daemon) -> None:
    cache, asked = daemon("no datapath")
    cache.purge()
    assert asked == ["revalidator/purge"]
    with pytest.raises(RunFailedError, match="did not report its limit of flows: no datapath"):
        cache.query()
