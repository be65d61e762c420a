"""A scenario in virtual time, from beginning to end."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from testbed.host.operator import Answer, operate_one_of
from testbed.host.outcome import TrafficProgress, flow_outcomes, host_record
from testbed.host.plan import plan_endpoints
from testbed.host.recording import Recorders, Tables
from testbed.host.traffic import SAMPLES_PER_RTT, slot_bytes
from testbed.host.workloads.messages import Block
from testbed.model.errors import Problem, raise_any
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.names import ends_at_host
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.faults.checks import EMULATED_ONLY, process_problems
from testbed.model.faults.record import FAULTS, FaultRecord
from testbed.model.flows import base_rtt_flow, flows_of
from testbed.model.operator.commands import Command
from testbed.model.progress import Progress
from testbed.model.run_files.content import FlowRecord, LinkCounts, RunRecord, bin_width_s
from testbed.model.run_files.layout import MANIFEST, RAW, RUN
from testbed.model.run_files.manifest import Manifest
from testbed.model.scenario import Scenario
from testbed.model.transport import KernelTransport
from testbed.model.units import NEVER_NS, NS_PER_S
from testbed.results import records
from testbed.results.code_version import code_version
from testbed.results.records import collect
from testbed.results.whole_file import write_file
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric, Timing
from testbed.sim.faults import FaultInjection
from testbed.sim.host import Host
from testbed.sim.mapper import SimulatedAgents

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """The outcome of a simulated run.

    Attributes:
        t0_ns: when the workload started, in virtual time.
        base_rtt_ns: from handing a full packet to a port to processing its SACK, idle fabric.
        duration_ns: the duration of the workload.
        flows: the record of every flow.
        faults: the record of every fault that took effect.
        counts: the counters of every link direction in use, by its name.
        packet_hops: the number of packets times the link directions that they crossed.
    """

    t0_ns: int
    base_rtt_ns: int
    duration_ns: int
    flows: tuple[FlowRecord, ...]
    faults: tuple[FaultRecord, ...]
    counts: Mapping[str, LinkCounts]
    packet_hops: int


SETTLE_RTTS = 2
"""Round trips between the measurement of the base RTT and the start."""

LINK_SAMPLE_RTTS = 2
"""Base RTTs between two samples of the links."""

MOST_QP_SAMPLES = 1 << 22
"""Samples of queue pairs until a run's end. With more flows, or in a longer run, they are taken
less often: they would be most of the records, and most of the time."""

COLLECTING = "collecting records"
"""The step of `simulate` that follows the simulation."""

SLICES = 50
"""How many times a run reports its progress."""

_TIMEOUT_RTTS = 100
"""How long the measurement of the base RTT may take, in propagation RTTs."""

_DELAY = {
    Timing.REAL: "half of the NICs' at either end, a switch's before its queue",
    Timing.EMULATED: "at the receiver, as in the emulation",
}


class Observer(Protocol):
    """Watches a simulation while it goes on, paces it and ends it.

    Attributes:
        step_ns: virtual time between two calls of `goes_on`.
    """

    step_ns: int

    def begins(self, simulation: "Simulation", t0_ns: int, base_rtt_ns: int) -> None:
        """The workload starts at `t0_ns`, which is now or soon."""

    def goes_on(self, now_ns: int) -> bool:
        """Whether the run goes on; all that has happened until `now_ns` is recorded."""


class Simulation:
    """A scenario on a fabric in virtual time.

    Attributes:
        engine: the virtual time.
        fabric: the links; faults beyond the scenario's timeline can be scheduled on it.
        hosts: the hosts that take part.
        faults: the faults, which can be injected and healed by hand too.
    """

    def __init__(
        self,
        scenario: Scenario,
        raw: Path | None = None,
        timing: Timing = Timing.REAL,
        *,
        sealed: bool = False,
    ) -> None:
        """Set everything up at time 0; records go to the directory `raw`, if given, until `close`.

        With `sealed` each packet travels as bytes with its iCRC. Otherwise the receiver is handed
        what the sender made, unless the packet was trimmed or damaged; the results are the same.

        Raises:
            InputError: the timeline holds a fault that only real processes can have, or the
                transport is the kernel's.
        """
        require_simulated(scenario)
        self.scenario = scenario
        self._raw = raw
        self.engine = Engine()
        self.fabric = Fabric(scenario.topology, self.engine, scenario.seed, timing)
        self.hosts: dict[Node, Host] = {}
        self._files = ExitStack()
        self._end_ns = NEVER_NS
        self._all_recorders: list[Recorders] = []
        by_address: dict[bytes, Host] = {}
        block = Block(scenario.seed, slot_bytes(scenario.longest_bytes))
        for node, plan in plan_endpoints(
            scenario, raw or Path(), serialised=timing is Timing.REAL, sealed=sealed
        ).items():
            tables = self._files.enter_context(Tables(raw, node.name, stay_open=False))
            self._all_recorders.append(tables)
            host = Host(plan, block, self.engine, self.fabric, by_address, tables)
            self.hosts[node] = by_address[nic_address(scenario.topology, node).packed] = host
            for mailbox in plan.mailboxes:
                mailbox.tell(self._wake)
        self._recorders = self._files.enter_context(Recorders(raw))
        self._all_recorders.append(self._recorders)
        self._record_link = self._recorders.open("fabric", records.LINKS).append
        self._flows = flows_of(scenario)
        self.faults = FaultInjection(scenario, self.engine, self.fabric, self.hosts)
        self._sample_ns = max(
            scenario.topology.propagation_rtt_ns // SAMPLES_PER_RTT,
            scenario.duration * len(self._flows) // MOST_QP_SAMPLES,
            1,
        )
        self._link_sample_ns = LINK_SAMPLE_RTTS * scenario.topology.propagation_rtt_ns

    def reports(self) -> dict[str, dict[str, Any]]:
        return {node.name: host.traffic.report() for node, host in self.hosts.items()}

    def _wake(self, host: str) -> None:
        self.hosts[self.scenario.topology.host_named(host)].wake(self.engine.now_ns)

    def operate(self, command: Command, answer: Answer) -> None:
        """Carry out an operator's command; `answer` is called when it has taken effect."""
        operate_one_of({node.name: host for node, host in self.hosts.items()}, command, answer)

    def close(self) -> None:
        self._files.close()

    def run(
        self,
        progress: Progress = lambda *_: None,
        observer: Observer | None = None,
        base_rtt_ns: int | None = None,
    ) -> SimulationOutcome:
        """Measure the base RTT, run the workload and the timeline, wait for the last WRITEs.

        With an observer the workload goes on until that ends it. A base RTT that is given is not
        measured: then no packet is sent before the workload begins.
        """
        engine = self.engine
        with _no_collection():
            base_rtt_ns = base_rtt_ns or self.measure_base_rtt()
            t0_ns = engine.now_ns + SETTLE_RTTS * base_rtt_ns
            self._schedule(t0_ns)
            if observer is None:
                self._end_at(t0_ns + self.scenario.duration)
                traffic = TrafficProgress("simulating", self.scenario.duration)
                for step in range(SLICES):
                    time_ns = self.scenario.duration * step // SLICES
                    progress(traffic.describe(time_ns, *self._arrived_and_lost()), step / SLICES)
                    engine.run(t0_ns + self.scenario.duration * (step + 1) // SLICES)
            else:
                self._run_observed(observer, t0_ns, base_rtt_ns, progress)
            progress("draining", 1.0)
            drain_ns = self._end_ns + self.scenario.drain_ns(base_rtt_ns)
            while engine.now_ns < drain_ns and not all(h.traffic.idle for h in self.hosts.values()):
                engine.run(engine.now_ns + base_rtt_ns)
        return self._outcome(t0_ns, base_rtt_ns)

    def _run_observed(
        self, observer: Observer, t0_ns: int, base_rtt_ns: int, progress: Progress
    ) -> None:
        self.flush()
        observer.begins(self, t0_ns, base_rtt_ns)
        now_ns = t0_ns
        while observer.goes_on(now_ns):
            progress("simulating", min((now_ns - t0_ns) / self.scenario.duration, 1.0))
            now_ns += observer.step_ns
            self.engine.run(now_ns)
            self.flush()
        self._end_at(now_ns)
        self.engine.run(now_ns)

    def flush(self) -> None:
        """Hand all records so far to the kernel, for those who read them meanwhile."""
        for recorders in self._all_recorders:
            recorders.flush()

    def _arrived_and_lost(self) -> tuple[int, int]:
        """Bytes that have arrived at hosts so far, and packets that links have lost."""
        counts = {direction.name: direction.counts for _, direction in self.fabric}
        arrived = sum(count.bytes for name, count in counts.items() if ends_at_host(name))
        return arrived, sum(count.dropped for count in counts.values())

    def measure_base_rtt(self) -> int:
        """One full packet over an idle fabric, cross-T1 where a flow is, in ns."""
        flow = base_rtt_flow(self.scenario.topology, self._flows)
        host = self.hosts[flow.src]
        sender = host.traffic.senders[flow.number]
        engine = self.engine
        sent_ns = engine.now_ns
        sender.post(PAYLOAD_MTU)
        host.wake(sent_ns)
        limit_ns = sent_ns + _TIMEOUT_RTTS * self.scenario.topology.propagation_rtt_ns
        while not sender.idle and engine.now_ns < limit_ns:
            engine.step()
        return engine.now_ns - sent_ns

    def _schedule(self, t0_ns: int) -> None:
        engine = self.engine
        for host in self.hosts.values():
            engine.at(t0_ns, host.begin)
        self.faults.begin(t0_ns)
        SimulatedAgents.of(self.scenario, engine, self.fabric, self._recorders, self._deny, t0_ns)
        if self._raw is not None:
            engine.at(engine.now_ns, self._sample_qps)
            engine.at(engine.now_ns, self._sample_links)

    def _end_at(self, end_ns: int) -> None:
        """Schedule the end: from then on no host posts messages."""
        self._end_ns = end_ns
        for host in self.hosts.values():
            self.engine.at(end_ns, host.end)

    def _deny(self, directions: frozenset[str]) -> None:
        for host in self.hosts.values():
            host.deny(directions)

    # --- records ------------------------------------------------------------------------------

    def _sample_qps(self, now_ns: int, _: object) -> None:
        for host in self.hosts.values():
            host.traffic.sample(now_ns)
        self.engine.at(now_ns + self._sample_ns, self._sample_qps)

    def _sample_links(self, now_ns: int, _: object) -> None:
        for link, direction, sample in self.fabric.samples(now_ns):
            self._record_link(now_ns, link, direction, *sample)
        if now_ns < self._end_ns:
            due_ns = min(now_ns + self._link_sample_ns, self._end_ns)
            self.engine.at(due_ns, self._sample_links)

    def _outcome(self, t0_ns: int, base_rtt_ns: int) -> SimulationOutcome:
        counts = {direction.name: direction.counts for _, direction in self.fabric}
        return SimulationOutcome(
            t0_ns=t0_ns,
            base_rtt_ns=base_rtt_ns,
            duration_ns=self._end_ns - t0_ns,
            flows=flow_outcomes(self.scenario, self.reports(), self._end_ns - t0_ns),
            faults=tuple(self.faults.records().values()),
            counts=counts,
            packet_hops=sum(direction.packets for direction in counts.values()),
        )


def simulate(
    scenario: Scenario,
    directory: Path,
    progress: Progress = lambda *_: None,
    timing: Timing = Timing.REAL,
    observer: Observer | None = None,
    base_rtt_ns: int | None = None,
) -> SimulationOutcome:
    """Simulate a scenario and leave its records in a run directory, ready to be analysed.

    The files are those of an emulated run. But `manifest.json` says `"simulated": true`, and there
    is no `health.jsonl`, since no machine can be late or lose anything.

    Raises:
        FileExistsError: the directory holds records already.
    """
    _write_manifest(directory, scenario, timing)
    raw = directory / RAW
    raw.mkdir()
    simulation = Simulation(scenario, raw, timing)
    try:
        outcome = simulation.run(progress, observer, base_rtt_ns)
    finally:
        simulation.close()
    write_file(directory / FAULTS, "".join(fault.to_line() for fault in outcome.faults))
    record = RunRecord(
        t0_ns=outcome.t0_ns,
        duration_s=outcome.duration_ns / NS_PER_S,
        base_rtt_ns=outcome.base_rtt_ns,
        bin_s=bin_width_s(outcome.base_rtt_ns),
        flows=outcome.flows,
        hosts={host: host_record(report) for host, report in simulation.reports().items()},
        packet_hops=outcome.packet_hops,
        links=dict(outcome.counts),
    )
    write_file(directory / RUN, record.to_json())
    progress(COLLECTING, 1.0)
    collect(directory)
    return outcome


def require_simulated(scenario: Scenario) -> None:
    """Check that a scenario can be simulated.

    Raises:
        InputError: it runs programs, has faults that strike processes, or uses one of the kernel's
            transports.
    """
    problems = process_problems(scenario)
    if not problems and isinstance(scenario.transport, KernelTransport):
        expected = "mrc or roce: the simulator has no kernel, and models none"
        remedy = "testbed run, where the real stack sends"
        problems = [Problem("transport.kind", scenario.transport.kind, expected, remedy)]
    if scenario.programs:
        expected = "another workload: programs run in processes, and the simulator has none"
        where, program = next(iter(scenario.programs.items()))
        problems = [Problem(f"{where}.kind", program.kind, expected, EMULATED_ONLY)]
    raise_any(problems)


def _write_manifest(directory: Path, scenario: Scenario, timing: Timing) -> None:
    manifest = Manifest.of(
        scenario,
        ("mrc-testbed",),
        simulated=True,
        code=code_version(),
        propagation_delay=_DELAY[timing],
        link_model="simulated: rate, two queues by class, ECN, trimming, faults",
    )
    write_file(directory / MANIFEST, manifest.to_json())


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the cycle collector from walking a heap of packets in which there are no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
