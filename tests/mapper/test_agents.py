"""Real probes over a real fabric: all come back, and a broken link is named by those lost."""

import time

import pytest

from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.mapper.agents import Agents
from testbed.mapper.clustermapper import Clustermapper, MapperPlan
from testbed.model.fabric.names import directions_of
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import PPM, Impairment
from tests.sandbox import run_in_sandbox

pytestmark = [pytest.mark.root, pytest.mark.kernel]

PERIOD_NS = 50_000_000


@pytest.fixture
def two_racks() -> Topology:
    return Topology(name="two", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=2)


def probe(topology: Topology, rounds: int, broken: str = "", ppm: int = 1_000_000) -> list[str]:
    """Probe for some rounds, with a link or a direction that loses packets; who is accused then."""

    def act() -> list[str]:
        findings: list[tuple[object, ...]] = []
        outcomes: list[tuple[object, ...]] = []
        with Fabric(topology) as fabric:
            control = LinkControl(topology, fabric.namespaces)
            if broken:
                for direction in (broken,) if ">" in broken else directions_of(broken):
                    control.impair(direction, Impairment(loss=ppm / PPM))
            agents = Agents(topology)
            start_ns = now_ns()
            mapper = Clustermapper(
                MapperPlan(topology, PERIOD_NS, 1),
                start_ns,
                lambda *row: outcomes.append(row),
                lambda *row: findings.append(row),
            )
            enough = 30 * (rounds - 6)
            while now_ns() < start_ns + rounds * PERIOD_NS or len(outcomes) <= enough:
                for number in agents.arrivals():
                    mapper.prober.arrived(number)
                mapper.judge(now_ns())
                for due in mapper.prober.take_due(now_ns()):
                    agents.send(due)
                time.sleep(0.004)
            agents.close()
        if not broken:
            assert not any(lost for _, _, lost in outcomes)
        raised = {str(name): bool(is_raised) for _, is_raised, _, name, _, _ in findings}
        return sorted(name for name, is_raised in raised.items() if is_raised)

    return run_in_sandbox(act)


def test_on_a_healthy_fabric_no_probe_is_lost(two_racks: Topology) -> None:
    """Every way of a probe, six uSIDs among them, leads where it should."""
    assert probe(two_racks, 12) == []


@pytest.mark.usefixtures("has_link_model")
@pytest.mark.parametrize(
    "link", ["p1_t0_0--p1_t1_1", "h2--p0_t0_1", "p1_t1_1>p1_t0_0", "h2>p0_t0_1"]
)
def test_a_dead_link_is_named(two_racks: Topology, link: str) -> None:
    """To its direction, where it is dead one way: the probes that cross it so tell."""
    assert probe(two_racks, 16, link) == [link]


@pytest.mark.usefixtures("has_link_model")
def test_a_grey_link_is_named(two_racks: Topology) -> None:
    assert probe(two_racks, 60, "p1_t0_0--p1_t1_1", 200_000) == ["p1_t0_0--p1_t1_1"]
