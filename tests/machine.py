"""Skipping of tests for which this machine's kernel lacks something, with the reason."""

import pytest

from testbed.emulation.fabric import capabilities
from testbed.model.errors import MachineError


def skip_without(*names: str) -> None:
    """Skip a test where an optional capability of `testbed doctor`, such as MPTCP, is missing."""
    try:
        capabilities.require(*names)
    except MachineError as missing:
        pytest.skip(str(missing))
