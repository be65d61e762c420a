"""`testbed figures`: with how many seeds it makes runs in each form."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from testbed.runs.job import FORMS, Form
from testbed.studies.paper.commands import seed_counts
from testbed.studies.paper.figure import Overrides
from testbed.studies.paper.planning import plan, select_figures, setup_of

from .conftest import Call


@pytest.mark.parametrize(
    ("requested", "full", "expected"),
    [
        (None, False, {"emulated": 1, "simulated": 1}),
        (None, True, {"emulated": 3, "simulated": 6}),
        (2, True, {"emulated": 2, "simulated": 2}),
        (4, False, {"emulated": 4, "simulated": 4}),
    ],
)
def test_the_full_set_has_three_emulated_and_six_simulated_seeds(
    requested: int | None, full: bool, expected: Mapping[Form, int], tmp_path: Path
) -> None:
    counts = seed_counts(requested, full=full)
    planned = plan(select_figures(["9a"]), tmp_path, FORMS, seeds=counts)
    assert {form: len(runs) for (_, form), runs in planned.runs.items()} == expected


def test_overrides_change_all_runs_of_a_figure_and_its_setup(tmp_path: Path) -> None:
    (figure,) = select_figures(["12-13"])
    larger = figure.changed(Overrides(3, {"topology.hosts_per_t0": 2, "transport.evs": 8}))
    before, after = (
        plan([each], tmp_path, ["simulated"]).runs["12-13", "simulated"]
        for each in (figure, larger)
    )
    assert len(after) == len(before) > 1
    for usual, changed in zip(before, after, strict=True):
        assert changed.scenario.duration == 3 * usual.scenario.duration
        assert changed.scenario.topology.hosts_per_t0 == 2
        assert changed.scenario.transport.model_dump()["evs"] == 8
        assert changed.job.scenario != usual.job.scenario
    assert str(larger.overrides) == "--longer 3 --set topology.hosts_per_t0=2 --set transport.evs=8"
    assert setup_of(larger, "simulated") != setup_of(figure, "simulated")
    assert setup_of(figure.changed(Overrides()), "simulated") == setup_of(figure, "simulated")


@pytest.mark.simulated
def test_changed_runs_have_a_directory_of_their_own_and_say_what_changed(call: Call) -> None:
    settings = ("--longer", "2", "--set", "transport.evs=16")
    called = call("figures", "19c", "--form", "simulated", *settings, "--json")
    (outcome,) = json.loads(called.out)
    assert outcome["overrides"] == "--longer 2 --set transport.evs=16"
    (run,) = outcome["runs"]
    (usual,) = plan(select_figures(["19c"]), Path(), ["simulated"]).runs["19c", "simulated"]
    record = json.loads((Path(run["directory"]) / "run.json").read_text())
    assert record["duration_s"] == 2 * usual.scenario.duration / 1e9
    assert {*Path("results").iterdir()} == {Path("results/paper-changed")}
    report = Path("results/paper-changed/report.html").read_text()
    assert "--longer 2 --set transport.evs=16" in report
    assert "Options changed these runs" in report
    assert "19c with --longer 2" in Path("results/paper-changed/table.md").read_text()


def test_a_key_that_scenarios_do_not_have_is_refused(call: Call) -> None:
    called = call("figures", "9b", "--form", "simulated", "--set", "transport.ev=2")
    assert called.status == 2
    assert "transport.ev" in called.err
    assert "evs" in called.err


@pytest.mark.parametrize("setting", ["name=x", "seed=7"])
def test_what_tells_runs_apart_cannot_be_set(call: Call, setting: str) -> None:
    called = call("figures", "9b", "--form", "simulated", "--set", setting)
    assert called.status == 2
    assert "--seeds" in called.err
    assert not [*Path().iterdir()]
