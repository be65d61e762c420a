"""The command line, called as a user calls it but in this process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from testbed.cli import command_line, main
from testbed.emulation.experiment.machine import Capacity


@dataclass(frozen=True, slots=True)
class Called:
    """What a command left."""

    status: int
    out: str
    err: str


AMPLE = Capacity(endpoint_ns=1_000, link_ns=100, cpus=2)
"""A machine that carries everything, so that none is measured."""

Call = Callable[..., Called]


@cache
def _built_once() -> Any:
    """The command line. To build it takes longer than most commands that are refused."""
    return typer.main.get_command(command_line())


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Call `testbed` with arguments, in an empty directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("testbed.emulation.experiment.machine.load_capacity", lambda: AMPLE)
    monkeypatch.setattr("testbed.cli.command_line", _built_once)

    def call(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["testbed", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        code = caught.value.code
        assert code is None or isinstance(code, int)
        return Called(code or 0, *capsys.readouterr())

    return call
