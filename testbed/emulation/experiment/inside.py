"""The first process of a run's sandbox: builds the fabric and runs the scenario on it."""

import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from testbed.device import library
from testbed.device.nic import RunSetting, start_nic
from testbed.emulation.controller.plan import ControllerPlan, choose_wires
from testbed.emulation.controller.process import ControllerProcess
from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.experiment.experiment import HELD, Experiment
from testbed.emulation.experiment.machine import LatenessMonitor, MachineSampler
from testbed.emulation.experiment.processes import (
    REPLY_TIMEOUT_S,
    OperatorRelay,
    finish,
    receive_from_all,
    receive_within,
    start_endpoint,
    start_mapper,
)
from testbed.emulation.experiment.programs import GRACE_S, start_programs
from testbed.emulation.fabric.capture import LinkCaptures
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model.link_control import LinkCounters
from testbed.emulation.fabric.link_model.link_model import LinkModel
from testbed.emulation.fabric.netlink import NetlinkError
from testbed.emulation.fabric.openvswitch import OpenVSwitch
from testbed.emulation.fabric.ordinary import DelayProcess, OrdinaryTraffic, install_management
from testbed.host.outcome import TrafficProgress, outcomes
from testbed.host.plan import plan_endpoints, rtt_timeout_s
from testbed.host.traffic import SAMPLES_PER_RTT
from testbed.mapper.clustermapper import MapperPlan
from testbed.model.errors import MachineError
from testbed.model.fabric.names import ends_at_host, link_of
from testbed.model.fabric.nodes import Tier
from testbed.model.fabric.topology import Topology
from testbed.model.faults.schedule import CONTROLLER
from testbed.model.flows import base_rtt_flow, flows_of
from testbed.model.progress import Progress
from testbed.model.run_files.content import (
    LinkSample,
    MissingPart,
    RunRecord,
    RunStart,
    bin_width_s,
)
from testbed.model.run_files.layout import HEALTH, LOGS, RAW, RUN, START, capture_file
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.model.units import NS_PER_S
from testbed.model.workload import WriteBw
from testbed.results import records
from testbed.results.records import Recorder, raw_path
from testbed.results.whole_file import write_file
from testbed.sandbox.namespaces import RECORDS_FILE
from testbed.sandbox.processes import Child

# --------------------------------------------------------------------------------------------------
# The base RTT of a run, measured on the idle fabric before anything is sent on it.


SAMPLES = 7
"""The most packets that are measured, one after the other."""

TOLERANCE = 0.05
"""Three samples that differ by no more than this share of a round trip are enough: as late event
loops may be in a run that is trusted. On a machine that is never late they differ by 4%: loops wake
up 40 times in a round trip, and the first packet finds the CPU's caches cold."""


def measure(sample_ns: Callable[[], int]) -> int:
    """Take samples one after the other; return the base RTT in ns.

    It stops at the first three samples that agree, and returns the middle one of them; if no three
    agree, it returns the median of all.

    Args:
        sample_ns: sends a single packet and returns its round trip in ns.
    """
    samples: list[int] = []
    while len(samples) < SAMPLES:
        samples.append(sample_ns())
        rtt_ns = agreed(samples)
        if rtt_ns is not None:
            return rtt_ns
    return round(median(samples))


def agreed(samples: Sequence[int]) -> int | None:
    """The middle one of the lowest three samples that are alike; None if no three are."""
    ordered = sorted(samples)
    for low, middle, high in zip(ordered, ordered[1:], ordered[2:], strict=False):
        if high <= low * (1 + TOLERANCE):
            return middle
    return None


# --------------------------------------------------------------------------------------------------
# Samples what waits at the switches' ports, finely enough to see a queue rise and fall.


LEAST_STEP_NS = 4_000_000
"""The shortest time between two samples: each wakes the first process of the run."""

LINK_SAMPLE_S = 0.25
"""The time between two samples of the counters of all links."""

FLUSH_NS = 100_000_000
"""The time between two flushes of the records, for programs that watch the run."""


