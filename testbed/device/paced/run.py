"""One run of programs on a simulated fabric in step with the wall clock, from beginning to end.

The fabric and the devices of all hosts are in this one process: a packet between two programs
crosses no other. The time of the fabric follows CLOCK_MONOTONIC. What happens on it happens at its
exact time, however late this process is; only programs notice that, and the verdict says it.

Faults and an operator's commands by hand come on the socket in the run's directory. A process of
its own speaks HTTP, with a thread for each client, and passes on what clients ask: one that is
slow, or that probes for long, holds up no other, nor the fabric.
"""

import gc
import itertools
import os
import resource
import select
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from queue import SimpleQueue
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from testbed import fast
from testbed.control_api import OVER, UNDER_WAY, Answer, SimulatedRequests, refused_request
from testbed.device import library
from testbed.device.paced.host import Loopback, PacedHost, Workloads
from testbed.emulation.controller.live import SOCKET, LiveControl
from testbed.emulation.endpoint.clock import HealthLog, now_ns
from testbed.emulation.experiment.machine import cpu_model
from testbed.emulation.experiment.programs import (
    GRACE_S,
    Surroundings,
    start_programs,
    user_of_programs,
)
from testbed.host.operator import Answer as OperatorAnswer
from testbed.host.operator import operate_one_of
from testbed.host.outcome import TrafficProgress, outcomes
from testbed.host.recording import Recorders
from testbed.model.errors import MachineError, Problem, RunFailedError, TestbedError, raise_any
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.names import ends_at_host
from testbed.model.faults.checks import process_problems
from testbed.model.faults.kinds import OperationStart
from testbed.model.faults.record import FAULTS
from testbed.model.flows import base_rtt_flow, flows_of
from testbed.model.operator.commands import Command
from testbed.model.progress import Progress
from testbed.model.run_files.content import RunRecord, RunStart, bin_width_s
from testbed.model.run_files.layout import HEALTH, LOGS, MANIFEST, RAW, RUN, START
from testbed.model.run_files.manifest import Manifest
from testbed.model.scenario import Scenario
from testbed.model.units import NEVER_NS, NS_PER_S
from testbed.model.workload import WriteBw
from testbed.results import records
from testbed.results.code_version import code_version
from testbed.results.whole_file import scratch, write_file
from testbed.sandbox.channel import Channel, decode_error
from testbed.sandbox.processes import Child, spawn
from testbed.sandbox.system_calls import new_socket_name
from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric, Timing
from testbed.sim.faults import FaultInjection
from testbed.sim.mapper import SimulatedAgents
from testbed.sim.run import LINK_SAMPLE_RTTS, Simulation

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node
    from testbed.sim.host import Host, Receiver

_PATIENCE_S: Final = 10.0
"""How long a client may be silent before it has sent its request. Ours."""


@contextmanager
def taking_commands(directory: Path) -> Iterator[Child]:
    """Listen while the block runs; yields the process.

    It sends `{"number": ..., "method": ..., "path": ..., "body": ...}`, and waits for `{"number":
    ..., "status": ..., "content": ...}`, in any order.
    """
    child = spawn(
        lambda channel: _serve(directory / SOCKET, channel),
        title="the process that takes commands",
        isolated=False,
        name="control",
        log=directory / LOGS / "control.log",
    )
    try:
        yield child
    finally:
        child.kill()
        child.close()
        (directory / SOCKET).unlink(missing_ok=True)


def requests_from(child: Child) -> list[dict[str, Any]]:
    """The requests that the process has sent.

    Raises:
        TestbedError: it has ended, with the reason.
    """
    messages = child.receive(0)
    for message in messages:
        if "error" in message:
            raise decode_error(message["error"])
    return messages


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_S

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError) as error:  # it has gone, or says nothing
            self.log_error("%s", error)


class _Server(ThreadingMixIn, WSGIServer):
    address_family = socket.AF_UNIX
    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__("", _Handler)  # type: ignore[arg-type] # a path in place of a port

    def server_bind(self) -> None:
        with new_socket_name(self._path) as name:
            self.socket.bind(name)
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, _ = self.socket.accept()
        return connection, ("", 0)


