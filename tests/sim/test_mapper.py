"""The Clustermapper over the simulated fabric."""

from testbed.mapper.clustermapper import Clustermapper, MapperPlan
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric
from testbed.sim.mapper import SimulatedAgents

SECOND = 1_000_000_000
PERIOD = SECOND // 4
TOPOLOGY = Topology(name="x", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4)
SILENT = {"p2_t0_1>p2_t1_3", "p2_t1_3>p2_t0_1"}


class Run:
    """A fabric with nothing but probes."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.fabric = Fabric(TOPOLOGY, self.engine, 1)
        self.lost: list[bool] = []
        self.findings: list[tuple[bool, str]] = []
        self.mapper = Clustermapper(
            MapperPlan(TOPOLOGY, PERIOD, 1),
            0,
            lambda *row: self.lost.append(row[2]),
            lambda *row: self.findings.append((row[1], row[3])),
        )
        self.denied: list[frozenset[str]] = []
        SimulatedAgents(TOPOLOGY, self.engine, self.fabric, self.mapper, self.denied.append)

    def until(self, seconds: float) -> None:
        self.engine.run(round(seconds * SECOND))


def test_a_healthy_fabric_loses_no_probe_and_nobody_is_accused() -> None:
    run = Run()
    run.until(60)
    assert len(run.lost) > 128 * 4 * 59
    assert not any(run.lost)
    assert run.findings == []


def test_a_silent_link_is_denied_and_allowed_again() -> None:
    run = Run()
    run.until(2)
    for direction in SILENT:
        run.fabric.impair(direction, Impairment(blackhole=True))
    run.until(4)
    assert run.mapper.denied_directions == SILENT == run.denied[-1]
    for direction in SILENT:
        run.fabric.impair(direction, HEALTHY)
    run.until(7)
    assert run.mapper.denied_directions == frozenset() == run.denied[-1]


def test_a_link_that_corrupts_is_named() -> None:
    run = Run()
    for direction in ("h3>p1_t0_0", "p1_t0_0>h3"):
        run.fabric.impair(direction, Impairment(corrupt=0.3))
    run.until(8)
    assert run.mapper.denied_directions & {"h3>p1_t0_0", "p1_t0_0>h3"}
    assert {name for _, name in run.findings} <= {"h3--p1_t0_0", "h3>p1_t0_0", "p1_t0_0>h3"}
