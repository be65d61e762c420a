"""A simulated host gives turns to the queue pairs that have something to do, not to all it has."""

from typing import Any

import pytest

from testbed.files.scenarios import load_scenario, nominal
from testbed.model.scenario import Scenario
from testbed.model.transport import Roce
from testbed.model.units import NS_PER_S
from testbed.sim import Simulation

QPS = 16


class Counting:
    """A queue pair that counts its turns and what it sends."""

    def __init__(self, qp: Any) -> None:
        self._qp = qp
        self.turns = self.sent = 0

    def transmit(self, now_ns: int, limit: int) -> list[Any]:
        datagrams: list[Any] = self._qp.transmit(now_ns, limit)
        self.turns += 1
        self.sent += len(datagrams)
        return datagrams

    def __getattr__(self, name: str) -> Any:
        return getattr(self._qp, name)


def _all_to_all() -> Scenario:
    """Each host sends to seven others, on 16 queue pairs to each."""
    scenario = load_scenario("alltoall", nominal)
    changes = {"transport": Roce(qps=QPS), "duration": NS_PER_S // 2}
    return scenario.model_copy(update=changes)


@pytest.mark.simulated
def test_turns_follow_from_packets_not_from_the_number_of_queue_pairs() -> None:
    simulation = Simulation(_all_to_all())
    counting = []
    for host in simulation.hosts.values():
        for connection in host.traffic.connections.values():
            connection.qp = Counting(connection.qp)
            counting.append(connection.qp)
    simulation.run()
    assert len(counting) >= 8 * 7 * QPS
    sent = sum(qp.sent for qp in counting)
    assert sent > 1000
    assert sum(qp.turns for qp in counting) < 3 * sent
