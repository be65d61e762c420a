"""Repeats and sweeps: what they consist of, what is left of them, how their runs compare."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.model.errors import InputError
from testbed.model.files.scenarios import load_scenario
from testbed.model.run_files.layout import SUMMARY
from testbed.model.scenario import Scenario
from testbed.model.summary import FaultSummary, FlowSummary, Integrity, Summary
from testbed.model.summary.unit import NEVER
from testbed.results.analysis.estimates import difference
from testbed.results.comparison import Group, compare
from testbed.results.report.comparison_report import as_data, format_estimate
from testbed.runs.job import JobRecord, PlannedRun
from testbed.runs.series import (
    Series,
    SeriesCase,
    SeriesPlan,
    SeriesRun,
    Settings,
    case_folder,
    find_cases,
    groups_of,
    load_series,
    named,
    new_series,
    plan_series,
    planned_runs,
    series_of,
)


def _plan(*swept: dict[str, Any], seeds: tuple[int, ...] = (1, 2)) -> SeriesPlan:
    cases = [
        SeriesCase(
            number=number,
            name=(name := named("", case)),
            folder=case_folder(number, name),
            label="x",
            scenario="x",
            settings=case,
            seeds=list(seeds),
            content="c",
        )
        for number, case in enumerate(swept, 1)
    ]
    return SeriesPlan(name="x", simulated=True, settings={}, cases=cases)


PLAN = _plan(
    *({"transport.evs": evs, "topology.planes": planes} for evs in (16, 64) for planes in (2, 4))
)


def _summary(seed: int, goodput_bps: float, recovery_rtt: float | None) -> Summary:
    flow = FlowSummary(
        flow=0,
        src="h0",
        dst="h4",
        transport="mrc",
        **dict.fromkeys((quantity.key for quantity in FlowSummary.quantities()), 0)
        | {"goodput_run_bps": goodput_bps, "run_fraction": 0.99},
        goodput_by_plane_bps={},
        evs=(),
        latency=None,
    )
    fault = FaultSummary(
        index=0,
        kind="cut",
        target="l",
        places=(),
        actuator="link",
        proof={},
        flows=(),
        **{"requested_s": 1.0, "flows_affected": 1}
        | {f"recovery_{form}": recovery_rtt for form in ("ms", "rtt", "real_us")},
    )
    return Summary.model_validate(
        {
            "scenario": "x",
            "description": "",
            "run": "r",
            "seed": seed,
            "dilation": 1,
            "duration_s": 1,
            "verdict": "trusted",
            "reasons": (),
            "base_rtt_us": 1,
            "base_rtt_real_us": 1,
            "goodput_bps": goodput_bps,
            "integrity": dict.fromkeys((quantity.key for quantity in Integrity.quantities()), 0),
            "flows": (flow,),
            "faults": (fault,),
        }
    )


def test_all_cases_with_one_seed_come_first() -> None:
    assert [seed for _, seed in PLAN.runs] == [1] * 4 + [2] * 4
    assert [case for case, _ in PLAN.runs] == PLAN.cases * 2


def test_what_differs_from_another_plan_is_named() -> None:
    assert PLAN.differences(PLAN) == []
    assert PLAN.differences(_plan({"transport.evs": 16})) == ["cases"]
    other = PLAN.model_copy(
        update={
            "simulated": False,
            "cases": [case.model_copy(update={"content": "d"}) for case in PLAN.cases],
        }
    )
    assert PLAN.differences(other) == ["simulated", "content"]


def test_what_has_ended_is_in_the_index_in_the_order_of_the_plan(tmp_path: Path) -> None:
    scenarios = {
        case.number: load_scenario("link-failure", settings=case.settings)  # of two planes and four
        for case in PLAN.cases
    }
    runs = planned_runs(PLAN, scenarios)
    assert len({run.job.key for run in runs}) == len(PLAN.runs)
    ended = {
        runs[5].job.key: JobRecord(1, 2.0, message="no luck"),
        runs[2].job.key: JobRecord(0, 1.04, "some/run"),
    }
    series_of(PLAN, runs, ended).write(tmp_path)
    first, second = load_series(tmp_path).done
    assert first == SeriesRun(case=3, seed=1, run="some/run", seconds=1.0)
    assert (second.case, second.seed) == (2, 2)
    assert second.error == "exit status 1: no luck"
    assert JobRecord(-6, 1.0).failure == "killed by signal 6"
    assert second.run.endswith("=16,_topology.planes=4-seed-2.log")


def test_names_of_cases_are_names_of_files() -> None:
    name = named("x", {"timeline[0].at": "4 s", "transport": {"kind": "roce", "qps": 2}})
    assert name == "x, timeline[0].at=4 s, transport={kind: roce, qps: 2}"
    folder = case_folder(7, name, 2)
    assert folder == "07-x,_timeline_0_.at=4_s,_transport=_kind_roce,_qps_2_"
    assert len(case_folder(1, "é" * 300).encode()) < 100


def _made(directory: Path, plan: SeriesPlan, summaries: dict[tuple[str, int], Summary]) -> None:
    """A series whose runs have these summaries; the others failed."""
    series = Series(plan=plan, done=[])
    for number, (case, seed) in enumerate(plan.runs):
        run = directory / str(number)
        summary = summaries.get((case.name, seed))
        if summary is not None:
            run.mkdir()
            (run / SUMMARY).write_text(summary.model_dump_json())
        error = "broken" if summary is None else None
        series.done.append(
            SeriesRun(case=case.number, seed=seed, run=run.name, seconds=1, error=error)
        )
    series.write(directory)


def test_cases_compare(tmp_path: Path) -> None:
    plan = _plan({"transport.evs": 16}, {"transport.evs": 64}, seeds=tuple(range(1, 7)))
    summaries = {}
    for case, seed in plan.runs:
        evs = case.settings["transport.evs"]
        summaries[case.name, seed] = _summary(
            seed, 1e6 * (evs + seed), NEVER if evs == 64 else float(seed)
        )
    _made(tmp_path, plan, summaries)
    groups = groups_of([tmp_path])
    assert [group.name for group in groups] == ["transport.evs=16", "transport.evs=64"]
    rows = {row.name: row for row in compare(groups)}
    few, many = rows["goodput of all flows"].cells
    assert few.value is not None
    assert (few.value.median, few.value.low, few.value.high) == (19.5, 17, 22)
    assert few.difference is None
    assert many.difference is not None
    assert many.difference.median == 48
    assert many.difference.differs
    first, second = rows["cut of l, recovery"].cells
    assert first.value is not None
    assert (first.value.median, first.basis) == (3.5, "6 of 6")
    assert second.value is not None
    assert (second.value.median, second.basis) == (NEVER, "6 of 6, 6 never")
    assert second.difference is not None
    assert second.difference.median == NEVER
    assert second.difference.differs


def test_emulated_runs_of_unlike_machines_are_not_pooled(tmp_path: Path) -> None:
    """Simulated ones are: no machine decides what they come to."""
    plan = _plan({}, seeds=(1, 2, 3))
    _made(tmp_path, plan, {("", seed): _summary(seed, 1e6, 2.0) for seed in (1, 2, 3)})
    runs = [tmp_path / run.run for run in load_series(tmp_path).done]
    machine = {"cpu": "A", "machine": "x86_64", "kernel": "6.1"}
    for simulated, names in (
        (False, ["MRC on 2 x A, x86_64, kernel 6.1", "MRC on 4 x A, x86_64, kernel 6.1"]),
        (True, ["MRC"]),
    ):
        for run, cpus in zip(runs, (2, 4, 2), strict=True):
            manifest = {**machine, "cpus": cpus, "simulated": simulated}
            (run / "manifest.json").write_text(json.dumps(manifest))
        groups = groups_of([tmp_path], ["MRC"])
        assert [group.name for group in groups] == names
        assert sum(len(group.runs) for group in groups) == 3


def test_a_run_that_never_recovered_is_not_left_out(tmp_path: Path) -> None:
    """One of three: left out, the two others looked like "3 runs, 1.735 (1.65 to 1.82)"."""
    plan = _plan({}, seeds=(1, 2, 3))
    recoveries = {1: 1.65, 2: 1.82, 3: NEVER}
    summaries = {("", seed): _summary(seed, 1e6, rtts) for seed, rtts in recoveries.items()}
    _made(tmp_path, plan, summaries)
    groups = groups_of([tmp_path], ["MRC"])
    assert [group.name for group in groups] == ["MRC"]
    row = next(row for row in compare(groups) if row.name == "cut of l, recovery")
    (cell,) = row.cells
    assert (format_estimate(cell.value), cell.basis) == ("1.82 (1.65 to never)", "3 of 3, 1 never")
    (written,) = (entry for entry in as_data([row]))
    assert written["cells"][0]["value"]["high"] == "never"


def test_a_cell_says_how_many_runs_it_stands_on(tmp_path: Path) -> None:
    plan = _plan({}, seeds=(1, 2, 3, 4))
    unaffected = _summary(3, 1e6, 0.0)
    (fault,) = unaffected.faults
    beside = fault.model_copy(update={"flows_affected": 0})
    summaries = {
        ("", 1): _summary(1, 1e6, 2.0),
        ("", 2): _summary(2, 1e6, None),
        ("", 3): unaffected.model_copy(update={"faults": (beside,)}),
    }  # and the fourth failed
    _made(tmp_path, plan, summaries)
    rows = {row.name: row for row in compare(groups_of([tmp_path]))}
    assert rows["cut of l, recovery"].cells[0].basis == "1 of 4"
    assert rows["packets lost"].cells[0].basis == "3 of 4"


def test_what_neither_run_did_makes_no_difference() -> None:
    both = difference([NEVER] * 6, [NEVER] * 6)
    assert (both.median, both.low, both.high, both.differs) == (0, 0, 0, False)
    mixed = difference([NEVER, 1.0], [1.0, NEVER])
    assert (mixed.median, mixed.low, mixed.high) == (0, -NEVER, NEVER)
    assert format_estimate(mixed, signed=True) == "+0 (-never to +never)"
    later = difference([NEVER] * 6, [2.0] * 6)
    assert (later.median, later.differs) == (NEVER, True)


def _faulty(scenario: str, *faults: tuple[str, str]) -> Summary:
    summary = _summary(1, 1e6, 1.0)
    (fault,) = summary.faults
    changed = tuple(
        fault.model_copy(update={"index": i, "kind": kind, "target": target})
        for i, (kind, target) in enumerate(faults)
    )
    return summary.model_copy(update={"scenario": scenario, "faults": changed})


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (_faulty("x", ("cut", "a")), _faulty("x", ("cut", "a")), ["cut of a"]),
        (_faulty("x", ("cut", "a")), _faulty("x", ("cut", "b")), ["cut of different targets"]),
        (_faulty("x", ("cut", "a")), _faulty("x", ("loss", "a")), ["cut, loss of a"]),
        (_faulty("x", ("cut", "a")), _faulty("y", ("cut", "b")), ["cut of a", "cut of b"]),
        (_faulty("x", ("cut", "a")), _faulty("y", ("cut", "a")), ["cut of a"]),
        (
            _faulty("x", ("cut", "a"), ("cut", "a")),
            _faulty("x"),
            ["cut of a", "cut of a, no. 2"],
        ),
        (_faulty("x"), _faulty("x"), []),
    ],
)
def test_faults_are_called_by_kind_and_target(
    first: Summary, second: Summary, names: list[str]
) -> None:
    groups = [Group("first", (Path(),), (first,)), Group("second", (Path(),), (second,))]
    found = dict.fromkeys(row.fault for row in compare(groups))
    assert [*found] == ["", *names]


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the directory of a run"):
        groups_of([tmp_path])
    Series(plan=PLAN).write(tmp_path)
    with pytest.raises(InputError, match="a series with a run that has ended"):
        groups_of([tmp_path])


def _scenario(name: str, settings: Settings) -> Scenario:
    return load_scenario("permutation", settings={"name": name} | settings)


def _planned(*names: str, **options: Any) -> tuple[SeriesPlan, list[PlannedRun]]:
    options.setdefault("sweep", {})
    options.setdefault("seeds", 2)
    plan, scenarios = plan_series(names, _scenario, settings={}, simulated=True, **options)
    return plan, planned_runs(plan, scenarios)


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (("mine", "mine-2", "mine-2-1", "mine-seed-1"), {}),
        (("a", "b", "c"), {"labels": ("x/y", "x_y", "x y")}),
        (("a", "b"), {"labels": ("x" * 300, "x" * 299 + "y")}),
        (("a", "b"), {"labels": ("A", "a")}),
        (("a",), {"sweep": {"description": ["d/a", "d_a", "d a", "d:a", "ä", "_"]}}),
        (("a",), {"sweep": {"description": ["1, 2", "1_ 2"], "transport.evs": [8, 16]}}),
    ],
)
def test_no_two_runs_share_a_folder_a_file_or_a_key(
    names: tuple[str, ...], options: dict[str, Any]
) -> None:
    """Whatever they are called, and also where upper and lower case are one."""
    plan, runs = _planned(*names, **options)
    jobs = [run.job for run in runs]
    for each in (
        {job.key for job in jobs},
        {job.name for job in jobs},
        {str(job.file).lower() for job in jobs},
        {str(job.log).lower() for job in jobs},
    ):
        assert len(each) == len(jobs)
    assert len({job.folder.lower() for job in jobs}) == len(plan.cases)
    assert all(len(Path(str(job.log)).name.encode()) < 200 for job in jobs)


def test_values_that_are_written_alike_are_cases_of_their_own() -> None:
    def load(name: str, settings: Settings) -> Scenario:
        return _scenario(name, {"description": f"{type(settings['seen']).__name__}"})

    plan, _ = plan_series(["a"], load, sweep={"seen": ["1", 1]}, settings={}, simulated=True)
    assert [case.name for case in plan.cases] == ["seen=1", "seen=1 (2)"]
    assert len({case.content for case in plan.cases}) == 2


def test_a_case_is_meant_by_its_number_its_name_or_its_folder(tmp_path: Path) -> None:
    plan, _ = _planned("a", "b", labels=("one", "two"), sweep={"description": ["d/x", "d_x"]})
    Series(plan=plan).write(tmp_path)
    for number, case in enumerate(plan.cases, 1):
        for text in (str(number), f"0{number}", case.name, case.folder):
            found = find_cases(tmp_path / text)
            assert found is not None, text
            assert [meant.number for meant in found.cases] == [number], text
    for text in ("two", "b"):
        found = find_cases(tmp_path / text)
        assert found is not None
        assert [meant.number for meant in found.cases] == [3, 4]
    with pytest.raises(InputError, match=r"CASE: found twoo, expected a case of .*: 1 to 4"):
        find_cases(tmp_path / "twoo")
    assert find_cases(tmp_path.parent) is None


def test_a_number_that_is_the_name_of_another_case_is_refused(tmp_path: Path) -> None:
    plan, _ = _planned("a", "b", labels=("2", "1"))
    Series(plan=plan).write(tmp_path)
    with pytest.raises(InputError, match="the name of another: 1-2 and 2-1"):
        find_cases(tmp_path / "1")
    found = find_cases(tmp_path / "1-2")
    assert found is not None
    assert [case.label for case in found.cases] == ["2"]


def test_one_case_is_compared_with_all_its_runs(tmp_path: Path) -> None:
    plan, _ = _planned("a", "b", sweep={"transport.evs": [8, 16]}, seeds=3)
    _made(tmp_path, plan, {(case.name, seed): _summary(seed, 1e6, 1) for case, seed in plan.runs})
    (group,) = groups_of([tmp_path / "2"])
    assert (group.name, len(group.runs)) == ("a, transport.evs=16", 3)
    of_scenario = groups_of([tmp_path / "b"])
    assert [group.name for group in of_scenario] == ["b, transport.evs=8", "b, transport.evs=16"]
    assert [group.name for group in groups_of([tmp_path / "1", tmp_path / "4"], ["x", "y"])] == [
        "x",
        "y",
    ]


def test_groups_of_different_series_have_different_names(tmp_path: Path) -> None:
    """Two series of one second, of two scenarios, have directories of one name."""
    plan, _ = _planned("a", sweep={"transport.evs": [8]}, seeds=1)
    places = [tmp_path / name / "series-20260101T000000" for name in ("x", "y")]
    for place in places:
        place.mkdir(parents=True)
        _made(place, plan, {("transport.evs=8", 1): _summary(1, 1e6, 1)})
    names = [group.name for group in groups_of(places)]
    assert len({*names}) == 2
    assert str(places[0]) in names[0]


def test_series_that_begin_in_one_second_have_directories_of_their_own(tmp_path: Path) -> None:
    plan, _ = _planned("a")
    directories = [new_series(plan, tmp_path) for _ in range(3)]
    assert len({*directories}) == 3
    assert {directory.parent for directory in directories} == {tmp_path / "a"}
