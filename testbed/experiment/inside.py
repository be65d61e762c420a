"""The first process of the sandbox: builds the fabric, runs the scenario on it, keeps watch."""

import os
import select
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.controller.plan import ControllerPlan, choose_wires
from testbed.controller.process import ControllerProcess
from testbed.endpoint.clock import now_ns
from testbed.endpoint.process import RTT_TIMEOUT_S
from testbed.experiment import base_rtt
from testbed.experiment.doubt import Doubt
from testbed.experiment.hold import HELD, Hold
from testbed.experiment.machine import MachineSampler
from testbed.experiment.processes import (
    receive_from_all,
    receive_within,
    start_endpoint,
    start_mapper,
)
from testbed.experiment.queues import QueueSampler, step_ns
from testbed.fabric.capture import LinkCapture
from testbed.fabric.fabric import Fabric
from testbed.fabric.link_model.counters import Counters
from testbed.fabric.link_model.link_model import LinkModel
from testbed.fabric.openvswitch.switch import OpenVSwitch
from testbed.host.outcome import flow_outcomes, host_counts
from testbed.host.plan import plan_endpoints
from testbed.mapper.clustermapper import MapperPlan
from testbed.model.fabric.names import link_of
from testbed.model.progress import Progress
from testbed.model.run_files.layout import HEALTH, LOGS, PCAPS, RAW, RUN
from testbed.model.run_files.run import MissingPart, RunRecord
from testbed.model.scenario import Scenario
from testbed.model.units import NS_PER_S
from testbed.results import records
from testbed.results.records import Recorder, raw_path
from testbed.sandbox.processes import Child

TELL_S = 0.2
"""From the last measurement to the start: enough for every process to have heard of it."""

ANSWER_S = 10.0
RTT_ANSWER_S = 2 * RTT_TIMEOUT_S
LINK_SAMPLE_S = 0.25
QUIET_S = 0.02
"""So long nothing may arrive anywhere for a fabric to be empty: several times a packet's way."""


@dataclass(slots=True)
class _Run:
    """What the phases of a run share."""

    scenario: Scenario
    directory: Path
    fabric: Fabric
    controller: ControllerProcess
    switch: OpenVSwitch | None
    progress: Progress
    endpoints: dict[str, Child] = field(default_factory=dict)
    mapper: Child | None = None
    captures: list[LinkCapture] = field(default_factory=list)
    hold: Hold | None = None
    stop_if_late: bool = False

    @property
    def pids(self) -> dict[str, int]:
        """The run's own processes, by name."""
        children = dict(self.endpoints)
        if self.mapper is not None:
            children["mapper"] = self.mapper
        others = {"run": os.getpid(), "controller": self.controller.process.pid}
        daemons = {} if self.switch is None else self.switch.pids
        return {name: child.pid for name, child in children.items()} | others | daemons

    def send_to_endpoints(self, message: dict[str, object]) -> None:
        """Send a command to every endpoint."""
        for endpoint in self.endpoints.values():
            endpoint.send(message)

    def unexplained_drops(self) -> dict[str, int]:
        """Cumulative counters of what the kernel loses beside the fabric's own queues."""
        packet = self.switch.packet_drops() if self.switch is not None else {}
        return {"openvswitch": sum(packet.values())}


def run_in_sandbox(
    scenario: Scenario,
    directory: Path,
    progress: Progress,
    captured: Collection[str] = (),
    hold: Hold | None = None,
    *,
    openvswitch: bool,
    stop_if_late: bool = False,
) -> None:
    """Run a scenario from an empty sandbox to raw records and `run.json`.

    Args:
        scenario: what to run.
        directory: the run directory.
        progress: told what it is doing.
        captured: links whose packets are written to pcap files, from the endpoints' first on.
        hold: keeps everything going after the timeline; None: it ends with the timeline.
        openvswitch: whether there is one.
        stop_if_late: whether to end once the machine was so late that the run cannot be trusted.

    Raises:
        LateError: it was.
        RunFailedError: a process died, or a fault did not take effect.
    """
    raw = directory / RAW
    raw.mkdir()
    with ExitStack() as stack:
        progress("building the fabric", 0.0)
        run = _build(scenario, directory, progress, stack, openvswitch=openvswitch)
        run.hold, run.stop_if_late = hold, stop_if_late
        for link in captured:
            file = directory / PCAPS / f"{link}.pcap"
            run.captures.append(LinkCapture(scenario.topology.links[link], file))
        progress("starting the endpoints", 0.08)
        for host, plan in plan_endpoints(scenario, raw).items():
            log = directory / LOGS / f"{host.name}.log"
            run.endpoints[host.name] = start_endpoint(plan, log)
        receive_from_all(run.endpoints, "ready", ANSWER_S)
        _start_mapper(run)
        progress("measuring the base RTT", 0.1)
        base_rtt_ns = _measure_base_rtt(run)
        t0_ns = now_ns() + round(TELL_S * NS_PER_S)
        end_ns = _watch(run, t0_ns, base_rtt_ns)
        run.controller.heal_by_hand()
        reports = _finish(run, base_rtt_ns)
        run.controller.stop()
        _write_run(run, reports, t0_ns, end_ns - t0_ns, base_rtt_ns)


