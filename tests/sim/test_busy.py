"""A busy host, from the timeline to what is measured."""

import json
from typing import Any

import pytest

from testbed.model.checks import problems
from testbed.model.errors import Problem
from testbed.model.faults.checks import busy_problems
from testbed.model.faults.kinds import Fault
from testbed.model.faults.record import FaultRecord
from testbed.model.files.scenarios import load_fault
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Scenario
from testbed.model.summary import Summary
from testbed.model.units import NS_PER_S
from testbed.sim.run import Simulation

from .measuring import measured, writes

pytestmark = [pytest.mark.simulated, pytest.mark.long]


def _scenario(*, nscc: str = "incast", **fault: Any) -> Scenario:
    busy = {"kind": "busy", "target": "h4", "at": "2 s", "for": "2 s", **fault}
    topology, transport = load_topology("clos-4plane"), {"kind": "mrc", "nscc": nscc}
    return writes(topology, [("h0", "h4")], [busy], duration="7 s", transport=transport)


def _intact(summary: Summary) -> Summary:
    assert summary.verdict == "trusted"
    integrity = summary.integrity
    assert (integrity.bytes_lost, integrity.bytes_corrupted, summary.qps_in_error) == (0, 0, 0)
    return summary


@pytest.mark.parametrize("nscc", ["incast", "uec"])
def test_a_penalty_takes_of_the_rate_until_it_ends(nscc: str) -> None:
    summary = _intact(measured(_scenario(penalty=64, nscc=nscc)))
    (fault,), (flow,) = summary.faults, summary.flows
    assert fault.attainable_fraction is not None
    assert fault.attainable_fraction < 0.8
    assert flow.before_fraction == pytest.approx(1.0, abs=0.02)
    assert flow.healed_fraction == pytest.approx(1.0, abs=0.03)
    assert flow.packets_retransmitted == 0


def test_a_penalty_of_0_takes_nothing() -> None:
    summary = _intact(measured(_scenario(penalty=0)))
    (fault,) = summary.faults
    assert fault.attainable_fraction == pytest.approx(1.0, abs=0.02)


def test_without_restore_the_window_has_to_grow_again() -> None:
    restored, grown = (
        _intact(measured(_scenario(penalty=127, restore=restore, nscc="uec"))).faults[0]
        for restore in (True, False)
    )
    assert restored.recovery is not None
    assert grown.recovery is not None
    assert grown.recovery.rtt > restored.recovery.rtt + 3


@pytest.mark.parametrize("refuse", ["no_bitmap", "no_pkt_buffer", "no_resource"])
def test_a_share_of_the_packets_is_refused_and_sent_again(refuse: str) -> None:
    summary = _intact(measured(_scenario(refuse=refuse, share=0.1)))
    (fault,), (flow,) = summary.faults, summary.flows
    assert flow.packets_retransmitted == pytest.approx(0.1 * fault.packets_sent, rel=0.3)


def test_a_path_that_the_host_asks_to_leave_is_left_and_used_again() -> None:
    summary = _intact(measured(_scenario(path="p0/t1_1")))
    (flow,) = summary.flows
    assert flow.run_fraction is not None
    assert flow.run_fraction > 0.95


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"penalty": 128}, "127"),
        ({"penalty": -1}, "0"),
        ({"refuse": "no_bitmap", "restore": False}, "penalty beside it"),
        ({}, "one of penalty, refuse and path"),
        ({"penalty": 1, "path": "p0/t1_1"}, "penalty and path"),
        ({"penalty": 1, "share": 0.5}, "refuse beside it"),
        ({"refuse": "no_room"}, "no_bitmap"),
    ],
)
def test_a_wrong_fault_is_refused(fault: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        _scenario(**fault)


@pytest.mark.parametrize(
    ("fault", "key", "expected"),
    [
        ({"path": "p9/t1_1", "penalty": None}, "timeline[0].path", "a path of clos-4plane"),
        ({"path": "p0"}, "timeline[0].path", "a path of a flow to h4, such as p0/t1_0 from h0"),
        ({"penalty": 1, "target": "h3"}, "timeline[0].target", "a host that takes part: h0, h4"),
        ({"penalty": 1, "target": "hosts"}, "timeline[0].target", "a host that takes part: h0, h4"),
        ({"penalty": 1, "target": "p0"}, "timeline[0].target", "a host of clos-4plane"),
    ],
)
def test_a_fault_that_does_not_fit_the_run_is_refused(
    fault: dict[str, Any], key: str, expected: str
) -> None:
    (problem, *_) = problems(_scenario(**fault))
    assert problem.where == key
    assert expected in problem.expected


def _roce(*faults: dict[str, Any]) -> Scenario:
    topology, transport = load_topology("clos-1plane-roce"), {"kind": "roce"}
    return writes(topology, [("h0", "h4")], faults, duration="7 s", transport=transport)


def test_roce_is_never_busy() -> None:
    busy = {"kind": "busy", "target": "h4", "penalty": 1, "at": "2 s", "for": "2 s"}
    (problem,) = problems(_roce(busy))
    assert "only MRC's responders" in problem.expected


@pytest.mark.parametrize("target", ["h1", "hosts"])
def test_by_hand_a_host_that_takes_no_part_is_refused_and_leaves_nothing(target: str) -> None:
    scenario = _scenario(penalty=1)
    faults = Simulation(scenario.model_copy(update={"timeline": ()})).faults
    refused = faults.inject(_by_hand(scenario, target))
    assert isinstance(refused, Problem)
    assert refused.expected == "a host that takes part: h0, h4"
    assert not faults.records()
    assert isinstance(faults.inject(_by_hand(scenario, "h4")), FaultRecord)


def test_without_a_scenario_no_host_is_busy() -> None:
    """As at a prompt, whose programs come and go."""
    scenario = _scenario(penalty=1)
    fault = _by_hand(scenario, "h4")
    (problem,) = busy_problems(scenario.topology, "mrc", (), fault, "request")
    assert (problem.where, problem.found) == ("request.kind", "busy")
    assert "a scenario's run" in problem.expected
    assert problem.remedy == "testbed run SCENARIO --hold"


def test_by_hand_roce_is_never_busy() -> None:
    scenario = _roce()
    refused = Simulation(scenario).faults.inject(_by_hand(scenario, "h4"))
    assert isinstance(refused, Problem)
    assert "only MRC's responders" in refused.expected


class _Refuses:
    """Makes h4 refuse packets by hand, in a run of 1 s."""

    step_ns = NS_PER_S

    def begins(self, simulation: Simulation, t0_ns: int, _base_rtt_ns: int) -> None:
        text = '{"kind": "busy", "target": "h4", "refuse": "no_bitmap", "share": 0.1}'
        simulation.faults.inject(load_fault(text, simulation.scenario.topology))
        self.end_ns = t0_ns + self.step_ns

    def goes_on(self, now_ns: int) -> bool:
        return now_ns < self.end_ns


def test_the_proof_of_a_fault_that_never_heals_counts_until_the_end() -> None:
    scenario = _scenario(penalty=1).model_copy(update={"timeline": ()})
    (record,) = Simulation(scenario).run(observer=_Refuses()).faults
    assert record.healed_ns is None
    assert record.proof["h4"] > 10


def _by_hand(scenario: Scenario, target: str) -> Fault:
    text = json.dumps({"kind": "busy", "target": target, "penalty": 64})
    return load_fault(text, scenario.topology)
