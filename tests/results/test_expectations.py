"""What a scenario expects is compared with what the run came to, and told to people and CI."""

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from testbed.live.stream.writer import outcome_of
from testbed.model.scenario import Expect
from testbed.model.summary import Expectation, OperationSummary, Summary
from testbed.model.summary.scopes import SCOPES, outcome
from testbed.model.summary.unit import NEVER, Time
from testbed.results.analysis.metrics import evaluate, flow_tables, summarise
from testbed.results.report.junit import junit, junit_of_series, suite_of, suite_of_failed
from testbed.results.run_data import load_run

from .synthetic import Failure, Plan, generate

PLAN = Plan(duration=5.0, failures=(Failure(),))


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    directory = tmp_path_factory.mktemp("runs") / "run"
    generate(directory, PLAN)
    data = load_run(directory)
    return summarise(data, flow_tables(data))


def evaluated(summary: Summary, scope: str, figure: str, bound: Any) -> Expectation:
    (expectation,) = evaluate(summary, Expect.model_validate({scope: {figure: bound}}))
    return expectation


def test_every_figure_that_may_be_expected_is_in_the_summary(summary: Summary) -> None:
    for scope in Expect.model_fields:
        bounds = {figure: {"at_most": 1e30} for figure in SCOPES[scope].quantities}
        expectations = evaluate(summary, Expect.model_validate({scope: bounds}))
        assert [expectation.figure for expectation in expectations] == list(
            SCOPES[scope].quantities
        )
    assert "bytes_lost" in SCOPES["run"].quantities
    assert "before_fraction" in SCOPES["flows"].quantities
    assert "recovery_rtt" in SCOPES["faults"].quantities
    assert "flow" not in SCOPES["flows"].quantities


@pytest.mark.parametrize("scope", sorted(SCOPES.keys() - {"run", "messages", "clustermapper"}))
def test_of_several_things_the_worst_counts_and_numbers_of_things_are_added(scope: str) -> None:
    for key, quantity in SCOPES[scope].quantities.items():
        if key.endswith(("_fraction", "_bps")):
            assert quantity.metric.combine([3, 2]) == 2, key
        if key.startswith("packets_") or key in {"planned", "begun", "count", "unfinished"}:
            assert quantity.metric.combine([3, 2]) == 5, key


def test_bounds_include_their_ends(summary: Summary) -> None:
    value = summary.faults[0].values["detection_rtt"]
    assert value is not None
    for bound, holds in (
        ({"at_most": value}, True),
        ({"at_most": value * 0.99}, False),
        ({"at_least": value}, True),
        ({"at_least": value * 1.01}, False),
        ({"at_least": value, "at_most": value}, True),
        (value, True),
        (value + 1, False),
    ):
        expectation = evaluated(summary, "faults", "detection_rtt", bound)
        assert (expectation.holds, expectation.value) == (holds, value), bound


def test_the_worst_flow_counts(summary: Summary) -> None:
    fast, slow = (
        summary.flows[0].model_copy(update={"before_fraction": share, "dst": dst})
        for share, dst in ((0.99, "h4"), (0.5, "h5"))
    )
    two = summary.model_copy(update={"flows": (fast, slow)})
    expectation = evaluated(two, "flows", "before_fraction", {"at_least": 0.97})
    assert (expectation.holds, expectation.value, expectation.where) == (False, 0.5, "h0 -> h5")
    high = evaluated(two, "flows", "before_fraction", {"at_most": 0.97})
    assert (high.holds, high.where) == (False, "h0 -> h4")


def test_the_victim_is_looked_at_by_itself(summary: Summary) -> None:
    first, second = summary.flows
    fine = second.model_copy(update={"before_fraction": 1.0})
    expect = Expect.model_validate({"victim": {"before_fraction": {"at_least": 0.995}}})
    ((other,), (victim,)) = (
        evaluate(
            summary.model_copy(
                update={
                    "flows": [
                        each.model_copy(update={"victim": each is beside}) for each in (first, fine)
                    ]
                }
            ),
            expect,
        )
        for beside in (first, fine)
    )
    assert (other.holds, other.value) == (False, first.before_fraction)
    assert (victim.holds, victim.where) == (True, f"{second.src} -> {second.dst}")


