"""A recording of simulated runs is compared with a later one run by run, part by part."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import polars as pl
import pytest

from tests.modules import SCRIPTS, module_at


@pytest.fixture
def recording() -> ModuleType:
    return module_at(SCRIPTS / "recording.py")


def _recorded(
    digest: str = "a", stall_rtt: float | None = 1.5, more: Mapping[str, str] = MappingProxyType({})
) -> Mapping[str, Mapping[str, Any]]:
    return {
        "digests": {"summary.faults": digest, "flows.parquet": "f", **more},
        "figures": {"faults[0].stall_rtt": stall_rtt},
    }


def test_equal_recordings_do_not_differ(recording: ModuleType) -> None:
    assert [*recording.differences({"x seed 1": _recorded()}, {"x seed 1": _recorded()})] == []


def test_a_difference_names_the_run_the_part_and_the_figures(recording: ModuleType) -> None:
    before = {"x seed 1": _recorded(), "y seed 1": _recorded()}
    after = {"x seed 1": _recorded("b", 2.5), "y seed 1": _recorded()}
    lines = ["x seed 1: summary.faults", "    faults[0].stall_rtt: 1.5 before, 2.5 now"]
    assert [*recording.differences(before, after)] == lines


def test_a_part_or_a_run_that_only_one_recording_has_is_a_difference(
    recording: ModuleType,
) -> None:
    def differences(before: Any, after: Any) -> Iterator[str]:
        lines: Iterator[str] = recording.differences(before, after)
        return lines

    new_table = _recorded(more={"operations.parquet": "o"})
    assert [*differences({"x": _recorded()}, {"x": new_table})] == ["x: operations.parquet"]
    assert [*differences({"x": _recorded()}, {})] == [
        "x: was recorded before, but is no longer run"
    ]
    assert [*differences({}, {"x": _recorded()})] == ["x: was not recorded before"]


def test_only_some_runs_are_recorded_again_or_compared(
    recording: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "recording.json"
    kept = {"scenarios/chaos seed 1": _recorded("old"), "scenarios/matrix seed 1": _recorded("old")}
    recording.write(kept, file)
    monkeypatch.setattr(recording, "record", lambda runs: {run.name: _recorded() for run in runs})

    def exit_status(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["recording.py", *arguments, "--file", str(file)])
        status: int = recording.main()
        return status

    assert exit_status("compare", "--only", "scenarios/chaos") == 1
    assert capsys.readouterr().out == "scenarios/chaos seed 1: summary.faults\n"
    assert exit_status("record", "--only", "scenarios/chaos") == 0
    assert exit_status("compare", "--only", "scenarios/chaos") == 0
    assert json.loads(file.read_text()) == {**kept, "scenarios/chaos seed 1": _recorded()}
    with pytest.raises(SystemExit, match="2"):
        exit_status("compare", "--only", "chaos")


def test_a_digest_changes_with_every_value_and_type(recording: ModuleType) -> None:
    columns = (
        pl.Series("t", [1, 2]),
        pl.Series("t", [1, 3]),
        pl.Series("t", [1.0, 2.0]),
        pl.Series("t", ["1", "2"]),
        pl.Series("t", [1]),
    )
    assert len({recording.digest_of_column(column) for column in columns}) == len(columns)
    assert recording.digest_of({"a": 0.1, "b": 2}) == recording.digest_of({"b": 2, "a": 0.1})
    assert recording.digest_of(0.1) != recording.digest_of(0.1 + 1e-17 * 2)


def test_the_quick_set_has_each_run_that_it_names(recording: ModuleType) -> None:
    names = {run.name for run in recording.runs_of_set(full=False)}
    assert {name.rpartition(" seed ")[0] for name in names} == recording.QUICK


def test_the_full_set_has_three_seeds_of_each_run(recording: ModuleType) -> None:
    names = [run.name.rpartition(" seed ")[0] for run in recording.runs_of_set(full=True)]
    assert set(names) > recording.QUICK
    assert all(names.count(name) >= 3 for name in recording.QUICK)
