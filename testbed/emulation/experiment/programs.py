"""The process that runs the programs of a scenario: one command in each host.

It starts them as the user who called sudo, keeps what they print, and reads what they report of
their operations (docs/programs.md). Whatever a program leaves behind becomes a child of this
process, which ends it.

They report operations as lines of text, and one lasts from its first line to its second, as they
are read here:

    begin NAME STEP [BYTES]
    end NAME STEP
"""

import os
import pwd
import resource
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple, Self

from testbed.device.library import Library
from testbed.emulation.endpoint.clock import now_ns
from testbed.model.errors import InputError, MachineError
from testbed.model.fabric.addressing import management_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.faults.kinds import OperationStart
from testbed.model.file_names import is_there
from testbed.model.run_files.content import ProgramRecord
from testbed.model.run_files.layout import PROGRAMS, RAW
from testbed.model.scenario import Job, Scenario
from testbed.model.units import NS_PER_S
from testbed.model.workload import Program, members
from testbed.results.records import OPERATIONS, Recorder, raw_path
from testbed.rights import caller
from testbed.sandbox.channel import Channel
from testbed.sandbox.namespaces import entered_by_name, take_hostname
from testbed.sandbox.processes import Child, spawn
from testbed.sandbox.system_calls import become_subreaper, children_of, die_with_parent

_MOST_LINE: Final = 512
_MOST_SHOWN: Final = 80
_MOST_STEP: Final = (1 << 31) - 1
_MOST_BYTES: Final = 1 << 50
_MOST_NAMES: Final = 100
_MOST_OPEN: Final = 10_000


class _Begun(NamedTuple):
    start_ns: int
    size: int


class ReportedOperations:
    """Records the operations of the programs of a job; times in ns."""

    def __init__(
        self, recorder: Recorder, hosts: int, job: Job, begun: Callable[[str, int, int], None]
    ) -> None:
        """Record nothing yet.

        Args:
            recorder: of the table of operations.
            hosts: the number of programs of the job.
            job: the job.
            begun: called with name, step and time when a host begins an operation.
        """
        self._recorder = recorder
        self._job = job
        self._tell = begun
        self._hosts = hosts
        self._partial: dict[str, bytes] = {}
        self._open: dict[tuple[str, str, int], _Begun] = {}
        self._names: set[str] = set()
        self.refused = Counter[str]()
        """How many lines of each host are none of these."""
        self.first_refused: dict[str, str] = {}
        """The first one of each host, or its beginning."""

    def take(self, host: str, data: bytes, now_ns: int) -> None:
        """Take in what a host's program has written by a time."""
        *lines, rest = (self._partial.get(host, b"") + data).split(b"\n")
        self._partial[host] = rest[: _MOST_LINE + 1]
        for line in lines:
            text = line[: _MOST_LINE + 1].decode("utf-8", "replace")
            if len(line) > _MOST_LINE or not self._line(host, text.split(), now_ns):
                self.refused[host] += 1
                self.first_refused.setdefault(host, text[:_MOST_SHOWN])

    def _line(self, host: str, words: list[str], now_ns: int) -> bool:
        """Act on a line; returns whether it is one of those that are documented."""
        match words:
            case ["begin", name, step]:
                return self._begin(host, name, step, "0", now_ns)
            case ["begin", name, step, size]:
                return self._begin(host, name, step, size, now_ns)
            case ["end", name, step] if step.isdecimal():
                begun = self._open.pop((host, name, int(step)), None)
                if begun is not None:
                    kind = self._job.label(name)
                    row = (now_ns, begun.start_ns, host, kind, int(step), begun.size, self._hosts)
                    self._recorder.append(*row)
                return begun is not None
        return not words

    def _begin(self, host: str, name: str, step: str, size: str, now_ns: int) -> bool:
        numbers = (step, _MOST_STEP), (size, _MOST_BYTES)
        if not all(text.isdecimal() and int(text) <= most for text, most in numbers):
            return False
        is_known = name in self._names or len(self._names) < _MOST_NAMES
        if not is_known or len(self._open) >= _MOST_OPEN or not name.isprintable():
            return False
        self._names.add(name)
        self._open[host, name, int(step)] = _Begun(now_ns, int(size))
        self._tell(self._job.label(name), int(step), now_ns)
        return True

    def open_ones(self, t0_ns: int) -> list[dict[str, Any]]:
        return [
            {
                "host": host,
                "kind": self._job.label(name),
                "number": step,
                "start_s": (at - t0_ns) / NS_PER_S,
            }
            for (host, name, step), (at, _) in self._open.items()
        ]