def _build(
    scenario: Scenario,
    directory: Path,
    progress: Progress,
    stack: ExitStack,
    *,
    openvswitch: bool,
) -> _Run:
    logs = directory / LOGS
    faults = scenario.scheduled_faults
    wires = choose_wires(faults, openvswitch=openvswitch)
    plan = ControllerPlan(scenario.topology, faults, wires, directory)
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
    return _Run(scenario, directory, fabric, controller, switch, progress)


def _measure_base_rtt(run: _Run) -> int:
    flow = base_rtt.longest_flow(run.scenario)
    source = {flow.src.name: run.endpoints[flow.src.name]}

    def sample_ns() -> int:
        source[flow.src.name].send({"measure_rtt": flow.number})
        rtt_ns: int = receive_from_all(source, "rtt_ns", RTT_ANSWER_S)[flow.src.name]
        return rtt_ns

    return base_rtt.measure(sample_ns)


def _start_mapper(run: _Run) -> None:
    scenario = run.scenario
    if scenario.clustermapper is None:
        return
    period_ns = round(scenario.clustermapper.period * scenario.topology.dilation)
    plan = MapperPlan(scenario.topology, period_ns, scenario.seed)
    run.mapper = start_mapper(plan, run.directory / RAW, run.directory / LOGS / "mapper.log")
    receive_from_all({"mapper": run.mapper}, "ready", ANSWER_S)


def _watch(run: _Run, t0_ns: int, base_rtt_ns: int) -> int:
    """Start everybody at t0 and sample counters until the end; a process that dies ends the run.

    Returns when senders stopped.
    """
    planned_ns = t0_ns + run.scenario.duration
    end_ns = planned_ns if run.hold is None else run.hold.until_ns(planned_ns)
    run.send_to_endpoints({"start_ns": t0_ns})
    run.send_to_endpoints({"stop_ns": end_ns})
    if run.mapper is not None:
        run.mapper.send({"start_ns": t0_ns})
    run.controller.begin(t0_ns, {host: endpoint.pid for host, endpoint in run.endpoints.items()})
    machine = MachineSampler(run.directory / HEALTH, now_ns(), run.unexplained_drops())
    doubt = Doubt(run.directory, t0_ns, base_rtt_ns) if run.stop_if_late else None
    raw, topology = run.directory / RAW, run.scenario.topology
    with ExitStack() as stack:

        def recorder(table: records.Table) -> Recorder:
            return stack.enter_context(Recorder(raw_path(raw, "fabric", table), table))

        links = recorder(records.LINKS)
        counters = run.fabric.counters()
        model = run.fabric.link_model
        queues = model and QueueSampler(topology, model, recorder(records.QUEUES))
        step_s = step_ns(topology) / NS_PER_S if queues else LINK_SAMPLE_S
        due_ns = 0
        while (now := now_ns()) < end_ns:
            if queues:
                queues.sample(now)
            if now >= due_ns:
                due_ns = now + round(LINK_SAMPLE_S * NS_PER_S)
                _sample_links(counters, links, now)
                _check_alive(run)
                done = min(max(now - t0_ns, 0) / run.scenario.duration, 1.0)
                run.progress("running" if now < planned_ns else HELD, 0.15 + 0.75 * done)
            if now >= machine.due_ns:
                _look_at_machine(run, machine, doubt)
            left_s = (end_ns - now_ns()) / NS_PER_S
            machine.timer_late(_sleep(run, max(min(step_s, LINK_SAMPLE_S, left_s), 0)))
            if run.hold is not None and run.hold.has_ended:
                _check_alive(run)
                end_ns = now_ns()
                run.send_to_endpoints({"stop_ns": end_ns})
        _sample_links(counters, links, now_ns())
    _look_at_machine(run, machine, doubt)
    return end_ns


