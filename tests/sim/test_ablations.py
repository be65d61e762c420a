"""MRC with one of its mechanisms switched off: what is lost with it."""

import pytest

from testbed.model.faults.kinds import Fault
from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.mrc import QueuePair
from testbed.sim import Simulation, SimulationOutcome

pytestmark = [pytest.mark.simulated, pytest.mark.long]

S = 1_000_000_000


def link_failure(**parameters: object) -> Scenario:
    """The scenario of that name, shorter, with another transport."""
    return load_scenario("link-failure").model_copy(
        update={
            "duration": 4 * S,
            "timeline": tuple(_shorter(entry) for entry in load_scenario("link-failure").timeline),
            "transport": Mrc.model_validate(parameters),
        }
    )


def _shorter(fault: Fault) -> Fault:
    return fault.model_copy(update={"at": S, "for_": 2 * S})


def run(scenario: Scenario) -> SimulationOutcome:
    outcome = Simulation(scenario).run()
    for flow in outcome.flows:
        assert (flow.bytes_corrupted, flow.errors) == (0, ())
        assert flow.bytes_verified == flow.bytes_sent > 0
    return outcome


def lost(outcome: SimulationOutcome) -> int:
    return sum(flow.packets_lost for flow in outcome.flows)


def repeated(outcome: SimulationOutcome) -> int:
    return sum(flow.packets_retransmitted for flow in outcome.flows)


def test_blind_spraying_loses_packets_as_long_as_a_path_is_dead() -> None:
    adaptive, blind = run(link_failure(backups=0.0)), run(link_failure(spray="blind"))
    assert lost(adaptive) < 60
    assert lost(blind) > 4 * lost(adaptive)


def active_evs(scenario: Scenario) -> tuple[set[int], set[int], set[int]]:
    """How many EVs a sender has in use: before the fault, once it is noticed, at the end."""
    simulation = Simulation(scenario)
    connections = (c for h in simulation.hosts.values() for c in h.traffic.connections.values())
    qps = [connection.qp for connection in connections if isinstance(connection.qp, QueuePair)]
    rtt_ns = scenario.topology.propagation_rtt_ns
    counts: list[tuple[int, set[int]]] = []

    def count(now_ns: int, _: object) -> None:
        counts.append((now_ns, {len(qp.active_evs()) for qp in qps}))
        simulation.engine.at(now_ns + rtt_ns // 4, count)

    simulation.engine.at(0, count)
    (fault,) = simulation.run().faults
    assert fault.effective_ns is not None
    assert fault.healed_ns is not None
    noticed_ns = fault.effective_ns + 3 * rtt_ns
    before = [found for at_ns, found in counts if at_ns < fault.effective_ns]
    during = [found for at_ns, found in counts if noticed_ns <= at_ns < fault.healed_ns]
    assert len(during) > 20
    return set[int]().union(*before), set[int]().union(*during), counts[-1][1]


def test_without_backups_an_ev_that_died_leaves_a_gap() -> None:
    assert active_evs(link_failure(backups=0.0)) == ({16}, {15}, {16})


def test_a_backup_takes_the_place_of_an_ev_that_died() -> None:
    assert active_evs(link_failure(backups=0.25)) == ({12}, {12}, {12})


def test_going_back_repeats_what_had_arrived() -> None:
    selective, go_back = run(link_failure()), run(link_failure(repair="go-back"))
    assert repeated(selective) < 1.2 * lost(selective) + 10
    assert repeated(go_back) > 3 * repeated(selective)