MASTER_PORT: Final = 29_500
"""torchrun's."""

REPORTS: Final = "TESTBED_REPORTS"
"""The variable with the number of the descriptor to which a program reports operations."""

_REPORTS: Final = 3
"""That number: sh(1) takes no more than one digit."""

GRACE_S: Final = 3.0
"""How long programs have to end: after SIGTERM, and when one of them has failed."""

CHECK_S: Final = 60.0
"""How long a program's own check may take. Ours."""

_MOST_SAID: Final = 2000

MOST_OUTPUT: Final = 64 << 20
"""Bytes of a program's output that are kept. Ours."""

_CHUNK: Final = 1 << 16
_MOST_ROUNDS: Final = 100
"""Rounds in which all that is left of programs is killed; the run's end kills the rest."""


def require_programs(scenario: Scenario) -> None:
    """Check that the command of a scenario can be started here, and what it checks itself.

    Raises:
        InputError: there is no such program or directory, or it is not executable.
        MachineError: its own check has failed.
    """
    for where, program in scenario.programs.items():
        _require_program(program, scenario.topology, where)


def _require_program(program: Program, topology: Topology, where: str) -> None:
    directory = Path(program.directory or ".")
    if not is_there(directory, Path.is_dir):
        found = f"{directory}, which {'is no directory' if is_there(directory) else 'is not there'}"
        raise InputError.of(f"{where}.directory", found, "a directory")
    ranks = range(len(members(program.hosts, topology)) if "{" in program.command[0] else 1)
    for name in dict.fromkeys(program.command_of(rank, topology)[0] for rank in ranks):
        _require_executable(name, program, directory, f"{where}.command[0]")
    if program.check:
        _run_check(program, directory, program.command_of(0, topology), f"{where}.check")


def _require_executable(name: str, program: Program, directory: Path, where: str) -> None:
    if "/" not in name:
        if shutil.which(name, path=_path(program)) is None:
            remedy = f"apt install {_PACKAGES[name]}" if name in _PACKAGES else ""
            expected = "a program on PATH, or the path of one"
            raise InputError.of(where, name, expected, remedy)
        return
    file = directory / name
    if not is_there(file, Path.is_file):
        expected = f"an executable file, relative to {directory.resolve()}"
        found = f"{name}, which is {'no file' if is_there(file) else 'not there'}"
        raise InputError.of(where, found, expected)
    if not file.stat().st_mode & 0o111:
        raise InputError.of(where, name, "an executable file", f"chmod +x {file}")


def _run_check(program: Program, directory: Path, command: list[str], where: str) -> None:
    """Run the program's own check, as its user."""
    check = [*command, *program.check]
    what, remedy = shlex.join(check), f"{where} has the run begin only if that succeeds"
    try:
        process = subprocess.Popen(  # noqa: S603 - the scenario's own, as it announces
            check,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=_environment(program),
            **_as_user(),
        )
    except OSError as error:
        raise MachineError(f"{what} cannot be started: {error.strerror}", remedy) from error
    with process:
        said = _said_until_its_end(process, what, remedy)
    if process.returncode:
        reason = f"says: {said}" if said else f"ended with status {process.returncode}"
        raise MachineError(f"{what} {reason}", remedy)


def _said_until_its_end(process: "subprocess.Popen[bytes]", what: str, remedy: str) -> str:
    """The end of what a check prints; what it has started and left behind is killed."""
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    output, ended = process.stdout.fileno(), os.pidfd_open(process.pid)
    said, until = b"", monotonic() + CHECK_S
    with selectors.DefaultSelector() as selector:
        for descriptor in (output, ended):
            selector.register(descriptor, selectors.EVENT_READ)
        try:
            while (left_s := until - monotonic()) > 0:
                ready = {key.fd for key, _ in selector.select(left_s)}
                if output in ready:
                    data = os.read(output, _CHUNK)  # all that a pipe holds
                    said = (said + data)[-_MOST_SAID:]
                    if not data:
                        selector.unregister(output)
                if ended in ready:
                    return said.decode("utf-8", "replace").strip()
        finally:
            os.close(ended)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    raise MachineError(f"{what} has not ended within {CHECK_S:g} s", remedy)


