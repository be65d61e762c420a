"""How fast the simulator is, and what a leaf-spine of 1024 hosts does in it.

Speed is packets times links crossed, per minute of one CPU; the transport's cost is included. The
leaf-spine is that with which uet-htsim is often shown: 32 leaves and 32 spines, links of 100
Gbit/s, every host sends 2 MB to another one. Together they need all of the fabric's capacity.
"""

import random
import tempfile
import time
from functools import partial
from itertools import count
from pathlib import Path

from testbed.model.fabric.topology import PAYLOAD_MTU, Topology
from testbed.model.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.model.units import NS_PER_S
from testbed.model.workload import WriteBw
from testbed.sim import Simulation, SimulationOutcome
from testbed.studies.bench.measure import Measurement, Setting, at_least, at_most

SCENARIOS = ("permutation", "link-failure")
MILLION_HOPS = 5.0
"""Per minute."""

WIDTH = 32
"""Leaves, spines, and hosts of a leaf."""

MESSAGE = "2 MB"
SLOWEST = 1.18
"""Of the ideal completion, counted until its sender knows of it, as uet-htsim counts it too."""

SAMPLE_NS = 250


def simulator(setting: Setting) -> list[Measurement]:
    """Simulate scenarios."""
    return [figure for name in SCENARIOS for figure in speeds(load_scenario(name), setting)]


def speeds(scenario: Scenario, setting: Setting) -> list[Measurement]:
    """How fast one scenario is simulated, with its records and without."""
    figures = []
    for recorded in (False, True):
        simulate = partial(_million_hops_per_min, scenario, recorded=recorded)
        samples = setting.repeat(f"simulate {scenario.name}", simulate)
        name = f"{scenario.name} simulated, {'recorded' if recorded else 'not recorded'}"
        figures.append(at_least(name, "million packet-hops/min", samples, MILLION_HOPS))
    return figures


def _million_hops_per_min(scenario: Scenario, *, recorded: bool) -> float:
    with tempfile.TemporaryDirectory() as directory:
        began = time.process_time()
        simulation = Simulation(scenario, Path(directory) if recorded else None)
        outcome = simulation.run()
        simulation.close()
        return _per_minute(outcome, began)


def _per_minute(outcome: SimulationOutcome, began: float) -> float:
    """Million packet-hops a minute of CPU time, which began then."""
    return outcome.packet_hops / (time.process_time() - began) * 60 / 1e6


def one_plane(name: str, leaves: int, hosts_per_leaf: int) -> Topology:
    """A leaf-spine fabric without oversubscription, at full speed; its name has its hosts."""
    return Topology(
        name=f"{name}-{leaves * hosts_per_leaf}",
        planes=1,
        t0_per_plane=leaves,
        t1_per_plane=hosts_per_leaf,
        hosts_per_t0=hosts_per_leaf,
        dilation=1.0,
    )


def permutation(leaves: int, hosts_per_leaf: int, seed: int) -> Scenario:
    """Every host sends one message to another host, each to a different one."""
    topology = one_plane("leaf-spine", leaves, hosts_per_leaf)
    order = [host.name for host in topology.hosts]
    random.Random(seed).shuffle(order)  # noqa: S311 - repeatable
    ring = zip(order, order[1:] + order[:1], strict=True)
    return Scenario(
        name=topology.name,
        topology=topology,
        seed=seed,
        duration="100 us",  # less than the message takes: nobody posts a second one
        workload=WriteBw(pairs=tuple(ring), bidirectional=False, message_size=MESSAGE, depth=1),
        transport=Mrc(congestion="nscc"),
    )


def ideal_ns(scenario: Scenario) -> float:
    """How long the message takes alone: its packets at line rate, and one packet's way."""
    topology = scenario.topology
    packets = -(-scenario.longest_bytes // PAYLOAD_MTU)
    packet_ns = topology.wire_bytes * 8 * NS_PER_S / (topology.planes * topology.port_rate_bps)
    return packets * packet_ns + topology.one_way_ns(3) + 3 * packet_ns


def completions(scenario: Scenario) -> tuple[list[float], float]:
    """Run a scenario; return completion times over the ideal one, ascending, and the speed.

    The speed is in million packet-hops a CPU minute.

    A flow is complete when its sender has the acknowledgement of the last packet.
    """
    simulation = Simulation(scenario)
    waiting = [
        sender for host in simulation.hosts.values() for sender in host.traffic.senders.values()
    ]
    done_ns: list[int] = []

    def look(now_ns: int, _: object) -> None:
        late = [sender for sender in waiting if sender.counts.bytes_completed <= PAYLOAD_MTU]
        done_ns.extend([now_ns] * (len(waiting) - len(late)))
        waiting[:] = late
        if waiting:
            simulation.engine.at(now_ns + SAMPLE_NS, look)

    simulation.engine.at(0, look)
    began = time.process_time()
    outcome = simulation.run()
    speed = _per_minute(outcome, began)
    if waiting:
        raise RuntimeError(f"{len(waiting)} flows did not complete")
    ideal = ideal_ns(scenario)
    taken = [(at_ns - outcome.t0_ns) / ideal for at_ns in done_ns]
    return taken, speed


def leaf_spine(setting: Setting) -> list[Measurement]:
    """Simulate it; takes a minute or two for each repeat."""
    seeds = count(1)
    taken, speed = zip(
        *setting.repeat(
            f"leaf-spine of {WIDTH * WIDTH} hosts",
            lambda: completions(permutation(WIDTH, WIDTH, next(seeds))),
        ),
        strict=True,
    )
    slowest = [times[-1] for times in taken]
    median = [times[len(times) // 2] for times in taken]
    name = f"leaf-spine of {WIDTH * WIDTH}, 2 MB permutation"
    return [
        at_most(f"{name}: slowest flow / ideal", "", slowest, SLOWEST),
        at_most(f"{name}: median flow / ideal", "", median, SLOWEST),
        at_least(f"{name}: simulated", "million packet-hops/min", speed, MILLION_HOPS),
    ]
