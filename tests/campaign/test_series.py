"""Repeats and sweeps: what they consist of, what is left of them, how their runs compare."""

from pathlib import Path

import pytest

from testbed.campaign.job import Record
from testbed.campaign.series import (
    Series,
    SeriesPlan,
    SeriesRun,
    directory_name,
    groups_of,
    label,
    load_series,
    planned_runs,
    series_of,
)
from testbed.files.scenarios import load_scenario
from testbed.model.errors import InputError
from testbed.model.run_files.layout import SUMMARY
from testbed.model.summary import FaultSummary, FlowSummary, Integrity, Summary
from testbed.results.analysis.comparison import compare

PLAN = SeriesPlan(
    scenario="x",
    simulated=True,
    settings={},
    sweep={"transport.evs": [16, 64], "topology.planes": [2, 4]},
    seeds=[1, 2],
    content="c",
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
            "integrity": dict.fromkeys((quantity.key for quantity in Integrity.quantities()), 0),
            "flows": (flow,),
            "faults": (fault,),
        }
    )


def test_every_combination_with_every_seed_and_all_with_one_seed_first() -> None:
    assert len(PLAN.cases) == 4
    assert PLAN.runs[:4] == [(case, 1) for case in PLAN.cases]
    assert PLAN.runs[4:] == [(case, 2) for case in PLAN.cases]
    only_repeats = PLAN.model_copy(update={"sweep": {}})
    assert only_repeats.runs == [({}, 1), ({}, 2)]


def test_what_has_ended_is_in_the_index_in_the_order_of_the_plan(tmp_path: Path) -> None:
    scenarios = {
        label(case): load_scenario("link-failure", settings=case)  # of two planes and of four
        for case in PLAN.cases
    }
    runs = planned_runs(PLAN, scenarios, ())
    assert len({run.job.key for run in runs}) == len(PLAN.runs)
    ended = {
        runs[5].job.key: Record(1, 2.0, message="no luck"),
        runs[2].job.key: Record(0, 1.04, "some/run"),
    }
    series_of(PLAN, runs, ended).write(tmp_path)
    first, second = load_series(tmp_path).done
    assert first == SeriesRun(case=PLAN.cases[2], seed=1, run="some/run", seconds=1.0)
    assert (second.case, second.seed) == PLAN.runs[5]
    assert second.error == "exit status 1: no luck"
    assert second.run.endswith("=16,_topology.planes=4-2.log")


def test_names_of_cases_are_names_of_files() -> None:
    assert directory_name({"timeline[0].at": "4 s", "a": "x/y"}) == "timeline_0_.at=4_s,_a=x_y"
    assert directory_name({}) == "repeats"


def test_cases_compare(tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"sweep": {"transport.evs": [16, 64]}, "seeds": [*range(1, 7)]})
    series = Series(plan=plan, done=[])
    for case, seed in plan.runs:
        run = tmp_path / f"{case['transport.evs']}-{seed}"
        run.mkdir()
        many = case["transport.evs"] == 64
        summary = _summary(seed, 1e6 * (case["transport.evs"] + seed), None if many else seed)
        (run / SUMMARY).write_text(summary.model_dump_json())
        series.done.append(SeriesRun(case=case, seed=seed, run=run.name, seconds=1))
    series.write(tmp_path)
    groups = groups_of([tmp_path])
    assert [group.name for group in groups] == ["transport.evs=16", "transport.evs=64"]
    rows = {row.name: row for row in compare(groups)}
    few, many_ = rows["goodput of all flows"].cells
    assert few.value is not None
    assert (few.value.median, few.value.low, few.value.high) == (19.5, 17, 22)
    assert few.difference is None
    assert many_.difference is not None
    assert many_.difference.median == 48
    assert many_.difference.differs
    recovery = rows["fault 0, recovery"].cells
    assert recovery[0].value is not None
    assert recovery[0].value.median == 3.5
    assert recovery[1].value is None


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the directory of a run"):
        groups_of([tmp_path])
    Series(plan=PLAN).write(tmp_path)
    with pytest.raises(InputError, match="a series with a run that has ended"):
        groups_of([tmp_path])
