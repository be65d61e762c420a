"""The hosts of a simulated fabric that send a workload of the scenario, beside those of programs.

They are the simulator's, in time that keeps step with the clock.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.host.plan import plan_endpoints
from testbed.host.recording import Tables
from testbed.host.traffic import SAMPLES_PER_RTT, slot_bytes
from testbed.host.workloads.messages import Block
from testbed.model.fabric.addressing import nic_address
from testbed.model.scenario import Scenario
from testbed.model.units import NEVER_NS
from testbed.sim.egress import Receiver
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric
from testbed.sim.host import Host

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node


class Workloads:
    """These hosts. Times in ns.

    Attributes:
        hosts: they; none if all jobs are programs.
    """

    def __init__(
        self,
        scenario: Scenario,
        raw: Path,
        engine: Engine,
        fabric: Fabric,
        receivers: dict[bytes, Receiver],
        stack: ExitStack,
    ) -> None:
        """Set them up.

        Args:
            scenario: what is run.
            raw: where they record.
            engine: the time.
            fabric: the links.
            receivers: finds each host by its NIC address; these are added.
            stack: closes their records.
        """
        self._engine = engine
        self._sample_ns = max(scenario.topology.propagation_rtt_ns // SAMPLES_PER_RTT, 1)
        self._end_ns = NEVER_NS
        self._tables: list[Tables] = []
        self.hosts: dict[Node, Host] = {}
        block = Block(scenario.seed, slot_bytes(scenario.longest_bytes))
        for node, plan in plan_endpoints(scenario.planned, raw, sealed=False).items():
            tables = stack.enter_context(Tables(raw, node.name, stay_open=False))
            self._tables.append(tables)
            host = Host(plan, block, engine, fabric, receivers, tables)
            self.hosts[node] = receivers[nic_address(scenario.topology, node).packed] = host

    def begin_at(self, t0_ns: int) -> None:
        """Have them begin at a time, and be sampled from now on."""
        for host in self.hosts.values():
            self._engine.at(t0_ns, host.begin)
        if self.hosts:
            self._engine.at(self._engine.now_ns, self._sample)

    def end(self) -> None:
        """Have them post no more messages."""
        now_ns = self._end_ns = self._engine.now_ns
        for host in self.hosts.values():
            host.end(now_ns, None)

    @property
    def idle(self) -> bool:
        """Whether all of their messages have completed."""
        return all(host.traffic.idle for host in self.hosts.values())

    def _sample(self, now_ns: int, _: object) -> None:
        for host in self.hosts.values():
            host.traffic.sample(now_ns)
        if self._end_ns == NEVER_NS:
            self._engine.at(now_ns + self._sample_ns, self._sample)

    def flush(self) -> None:
        """Hand all records so far to the kernel, for those who read them meanwhile."""
        for tables in self._tables:
            tables.flush()

    def reports(self) -> Mapping[str, dict[str, Any]]:
        """The report of each host, by its name."""
        return {node.name: host.traffic.report() for node, host in self.hosts.items()}