def test_what_never_happened_is_worse_than_any_number(summary: Summary) -> None:
    worst: tuple[tuple[float | None, str], ...] = (
        (NEVER, "never happened at blackhole of"),
        (None, "no value at blackhole of"),
    )
    for value, words in worst:
        time = None if value is None else Time(rtt=value)
        fault = summary.faults[0].model_copy(update={"recovery": time})
        other = summary.model_copy(update={"faults": (*summary.faults, fault)})
        for bound in ({"at_most": 1e9}, {"at_least": 0}):
            expectation = evaluated(other, "faults", "recovery_rtt", bound)
            assert (expectation.holds, expectation.value) == (False, value)
            assert outcome(expectation).startswith(words)
            assert Expectation.model_validate_json(expectation.model_dump_json()) == expectation


def test_a_fault_that_no_flow_met_is_not_looked_at(summary: Summary) -> None:
    (met,) = summary.faults
    unmet = met.model_copy(update={"recovery": None, "flows_affected": 0})
    both = summary.model_copy(update={"faults": (met, unmet)})
    expectation = evaluated(both, "faults", "recovery_rtt", {"at_most": 10})
    assert (expectation.holds, expectation.value) == (True, met.values["recovery_rtt"])


def test_what_was_not_measured_is_not_met(summary: Summary) -> None:
    fault = summary.faults[0].model_copy(update={"recovery": Time(rtt=0.0), "flows_affected": 0})
    unseen = summary.model_copy(update={"faults": (fault,), "flows": (), "messages": None})
    for scope, figure, why in (
        ("faults", "recovery_rtt", "not measured: no flow had an active EV through a fault"),
        ("run_faults", "level", "not measured: no flow had an active EV through a fault"),
        ("messages", "p99_rtt", "not measured: no message was completed"),
        ("flows", "packets_lost", "not measured: there was no flow"),
        ("victim", "packets_lost", "not measured: there was no victim"),
        ("operations", "count", "not measured: the workload has no operations"),
        ("processes", "growth", "not measured: the memory of no process was sampled often enough"),
        ("clustermapper", "accusations", "not measured: no Clustermapper ran"),
    ):
        expectation = evaluated(unseen, scope, figure, {"at_most": 1e9})
        assert (expectation.holds, expectation.value, outcome(expectation)) == (False, None, why)


def test_nothing_is_expected_of_processes_in_virtual_time(summary: Summary) -> None:
    simulated = summary.model_copy(update={"simulated": True})
    expect = Expect.model_validate({"processes": {"growth": {"at_most": 0.05}}})
    assert evaluate(simulated, expect) == ()


def test_fairness_is_that_of_what_flows_may_have(summary: Summary) -> None:
    assert summary.fairness == pytest.approx(1, abs=1e-3)
    assert evaluated(summary, "run", "fairness", {"at_least": 0.99}).holds


def _with_transfers(summary: Summary, finished: int) -> Summary:
    """The summary of a run of three transfers, two of which began."""
    times = {
        f"{name}_{form}": 1.0
        for name in ("median", "p99", "max")
        for form in ("ms", "rtt", "real_us")
    }
    transfers = OperationSummary(
        kind="transfer",
        hosts=1,
        bytes=1000,
        planned=3,
        begun=max(finished, 2),
        count=finished,
        unfinished=3 - finished,
        algbw_bps=1.0,
        **times,
    )
    return summary.model_copy(update={"operations": (transfers,)})


@pytest.mark.parametrize(
    ("finished", "bounds", "holds"),
    [
        (3, {}, True),
        (1, {}, False),
        (1, {"max_ms": {"at_most": 5}}, False),
        (1, {"unfinished": {"at_most": 2}}, True),
        (1, {"unfinished": {"at_most": 1}}, False),
        (1, {"count": {"at_least": 1}}, True),
        (1, {"count": 3}, False),
    ],
)
def test_all_transfers_have_to_finish_unless_the_scenario_says_how_many(
    summary: Summary, finished: int, bounds: dict[str, Any], holds: bool
) -> None:
    run = _with_transfers(summary, finished)
    expectations = evaluate(run, Expect.model_validate({"operations": bounds}))
    judged = run.model_copy(update={"expectations": expectations, "verdict": "trusted"})
    assert judged.as_expected is holds
    assert judged.exit_status(require_trusted=False) == (0 if holds else 1)
    suite = ET.fromstring(junit(judged))  # noqa: S314 - our own
    assert suite.get("failures") == str(0 if holds else 1)
    (told,) = [p.get("value") for p in suite.iter("property") if p.get("name") == "transfers"]
    assert str(told).startswith(f"{finished} of 3 finished")
    assert outcome_of(judged).endswith(f"; transfer: {told}")


