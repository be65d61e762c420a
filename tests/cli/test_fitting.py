"""One dilation for all runs of a series: the smallest that all machines carry with all of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.cli.fitting import Fitting, capacities_of, keep_slower_out, slowest_of
from testbed.emulation.experiment.capacity import Capacity
from testbed.model.errors import MachineError
from testbed.model.files.scenarios import load_scenario
from testbed.runs.cluster.calls import WorkerCalls
from testbed.runs.cluster.executor import ClusterExecutor
from testbed.runs.cluster.workers import Worker
from testbed.runs.local import LocalExecutor
from testbed.runs.plan import planned_run

QUICK = Capacity(endpoint_ns=150_000, link_ns=15_000, cpus=4)
SLOW = replace(QUICK, cpus=2)
NAMES = ("permutation", "alltoall")


def _fitted(name: str, fitting: Fitting) -> float:
    return load_scenario(name, fitting.dilation_of).topology.dilation


def test_a_series_has_the_dilation_that_its_slowest_machine_carries_with_all_cases() -> None:
    fitting = Fitting(force=False, machines=(QUICK, SLOW))
    alone = {name: _fitted(name, fitting) for name in NAMES}
    assert len({*alone.values()}) == len(NAMES)
    assert alone == {name: _fitted(name, Fitting(force=False, machines=(SLOW,))) for name in NAMES}
    with fitting.collecting() as scenarios:
        nominal = [_fitted(name, fitting) for name in NAMES]
        fitting.require("permutation", load_scenario("permutation"))  # it is too early to judge
    assert {*nominal} == {10_000}
    fitting.choose(scenarios, None)
    assert {_fitted(name, fitting) for name in NAMES} == {max(alone.values())}


def test_a_series_that_is_continued_keeps_its_dilation() -> None:
    fitting = Fitting(force=False, machines=(SLOW,))
    with fitting.collecting() as scenarios:
        _fitted("permutation", fitting)
    fitting.choose(scenarios, 4_000)
    assert _fitted("permutation", fitting) == 4_000


def test_a_dilation_is_carried_if_the_slowest_machine_does() -> None:
    scenario = load_scenario("permutation")
    least = QUICK.fitting_dilation(scenario)
    assert Fitting(force=False, machines=(QUICK,)).carries([scenario], least)
    assert not Fitting(force=False, machines=(QUICK, SLOW)).carries([scenario], least)


def test_nothing_is_chosen_where_no_case_has_auto() -> None:
    fitting = Fitting(force=False, machines=(SLOW,))
    with fitting.collecting() as scenarios:
        _fitted("link-failure", fitting)
    fitting.choose(scenarios, None)
    assert fitting.dilation is None


def test_the_slowest_machine_decides_whether_a_load_is_too_much(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scenario = load_scenario("permutation")
    for machines, said in (((QUICK, QUICK), ""), ((QUICK, SLOW), "2 CPUs")):
        Fitting(force=True, machines=machines).require("permutation", scenario)
        err = capsys.readouterr().err
        assert said in err
        assert bool(said) == bool(err)


class _Calls(WorkerCalls):
    """A cluster whose workers are given."""

    def __init__(self, *workers: Worker) -> None:
        self._workers = workers
        self.unfit: Callable[[Worker], str] | None = None

    @property
    def workers(self) -> tuple[Worker, ...]:
        return self._workers

    def require(self, unfit: Callable[[Worker], str]) -> None:
        self.unfit = unfit


def _worker(name: str, calibration: Capacity | None, unfit: str = "") -> Worker:
    values = None if calibration is None else {"endpoint_ns": calibration.endpoint_ns}
    if values is not None and calibration is not None:
        values |= {"link_ns": calibration.link_ns, "cpus": calibration.cpus}
    description = {"host": name, "calibration": values}
    return Worker(
        name,
        {"emulated": 1, "simulated": 2},
        description=description,
        unfit={"emulated": unfit} if unfit else {},
    )


def test_the_machines_of_a_cluster_are_those_that_emulate(tmp_path: Path) -> None:
    calls = _Calls(_worker("a", QUICK), _worker("b", SLOW), _worker("c", None, "it lacks: root"))
    executor = ClusterExecutor(calls, tmp_path)
    assert capacities_of(executor) == (QUICK, SLOW)
    scenario = load_scenario("permutation")
    assert slowest_of(executor).load(scenario) == SLOW.load(scenario)
    assert capacities_of(LocalExecutor(tmp_path)) is None
    unmeasured = ClusterExecutor(_Calls(_worker("a", QUICK), _worker("d", None)), tmp_path)
    with pytest.raises(MachineError, match="d: it is not known"):
        capacities_of(unmeasured)
    assert capacities_of(unmeasured, force=True) == (QUICK,)


def test_a_worker_that_comes_later_and_is_too_slow_is_kept_out(tmp_path: Path) -> None:
    """The dilation was chosen without it. What is too much for the others keeps no one out."""
    calls = _Calls(_worker("a", QUICK))
    executor = ClusterExecutor(calls, tmp_path)
    scenario = load_scenario("permutation")
    fitting = scenario.at_dilation(QUICK.fitting_dilation(scenario))
    keep_slower_out(executor, [planned_run(fitting, "simulated", "runs/a")])
    assert calls.unfit is None
    keep_slower_out(executor, [planned_run(fitting, "emulated", "runs/a")])
    assert calls.unfit is not None
    assert calls.unfit(_worker("b", QUICK)) == ""
    least = SLOW.fitting_dilation(scenario)
    reason = calls.unfit(_worker("c", SLOW))
    assert f"too slow for permutation with dilation {fitting.topology.dilation:g}" in reason
    assert f"it carries {least}" in reason
    assert "it is not known what it carries" in calls.unfit(_worker("d", None))
    keep_slower_out(executor, [planned_run(fitting, "emulated", "runs/a")], force=True)
    assert calls.unfit(_worker("d", None)) == ""
    too_much = scenario.at_dilation(QUICK.fitting_dilation(scenario) / 2)
    keep_slower_out(executor, [planned_run(too_much, "emulated", "runs/a")])
    assert calls.unfit(_worker("c", SLOW)) == ""