_PACKAGES: Final = {"ib_write_bw": "perftest", "ib_write_lat": "perftest"}


def _path(program: Program) -> str:
    """Where programs are looked for: beside this Python first, as at the prompt."""
    return program.env.get("PATH") or os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    )


def _environment(program: Program) -> dict[str, str]:
    """The variables of a program, but for those of its place and its device."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("SUDO_")},
        **_of_user(),
        "PATH": _path(program),
        **program.env,
    }


def user_of_programs() -> int:
    """As whose programs are started: those of the caller of sudo, or of this process."""
    user = caller()
    return os.getuid() if user is None else user.uid


def _as_user() -> dict[str, Any]:
    """Arguments with which a process is started as the caller of sudo, in a session of its own."""
    user = caller()
    groups = None if user is None else user.groups
    return {
        "start_new_session": True,
        "user": None if user is None else user.uid,
        "group": None if groups is None else groups[0],
        "extra_groups": groups,
    }


@contextmanager
def _in_host(name: str) -> Iterator[None]:
    with entered_by_name(name):
        take_hostname(name)  # of this process, too, until the next one is started
        yield


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where programs are started: on the emulated fabric, each in the namespace of its host.

    Attributes:
        entered: what starts during its block, given a host's name, runs in that host.
        address_of: the address of a host outside the fabric.
        variables: what the program of a host has in its environment besides, given its name.
        master_port: the port at which the programs meet.
    """

    entered: Callable[[str], AbstractContextManager[object]] = _in_host
    address_of: Callable[[Node], IPv4Address] = management_address
    variables: Callable[[str], Mapping[str, str]] = lambda _: {}
    master_port: int = MASTER_PORT


IN_NAMESPACES: Final = Surroundings()


def start_programs(
    scenario: Scenario,
    directory: Path,
    device: Library,
    log: Path,
    screen: int | None,
    surroundings: Surroundings = IN_NAMESPACES,
) -> Child:
    """Start the process; it starts the programs when it is told to.

    It understands `{"start_ns": t}` and `{"finish": True}`. It sends `{"begun": {...}, "at_ns": t}`
    when an operation begins for which a fault waits, `{"over": True}` when all programs have ended,
    and at the end `{"finished": {"programs": [...], "open": [...]}}`.

    Args:
        scenario: has the command.
        directory: the run directory.
        device: the library by which programs find the device.
        log: of this process.
        screen: a descriptor to which the programs' lines go as well, each after its host's name.
        surroundings: where the programs are started.
    """
    (directory / PROGRAMS).mkdir()

    def work(channel: Channel) -> None:
        with _Programs(scenario, directory, device, channel, screen, surroundings) as programs:
            programs.run()

    return spawn(
        work,
        title="the process that runs the programs",
        isolated=False,
        name="programs",
        log=log,
    )


@dataclass(slots=True)
class _Running:
    """The program of one host in a job.

    Attributes:
        job: the number of its job among those that are programs.
        rank: its number.
        host: the host's name.
        output: the file of what it prints.
        process: it; None if it could not be started.
        status: its exit status, minus the signal if one killed it; None while it runs.
        stopped: whether it was ended here.
        kept: the bytes of its output that were kept.
        dropped: those that were not.
        partial: a line for the screen that is not complete.
    """

    job: int
    rank: int
    host: str
    output: Any
    process: "subprocess.Popen[bytes] | None" = None
    error: str = ""
    status: int | None = None
    ended_ns: int | None = None
    stopped: bool = False
    kept: int = 0
    dropped: int = 0
    partial: bytes = b""

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.status is None

    @property
    def has_failed(self) -> bool:
        return not self.stopped and (bool(self.error) or bool(self.status))


