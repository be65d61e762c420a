"""A scenario in virtual time, from beginning to end."""

import gc
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.host.outcome import flow_outcomes, host_counts
from testbed.host.planning import plan_endpoints
from testbed.host.recording import Tables
from testbed.host.traffic import SAMPLES_PER_RTT, slot_bytes
from testbed.mapper.clustermapper import Clustermapper, MapperPlan
from testbed.model.errors import InputError, Problem
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.names import direction_named
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.faults.impairment import ActiveFaults
from testbed.model.faults.record import FAULTS, FaultRecord, StepRecord
from testbed.model.faults.schedule import ScheduledFault, Step
from testbed.model.flows import flows_of
from testbed.model.progress import Progress
from testbed.model.run_files.layout import MANIFEST, RAW, RUN
from testbed.model.run_files.manifest import Manifest
from testbed.model.run_files.run import FlowRecord, LinkCounts, RunRecord
from testbed.model.scenario import Scenario
from testbed.model.transport import Mptcp, Tcp
from testbed.model.units import NS_PER_S
from testbed.results import records
from testbed.results.code_version import code_version
from testbed.results.records import Recorder, collect, raw_path
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric, Timing
from testbed.sim.host import Host
from testbed.sim.mapper import Agents
from testbed.workloads.pattern import Block

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node

SETTLE_RTTS = 2
"""Round trips between the measurement of the base RTT and the start."""

LINK_SAMPLE_RTTS = 2
SLICES = 50
"""Times that a run tells how far it is."""

_RTT_TIMEOUT = 100

