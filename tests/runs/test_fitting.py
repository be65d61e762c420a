"""One dilation for all runs of a series: the smallest that all machines carry with all of them."""

import json
import subprocess
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from testbed import interpreter
from testbed.emulation.experiment.machine import Capacity
from testbed.model.errors import MachineError
from testbed.model.files.scenarios import Dilation, load_scenario
from testbed.model.scenario import Scenario
from testbed.runs.cluster import worker
from testbed.runs.cluster.calls import Worker, WorkerCalls
from testbed.runs.cluster.executor import ClusterExecutor
from testbed.runs.fitting import Machines, with_fitting_dilation
from testbed.runs.job import Form, planned_run
from testbed.runs.places import keep_slower_out, machines_of
from testbed.runs.process import LocalExecutor

QUICK = Capacity(endpoint_ns=150_000, link_ns=15_000, cpus=4)
SLOW = replace(QUICK, cpus=2)
NAMES = ("permutation", "alltoall")


def _machines(*capacities: Capacity, force: bool = False) -> Machines:
    return Machines(lambda: capacities, force)


def _fitted(machines: Machines, *names: str, known: float | None = None) -> dict[str, float]:
    """The dilation of scenarios that are run together."""
    loaded, _ = with_fitting_dilation(
        lambda dilation: {name: load_scenario(name, dilation) for name in names},
        machines,
        known,
    )
    return {name: scenario.topology.dilation for name, scenario in loaded.items()}


def test_a_series_has_the_dilation_that_its_slowest_machine_carries_with_all_cases() -> None:
    both, slow = _machines(QUICK, SLOW), _machines(SLOW)
    alone = {name: _fitted(both, name)[name] for name in NAMES}
    assert len({*alone.values()}) == len(NAMES)
    assert alone == {name: _fitted(slow, name)[name] for name in NAMES}
    assert {*_fitted(both, *NAMES).values()} == {max(alone.values())}


def test_a_series_that_is_continued_keeps_its_dilation() -> None:
    assert _fitted(_machines(SLOW), "permutation", known=4_000) == {"permutation": 4_000}


def test_a_dilation_is_carried_if_the_slowest_machine_does() -> None:
    scenario = load_scenario("permutation")
    least = scenario.at_dilation(QUICK.fitting_dilation(scenario))
    assert _machines(QUICK).carry([least])
    assert not _machines(QUICK, SLOW).carry([least])


def test_no_machine_is_measured_where_no_case_has_auto() -> None:
    """And the scenarios are loaded once."""

    def measure() -> tuple[Capacity, ...]:
        raise AssertionError

    passes: list[float] = []

    def load(dilation: Dilation) -> Scenario:
        passes.append(1)
        return load_scenario("link-failure", dilation)

    assert with_fitting_dilation(load, Machines(measure))[1] is None
    assert len(passes) == 1


def test_what_is_not_known_is_not_guessed() -> None:
    with pytest.raises(MachineError, match="--force measures nothing"):
        _fitted(_machines(force=True), "permutation")
    _machines(force=True).require(load_scenario("permutation"))


def test_the_slowest_machine_decides_whether_a_load_is_too_much() -> None:
    scenario = load_scenario("permutation")
    warnings: list[str] = []
    Machines(lambda: (QUICK, QUICK), True, warnings.append).require(scenario, "mine")
    assert not warnings
    Machines(lambda: (QUICK, SLOW), True, warnings.append).require(scenario, "mine")
    (warning,) = warnings
    assert warning.startswith("mine: ")
    assert "2 CPUs" in warning


class _Calls(WorkerCalls):
    """A cluster whose workers are given."""

    def __init__(self, *workers: Worker) -> None:
        self.workers = {worker.host: worker for worker in workers}
        self.unfit: Callable[[Worker], str] | None = None

    def require(self, unfit: Callable[[Worker], str]) -> None:
        self.unfit = unfit


def _worker(name: str, calibration: Capacity | None, unfit: str = "") -> Worker:
    values = None if calibration is None else {"endpoint_ns": calibration.endpoint_ns}
    if values is not None and calibration is not None:
        values |= {"link_ns": calibration.link_ns, "cpus": calibration.cpus}
    offers: dict[Form, int] = {"emulated": 1, "simulated": 2}
    return Worker(name, offers, {"emulated": unfit} if unfit else {}, values)


def test_the_machines_of_a_cluster_are_those_that_emulate(tmp_path: Path) -> None:
    calls = _Calls(_worker("a", QUICK), _worker("b", SLOW), _worker("c", None, "it lacks: root"))
    executor = ClusterExecutor(calls, tmp_path)
    here = _machines()
    machines = machines_of(executor, here)
    assert machines.capacities == (QUICK, SLOW)
    scenario = load_scenario("permutation")
    assert machines.load(scenario) == SLOW.load(scenario)
    assert machines_of(LocalExecutor(tmp_path), here) is here
    unmeasured = ClusterExecutor(_Calls(_worker("a", QUICK), _worker("d", None)), tmp_path)
    with pytest.raises(MachineError, match="d: it is not known"):
        _ = machines_of(unmeasured, here).capacities
    assert machines_of(unmeasured, here, unmeasured=True).capacities == (QUICK,)


@pytest.mark.parametrize("measures_on", [False, True])
def test_a_worker_says_why_it_could_not_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, measures_on: bool
) -> None:
    """It may not end what sudo has started; that may go on, and then it is known."""
    late = PermissionError()
    late.__context__ = subprocess.TimeoutExpired("sudo", 40)  # nor may it be killed
    known = {"capacity": asdict(QUICK)} if measures_on else {}
    replies = iter([{"able": True}, late, {"able": True, **known}])

    def doctor(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        reply = next(replies)
        assert ("--measure" in command) == isinstance(reply, OSError)
        if isinstance(reply, OSError):
            raise reply
        return subprocess.CompletedProcess(command, 0, json.dumps(reply))

    monkeypatch.setattr(interpreter, "run", doctor)
    monkeypatch.setattr(worker, "turn", lambda *_: nullcontext(enter_result=True))
    info = {"resources": {"emulation": 1}, "nthreads": 1}
    said = {"host": "a", **worker._description("tls://a:1", emulates=True)}
    described = Worker.of("a", info, said)
    machines = machines_of(ClusterExecutor(_Calls(described), tmp_path), _machines())
    if measures_on:
        assert machines.capacities == (QUICK,)
        return
    with pytest.raises(MachineError, match=r"testbed doctor --measure took longer than 40 s"):
        _ = machines.capacities


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