@dataclass(slots=True)
class _Crew:
    """The programs of one job; times in ns.

    Attributes:
        number: the job's.
        job: it.
        operations: what its programs report.
        running: its programs, once they were started.
        stop_ns: when those that still run are told to end, as another has failed.
        kill_ns: when those that have not ended then are killed.
    """

    number: int
    job: Job
    operations: ReportedOperations
    running: list[_Running] = field(default_factory=list)
    stop_ns: int | None = None
    kill_ns: int | None = None

    @property
    def program(self) -> Program:
        assert isinstance(self.job.workload, Program)  # noqa: S101 - it was checked
        return self.job.workload

    @property
    def is_alive(self) -> bool:
        return any(each.is_alive for each in self.running)

    @property
    def has_failed(self) -> bool:
        """Whether any has failed by itself."""
        return any(each.has_failed for each in self.running)

    @property
    def has_hung(self) -> bool:
        """Whether those that were stopped should have ended by themselves.

        Where another has failed they waited for it.
        """
        return not self.program.endless and not self.has_failed


@dataclass(slots=True)
class _Programs:
    """Runs the programs of all hosts; times in ns."""

    scenario: Scenario
    directory: Path
    device: Library
    channel: Channel
    screen: int | None
    surroundings: Surroundings
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _t0_ns: int | None = None
    _pipes: dict[int, Callable[[], None]] = field(default_factory=dict)
    _told: bool = False
    _finishing: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _descriptors: tuple[int, int] = field(
        default_factory=lambda: resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    _recorder: Recorder = field(init=False)
    _crews: list[_Crew] = field(default_factory=list)
    _awaited: set[OperationStart] = field(default_factory=set)

    def __enter__(self) -> Self:
        """Be ready to start programs, and say so."""
        become_subreaper()
        os.setsid()  # the terminal's Ctrl-C goes to the command, which ends this in order
        for ending in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(ending, lambda *_: sys.exit(1))  # by way of `__exit__`
        die_with_parent(os.getppid(), signal.SIGTERM)
        if not Path(f"/proc/self/fd/{_REPORTS}").exists():
            os.dup2(0, _REPORTS)  # nothing else of this process shall have this number
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # otherwise programs would ignore it, too
        _, most = self._descriptors
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # four for each program
        self._recorder = Recorder(raw_path(self.directory / RAW, PROGRAMS, OPERATIONS), OPERATIONS)
        self._stack.enter_context(self._recorder)
        self._stack.enter_context(self._selector)
        jobs = (job for job in self.scenario.job_list if isinstance(job.workload, Program))
        for number, job in enumerate(jobs):
            hosts = len(job.hosts(self.scenario.topology))
            reported = ReportedOperations(self._recorder, hosts, job, self._begun)
            self._crews.append(_Crew(number, job, reported))
        faults = self.scenario.timeline
        self._awaited = {fault.after for fault in faults if fault.after is not None}
        self._selector.register(self.channel, selectors.EVENT_READ, self._command)
        self.channel.send({"ready": True})
        return self

    def __exit__(self, *_: object) -> None:
        """Leave no program behind, however this process ends, and close all files."""
        self._end_what_is_left()
        self._stack.close()

    def run(self) -> None:
        """Run the programs until the run's command to finish, and all have ended."""
        while not (self._finishing and not any(crew.is_alive for crew in self._crews)):
            for key, _ in self._selector.select(self._timeout_s()):
                key.data()
            now = now_ns()
            for crew in self._crews:
                start_ns = self._start_ns(crew)
                if start_ns is not None and now >= start_ns:
                    self._start_all(crew)
                if crew.stop_ns is not None and now >= crew.stop_ns:
                    self._stop_all(crew)
                if crew.kill_ns is not None and now >= crew.kill_ns:
                    crew.kill_ns = None
                    self._signal_all(crew, signal.SIGKILL)
            self._recorder.flush()
            self._tell_when_over(now)
        self._end_what_is_left()
        for descriptor, read in [*self._pipes.items()]:
            os.set_blocking(descriptor, False)
            with suppress(BlockingIOError):
                while descriptor in self._pipes:
                    read()
        self._recorder.flush()
        self._report()

    def _start_ns(self, crew: _Crew) -> int | None:
        """When a job's programs are due to be started; None: they were, or will not be."""
        if crew.running or self._t0_ns is None or self._finishing:
            return None
        return self._t0_ns + crew.job.start

    def _timeout_s(self) -> float | None:
        times = chain.from_iterable(
            (self._start_ns(crew), crew.stop_ns, crew.kill_ns) for crew in self._crews
        )
        due = [at for at in times if at is not None]
        return max((min(due) - now_ns()) / NS_PER_S, 0) if due else None

    def _command(self) -> None:
        for command in self.channel.receive() or [{"finish": True}]:
            if "start_ns" in command:
                self._t0_ns = command["start_ns"]
            else:
                self._finishing = True
                for crew in self._crews:
                    self._stop_all(crew)

    def _begun(self, name: str, step: int, at_ns: int) -> None:
        """Tell the run of the first host that begins an operation for which a fault waits."""
        start = OperationStart(operation=name, number=step)
        if start in self._awaited:
            self._awaited.remove(start)
            self.channel.send({"begun": start.model_dump(), "at_ns": at_ns})

    def _tell_when_over(self, now: int) -> None:
        """Tell the run when all have ended; where one has failed its job's others get some time."""
        if self._told or self._finishing:
            return
        if all(crew.running and not crew.is_alive for crew in self._crews):
            self._told = True
            self.channel.send({"over": True})
            return
        for crew in self._crews:
            if crew.is_alive and crew.stop_ns is None and crew.kill_ns is None and crew.has_failed:
                crew.stop_ns = now + round(GRACE_S * NS_PER_S)

    # --- starting ---------------------------------------------------------------------------

    def _start_all(self, crew: _Crew) -> None:
        for rank, host in enumerate(members(crew.program.hosts, self.scenario.topology)):
            path = self.directory / _output_of(crew.job, host)
            path.parent.mkdir(exist_ok=True)
            output = self._stack.enter_context(path.open("wb", buffering=0))
            running = _Running(crew.number, rank, host, output)
            crew.running.append(running)
            self._start(running)

    def _start(self, running: _Running) -> None:
        crew = self._crews[running.job]
        printed, there = os.pipe()
        reports, reports_there = os.pipe()
        try:
            with self.surroundings.entered(running.host):
                running.process = self._popen(crew.program, running, there, reports_there)
        except (OSError, ValueError) as error:
            running.error = getattr(error, "strerror", None) or str(error)
            running.ended_ns = now_ns()
            for descriptor in (printed, reports):
                os.close(descriptor)
            return
        finally:
            os.close(there)
            os.close(reports_there)
        for descriptor, take in (
            (printed, lambda data: self._print(running, data)),
            (reports, lambda data: crew.operations.take(running.host, data, now_ns())),
        ):
            self._watch(descriptor, take)
        pidfd = os.pidfd_open(running.process.pid)
        self._selector.register(pidfd, selectors.EVENT_READ, lambda: self._ended(running, pidfd))

    def _popen(
        self, program: Program, running: _Running, output: int, reports: int
    ) -> "subprocess.Popen[bytes]":
        parent = os.getpid()

        def prepare() -> None:
            os.dup2(reports, _REPORTS)
            resource.setrlimit(resource.RLIMIT_NOFILE, self._descriptors)
            die_with_parent(parent)

        return subprocess.Popen(  # noqa: S603 - the scenario's own, as it announces
            program.command_of(running.rank, self.scenario.topology),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=program.directory,
            env=self._environment(program, running),
            pass_fds=(_REPORTS,),
            preexec_fn=prepare,  # noqa: PLW1509 - there are no threads
            **_as_user(),
        )

    def _environment(self, program: Program, running: _Running) -> dict[str, str]:
        topology = self.scenario.topology
        hosts = members(program.hosts, topology)
        first = topology.host_named(hosts[0])
        own = {
            **_environment(program),
            "RANK": str(running.rank),
            "WORLD_SIZE": str(len(hosts)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": str(running.rank),
            "MASTER_ADDR": str(self.surroundings.address_of(first)),
            "MASTER_PORT": str(self.surroundings.master_port + running.job),
            REPORTS: str(_REPORTS),
            **self.surroundings.variables(running.host),
            **program.env,  # it may set these, too
        }
        return own | self.device.environment(own)

    # --- while they run ---------------------------------------------------------------------

    def _watch(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        """Hand what comes out of a pipe to a function, until it is closed at the other end."""

        def read() -> None:
            data = os.read(descriptor, _CHUNK)
            take(data)
            if not data:
                self._selector.unregister(descriptor)
                del self._pipes[descriptor]
                os.close(descriptor)

        self._pipes[descriptor] = read
        self._selector.register(descriptor, selectors.EVENT_READ, read)

    def _print(self, running: _Running, data: bytes) -> None:
        kept = 0
        with suppress(OSError):  # the disk is full: the run's own records say so, too
            kept = running.output.write(data[: MOST_OUTPUT - running.kept])
        running.kept += kept
        running.dropped += len(data) - kept
        if self.screen is None:
            return
        *lines, running.partial = (running.partial + data).split(b"\n")
        if (not data and running.partial) or len(running.partial) > _CHUNK:
            lines, running.partial = [*lines, running.partial], b""
        job = self._crews[running.job].job
        text = b"".join(_shown(job.label(running.host), line) for line in lines)
        with suppress(OSError):  # nobody looks any more
            os.write(self.screen, text)

    def _ended(self, running: _Running, pidfd: int) -> None:
        assert running.process is not None  # noqa: S101 - it has ended
        running.status = running.process.wait()
        running.ended_ns = now_ns()
        self._selector.unregister(pidfd)
        os.close(pidfd)

    # --- ending -----------------------------------------------------------------------------

    def _stop_all(self, crew: _Crew) -> None:
        """Have all of a job that run end; those that do not are killed a little later."""
        crew.stop_ns = None
        for each in crew.running:
            if each.is_alive:
                each.stopped = True
        self._signal_all(crew, signal.SIGTERM)
        if crew.kill_ns is None:
            crew.kill_ns = now_ns() + round(GRACE_S * NS_PER_S)

    def _signal_all(self, crew: _Crew, number: int) -> None:
        for each in crew.running:
            if each.process is not None and each.status is None:
                with suppress(ProcessLookupError):
                    os.killpg(each.process.pid, number)

    def _end_what_is_left(self) -> None:
        """Kill what programs have left behind, which are children of this process now."""
        for _ in range(_MOST_ROUNDS):
            left = children_of(os.getpid())
            if not left:
                return
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _report(self) -> None:
        t0_ns = self._t0_ns or 0
        programs = [
            ProgramRecord(
                host=each.host,
                rank=each.rank,
                status=None if each.stopped else each.status,
                error=each.error,
                stopped=each.stopped,
                failed=each.has_failed or (each.stopped and crew.has_hung),
                ended_s=None if each.ended_ns is None else (each.ended_ns - t0_ns) / NS_PER_S,
                output=_output_of(crew.job, each.host),
                output_dropped=each.dropped,
                reports_refused=crew.operations.refused[each.host],
                report_refused=crew.operations.first_refused.get(each.host, ""),
                job=crew.job.name,
            )
            for crew in self._crews
            for each in crew.running
        ]
        report = {
            "programs": [program.model_dump() for program in programs],
            "open": [each for crew in self._crews for each in crew.operations.open_ones(t0_ns)],
        }
        self.channel.send({"finished": report})


def _output_of(job: Job, host: str) -> str:
    """The file of what the program of a host prints, in the run directory."""
    return "/".join(filter(None, (PROGRAMS, job.name, f"{host}.log")))


def _shown(host: str, line: bytes) -> bytes:
    """A line of a program for the screen: whatever it has in it, no control characters."""
    text = line.decode("utf-8", "replace")
    plain = "".join(char if char.isprintable() or char == "\t" else "·" for char in text)
    return f"{host}: {plain}\n".encode()


def _of_user() -> dict[str, str]:
    """The variables by which programs know whose they are."""
    with suppress(KeyError):
        entry = pwd.getpwuid(user_of_programs())
        return {
            "HOME": entry.pw_dir,
            "USER": entry.pw_name,
            "LOGNAME": entry.pw_name,
            "SHELL": entry.pw_shell,
        }
    return {}