def test_loops_that_the_end_cuts_off_need_not_finish(summary: Summary) -> None:
    (transfers,) = _with_transfers(summary, 1).operations
    loop = transfers.model_copy(update={"kind": "allreduce", **transfers.values, "planned": None})
    assert evaluate(summary.model_copy(update={"operations": (loop,)}), Expect()) == ()


def test_junit_counts_what_failed(summary: Summary) -> None:
    expect = Expect.model_validate(
        {"run": {"bytes_lost": 0}, "faults": {"recovery_rtt": {"at_most": 0.001}}}
    )
    missed = summary.model_copy(update={"expectations": evaluate(summary, expect)})
    suite = ET.fromstring(junit(missed))  # noqa: S314 - our own
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["4", "1", "0", "0"]
    (case,) = (element for element in suite.iter("testcase") if element.find("failure") is not None)
    assert case.get("name") == "recovery_rtt at most 0.001"


def test_a_run_that_cannot_be_trusted_fails_no_expectation_in_junit(summary: Summary) -> None:
    """It is an error; what was expected of it is skipped, met or not."""
    expect = Expect.model_validate(
        {"run": {"bytes_lost": 0}, "faults": {"recovery_rtt": {"at_most": 0.001}}}
    )
    untrusted = summary.model_copy(
        update={"expectations": evaluate(summary, expect), "verdict": "invalid"}
    )
    suite = ET.fromstring(junit(untrusted))  # noqa: S314 - our own
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["4", "0", "1", "2"]
    met, missed = (element.get("message") or "" for element in suite.iter("skipped"))
    assert met == "the run is invalid"
    assert missed.startswith("the run is invalid; ")
    assert outcome(untrusted.expectations[1]) in missed


def test_junit_of_a_series_has_a_suite_for_each_run(summary: Summary) -> None:
    """Missed expectations are failures; runs that are not trusted, or did not end, are errors."""
    expect = Expect.model_validate({"faults": {"recovery_rtt": {"at_most": 0.001}}})
    missed = summary.model_copy(update={"expectations": evaluate(summary, expect)})
    degraded = summary.model_copy(update={"verdict": "degraded", "reasons": ("busy",)})
    suites = [
        suite_of(missed, "evs=4, seed 1", require_trusted=True),
        suite_of(degraded, "evs=4, seed 2", require_trusted=True),
        suite_of_failed("evs=4, seed 3", "the controller ended"),
    ]
    whole = ET.fromstring(junit_of_series(suites))  # noqa: S314 - our own
    assert [whole.get(name) for name in ("tests", "failures", "errors")] == ["6", "1", "2"]
    assert [suite.get("errors") for suite in whole] == ["0", "1", "1"]
    names = {element.get("classname", "").rpartition(".")[0] for element in whole.iter("testcase")}
    assert names == {f"evs=4, seed {seed}" for seed in (1, 2, 3)}
    messages = [element.get("message") for element in whole.iter("error")]
    assert messages == ["degraded: busy", "the run did not finish: the controller ended"]


@pytest.mark.parametrize("required", [True, False])
def test_a_degraded_run_is_an_error_where_trust_is_required(
    summary: Summary, required: bool
) -> None:
    expect = Expect.model_validate({"run": {"bytes_lost": 0}})
    degraded = summary.model_copy(
        update={
            "expectations": evaluate(summary, expect),
            "verdict": "degraded",
            "reasons": ("busy", "late"),
        }
    )
    suite = ET.fromstring(junit(degraded, require_trusted=required))  # noqa: S314 - our own
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == (["3", "0", "1", "1"] if required else ["3", "0", "0", "0"])
    assert [e.get("message") for e in suite.iter("error")] == ["degraded: busy; late"] * required
    properties = {e.get("name"): e.get("value") for e in suite.iter("property")}
    assert properties["verdict"] == "degraded"
