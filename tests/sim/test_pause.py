"""Priority flow control: nothing is dropped, and who is beside an incast suffers."""

import pytest

from testbed.model.files.scenarios import load_scenario
from testbed.sim import Simulation, SimulationOutcome
from testbed.studies.paper.planning import PAPER_SCENARIOS

pytestmark = [pytest.mark.simulated, pytest.mark.long]

QPS = 16
S = 1_000_000_000


def incast(*, pause: bool) -> SimulationOutcome:
    scenario = load_scenario(str(PAPER_SCENARIOS / "incast-victim-roce.yaml"))
    topology = scenario.topology if pause else scenario.topology.model_copy(update={"pause": None})
    transport = scenario.transport.model_copy(update={"qps": QPS})
    workload = scenario.workloads["workload"].model_copy(update={"depth": 4})
    changes = {
        "workload": workload,
        "topology": topology,
        "transport": transport,
        "duration": 2 * S,
    }
    return Simulation(scenario.model_copy(update=changes)).run()


def victim_bytes(outcome: SimulationOutcome) -> int:
    return sum(flow.bytes_verified for flow in outcome.flows if flow.src == "h11")


@pytest.fixture(scope="module")
def paused() -> SimulationOutcome:
    return incast(pause=True)


@pytest.fixture(scope="module")
def deep() -> SimulationOutcome:
    return incast(pause=False)


def test_nothing_is_dropped_where_deep_queues_overflow(
    paused: SimulationOutcome, deep: SimulationOutcome
) -> None:
    assert sum(counts.full for counts in deep.counts.values()) > 0
    assert sum(counts.full for counts in paused.counts.values()) == 0
    assert sum(counts.paused for counts in paused.counts.values()) > 0


def test_the_victim_of_an_incast_is_stopped_with_it(
    paused: SimulationOutcome, deep: SimulationOutcome
) -> None:
    assert victim_bytes(paused) < 0.6 * victim_bytes(deep)
