"""Hosts that send a workload beside programs, in virtual time."""

from contextlib import ExitStack
from pathlib import Path

from testbed.device.paced.host import Workloads
from testbed.model.files.scenarios import load_scenario
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric

SCENARIO = """
name: beside
topology: {base: clos-tiny, hosts_per_t0: 4, nics_per_node: 2}
duration: 100 RTT
jobs:
  - {name: mine, workload: {kind: program, hosts: [h4, h6], command: [sh]}}
  - {name: ring, workload: {kind: goal, file: x.goal}}
"""

GOAL = """
num_ranks 3
rank 0 { a: calc 1000000000
b: send 9b to 1
b requires a }
rank 1 { a: recv 9b from 0
b: send 9b to 2
b requires a }
rank 2 { recv 9b from 1 }
"""


def test_a_nic_does_not_look_for_messages_of_which_it_is_told(tmp_path: Path) -> None:
    """All hosts are in one process, so between their samples nothing happens."""
    (tmp_path / "x.goal").write_text(GOAL)
    (tmp_path / "x.yaml").write_text(SCENARIO)
    scenario = load_scenario(str(tmp_path / "x.yaml"))
    topology, engine = scenario.topology, Engine()
    with ExitStack() as stack:
        fabric = Fabric(topology, engine, scenario.seed)
        workloads = Workloads(scenario, tmp_path, engine, fabric, {}, stack)
        workloads.begin_at(0)
        times = 0
        while engine.next_ns < 10 * topology.propagation_rtt_ns:
            engine.step()
            times += 1
        assert times < 200
        workloads.end()