_DELAY = {
    Timing.REAL: "half of the NICs' at either end, a switch's before its queue",
    Timing.EMULATED: "at the receiver, as in the emulation",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated run came to.

    Attributes:
        t0_ns: when the workload started, in virtual time.
        base_rtt_ns: from handing a full packet to a port to processing its SACK, idle fabric.
        duration_ns: of the workload.
        flows: every flow.
        faults: every fault that took effect.
        counts: every link direction in use.
        packet_hops: packets times link directions that they arrived over.
    """

    t0_ns: int
    base_rtt_ns: int
    duration_ns: int
    flows: tuple[FlowRecord, ...]
    faults: tuple[FaultRecord, ...]
    counts: Mapping[str, LinkCounts]
    packet_hops: int


class Simulation:
    """A scenario on a fabric in virtual time.

    Attributes:
        engine: its time.
        fabric: its links; faults beyond the scenario's timeline can be scheduled on it.
        hosts: those that take part.
    """

    def __init__(
        self, scenario: Scenario, raw: Path | None = None, timing: Timing = Timing.REAL
    ) -> None:
        """Set everything up at time 0; records go to `raw`, if given, until `close`.

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
        by_address: dict[bytes, Host] = {}
        block = Block(scenario.seed, slot_bytes(scenario.longest_bytes))
        for node, plan in plan_endpoints(
            scenario, raw or Path(), serialised=timing is Timing.REAL
        ).items():
            tables = self._files.enter_context(Tables(raw, node.name))
            host = Host(plan, block, self.engine, self.fabric, by_address, tables)
            self.hosts[node] = by_address[nic_address(scenario.topology, node).packed] = host
        self._links: Recorder | None = None
        if raw is not None:
            path = raw_path(raw, "fabric", records.LINKS)
            self._links = self._files.enter_context(Recorder(path, records.LINKS))
        self._flows = flows_of(scenario)
        self._scheduled = scenario.scheduled_faults
        self._active = ActiveFaults()
        self._faults: dict[int, FaultRecord] = {}
        self._before: dict[int, dict[str, int]] = {}
        self._bin_ns = max(scenario.topology.propagation_rtt_ns // SAMPLES_PER_RTT, 1)
        self._link_sample_ns = LINK_SAMPLE_RTTS * scenario.topology.propagation_rtt_ns

    def reports(self) -> dict[str, dict[str, Any]]:
        """What every host reports, by its name."""
        return {node.name: host.traffic.report() for node, host in self.hosts.items()}

    def close(self) -> None:
        """Finish the records."""
        self._files.close()

    def run(self, progress: Progress | None = None) -> Outcome:
        """Measure the base RTT, run the workload and the timeline, wait for the last WRITEs."""
        tell = progress if progress is not None else _say_nothing
        engine = self.engine
        with _no_collection():
            base_rtt_ns = self._measure_base_rtt()
            t0_ns = engine.now_ns + SETTLE_RTTS * base_rtt_ns
            end_ns = t0_ns + self.scenario.duration
            self._schedule(t0_ns, end_ns)
            for step in range(SLICES):
                tell("simulating", step / SLICES)
                engine.run(t0_ns + self.scenario.duration * (step + 1) // SLICES)
            tell("draining", 1.0)
            drain_ns = end_ns + self.scenario.drain_ns(base_rtt_ns)
            while engine.now_ns < drain_ns and not all(h.traffic.idle for h in self.hosts.values()):
                engine.run(engine.now_ns + base_rtt_ns)
        return self._outcome(t0_ns, base_rtt_ns)

    def _measure_base_rtt(self) -> int:
        """One full packet over an idle fabric, cross-T1 where a flow is, in ns."""
        topology = self.scenario.topology
        across = (f for f in self._flows if topology.rack(f.src) != topology.rack(f.dst))
        flow = next(across, self._flows[0])
        host = self.hosts[flow.src]
        sender = host.traffic.senders[flow.number]
        engine = self.engine
        sent_ns = engine.now_ns
        sender.post(PAYLOAD_MTU)
        host.wake(sent_ns)
        limit_ns = sent_ns + _RTT_TIMEOUT * topology.propagation_rtt_ns
        while not sender.idle and engine.now_ns < limit_ns:
            engine.step()
        return engine.now_ns - sent_ns

    def _schedule(self, t0_ns: int, end_ns: int) -> None:
        engine = self.engine
        for host in self.hosts.values():
            engine.at(t0_ns, host.begin)
            engine.at(end_ns, host.end)
        for fault in self._scheduled:
            for step in fault.steps:
                engine.at(t0_ns + step.at, self._step, (fault, step))
        self._start_mapper(t0_ns)
        if self._links is not None:
            engine.at(engine.now_ns, self._sample_qps, None)
            engine.at(engine.now_ns, self._sample_links, end_ns)

    def _start_mapper(self, t0_ns: int) -> None:
        scenario, asked = self.scenario, self.scenario.clustermapper
        if asked is None:
            return
        period_ns = round(asked.period * scenario.topology.dilation)
        plan = MapperPlan(scenario.topology, period_ns, scenario.seed)
        mapper = Clustermapper(
            plan, t0_ns, *map(self._recorder, (records.PROBES, records.FINDINGS))
        )
        Agents(scenario.topology, self.engine, self.fabric, mapper, self._deny)

    def _recorder(self, table: records.Table) -> Callable[..., None]:
        if self._raw is None:
            return lambda *_: None
        return self._files.enter_context(
            Recorder(raw_path(self._raw, "mapper", table), table)
        ).append

    def _deny(self, directions: frozenset[str]) -> None:
        assert self.scenario.clustermapper is not None  # noqa: S101 - it is who tells
        if self.scenario.clustermapper.denylist:
            for host in self.hosts.values():
                host.deny(directions)

    # --- faults -------------------------------------------------------------------------------

    def _step(self, now_ns: int, what: tuple[ScheduledFault, Step]) -> None:
        """Bring a fault's places into their next state."""
        fault, step = what
        index = fault.index
        if index not in self._faults:
            self._before[index] = self._dropped(fault)
            self._faults[index] = FaultRecord(
                index,
                fault.kind,
                fault.target,
                fault.places,
                "simulator",
                asked_ns=now_ns,
                effective_after_ns=now_ns,
                effective_ns=now_ns,
            )
        self._active.put(index, fault.places, step.state)
        for place in fault.places:
            state = self._active.impairment_at(place)
            self.fabric.impair(place, state)
            self._announce(place, up=not state.cut)
        record = self._faults[index]
        done = StepRecord(now_ns, now_ns, now_ns, step.state.as_record)
        record = replace(record, steps=(*record.steps, done))
        if step is fault.steps[-1]:
            record = replace(
                record,
                heal_asked_ns=now_ns,
                heal_after_ns=now_ns,
                healed_ns=now_ns,
                proof=self._proof(fault),
            )
        self._faults[index] = record

    def _announce(self, direction: str, *, up: bool) -> None:
        """Let a host know of the carrier of its own port, as its NIC would."""
        found = direction_named(self.scenario.topology, direction)
        if found is not None and found[1].node in self.hosts:
            link, port = found
            self.hosts[port.node].port_changed(self.engine.now_ns, link.plane, up=up)

    def _dropped(self, fault: ScheduledFault) -> dict[str, int]:
        counts = {place: self.fabric.named(place).counts for place in fault.places}
        return {name: c.cut + c.blackholed + c.lost + c.corrupted for name, c in counts.items()}

    def _proof(self, fault: ScheduledFault) -> dict[str, int]:
        before = self._before[fault.index]
        return {name: count - before[name] for name, count in self._dropped(fault).items()}

    # --- records ------------------------------------------------------------------------------

    def _sample_qps(self, now_ns: int, _: object) -> None:
        for host in self.hosts.values():
            host.traffic.sample(now_ns)
        self.engine.at(now_ns + self._bin_ns, self._sample_qps)

    def _sample_links(self, now_ns: int, end_ns: int) -> None:
        if self._links is None:
            return
        for link, direction in self.fabric:
            counts = direction.counts
            self._links.append(
                now_ns,
                link,
                direction.name,
                counts.packets,
                counts.bytes,
                counts.dropped,
                counts.marked,
                counts.trimmed,
                direction.backlog_bytes(now_ns),
            )
        if now_ns < end_ns:
            self.engine.at(min(now_ns + self._link_sample_ns, end_ns), self._sample_links, end_ns)

    def _outcome(self, t0_ns: int, base_rtt_ns: int) -> Outcome:
        counts = {direction.name: direction.counts for _, direction in self.fabric}
        for fault in self._scheduled:
            record = self._faults.get(fault.index)
            if record is not None and record.healed_ns is None:
                self._faults[fault.index] = replace(record, proof=self._proof(fault))
        return Outcome(
            t0_ns=t0_ns,
            base_rtt_ns=base_rtt_ns,
            duration_ns=self.scenario.duration,
            flows=flow_outcomes(self.scenario, self.reports(), self.scenario.duration),
            faults=tuple(fault for _, fault in sorted(self._faults.items())),
            counts=counts,
            packet_hops=sum(one.packets for one in counts.values()),
        )


def simulate(
    scenario: Scenario,
    directory: Path,
    progress: Progress | None = None,
    timing: Timing = Timing.REAL,
) -> Outcome:
    """Simulate a scenario and leave its records in a run directory, ready to be analysed.

    The files are those of an emulated run; `manifest.json` says `"simulated": true`, and there is
    no `health.jsonl`: no machine can be late or lose anything.

    Raises:
        FileExistsError: the directory holds records already.
    """
    _write_manifest(directory, scenario, timing)
    raw = directory / RAW
    raw.mkdir()
    simulation = Simulation(scenario, raw, timing)
    try:
        outcome = simulation.run(progress)
    finally:
        simulation.close()
    (directory / FAULTS).write_text("".join(fault.to_line() for fault in outcome.faults))
    record = RunRecord(
        t0_ns=outcome.t0_ns,
        duration_s=outcome.duration_ns / NS_PER_S,
        base_rtt_ns=outcome.base_rtt_ns,
        bin_s=outcome.base_rtt_ns / 4 / NS_PER_S,
        flows=outcome.flows,
        hosts={host: host_counts(report) for host, report in simulation.reports().items()},
        packet_hops=outcome.packet_hops,
        links=dict(outcome.counts),
    )
    (directory / RUN).write_text(record.to_json())
    collect(raw, directory, outcome.t0_ns)
    shutil.rmtree(raw)
    return outcome


def require_simulated(scenario: Scenario) -> None:
    """Check that a scenario needs neither processes nor the kernel's own transports.

    Raises:
        InputError: it does.
    """
    _require_links(scenario)
    _require_model(scenario)


def _require_links(scenario: Scenario) -> None:
    """Refuse faults that strike processes: there are none here."""
    wrong = [
        Problem(
            f"timeline[{i}].kind",
            fault.kind,
            "a fault of links or switches: the simulator has no processes",
            "testbed run, on the emulated fabric",
        )
        for i, fault in enumerate(scenario.timeline)
        if fault.strikes_hosts
    ]
    if wrong:
        raise InputError(wrong)


def _require_model(scenario: Scenario) -> None:
    """Refuse the kernel's own transports: they run in real time only."""
    kind = scenario.transport.kind
    if isinstance(scenario.transport, Tcp | Mptcp):
        expected = "mrc or roce: the simulator has no kernel, and models none"
        remedy = "testbed run, where the real stack sends"
        raise InputError([Problem("transport.kind", kind, expected, remedy)])


def _write_manifest(directory: Path, scenario: Scenario, timing: Timing) -> None:
    manifest = Manifest.of(
        scenario,
        ("mrc-testbed",),
        simulated=True,
        code=code_version(),
        propagation_delay=_DELAY[timing],
        link_model="simulated: rate, two queues by class, ECN, trimming, faults",
    )
    (directory / MANIFEST).write_text(manifest.to_json())


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


def _say_nothing(_what: str, _done: float) -> None:
    pass