def _serve(path: Path, channel: Channel) -> None:
    """Serve until the run has ended.

    Raises:
        MachineError: no socket can be there.
    """
    numbers = itertools.count()
    waiting: dict[int, SimpleQueue[Answer]] = {}
    sending = threading.Lock()

    def ask(method: str, path: str, body: str) -> Answer:
        number = next(numbers)
        waiting[number] = SimpleQueue()
        with sending:
            channel.send({"number": number, "method": method, "path": path, "body": body})
        answer = waiting[number].get()
        del waiting[number]
        return answer

    try:
        listening = _Server(path)
    except OSError as error:
        what = f"no socket can be in {path.parent}: {error.strerror}"
        raise MachineError(what, "--results on another file system") from error
    with listening as server:
        server.set_app(LiveControl(ask))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for reply in channel.messages():
            waiting[reply["number"]].put((HTTPStatus(reply["status"]), reply["content"]))


START_DELAY_NS: Final = NS_PER_S // 5
"""From the command to start the programs until they start."""

STEPS_PER_RTT: Final = 128
"""The loop wakes at most so often in a base RTT, unless a program calls. Half as often as the
emulation's device: here it wakes for all hosts, and only programs see that it does."""

PROCESS: Final = "fabric"
"""This process in `health.jsonl`."""

_BEFORE: Final = refused_request(HTTPStatus.CONFLICT, "a run that has not begun", UNDER_WAY)

_REPORT_S: Final = GRACE_S + 10.0
"""How long programs and the process that runs them have to end."""


class Observer(Protocol):
    """Watches a run while it goes on, and may end it.

    Attributes:
        step_ns: time between two calls of `goes_on`.
    """

    step_ns: int

    def begins(self, run: "PacedRun", t0_ns: int, base_rtt_ns: int) -> None:
        """The programs start at `t0_ns`, which is soon."""

    def goes_on(self, now_ns: int) -> bool:
        """Whether the run goes on; all that has happened until `now_ns` is recorded."""


