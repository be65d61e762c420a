"""RoCE over the simulated fabric: what the paper holds against it."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from testbed.host.plan import plan_endpoints
from testbed.model.fabric.addressing import links_of_path
from testbed.model.faults.kinds import Fault
from testbed.model.files.scenarios import load_scenario
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Scenario
from testbed.model.transport import Roce
from testbed.results.analyse import analyse
from testbed.results.records import CONTROL
from testbed.results.run_data import load_run
from testbed.sim import Simulation, SimulationOutcome, simulate

pytestmark = [pytest.mark.simulated, pytest.mark.long]

S = 1_000_000_000
MS = 1_000_000


def permutation(*, seconds: int, faults: Sequence[object] = (), **parameters: object) -> Scenario:
    return load_scenario("permutation-roce").model_copy(
        update={
            "duration": seconds * S,
            "timeline": TypeAdapter(tuple[Fault, ...]).validate_python(tuple(faults)),
            "transport": Roce.model_validate(parameters),
        }
    )


def run(scenario: Scenario) -> tuple[SimulationOutcome, list[float]]:
    """Run it; returns the outcome and each flow's rate over what the fabric allows."""
    outcome = Simulation(scenario).run()
    seconds = scenario.duration / S
    return outcome, [flow.bytes_verified * 8 / seconds / flow.ports_bps for flow in outcome.flows]


def uplink_of_first_flow(scenario: Scenario) -> str:
    topology = scenario.topology
    host = topology.host(0)
    (qp,) = plan_endpoints(scenario, Path())[host].qps
    return links_of_path(topology, host, qp.peer, qp.evs[0].path)[1].name


def test_flows_hashed_onto_one_uplink_get_half_of_it_and_others_all_of_theirs() -> None:
    outcome, shares = run(permutation(seconds=4))
    assert 0.3 < min(shares) < 0.55
    assert max(shares) > 0.95
    assert all(not flow.errors and flow.bytes_corrupted == 0 for flow in outcome.flows)
    assert sum(counts.dropped for counts in outcome.counts.values()) == 0
    assert sum(counts.trimmed for counts in outcome.counts.values()) == 0
    assert sum(counts.marked for counts in outcome.counts.values()) > 0


def test_many_queue_pairs_are_spread_more_evenly() -> None:
    _, single = run(permutation(seconds=2))
    outcome, lanes = run(permutation(seconds=2, qps=8))
    assert len(outcome.flows) == 64
    by_pair = [sum(lanes[i : i + 8]) / 8 for i in range(0, 64, 8)]
    assert min(by_pair) > min(single)


def test_a_dead_path_stalls_its_flow_until_routing_has_converged() -> None:
    dead = uplink_of_first_flow(permutation(seconds=1))
    fault = {"kind": "blackhole", "target": dead, "at": "1 s", "for": "3 s"}
    received = {}
    for name, convergence in (("never", None), ("fast", "50 us")):
        outcome, _ = run(
            permutation(seconds=4, faults=[fault], convergence=convergence, ack_timeout="65 us")
        )
        received[name] = outcome.flows[0].bytes_verified
        assert outcome.flows[0].bytes_corrupted == 0
    assert received["fast"] > 1.15 * received["never"]


def test_a_silent_failure_is_routed_around_though_without_routing_it_stops_the_flow() -> None:
    scenario = load_scenario("link-failure-roce").stretched(0.6)
    routed, _ = run(scenario)
    stopped, _ = run(scenario.model_copy(update={"transport": Roce()}))
    assert routed.flows[0].packets_lost > 100
    assert routed.flows[1].packets_lost == 0  # the other direction's path is another
    assert stopped.flows[0].bytes_verified < 0.8 * routed.flows[0].bytes_verified


def test_acknowledgements_are_recorded_in_slow_motion(tmp_path: Path) -> None:
    scenario = Scenario.model_validate(
        {
            "name": "slow",
            "topology": load_topology("clos-tiny").model_copy(update={"dilation": 100_000}),
            "duration": "3 s",
            "transport": {"kind": "roce"},
            "workload": {"pairs": [["h0", "h1"]], "message_size": "16 KiB"},
        }
    )
    simulate(scenario, tmp_path)
    analyse(tmp_path, drawn=False)
    rows = load_run(tmp_path).tables[CONTROL]
    assert {*rows["kind"]} == {"ack"}
    assert rows["sent"].sum() == len(rows) / 2
