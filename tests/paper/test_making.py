"""Runs behind figures are made one by one; what fails is told, and tried again if that may help."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.model.errors import ExitStatus
from testbed.paper import making
from testbed.paper.figure import Form, Variant
from testbed.paper.runs import Order, order

VARIANTS = (Variant("lossy-ev", "lossy-ev"), Variant("t1-down", "t1-down"))


def _ends_with(status: int, journal: Path) -> tuple[str, ...]:
    """A stand-in for `testbed` that writes down what it was asked for, and fails."""
    code = (
        "import sys; "
        f"print(*sys.argv[1:3], file=open({str(journal)!r}, 'a')); "
        f"print('no luck'); sys.exit({status})"
    )
    return (sys.executable, "-c", code)


@pytest.mark.parametrize(
    ("form", "status", "times"),
    [
        ("emulated", ExitStatus.FAILED, making.ATTEMPTS),
        ("emulated", ExitStatus.MACHINE_CANNOT, 1),
        ("simulated", ExitStatus.FAILED, 1),
    ],
)
def test_a_run_that_fails_is_told_and_costs_no_other(
    form: Form, status: ExitStatus, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    monkeypatch.setattr(making, "_TESTBED", _ends_with(status, journal))
    orders = [order(variant, tmp_path / form, form) for variant in VARIANTS]
    done: list[float] = []
    failures = making.make(orders, lambda _, part: done.append(part))
    for one in orders:
        assert failures[one.file] == f"exit status {int(status)}: no luck"
        assert journal.read_text().count(str(one.file)) == times
    assert all(0 <= part <= 1 for part in done)


def test_what_cannot_be_trusted_is_tried_again_in_the_time_left_the_worst_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in makes no run, so that both are missing, of which one is there in part."""
    journal = tmp_path / "journal"
    monkeypatch.setattr(making, "_TESTBED", _ends_with(ExitStatus.FAILED, journal))
    orders = [order(variant, tmp_path, "emulated") for variant in VARIANTS]
    degraded, missing = orders
    run = SimpleNamespace(summary=SimpleNamespace(verdict="degraded", reasons=("late",)))
    finished = Order.finished
    monkeypatch.setattr(Order, "finished", lambda one: run if one is degraded else finished(one))
    making.make(orders, lambda *_: None, emulated_s=missing.expected_s + 5)
    made = [line.split()[1] for line in journal.read_text().splitlines()]
    again = [str(missing.file)] * (making.ATTEMPTS - 1)
    assert made == [str(degraded.file), str(missing.file), *again]


def test_each_run_is_made_once_though_there_is_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    monkeypatch.setattr(making, "_TESTBED", _ends_with(ExitStatus.FAILED, journal))
    orders = [order(variant, tmp_path, "emulated") for variant in VARIANTS]
    making.make(orders, lambda *_: None, emulated_s=0)
    made = [line.split()[1] for line in journal.read_text().splitlines()]
    assert made == [str(one.file) for one in orders]


def test_the_estimate_is_that_of_all_runs(tmp_path: Path) -> None:
    emulated = [order(variant, tmp_path, "emulated") for variant in VARIANTS]
    estimate = making.estimate_s(emulated)
    assert estimate["emulated"] == sum(one.expected_s for one in emulated)
    assert estimate["emulated"] > sum(one.scenario.duration / 1e9 for one in emulated)
    assert estimate["simulated"] == 0