class PacedRun:
    """Programs, the fabric between them, and the loop that keeps it in step. Times in ns.

    Attributes:
        faults: the faults, which can be injected and healed by hand, too.
    """

    def __init__(
        self,
        scenario: Scenario,
        directory: Path,
        base_rtt_ns: int,
        progress: Progress,
        screen: int | None,
        stack: ExitStack,
    ) -> None:
        """Set everything up; `stack` takes it down.

        Args:
            scenario: what is run.
            directory: the run directory.
            base_rtt_ns: the base RTT.
            progress: called with what the run is doing.
            screen: a descriptor to which what programs print goes, too.
            stack: closes everything.

        Raises:
            MachineError: there is no library for programs, or no place on the loopback.
        """
        topology = scenario.topology
        names = scenario.hosts_of_programs
        nodes = [node for node in topology.hosts if node.name in names]
        self._scenario = scenario
        self._directory = directory
        self._base_rtt_ns = base_rtt_ns
        self._progress = progress
        place = stack.enter_context(scratch("testbed-device-"))
        place.chmod(0o755)  # programs may be another user's: of the caller of sudo
        files = library.put_into(place)
        loopback = stack.enter_context(Loopback(nodes))
        surroundings = Surroundings(
            lambda _: nullcontext(), loopback.address_of, loopback.variables, loopback.master_port
        )
        log = directory / LOGS / "programs.log"
        self._programs: Child = stack.enter_context(
            start_programs(scenario, directory, files, log, screen, surroundings)
        )
        self._report: dict[str, Any] | None = None
        self._over = False
        # Before the descriptors of the hosts, and those of their programs: select(2), which waits
        # for these, takes none above 1023.
        self._control = stack.enter_context(taking_commands(directory))
        self._ready = stack.enter_context(select.epoll())
        stack.enter_context(_many_descriptors())
        raw = directory / RAW
        self._engine = Engine()
        self._engine.now_ns = now_ns()
        self._fabric = Fabric(topology, self._engine, scenario.seed, Timing.EMULATED)
        self._worked: set[PacedHost] = set()
        by_address: dict[bytes, Receiver] = {}
        self._workloads = Workloads(scenario, raw, self._engine, self._fabric, by_address, stack)
        self._hosts: dict[Node, PacedHost] = {}
        for node in nodes:
            host = PacedHost(
                node,
                scenario,
                raw,
                self._engine,
                self._fabric,
                by_address,
                self._worked.add,
                loopback.nic_of(node),
                user_of_programs(),
                self._workloads.parts.get(node),
            )
            self._workloads.add(host)
            stack.callback(host.close)
            self._hosts[node] = by_address[nic_address(topology, node).packed] = host
        self._all_hosts: dict[Node, PacedHost | Host] = {**self._hosts, **self._workloads.hosts}
        self.faults = FaultInjection(scenario, self._engine, self._fabric, self._all_hosts)
        self._recorders = stack.enter_context(Recorders(raw))
        self._record_link = self._recorders.open("fabric", records.LINKS).append
        self._traffic = TrafficProgress("running", scenario.duration)
        self._link_sample_ns = LINK_SAMPLE_RTTS * base_rtt_ns
        self._step_ns = max(topology.propagation_rtt_ns // STEPS_PER_RTT, 1)
        self._health = HealthLog(directory / HEALTH, PROCESS, now_ns())
        stack.callback(self._health.close)
        self._by_descriptor = {host.server.fileno(): host for host in self._hosts.values()}
        self._asked = set[int]()
        others = self._programs.fileno(), self._control.fileno()
        for descriptor in (*self._by_descriptor, *others):
            self._ready.register(descriptor, select.EPOLLIN)
        self._t0_ns = 0
        self._end_ns = NEVER_NS

    # --- what an observer wants ---------------------------------------------------------------

    def operate(self, command: Command, answer: OperatorAnswer) -> None:
        """Carry out an operator's command; `answer` is called when it has taken effect."""
        operate_one_of({node.name: host for node, host in self._all_hosts.items()}, command, answer)

    # --- from beginning to end ----------------------------------------------------------------

    def run(self, observer: Observer | None) -> dict[str, Any]:
        """Run the programs and the timeline; returns what the process of the programs reports.

        Without an observer the run ends when the programs have ended, at `duration` at the latest;
        with one, when that ends it. Where other workloads send as well, it lasts for `duration`.

        Raises:
            RunFailedError: the process that runs the programs has ended, or does not.
        """
        self._wait_for_programs()
        engine, scenario = self._engine, self._scenario
        engine.now_ns = now_ns()
        t0_ns = self._t0_ns = engine.now_ns + START_DELAY_NS
        planned = tuple((src, dst) for src, dst, _ in scenario.planned.flows)
        start = RunStart(t0_ns=t0_ns, base_rtt_ns=self._base_rtt_ns, planned=planned)
        write_file(self._directory / RAW / START, start.model_dump_json())
        self.faults.begin(t0_ns)
        SimulatedAgents.of(scenario, engine, self._fabric, self._recorders, self._deny, t0_ns)
        engine.at(engine.now_ns, self._sample_links)
        self._workloads.begin_at(t0_ns)
        self._programs.send({"start_ns": t0_ns})
        self._requests = SimulatedRequests(scenario.topology, self)
        if observer is None:
            latest_ns = t0_ns + scenario.duration
            while engine.now_ns < latest_ns and (self._workloads.hosts or not self._over):
                self._go_on()
        else:
            self._go_on_observed(observer)
        self._end_ns = engine.now_ns
        self._end_requests()
        self._workloads.end()
        self._progress("ending the programs", 0.9)
        self._programs.send({"finish": True})
        until_ns = now_ns() + round(_REPORT_S * NS_PER_S)
        while self._report is None and now_ns() < until_ns:
            self._go_on()
        if self._report is None:
            raise RunFailedError("the process that runs the programs does not end")
        drained_ns = self._end_ns + scenario.drain_ns(self._base_rtt_ns)
        while engine.now_ns < drained_ns and not self._workloads.idle:
            self._go_on()
        self._sample_links(engine.now_ns, None)
        return self._report

    def _go_on_observed(self, observer: Observer) -> None:
        engine = self._engine
        observer.begins(self, self._t0_ns, self._base_rtt_ns)
        due_ns = self._t0_ns
        while engine.now_ns < due_ns or observer.goes_on(engine.now_ns):
            if engine.now_ns >= due_ns:
                due_ns += observer.step_ns
            self._go_on()

    def _wait_for_programs(self) -> None:
        while not any("ready" in message for message in self._programs.receive(_REPORT_S)):
            self._programs.check()

    def _go_on(self) -> None:
        """Let the fabric catch up with the clock, and serve programs until something is due."""
        engine, health = self._engine, self._health
        now = self._catch_up()
        if now >= health.due_ns:
            health.write(now, {})
        wake_ns = now
        if now - engine.now_ns < self._step_ns:
            wake_ns = max(min(engine.next_ns, health.due_ns), now + self._step_ns)
        if select.select([self._ready], [], [], (wake_ns - now) / NS_PER_S)[0]:
            self._catch_up()
            self._serve()
        elif wake_ns > now:
            health.lag(max(now_ns() - wake_ns, 0))

    def _catch_up(self) -> int:
        """Have happen what is due on the fabric, and tell programs; returns the time after that.

        It stops after a step's time, so that programs wait no longer for an answer.
        """
        engine, step_ns = self._engine, self._step_ns
        began_ns = now = now_ns()
        while engine.now_ns < began_ns and now - began_ns < step_ns:
            engine.run(min(began_ns, max(engine.next_ns, engine.now_ns) + step_ns))
            now = now_ns()
        for host in self._worked:
            if host.device is not None:
                host.server.deliver()
        self._worked.clear()
        now = now_ns()
        self._health.lag(now - engine.now_ns)
        return now

    def _serve(self) -> None:
        """Serve the programs that call."""
        for descriptor, _ in self._ready.poll(0):
            if descriptor in self._by_descriptor:
                self._by_descriptor[descriptor].serve()
            elif descriptor == self._control.fileno():
                self._take_requests()
            else:
                self._take(self._programs.receive(0))

    # --- by hand ------------------------------------------------------------------------------

    def _take_requests(self) -> None:
        """Begin with what is asked for by hand; if nobody can ask any more, the run goes on."""
        try:
            for request in requests_from(self._control):
                self._take_request(**request)
        except TestbedError as error:
            self._ready.unregister(self._control.fileno())
            self._asked.clear()
            sys.stderr.write(f"warning: no faults and commands by hand any more: {error}\n")

    def _take_request(self, number: int, method: str, path: str, body: str) -> None:
        self._asked.add(number)
        answer = partial(self._answer, number)
        now = self._engine.now_ns
        if not self._t0_ns <= now < self._end_ns:
            answer(_BEFORE if now <= self._t0_ns else OVER)
        else:
            self._requests.begin(method, path, body, answer)

    def _answer(self, number: int, answer: Answer) -> None:
        """Answer a request, unless nobody waits for that any more."""
        if number in self._asked:
            self._asked.discard(number)
            with suppress(RunFailedError):  # nobody can: `_take_requests` says so
                self._control.send({"number": number, "status": answer[0], "content": answer[1]})

    def _end_requests(self) -> None:
        """Heal what was injected by hand; commands that are under way have no answer any more."""
        self.faults.heal_by_hand()
        for number in [*self._asked]:
            self._answer(number, OVER)

    def _take(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if "finished" in message:
                self._report = message["finished"]
                self._ready.unregister(self._programs.fileno())
            elif "begun" in message:
                self.faults.begun(OperationStart.model_validate(message["begun"]))
            elif "over" in message:
                self._over = True

    def _deny(self, directions: frozenset[str]) -> None:
        for host in self._all_hosts.values():
            host.deny(directions)

    def _sample_links(self, now: int, _: object) -> None:
        arrived = lost = 0
        for link, direction, sample in self._fabric.samples(now):
            self._record_link(now, link, direction, *sample)
            arrived += sample.bytes if ends_at_host(direction) else 0
            lost += sample.dropped
        self._recorders.flush()
        self._workloads.flush()
        done = min(max(now - self._t0_ns, 0) / self._scenario.duration, 1.0)
        if self._end_ns == NEVER_NS:
            self._progress(self._traffic.describe(now - self._t0_ns, arrived, lost), done)
            self._engine.at(now + self._link_sample_ns, self._sample_links)

    def record(self, report: dict[str, Any]) -> RunRecord:
        """What came of the run, once all devices are closed."""
        duration_ns = self._end_ns - self._t0_ns
        reports = self._workloads.reports()
        flows, hosts = outcomes(self._scenario, reports, duration_ns, self._directory / RAW)
        return RunRecord(
            t0_ns=self._t0_ns,
            duration_s=duration_ns / NS_PER_S,
            base_rtt_ns=self._base_rtt_ns,
            bin_s=bin_width_s(self._base_rtt_ns),
            flows=flows,
            hosts=hosts,
            programs=report["programs"],
            open_operations=report["open"],
            links={direction.name: direction.counts for _, direction in self._fabric},
            packet_hops=sum(direction.counts.packets for _, direction in self._fabric),
        )


def require_paced(scenario: Scenario) -> None:
    """Check that a scenario's programs can run on a simulated fabric.

    Raises:
        InputError: it has none, or has faults that strike the processes of hosts.
    """
    problems = process_problems(scenario)
    if not scenario.programs:
        expected = "program, at least one: other workloads send without the device"
        remedy = "testbed simulate" if scenario.jobs else "testbed simulate, or a command after --"
        where, workload = next(iter(scenario.workloads.items()))
        problems.append(Problem(f"{where}.kind", workload.kind, expected, remedy))
    raise_any(problems)


def idle_rtt_ns(scenario: Scenario) -> int:
    """The base RTT of the fabric while it is idle, measured without any packet of the run."""
    flow = base_rtt_flow(scenario.topology, flows_of(scenario))
    pair = WriteBw(pairs=((flow.src.name, flow.dst.name),), bidirectional=False)
    alone = scenario.model_copy(
        update={"workload": pair, "jobs": (), "timeline": (), "clustermapper": None}
    )
    simulation = Simulation(alone, timing=Timing.EMULATED)
    try:
        return simulation.measure_base_rtt()
    finally:
        simulation.close()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the cycle collector from stopping the fabric at a bad moment."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


@contextmanager
def _many_descriptors() -> Iterator[None]:
    """Let this process have the descriptors that all hosts take, and two for each queue pair."""
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))


