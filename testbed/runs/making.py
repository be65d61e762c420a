"""One run, made in this process: from its scenario to its summary."""

import gc
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from testbed.installation import not_linux, require_emulation
from testbed.model.errors import (
    ClusterLostError,
    CrashError,
    InputError,
    LateError,
    MachineError,
    TestbedError,
    raise_any,
)
from testbed.model.run_files.layout import LOGS, MANIFEST
from testbed.results.records import require_threads
from testbed.results.run_directory import RunDirectory, cleaning, making_run
from testbed.runs.job import DRAWN, UNDRAWN, Form, How
from testbed.sandbox.processes import ENDING_SIGNALS, signals_handled

if TYPE_CHECKING:
    from testbed.emulation.experiment.script import Script
    from testbed.model.fabric.topology import Topology
    from testbed.model.progress import Progress
    from testbed.model.scenario import Scenario
    from testbed.model.summary import Summary
    from testbed.runs.result import Result
    from testbed.sim.run import Observer

Watch = Callable[["Scenario", RunDirectory], AbstractContextManager[Any]]
"""What goes on while a run is made and analysed, in a block around that. It yields what holds an
emulated run (`Hold`), what observes a simulated one (`Observer`), or None."""

Warn = Callable[[str], object]
"""Called with what may spoil a run, and does not prevent it."""

ALL = "all"
"""All links, of those that are captured."""

_UNDER_WAY = "\0mrc-testbed-run"

_YOUNG_OBJECTS = 100_000
"""New objects from which on the garbage collector looks for cycles among them (Python: 700).
Simulating and drawing make many objects and few cycles."""


def to_stderr(text: str) -> None:
    sys.stderr.write(f"warning: {text}\n")


def make(
    scenario: "Scenario",
    form: Form,
    results: Path,
    *,
    how: How = DRAWN,
    folder: str | None = None,
    progress: "Progress" = lambda *_: None,
    watch: Watch | None = None,
    warn: Warn = to_stderr,
    screen: int | None = None,
    script: "Script | None" = None,
) -> "Result":
    """Make a run, in this process, and analyse it.

    Args:
        scenario: what is run; it was checked (`require_makeable`).
        form: with real packets (root), or in virtual time.
        results: the directory of all results; the run gets one of its own below it.
        how: how it is made, beside its scenario.
        folder: the directory in that of all results; None for the scenario's name.
        progress: called with what is being done, and the share done.
        watch: goes on meanwhile.
        warn: called with what may spoil it.
        screen: a descriptor to which what programs of an emulated run print goes, too.
        script: commands of the prompt, in place of the programs of an emulated run.

    Raises:
        InputError: `results` cannot be written to, or code of the user's own is wrong.
        MachineError: this machine cannot run it, or ran out of something.
        RunFailedError: it did not finish; of a `CrashError` the program is to blame.
        Stopped: a signal ended it (`signals_stop`).

    Of an error, and of `Stopped`, the attribute `kept` says what is kept of the run.
    """
    from testbed.runs.result import Result

    require_threads()
    with (
        making_run(results, folder or scenario.name, scenario.seed) as directory,
        _saying_what_is_kept(directory, form),
        nullcontext() if watch is None else watch(scenario, directory) as onlooker,
    ):
        if form == "emulated":
            from testbed.emulation.experiment import outside
            from testbed.emulation.experiment.experiment import Experiment

            captured, late = links_named(scenario.topology, how.pcap), how.stop_if_late
            with _telling_of_another(warn):
                outside.run_experiment(
                    Experiment(scenario, directory.path, captured, onlooker, late, screen, script),
                    progress,
                )
                serving = scenario.hosts_of_programs
                for alone, place, told in _runs_alone(directory.path, scenario, form, progress):
                    outside.run_experiment(
                        Experiment(alone, place, stop_if_late=late, serving=serving), told
                    )
        elif form == "paced":
            from testbed.device.paced.run import idle_rtt_ns, pace
            from testbed.sim import simulate
            from testbed.sim.fabric import Timing

            pace(scenario, directory.path, progress, onlooker, screen)
            for alone, place, told in _runs_alone(directory.path, scenario, form, progress):
                if alone.programs:
                    pace(alone, place, told)
                else:  # as beside programs: nothing is sent before it begins
                    timing, rtt_ns = Timing.EMULATED, idle_rtt_ns(alone)
                    simulate(alone, place, told, timing, base_rtt_ns=rtt_ns)
        if form == "simulated":
            summary = simulate_into(directory.path, scenario, how, progress, onlooker)
        else:
            with _collecting_seldom():
                for _, place, _ in _runs_alone(directory.path, scenario, form, progress):
                    _analysed(place, UNDRAWN, progress)
                summary = _analysed(directory.path, how, progress)
    return Result.of(directory.path, summary)