def _look_at_machine(run: _Run, machine: MachineSampler, doubt: Doubt | None) -> None:
    machine.sample(now_ns(), run.unexplained_drops(), run.pids)
    if doubt is not None:
        doubt.look()


def _sleep(run: _Run, seconds: float) -> int:
    """Sleep, but hear Clustermapper and controller; returns how many ns late it ended."""
    end_ns = now_ns() + round(seconds * NS_PER_S)
    while (left_ns := end_ns - now_ns()) > 0:
        senders: list[Child | ControllerProcess] = [run.mapper] if run.mapper else []
        if not run.controller.is_dead:
            senders.append(run.controller)
        ready = select.select(senders, [], [], left_ns / NS_PER_S)[0]
        if run.mapper in ready:
            _pass_on_denylist(run)
        if run.controller in ready:
            run.controller.receive()
    return now_ns() - end_ns


def _pass_on_denylist(run: _Run) -> None:
    assert run.mapper is not None  # noqa: S101 - it has sent something
    assert run.scenario.clustermapper is not None  # noqa: S101 - so there is a mapper
    for message in run.mapper.receive():
        if run.scenario.clustermapper.denylist:
            _check_alive(run)
            run.send_to_endpoints({"deny": message["denied"]})


def _sample_links(counters: Counters, links: Recorder, now: int) -> None:
    for direction, count in counters.directions().items():
        links.append(
            now,
            link_of(direction),
            direction,
            count.packets,
            count.bytes,
            count.dropped,
            count.marked,
            count.trimmed,
            count.backlog_bytes,
        )


def _check_alive(run: _Run) -> None:
    """Check that all run that should; the rest of the run goes without what a fault has killed."""
    ended = [host for host, endpoint in run.endpoints.items() if endpoint.has_ended]
    run.controller.receive()  # it says so before it kills
    for host in ended:
        if host not in run.controller.killed:
            run.endpoints[host].check()
        del run.endpoints[host]
    if run.mapper is not None:
        run.mapper.check()
    if run.switch is not None:
        run.switch.check()


def _finish(run: _Run, base_rtt_ns: int) -> dict[str, Any]:
    """Wait for the last WRITEs, end the endpoints; returns what they report, by host."""
    run.progress("draining", 0.9)
    _check_alive(run)
    killed = sorted(run.controller.killed)
    run.send_to_endpoints({"killed": killed})
    receive_within(run.endpoints, "drained", run.scenario.drain_ns(base_rtt_ns) / NS_PER_S)
    run.send_to_endpoints({"finish": True})
    reports = receive_from_all(run.endpoints, "finished", ANSWER_S)
    for endpoint in run.endpoints.values():
        endpoint.wait()
    if run.mapper is not None:
        run.mapper.send({"finish": True})
        receive_from_all({"mapper": run.mapper}, "finished", ANSWER_S)
        run.mapper.wait()
    if run.fabric.link_model is not None:
        _empty(run.fabric.link_model)
    return reports


def _empty(model: LinkModel) -> None:
    """Wait until nothing is under way any more, so that every link's account is closed."""
    deadline_ns = now_ns() + round(ANSWER_S * NS_PER_S)
    before = -1
    while now_ns() < deadline_ns:
        arrived = int(model.records["packets"].sum())
        if arrived == before and not model.backlog_bytes().any():
            return
        before = arrived
        time.sleep(QUIET_S)


def _write_run(
    run: _Run, reports: dict[str, Any], t0_ns: int, duration_ns: int, base_rtt_ns: int
) -> None:
    flows = flow_outcomes(run.scenario, reports, duration_ns)
    missing = run.fabric.link_model_missing
    model = run.fabric.link_model
    record = RunRecord(
        t0_ns=t0_ns,
        duration_s=duration_ns / NS_PER_S,
        base_rtt_ns=base_rtt_ns,
        bin_s=base_rtt_ns / 4 / NS_PER_S,
        flows=flows,
        hosts={host: host_counts(report) for host, report in reports.items()},
        links={} if model is None else dict(model.all_counts()),
        link_model_missing=missing and MissingPart(what=missing.what, remedy=missing.remedy),
        captures={capture.link.name: {"lost_frames": capture.stop()} for capture in run.captures},
        fabric_timings_s=run.fabric.timings_s,
        datapath=run.switch.datapath if run.switch is not None else None,
    )
    (run.directory / RUN).write_text(record.to_json())
