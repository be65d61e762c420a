"""Runs behind figures are made one by one; what fails is told, and tried again if that may help."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.files.scenarios import load_scenario
from testbed.model.errors import ExitStatus
from testbed.paper import making
from testbed.paper.figure import Form, Variant
from testbed.paper.registry import FIGURES
from testbed.paper.runs import SLOWED, Order, order
from testbed.results.analyse import analyse
from testbed.results.run_directory import SUMMARY, RunDirectory
from tests.results.synthetic import Plan, generate

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
        ("emulated", ExitStatus.FAILED, len(SLOWED)),
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
    """A stand-in makes no run; one is there all the same, which is degraded."""
    journal = tmp_path / "journal"
    monkeypatch.setattr(making, "_TESTBED", _ends_with(ExitStatus.FAILED, journal))
    orders = [order(variant, tmp_path, "emulated") for variant in VARIANTS]
    degraded, missing = orders
    run = SimpleNamespace(summary=SimpleNamespace(verdict="degraded", reasons=("late",)))
    finished = Order.finished
    monkeypatch.setattr(Order, "finished", lambda one: run if one is degraded else finished(one))
    making.make(orders, lambda *_: None, emulated_s=missing.takes_s(max(SLOWED)) + 5)
    made = [line.split()[1] for line in journal.read_text().splitlines()]
    again = [str(missing.file)] * (len(SLOWED) - 1)
    assert made == [str(degraded.file), str(missing.file), *again]
    usual, slowest = missing.scenario, load_scenario(str(missing.file))
    assert slowest.topology.dilation == max(SLOWED) * usual.topology.dilation
    assert slowest.duration == max(SLOWED) * usual.duration


LATE = (
    "import sys; print(*sys.argv[1:], file=open({journal!r}, 'a')); "
    "print('too late'); sys.exit({status})"
)
"""A stand-in that writes all its arguments down and ends as a run does that was too late."""


@pytest.mark.parametrize(
    ("minutes", "ended_early"),
    [(600.0, [True] * (len(SLOWED) - 1) + [False]), (0.0, [False])],
    ids=["time for all", "no time"],
)
def test_a_run_is_ended_when_late_if_it_can_be_made_again(
    minutes: float, ended_early: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    code = LATE.format(journal=str(journal), status=int(ExitStatus.UNTRUSTED))
    monkeypatch.setattr(making, "_TESTBED", (sys.executable, "-c", code))
    orders = [order(VARIANTS[0], tmp_path, "emulated")]
    failures = making.make(orders, lambda *_: None, emulated_s=60 * minutes)
    made = journal.read_text().splitlines()
    assert ["--stop-if-late" in line for line in made] == ended_early
    assert failures[orders[0].file].endswith("too late")


def test_a_run_that_was_ended_early_is_made_to_its_end_though_time_has_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    code = LATE.format(journal=str(journal), status=int(ExitStatus.UNTRUSTED))
    monkeypatch.setattr(making, "_TESTBED", (sys.executable, "-c", code))
    monkeypatch.setattr(making, "_worst_that_fit", lambda *_: [])
    said: list[str] = []
    making.make([order(VARIANTS[0], tmp_path, "emulated")], lambda what, _: said.append(what))
    made = journal.read_text().splitlines()
    assert ["--stop-if-late" in line for line in made] == [True, False]
    assert "emulated, to the end 1/1" in said[-1]


def test_it_is_told_how_many_were_ended_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = LATE.format(journal=str(tmp_path / "journal"), status=int(ExitStatus.UNTRUSTED))
    monkeypatch.setattr(making, "_TESTBED", (sys.executable, "-c", code))
    said: list[str] = []
    orders = [order(variant, tmp_path, "emulated") for variant in VARIANTS]
    making.make(orders, lambda what, _: said.append(what))
    assert any("2/2" in one and "1 ended early, too late" in one for one in said)


def test_runs_that_were_slowed_down_count_and_the_best_is_taken(tmp_path: Path) -> None:
    one = order(VARIANTS[0], tmp_path, "emulated")
    made = {1.0: "degraded", 2.0: "trusted", 3.0: "trusted"}
    for number, (times, state) in enumerate(made.items()):
        scenario = one.slowed(times).scenario
        place = one.results / one.variant.name / f"run-{number}"
        generate(place, Plan(duration=1.0, failures=()))
        summary = analyse(place, drawn=False)
        judged = summary.model_copy(update={"verdict": state})
        RunDirectory(place).write(SUMMARY, judged.model_dump_json())
        manifest = json.loads((place / "manifest.json").read_text())
        manifest["scenario"] = scenario.model_dump(mode="json", by_alias=True)
        (place / "manifest.json").write_text(json.dumps(manifest))
    assert [run.directory.name for run in one.attempts()] == ["run-0", "run-1"]
    best = one.finished()
    assert best is not None
    assert best.directory.name == "run-1"


def test_every_run_that_was_slowed_down_is_known_again(tmp_path: Path) -> None:
    """What its file says is, to the last digit, what is looked for."""
    times = SLOWED[1]
    emulated = [one for figure in FIGURES for one in figure.variants_in("emulated")]
    for variant in {one.name: one for one in emulated}.values():
        usual = order(variant, tmp_path, "emulated")
        slower = usual.scenario.at_dilation(times * usual.scenario.topology.dilation)
        written = usual.slowed(times).scenario
        assert written.model_dump_json() == slower.model_dump_json(), variant.name


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
