"""Open vSwitch that does not run here is noticed at once, and told in its own words."""

import os
import time
from pathlib import Path

import pytest

from testbed.fabric import openvswitch

pytestmark = [pytest.mark.root, pytest.mark.patient]


def test_a_daemon_that_ends_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "not installed" in openvswitch.available().reason:
        pytest.skip("Open vSwitch is not installed")
    broken = tmp_path / "ovs-vswitchd"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    began = time.monotonic()
    found = openvswitch.available()
    assert found.datapath is None
    assert "ovs-vswitchd ended with 3" in found.reason
    assert time.monotonic() - began < openvswitch.START_TIMEOUT_S / 2