def simulate_into(
    directory: Path,
    scenario: "Scenario",
    how: How = UNDRAWN,
    progress: "Progress" = lambda *_: None,
    observer: "Observer | None" = None,
) -> "Summary":
    """Simulate and analyse a run in a directory that is there: of a fork, say.

    The arguments are those of `make`.
    """
    from testbed.sim import simulate

    with _collecting_seldom():
        simulate(scenario, directory, progress, observer=observer)
        for alone, place, told in _runs_alone(directory, scenario, "simulated", progress):
            simulate_into(place, alone, progress=told)
        return _analysed(directory, how, progress)


def _runs_alone(
    directory: Path, scenario: "Scenario", form: Form, progress: "Progress"
) -> Iterator[tuple["Scenario", Path, "Progress"]]:
    """Of each job that is also run alone its scenario, its run directory and its progress."""
    from testbed.model.run_files.layout import alone_directory

    jobs = scenario.run_alone(simulated=form == "simulated")
    for i, job in enumerate(jobs):
        place = directory / alone_directory(job.name)
        (place / LOGS).mkdir(parents=True, exist_ok=True)

        def told(step: str, share: float, i: int = i, name: str = job.name) -> None:
            progress(f"{name} alone: {step}", (i + share) / len(jobs))

        yield scenario.alone(job), place, told


def _analysed(directory: Path, how: How, progress: "Progress") -> "Summary":
    from testbed.results.analyse import analyse

    progress("analysing", 1.0)
    return analyse(directory, drawn=how.drawn, require_trusted=how.require_trusted)


def require_makeable(
    scenario: "Scenario", form: Form, how: How = DRAWN, *, here: bool = True
) -> None:
    """Check all that can be checked before a run begins, but the load (`Machines.require`).

    Args:
        scenario: what is to be run.
        form: how.
        how: the same, beside the scenario.
        here: whether on this machine, of which the rest is checked.

    Raises:
        InputError: the scenario cannot be run in this form, or the links that are captured are not
            there.
        MachineError: this machine has no room for it, or does not emulate.
    """
    from testbed.runs import room

    if form == "simulated":
        from testbed.sim.run import require_simulated

        require_simulated(scenario)
        room.require_room_to_simulate(scenario)
        return
    if form == "paced":
        from testbed.device.paced.run import require_paced
        from testbed.emulation.experiment.programs import require_programs

        if (elsewhere := not_linux()) is not None:
            raise MachineError(*elsewhere)
        require_paced(scenario)
        room.require_room_to_simulate(scenario)
        require_programs(scenario)
        return
    if scenario.topology.pause is not None:
        raise InputError.of(
            "topology.pause",
            str(scenario.topology.pause),
            "null: Linux has no priority flow control",
            "use testbed simulate, which has it",
        )
    if here:
        if (elsewhere := not_linux()) is not None:
            raise MachineError(*elsewhere)
        require_emulation()
        from testbed.emulation.experiment.programs import require_programs

        room.require_room(scenario)
        require_programs(scenario)
    links_named(scenario.topology, how.pcap)


def links_named(topology: "Topology", names: Sequence[str]) -> list[str]:
    """The links that `--pcap` names, each once: a link, a node (all its links), or `all`.

    Raises:
        InputError: the fabric has no such link or node.
    """
    from testbed.model.fabric.names import node_named, unknown_link

    known = [name for name in names if name == ALL or node_named(topology, name) is not None]
    raise_any(unknown_link(topology, "--pcap", name) for name in names if name not in known)
    links: dict[str, None] = {}
    for name in names:
        node = node_named(topology, name)
        if name == ALL:
            links |= dict.fromkeys(topology.links)
        elif node is not None:
            links |= dict.fromkeys(link.name for _, _, link in topology.adjacency[node])
        else:
            links[name] = None
    return list(links)


