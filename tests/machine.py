"""Skipping of tests for which this machine's kernel lacks something, with the reason."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.emulation.fabric import capabilities
from testbed.model.errors import MachineError


def skip_without(*names: str) -> None:
    """Skip a test where an optional capability of `testbed doctor`, such as MPTCP, is missing."""
    try:
        capabilities.require(*names)
    except MachineError as missing:
        pytest.skip(str(missing))


@contextmanager
def control_group(controller: str, limits: Mapping[str, str]) -> Iterator[Path]:
    """A control group of the test's own, with the first of these limits that this kernel has."""
    root = Path("/sys/fs/cgroup", controller)
    group = (root if root.is_dir() else root.parent) / f"testbed-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    try:
        file = next((file for file in limits if (group / file).exists()), None)
        if file is None:
            pytest.skip(f"control groups do not limit {controller} here")
        (group / file).write_text(limits[file])
        yield group
    finally:
        group.rmdir()
