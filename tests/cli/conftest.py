"""The command line, called as a user calls it but in this process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.emulation.experiment.capacity import Capacity


@dataclass(frozen=True, slots=True)
class Called:
    """What a command left."""

    status: int
    out: str
    err: str


AMPLE = Capacity(endpoint_ns=1_000, link_ns=100, cpus=2)
"""A machine that carries everything, so that none is measured."""

Call = Callable[..., Called]


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Call `testbed` with arguments, in an empty directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("testbed.emulation.experiment.capacity.load_capacity", lambda: AMPLE)

    def call(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["testbed", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        code = caught.value.code
        assert code is None or isinstance(code, int)
        return Called(code or 0, *capsys.readouterr())

    return call
