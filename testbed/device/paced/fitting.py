"""What this machine carries where programs send on a simulated fabric: for `dilation: auto`.

One process does all, so one CPU is all that counts. A packet is measured by simulating a moment of
full load; the rest of its way, to and from the memory of programs, is a share on top.
"""

import time
from typing import Final

from testbed.emulation.experiment.machine import Capacity
from testbed.limits import usable_cpus
from testbed.model.fabric.topology import Topology
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S
from testbed.model.workload import Permutation
from testbed.sim.fabric import Timing
from testbed.sim.run import Simulation

_RTTS: Final = 12
"""So many round trips are simulated, after a warm-up of half as many."""

_PROGRAMS: Final = 3.0
"""A packet of programs costs so many times what one of a simulated workload costs: its payload is
read and written in their memory, and each host has more rounds. Measured: docs/performance.md."""

_SLEEPS: Final = 50
_SLEEP_S: Final = 0.002


def measured() -> Capacity:
    """Measure this machine: the time that a packet takes beside what else runs, and late sleeps."""
    topology = Topology(
        name="calibration", planes=4, t0_per_plane=2, t1_per_plane=4, hosts_per_t0=4
    )
    scenario = Scenario(name="calibration", topology=topology, workload=Permutation())
    scenario = scenario.model_copy(update={"duration": 2 * _RTTS * topology.propagation_rtt_ns})
    simulation = Simulation(scenario, timing=Timing.EMULATED)
    rtt_ns = simulation.measure_base_rtt()
    for host in simulation.hosts.values():
        host.begin(simulation.engine.now_ns, None)
    simulation.engine.run(simulation.engine.now_ns + _RTTS // 2 * rtt_ns)
    before, began_ns = _sent(simulation), time.monotonic_ns()
    simulation.engine.run(simulation.engine.now_ns + _RTTS * rtt_ns)
    used_ns, packets = time.monotonic_ns() - began_ns, _sent(simulation) - before
    simulation.close()
    return Capacity(
        endpoint_ns=_PROGRAMS * used_ns / max(packets, 1),
        link_ns=0.0,
        cpus=min(usable_cpus(), 1.0),
        lag_ns=_late_ns(),
    )


def _sent(simulation: Simulation) -> int:
    """Data packets sent so far."""
    reports = simulation.reports().values()
    return sum(flow["packets_sent"] for report in reports for flow in report["sent"])


def _late_ns() -> float:
    """How late sleeps end, 90th percentile."""
    late = []
    for _ in range(_SLEEPS):
        due_ns = time.monotonic_ns() + round(_SLEEP_S * NS_PER_S)
        time.sleep(_SLEEP_S)
        late.append(time.monotonic_ns() - due_ns)
    return float(sorted(late)[int(_SLEEPS * 0.9)])