@contextmanager
def _telling_of_another(warn: Warn) -> Iterator[None]:
    """Warn if another run is under way on this machine: each makes the other late.

    The sign is a name among the sockets of the host's network namespace, which is no file.
    """
    with socket.socket(socket.AF_UNIX) as sign:
        try:
            sign.bind(_UNDER_WAY)
        except OSError:
            warn("another run is under way on this machine: both may not be trusted")
        yield


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Look for garbage less often during a block.

    An emulated run is made before: its processes would inherit that, and pause longer.
    """
    usual = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


class Stopped(KeyboardInterrupt):
    """A signal stops what is being made.

    Attributes:
        number: the signal's.
        kept: what is kept of a run; empty of several.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.kept = ""

    @property
    def name(self) -> str:
        return signal.Signals(self.number).name


@contextmanager
def signals_stop() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP stop the block, except those that are ignored (nohup).

    Raises:
        Stopped: one came.
    """
    received: list[int] = []

    def stop(number: int, _: FrameType | None) -> NoReturn:
        received.append(number)
        raise Stopped(number)

    numbers = [n for n in ENDING_SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
    with signals_handled(numbers, stop):
        try:
            yield
        except Exception as error:
            if received:  # it was raised within a library, which made an error of its own of it
                raise Stopped(received[0]) from error
            raise


@contextmanager
def naming_how_to_resume(how: str) -> Iterator[None]:
    """If the block is stopped, or the machine fails it, say how to make what is left of it."""
    try:
        yield
    except MachineError as error:
        usual = "" if isinstance(error, ClusterLostError) and how else error.remedy
        error.remedy = "; then ".join(filter(None, (usual, how)))
        raise
    except Stopped as stopped:
        stopped.kept = how or stopped.kept
        raise


@contextmanager
def naming_shortage(directory: Path) -> Iterator[None]:
    """Where the block fails for want of space, memory or open files, say so.

    Raises:
        MachineError: something was short.
    """
    from testbed.runs.room import shortage

    try:
        yield
    except (InputError, MachineError):
        raise
    except Exception as error:
        cause = shortage(error, directory)
        if cause is None:
            raise
        raise cause from error


@contextmanager
def _saying_what_is_kept(directory: RunDirectory, form: Form) -> Iterator[None]:
    """If the block fails or is stopped, keep what is of use, and say in `kept` what that is."""
    from testbed.runs.room import shortage

    try:
        yield
    except LateError as error:
        directory.remove()
        error.kept = "nothing is kept"
        raise
    except Exception as error:
        cause, is_known = shortage(error, directory.path), isinstance(error, TestbedError)
        if isinstance(error, TestbedError) and cause is None:
            error.kept = _keep(directory, form)
            raise
        told = cause or _crash(error, directory)
        found = f"{error}" if is_known else f"{type(error).__name__}: {error}"
        kept = _keep(directory, form if cause else None)
        told.kept = f"{found}\n  {kept}" if cause else kept
        raise told from error
    except BaseException as error:
        kept = _keep(directory, form)
        if isinstance(error, Stopped):
            error.kept = kept
        raise


def _crash(error: Exception, directory: RunDirectory) -> CrashError:
    """The error of a mistake in the program, whose traceback is with the run."""
    text = "".join(traceback.format_exception(error))
    try:
        place = str(directory.write(f"{LOGS}/traceback.log", text))
    except OSError:  # the directory is gone, for example
        place = text
    return CrashError(f"{type(error).__name__}: {error}\n  traceback: {place}")


def _keep(directory: RunDirectory, form: Form | None) -> str:
    """Keep the directory of a failed run if that is of use, and return what to report.

    Args:
        directory: the run's.
        form: how it was made: half of a simulated one is of no use; None: there is a traceback.
    """
    if directory.complete:
        return f"its records are complete: testbed report {directory.path}"
    files = (path for path in directory.path.rglob("*") if path.is_file())
    has_any = any(path.stat().st_size for path in files if path.name != MANIFEST)
    if has_any and form != "simulated":
        return f"kept so far ({cleaning(directory.path)} removes it): {directory.path}"
    directory.remove()
    return "nothing is kept" if has_any else "nothing was recorded, nothing is kept"
