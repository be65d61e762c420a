"""The hosts of a simulated fabric that send a workload of the scenario, beside programs.

They are the simulator's, in time that keeps step with the clock, but for those in which programs
run as well.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.device.paced.host import PacedHost, Workload
from testbed.emulation.endpoint.base_device import Send
from testbed.host.plan import EndpointPlan, plan_endpoints
from testbed.host.queue_pairs import sans_io_stack
from testbed.host.recording import Tables
from testbed.host.rounds import PortScheduler
from testbed.host.traffic import SAMPLES_PER_RTT, Traffic, slot_bytes
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
        parts: what makes the parts of hosts in which programs run as well; `add` adds such a host.
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
        self._topology = scenario.topology
        self._sample_ns = max(scenario.topology.propagation_rtt_ns // SAMPLES_PER_RTT, 1)
        self._end_ns = NEVER_NS
        self._tables: list[Tables] = []
        self._traffic: dict[str, Traffic] = {}
        self.hosts: dict[Node, Host | PacedHost] = {}
        self.parts: dict[Node, Workload] = {}
        block = Block(scenario.seed, slot_bytes(scenario.longest_bytes))
        for node, plan in plan_endpoints(scenario.planned, raw, sealed=False).items():
            tables = stack.enter_context(Tables(raw, node.name, stay_open=False))
            self._tables.append(tables)
            for mailbox in plan.mailboxes:
                mailbox.tell(self._wake)
            if node.name in scenario.hosts_of_programs:
                self.parts[node] = partial(_part_of, plan, block, tables, engine)
                continue
            host = Host(plan, block, engine, fabric, receivers, tables)
            receivers[nic_address(scenario.topology, node).packed] = host
            self._add(host, host.traffic)

    def add(self, host: PacedHost) -> None:
        """Have a host of programs take part, if it has a part in a workload."""
        if host.traffic is not None:
            self._add(host, host.traffic)

    def _add(self, host: Host | PacedHost, traffic: Traffic) -> None:
        self.hosts[host.node] = host
        self._traffic[host.node.name] = traffic

    def _wake(self, host: str) -> None:
        self.hosts[self._topology.host_named(host)].wake(self._engine.now_ns)

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
        return all(traffic.idle for traffic in self._traffic.values())

    def _sample(self, now_ns: int, _: object) -> None:
        for traffic in self._traffic.values():
            traffic.sample(now_ns)
        if self._end_ns == NEVER_NS:
            self._engine.at(now_ns + self._sample_ns, self._sample)

    def flush(self) -> None:
        """Hand all records so far to the kernel, for those who read them meanwhile."""
        for tables in self._tables:
            tables.flush()

    def reports(self) -> Mapping[str, dict[str, Any]]:
        """The report of each host, by its name."""
        return {host: traffic.report() for host, traffic in self._traffic.items()}


def _part_of(
    plan: EndpointPlan,
    block: Block,
    tables: Tables,
    engine: Engine,
    ports: PortScheduler,
    launch: Send,
) -> Traffic:
    return Traffic(plan, sans_io_stack(plan, ports, tables), block, tables, launch, engine.now_ns)