def step_ns(topology: Topology) -> int:
    """Time between two samples."""
    return max(topology.propagation_rtt_ns // SAMPLES_PER_RTT, LEAST_STEP_NS)


class QueueSampler:
    """Records the queues that hold something; one pass over shared memory a sample."""

    def __init__(self, topology: Topology, model: LinkModel, recorder: Recorder) -> None:
        self._model = model
        self._recorder = recorder
        self._flush_due_ns = 0
        senders = (port for link in topology.links.values() for port in link.ports)
        self._switched = np.array([port.node.tier is not Tier.HOST for port in senders])
        self._waited = np.zeros(len(model.names), dtype=bool)

    def sample(self, now_ns: int) -> None:
        """Record every switch port where something waits, or did at the last sample."""
        if now_ns >= self._flush_due_ns:
            self._flush_due_ns = now_ns + FLUSH_NS
            self._recorder.flush()
        waiting = self._model.backlog_bytes()
        waits = (waiting > 0) & self._switched
        rows = np.flatnonzero(waits | self._waited)
        self._waited = waits
        if not len(rows):
            return
        records = self._model.records[rows]
        dropped = records["full_packets"] + records["full_priority_packets"]
        for row, backlog, marked, trimmed, lost in zip(
            rows.tolist(),
            waiting[rows].tolist(),
            records["marked_packets"].tolist(),
            records["trimmed_packets"].tolist(),
            dropped.tolist(),
            strict=True,
        ):
            name = self._model.names[row]
            self._recorder.append(now_ns, name, backlog, marked, trimmed, lost)


START_DELAY_S = 0.2
"""From the command to start until the start: every process has received it by then."""

QUIET_S = 0.02
"""A fabric in which nothing arrives for this long is empty: several times a packet's path."""


@dataclass(slots=True)
class _Run:
    """What the phases of a run share.

    Attributes:
        endpoints: the processes of the hosts; where programs run, their NICs.
        nics: these NICs, where nothing but programs sends.
        programs: the process that runs the programs, if the workload is one.
        programs_over: whether all of them have ended.
    """

    experiment: Experiment
    fabric: Fabric
    controller: ControllerProcess
    switch: OpenVSwitch | None
    progress: Progress
    endpoints: dict[str, Child] = field(default_factory=dict)
    nics: dict[str, Child] = field(default_factory=dict)
    programs: Child | None = None
    programs_over: bool = False
    mapper: Child | None = None
    captures: LinkCaptures | None = None
    operator: OperatorRelay = field(init=False)

    def __post_init__(self) -> None:
        """Relay the operator's commands to the endpoints, which are started later."""
        self.operator = OperatorRelay(self.controller, self.endpoints)

    @property
    def scenario(self) -> Scenario:
        return self.experiment.scenario

    @property
    def directory(self) -> Path:
        return self.experiment.directory

    @property
    def is_over(self) -> bool:
        """Whether it has nothing more to do: all programs have ended, and they are all it has."""
        return self.programs_over and not self.scenario.planned.jobs

    @property
    def pids(self) -> dict[str, int]:
        children = dict(self.endpoints)
        others_of_run = {"mapper": self.mapper, "programs": self.programs}
        children |= {name: child for name, child in others_of_run.items() if child is not None}
        others = {"run": os.getpid(), "controller": self.controller.process.pid}
        daemons = {} if self.switch is None else self.switch.pids
        return {name: child.pid for name, child in children.items()} | others | daemons

    def send_to_endpoints(self, message: dict[str, object]) -> None:
        for endpoint in self.endpoints.values():
            endpoint.send(message)

    def unexplained_drops(self) -> dict[str, int]:
        """Cumulative counters of the packets that are lost outside the fabric's own queues."""
        drops = self.switch.packet_drops() if self.switch is not None else {}
        return {"openvswitch": sum(drops.values())}

    def receive_from_controller(self) -> None:
        self.operator.ask(self.controller.receive())

    def receive_from_programs(self) -> None:
        """Process what the programs' process has sent: faults wait for operations to begin."""
        if self.programs is None:
            return
        for message in self.programs.receive(0):
            self.programs_over |= "over" in message
            if "begun" in message and CONTROLLER not in self.controller.killed:
                self.controller.process.send(message)

    def relay(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Pass on the controller's messages to endpoints, and their answers to it."""
        self.operator.ask(messages)
        for endpoint in self.operator.waiting:
            self.operator.answer(endpoint)

    def check_alive(self) -> None:
        """Check that every process runs, except those that a fault has killed.

        Raises:
            RunFailedError: one has ended.
        """
        ended = [host for host, endpoint in self.endpoints.items() if endpoint.has_ended]
        self.receive_from_controller()  # it announces whom it kills
        for host in ended:
            if host not in self.controller.killed:
                self.endpoints[host].check()
            del self.endpoints[host]
        self.receive_from_programs()
        if self.mapper is not None:
            self.mapper.check()
        if self.switch is not None:
            self.switch.check()


def run_in_sandbox(
    experiment: Experiment, progress: Progress, *, openvswitch: bool, realtime_offset_ns: int
) -> None:
    """Make a run in an empty sandbox; leave its raw records and `run.json`.

    Args:
        experiment: the run.
        progress: called with what the run is doing.
        openvswitch: whether Open vSwitch runs here.
        realtime_offset_ns: CLOCK_REALTIME minus CLOCK_MONOTONIC, for captures.

    Raises:
        LateError: the machine was too late.
        RunFailedError: a process ended, or a fault did not take effect.
    """
    scenario, directory = experiment.scenario, experiment.directory
    raw = directory / RAW
    raw.mkdir()
    with ExitStack() as stack:
        progress("building the fabric", 0.0)
        run = _build(experiment, progress, stack, openvswitch=openvswitch)
        if experiment.captured:
            links = scenario.topology.links
            files = {links[name]: directory / capture_file(name) for name in experiment.captured}
            run.captures = LinkCaptures(files, realtime_offset_ns)
        progress("starting the endpoints", 0.08)
        if scenario.programs:
            base_rtt_ns = _measure_before_programs(run)
            _start_devices(run, stack)
            _start_endpoints(run, scenario, raw)
            _start_mapper(run)
        else:
            _start_endpoints(run, scenario, raw)
            _start_mapper(run)
            progress("measuring the base RTT", 0.1)
            base_rtt_ns = _measure_base_rtt(run, scenario)
        t0_ns = now_ns() + round(START_DELAY_S * NS_PER_S)
        end_ns = _run_timeline(run, t0_ns, base_rtt_ns)
        run.controller.heal(end_ns, run.relay)
        programs = _end_programs(run)
        reports = _drain(run, base_rtt_ns)
        run.controller.stop()
        _write_run(run, programs, reports, t0_ns, end_ns - t0_ns, base_rtt_ns)


def _build(
    experiment: Experiment, progress: Progress, stack: ExitStack, *, openvswitch: bool
) -> _Run:
    """Start the controller, the fabric and the switch; check them packet by packet."""
    scenario, logs = experiment.scenario, experiment.directory / LOGS
    faults = scenario.scheduled_faults
    wires = choose_wires(faults, openvswitch=openvswitch)
    plan = ControllerPlan(
        scenario.topology,
        faults,
        wires,
        experiment.directory,
        transport=scenario.transport.kind,
        flows=scenario.flows,
    )
    controller = ControllerProcess.start(plan, logs)  # loads Ryu while the fabric is built
    fabric = stack.enter_context(Fabric(scenario.topology, wires, seed=scenario.seed))
    switch = None
    if wires:
        switch = OpenVSwitch.start(plan.openflow_wires, logs)
        stack.callback(switch.stop)
    fabric.verify()
    controller.get_ready()
    if switch is not None:
        switch.connect(controller.wait_for("listening")["listening"])
    controller.wait_for("ready")
    fabric.sweep()
    return _Run(experiment, fabric, controller, switch, progress)


def _start_endpoints(run: _Run, scenario: Scenario, raw: Path) -> None:
    of_programs = scenario.hosts_of_programs | run.experiment.serving
    logs = run.directory / LOGS
    started = {
        host.name: start_endpoint(
            plan, logs / f"{host.name}.log", serves_programs=host.name in of_programs
        )
        for host, plan in plan_endpoints(scenario.planned, raw).items()
    }
    run.endpoints.update(started)
    receive_from_all(started, "ready", REPLY_TIMEOUT_S)


def _measure_before_programs(run: _Run) -> int:
    """Measure the base RTT in ns with two endpoints, which end then; their records do not count."""
    run.progress("measuring the base RTT", 0.1)
    scenario = run.scenario
    flow = base_rtt_flow(scenario.topology, flows_of(scenario))
    pair = WriteBw(pairs=((flow.src.name, flow.dst.name),), bidirectional=False)
    alone = scenario.model_copy(update={"workload": pair, "jobs": ()})
    before = run.directory / RAW / "idle" / RAW
    before.mkdir(parents=True)
    _start_endpoints(run, alone, before)
    base_rtt_ns = _measure_base_rtt(run, alone)
    finish(run.endpoints, REPLY_TIMEOUT_S)
    run.endpoints.clear()
    return base_rtt_ns


def _start_devices(run: _Run, stack: ExitStack) -> None:
    """Have a device in each host in which a program runs, and the networks that programs use.

    Raises:
        MachineError: there is no library for programs, or no management network.
    """
    scenario, fabric, topology = run.scenario, run.fabric, run.scenario.topology
    assert isinstance(scenario.transport, Mrc)  # noqa: S101 - it was checked
    files = library.put_into(library.IN_HOSTS)
    ordinary = OrdinaryTraffic(topology, fabric.namespaces)
    ordinary.install()
    with suppress(NetlinkError):  # a kernel without MPTCP
        for host in topology.hosts:
            ordinary.announce_planes(host)
    try:
        install_management(topology, fabric.namespaces)
    except NetlinkError as error:
        raise MachineError(f"no management network here: {error}", "modprobe bridge") from error
    delay = None
    with suppress(OSError):  # without TUN ordinary traffic has no propagation delay
        delay = stack.enter_context(DelayProcess(topology, fabric.namespaces))
    raw, logs = run.directory / RAW, run.directory / LOGS
    RECORDS_FILE.write_text(str(raw.resolve()), encoding="utf-8")
    setting = RunSetting(topology, raw, scenario.transport, scenario.seed)
    others = {end for src, dst, _ in scenario.planned.flows for end in (src, dst)}
    for host in map(topology.host_named, sorted(scenario.hosts_of_programs - others)):
        run.nics[host.name] = start_nic(host, logs / f"{host.name}.log", setting)
    receive_from_all(run.nics, "ready", REPLY_TIMEOUT_S)
    run.endpoints.update(run.nics)
    log, screen, script = logs / "programs.log", run.experiment.screen, run.experiment.script
    if script is None:
        run.programs = start_programs(scenario, run.directory, files, log, screen)
    else:
        from testbed.emulation.experiment.script import start_script  # noqa: PLC0415 - Mininet

        run.programs = start_script(
            script, fabric, ordinary, delay, files, run.directory, log, screen
        )
    receive_from_all({"programs": run.programs}, "ready", REPLY_TIMEOUT_S)


def _end_programs(run: _Run) -> dict[str, Any]:
    """End what still runs of programs; returns what became of them."""
    if run.programs is None:
        return {}
    run.progress("ending the programs", 0.9)
    programs, run.programs = run.programs, None
    report: dict[str, Any] = finish({"programs": programs}, GRACE_S + REPLY_TIMEOUT_S)["programs"]
    return report


def _measure_base_rtt(run: _Run, scenario: Scenario) -> int:
    """Measure the base RTT in ns, with single packets on the idle fabric."""
    flow = base_rtt_flow(scenario.topology, flows_of(scenario))
    host = flow.src.name
    source = run.endpoints[host]
    answer_s = 2 * rtt_timeout_s(run.scenario.topology)  # the endpoint gives up earlier

    def sample_ns() -> int:
        source.send({"measure_rtt": flow.number})
        rtt_ns: int = receive_from_all({host: source}, "rtt_ns", answer_s)[host]
        return rtt_ns

    return measure(sample_ns)


def _start_mapper(run: _Run) -> None:
    scenario = run.scenario
    if scenario.clustermapper is None:
        return
    period_ns = scenario.clustermapper.period_ns(scenario.topology)
    plan = MapperPlan(scenario.topology, period_ns, scenario.seed)
    run.mapper = start_mapper(plan, run.directory / RAW, run.directory / LOGS / "mapper.log")
    receive_from_all({"mapper": run.mapper}, "ready", REPLY_TIMEOUT_S)


def _run_timeline(run: _Run, t0_ns: int, base_rtt_ns: int) -> int:
    """Have everything start at t0, and sample counters until the end of timeline and hold.

    Returns the time at which the senders stopped.
    """
    timeline_end_ns = t0_ns + run.scenario.duration
    hold = run.experiment.hold
    end_ns = timeline_end_ns if hold is None else hold.until_ns(timeline_end_ns)
    _begin(run, t0_ns, end_ns, base_rtt_ns)
    machine = MachineSampler(run.directory / HEALTH, now_ns(), run.unexplained_drops())
    lateness = LatenessMonitor(run.directory, t0_ns, base_rtt_ns)
    raw, topology = run.directory / RAW, run.scenario.topology

    def sample_machine() -> None:
        machine.sample(now_ns(), run.unexplained_drops(), run.pids)
        if run.experiment.stop_if_late:
            lateness.check()

    with ExitStack() as stack:

        def recorder(table: records.Table) -> Recorder:
            return stack.enter_context(Recorder(raw_path(raw, "fabric", table), table))

        links = recorder(records.LINKS)
        counters = run.fabric.counters()
        model = run.fabric.link_model
        traffic = TrafficProgress("running", run.scenario.duration)
        queues = model and QueueSampler(topology, model, recorder(records.QUEUES))
        step_s = step_ns(topology) / NS_PER_S if queues else LINK_SAMPLE_S
        link_sample_due_ns = 0
        while (now := now_ns()) < end_ns:
            if queues:
                queues.sample(now)
            if now >= link_sample_due_ns:
                link_sample_due_ns = now + round(LINK_SAMPLE_S * NS_PER_S)
                directions = _sample_links(counters, links, now)
                run.check_alive()
                done = min(max(now - t0_ns, 0) / run.scenario.duration, 1.0)
                what = _describe(run, traffic, now - t0_ns, directions)
                run.progress(what if now < timeline_end_ns else HELD, 0.15 + 0.75 * done)
            if now >= machine.due_ns:
                sample_machine()
            remaining_s = (end_ns - now_ns()) / NS_PER_S
            machine.record_timer_delay(_sleep(run, max(min(step_s, LINK_SAMPLE_S, remaining_s), 0)))
            if run.is_over if hold is None else hold.has_ended:
                run.check_alive()
                end_ns = now_ns()
                run.send_to_endpoints({"stop_ns": end_ns})
        _sample_links(counters, links, now_ns())
    sample_machine()
    return end_ns


def _begin(run: _Run, t0_ns: int, end_ns: int, base_rtt_ns: int) -> None:
    beside = run.scenario.planned.flows if run.programs else ()
    planned = tuple((src, dst) for src, dst, _ in beside)
    start = RunStart(t0_ns=t0_ns, base_rtt_ns=base_rtt_ns, planned=planned)
    write_file(run.directory / RAW / START, start.model_dump_json())  # for who watches the run
    run.send_to_endpoints({"start_ns": t0_ns})
    run.send_to_endpoints({"stop_ns": end_ns})
    for other in (run.mapper, run.programs):
        if other is not None:
            other.send({"start_ns": t0_ns})
    run.controller.begin(t0_ns, {host: endpoint.pid for host, endpoint in run.endpoints.items()})


def _sleep(run: _Run, seconds: float) -> int:
    """Sleep, and meanwhile handle the messages of Clustermapper, programs and controller.

    Returns how late the sleep ended, in ns.
    """
    end_ns = now_ns() + round(seconds * NS_PER_S)
    while (remaining_ns := end_ns - now_ns()) > 0:
        senders: list[Child | ControllerProcess] = [run.mapper] if run.mapper else []
        if run.programs is not None and not run.programs_over:
            senders.append(run.programs)
        if not run.controller.is_dead:
            senders.append(run.controller)
        answering = run.operator.waiting
        ready = select.select([*senders, *answering], [], [], remaining_ns / NS_PER_S)[0]
        if run.mapper in ready:
            _pass_on_denylist(run)
        if run.programs in ready:
            run.receive_from_programs()
        if run.controller in ready:
            run.receive_from_controller()
        for endpoint in answering:
            if endpoint in ready:
                run.operator.answer(endpoint)
    return now_ns() - end_ns


def _pass_on_denylist(run: _Run) -> None:
    """Send the link directions that the Clustermapper denies to the endpoints, if they use them."""
    assert run.mapper is not None  # noqa: S101 - it has sent something
    assert run.scenario.clustermapper is not None  # noqa: S101 - so there is a mapper
    for message in run.mapper.receive():
        if run.scenario.clustermapper.denylist:
            run.check_alive()
            run.send_to_endpoints({"deny": message["denied"]})


def _describe(
    run: _Run, traffic: TrafficProgress, time_ns: int, directions: Mapping[str, LinkSample]
) -> str:
    """How the run goes on; an OpenFlow wire tells what it dropped only when its fault heals."""
    arrived = sum(count.bytes for name, count in directions.items() if ends_at_host(name))
    lost = sum(count.dropped for count in directions.values())
    return traffic.describe(time_ns, arrived, lost if run.switch is None else None)


def _sample_links(counters: LinkCounters, links: Recorder, now: int) -> Mapping[str, LinkSample]:
    """Record the counters of every link direction; returns them."""
    directions = counters.directions()
    for direction, count in directions.items():
        links.append(now, link_of(direction), direction, *count)
    links.flush()  # for those who watch the run
    return directions


def _drain(run: _Run, base_rtt_ns: int) -> dict[str, Any]:
    """Wait for the last WRITEs and end endpoints and mapper; return the reports by host."""
    run.progress("draining", 0.9)
    run.check_alive()
    run.send_to_endpoints({"killed": sorted(run.controller.killed)})
    sending = run.endpoints.keys() - run.nics.keys() - run.operator.drained  # programs have ended
    undrained = {host: run.endpoints[host] for host in sending}
    receive_within(undrained, "drained", run.scenario.drain_ns(base_rtt_ns) / NS_PER_S)
    reports = finish(run.endpoints, REPLY_TIMEOUT_S)
    if run.mapper is not None:
        finish({"mapper": run.mapper}, REPLY_TIMEOUT_S)
    if run.fabric.link_model is not None:
        _wait_until_empty(run.fabric.link_model)
    return reports


def _wait_until_empty(model: LinkModel) -> None:
    """Wait until no packet is in the fabric, so that the counters of all links are final."""
    deadline_ns = now_ns() + round(REPLY_TIMEOUT_S * NS_PER_S)
    previous = -1
    while now_ns() < deadline_ns:
        packets = int(model.records["packets"].sum())
        if packets == previous and not model.backlog_bytes().any():
            return
        previous = packets
        time.sleep(QUIET_S)


def _write_run(
    run: _Run,
    programs: dict[str, Any],
    reports: dict[str, Any],
    t0_ns: int,
    duration_ns: int,
    base_rtt_ns: int,
) -> None:
    flows, hosts = outcomes(run.scenario, reports, duration_ns, run.directory / RAW)
    missing = run.fabric.link_model_missing
    lost_frames = run.captures.stop() if run.captures is not None else {}
    model = run.fabric.link_model
    record = RunRecord(
        t0_ns=t0_ns,
        duration_s=duration_ns / NS_PER_S,
        base_rtt_ns=base_rtt_ns,
        bin_s=bin_width_s(base_rtt_ns),
        flows=flows,
        hosts=hosts,
        programs=programs.get("programs", ()),
        open_operations=programs.get("open", ()),
        links={} if model is None else dict(model.all_counts()),
        link_model_missing=missing and MissingPart(what=missing.what, remedy=missing.remedy),
        captures={link: {"lost_frames": lost} for link, lost in lost_frames.items()},
        datapath=run.switch.datapath if run.switch is not None else None,
    )
    write_file(run.directory / RUN, record.to_json())