def pace(
    scenario: Scenario,
    directory: Path,
    progress: Progress,
    observer: Observer | None = None,
    screen: int | None = None,
) -> None:
    """Run the programs of a scenario on a simulated fabric, and leave records in a run directory.

    The files are those of an emulated run; `manifest.json` says that the fabric was simulated, and
    that it kept step with the clock.

    Args:
        scenario: what is run; `require_paced` has checked it.
        directory: the run directory.
        progress: called with what the run is doing.
        observer: watches the run, and ends it.
        screen: a descriptor to which what programs print goes, too.

    Raises:
        MachineError: this machine cannot run it.
        RunFailedError: the process that runs the programs has ended.
    """
    manifest = Manifest.of(
        scenario,
        ("mrc-testbed",),
        simulated=True,
        paced=True,
        code=code_version(),
        core="C, built by mypyc" if fast.is_built() else "Python",
        cpu=cpu_model(),
        cpus=os.cpu_count(),
        propagation_delay="at the receiver, as in the emulation",
        link_model="simulated: rate, two queues by class, ECN, trimming, faults",
    )
    write_file(directory / MANIFEST, manifest.to_json())
    (directory / RAW).mkdir()
    (directory / LOGS).mkdir(exist_ok=True)
    progress("starting the programs", 0.0)
    base_rtt_ns = idle_rtt_ns(scenario)
    with ExitStack() as stack:
        run = PacedRun(scenario, directory, base_rtt_ns, progress, screen, stack)
        with _undisturbed():
            report = run.run(observer)
    write_file(
        directory / FAULTS, "".join(fault.to_line() for fault in run.faults.records().values())
    )
    write_file(directory / RUN, run.record(report).to_json())
    progress("collecting records", 1.0)
    records.collect(directory)
