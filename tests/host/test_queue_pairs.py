"""Which congestion controllers the queue pairs of a host have."""

import re
from pathlib import Path

import pytest

import testbed
from testbed.model.files.scenarios import load_scenario
from testbed.model.transport import Dialect
from testbed.mrc import FixedWindow, Nscc, QueuePair, UecNscc
from testbed.sim import Simulation


def controllers(**transport: object) -> dict[tuple[str, str], list[object]]:
    """Those of all queue pairs, by host and peer."""
    scenario = load_scenario("permutation")
    changed = scenario.transport.model_copy(update={"qps": 2, **transport})
    simulation = Simulation(scenario.model_copy(update={"transport": changed}))
    found: dict[tuple[str, str], list[object]] = {}
    for host in simulation.hosts.values():
        for connection in host.traffic.connections.values():
            if isinstance(connection.qp, QueuePair) and connection.plan.sends is not None:
                key = (str(host), connection.plan.peer.name)
                found.setdefault(key, []).append(connection.qp.congestion.controller)
    return found


@pytest.mark.parametrize(
    ("transport", "kind"),
    [
        ({"nscc": "incast"}, Nscc),
        ({"nscc": "uec"}, UecNscc),
        ({"congestion": "fixed"}, FixedWindow),
    ],
)
def test_queue_pairs_to_a_destination_share_a_controller_if_asked(
    transport: dict[str, object], kind: type
) -> None:
    shared = controllers(dialect=Dialect(congestion_scope="destination"), **transport)
    assert len(shared) == 8
    for first, second in shared.values():
        assert isinstance(first, kind)
        assert first is second
    assert len({id(pair[0]) for pair in shared.values()}) == 8
    for first, second in controllers(**transport).values():
        assert isinstance(first, kind)
        assert first is not second


def test_only_the_factory_asks_of_which_transport_a_queue_pair_is() -> None:
    package = Path(testbed.__file__).parent
    asking = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if re.search(r"isinstance\([^)]*QueuePair", file.read_text(encoding="utf-8"))
    }
    assert asking == {"host/queue_pairs.py"}
