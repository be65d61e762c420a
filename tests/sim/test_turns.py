"""A simulated host gives turns to the queue pairs that have something to do, not to all it has."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from testbed import fast
from testbed.host.roce import RoceQp
from testbed.model.faults.kinds import Fault
from testbed.model.files.scenarios import load_scenario, nominal
from testbed.model.run_files.layout import RUN
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc, Roce
from testbed.model.units import NS_PER_S
from testbed.mrc import QueuePair
from testbed.sim import Simulation, simulate

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


CASES: Mapping[str, Mapping[str, Any]] = {
    "all ports of a host are lost": {
        "transport": Mrc(congestion="nscc"),
        "timeline": [
            {"kind": "cut", "target": f"h0--p{plane}_t0_0", "at": "300 ms", "for": "400 ms"}
            for plane in range(4)
        ],
    },
    "queue pairs share a window": {
        "transport": Mrc(qps=4, congestion="nscc", dialect={"congestion_scope": "destination"}),
        "timeline": [
            {
                "kind": "loss",
                "target": "p0_t0_0>p0_t1_0",
                "probability": 0.1,
                "at": "200 ms",
                "for": "500 ms",
            }
        ],
    },
    "RoCE gives up": {
        "transport": Roce(qps=2, ack_timeout="5 us"),
        "timeline": [{"kind": "cut", "target": "h0--p0_t0_0", "at": "200 ms", "for": "700 ms"}],
    },
}


@pytest.mark.simulated
@pytest.mark.skipif(fast.is_built(), reason="classes that make fast compiled cannot be changed")
@pytest.mark.parametrize("case", CASES)
def test_turns_for_all_come_to_the_same(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = dict(CASES[case])
    timeline = TypeAdapter(tuple[Fault, ...]).validate_python(tuple(changes["timeline"]))
    scenario = load_scenario("alltoall", nominal).model_copy(
        update={**changes, "timeline": timeline, "duration": NS_PER_S}
    )
    some = _records(scenario, tmp_path / "some")
    for kind in (QueuePair, RoceQp):
        always = property(lambda _: True, lambda _qp, _touched: None)
        monkeypatch.setattr(kind, "touched", always, raising=False)
    each = _records(scenario, tmp_path / "each")
    assert some.keys() == each.keys()
    differing = {name for name in some if some[name] != each[name]}
    if isinstance(scenario.transport, Roce):
        differing -= {"qp.parquet"}  # DCQCN's window is that of the last turn
    assert not differing


def _records(scenario: Scenario, directory: Path) -> dict[str, Any]:
    """Its tables, as bytes, and what came of flows and hosts."""
    directory.mkdir()
    simulate(scenario, directory)
    run = json.loads((directory / RUN).read_text())
    tables = {file.name: file.read_bytes() for file in directory.glob("*.parquet")}
    return {**tables, "flows": run["flows"], "hosts": run["hosts"]}
