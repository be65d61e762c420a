"""Which commands measure what this machine carries: those that emulate, unless they are forced."""

from pathlib import Path

import pytest

from testbed.emulation.experiment.machine import Capacity
from testbed.model.errors import ExitStatus
from tests.cli.conftest import Call


class MeasuredError(Exception):
    """The machine was measured."""


@pytest.fixture
def unmeasured(call: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call `testbed` on a machine that has not been measured, and can run everything."""

    def measure(_: object) -> Capacity:
        raise MeasuredError

    monkeypatch.setattr("testbed.emulation.experiment.machine.load_capacity", lambda: None)
    monkeypatch.setattr("testbed.emulation.experiment.calibration.calibrate", measure)
    monkeypatch.setattr("testbed.emulation.fabric.capabilities.require", lambda: None)
    return call


@pytest.mark.parametrize(
    "command",
    [
        ("figures", "--list"),
        ("figures", "--list", "--full"),
        ("bench", "--list"),
        ("list",),
        ("validate", "permutation"),
        ("schema", "--directory", "schema"),
    ],
)
def test_listings_and_checks_measure_nothing(unmeasured: Call, command: tuple[str, ...]) -> None:
    called = unmeasured(*command)
    assert (called.status, called.err) == (ExitStatus.AS_EXPECTED, "")


@pytest.mark.parametrize("command", [("run", "healthy"), ("figures", "9a")])
def test_runs_measure_first(unmeasured: Call, command: tuple[str, ...]) -> None:
    assert "MeasuredError" in unmeasured(*command).err


def test_a_forced_run_measures_nothing(
    unmeasured: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(*_: object) -> None:
        (tmp_path / "ran").touch()
        raise KeyError("enough")

    monkeypatch.setattr("testbed.emulation.experiment.outside.run_experiment", run)
    assert "MeasuredError" not in unmeasured("run", "healthy", "--force").err
    assert (tmp_path / "ran").exists()


def test_forced_and_automatic_are_not_both_possible(unmeasured: Call) -> None:
    """Where nothing is known, `dilation: auto` needs the measurement that --force leaves out."""
    called = unmeasured("run", "healthy", "--force", "--set", "topology.dilation=auto")
    assert called.status == ExitStatus.MACHINE_CANNOT
    assert "give a number: --set topology.dilation=" in called.err
