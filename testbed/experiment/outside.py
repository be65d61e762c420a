"""The host's side of a run: starts the sandbox, follows its progress, ends it whatever happens."""

import json
import os
import pickle
import shutil
import signal
from collections.abc import Callable, Collection
from pathlib import Path

from testbed.endpoint.kernel.available import require_stack
from testbed.experiment.hold import Hold
from testbed.experiment.layout import PCAPS, RAW
from testbed.experiment.manifest import write_manifest
from testbed.experiment.wakeful import cpus_awake
from testbed.fabric.capabilities import require
from testbed.fabric.openvswitch import daemons as openvswitch
from testbed.model.errors import RunFailedError, TestbedError
from testbed.model.progress import Progress
from testbed.model.scenario import Scenario
from testbed.results.records import collect
from testbed.sandbox.namespaces import start_sandbox

_ERROR_FILE = "error.pickle"


def run_experiment(
    scenario: Scenario,
    directory: Path,
    progress: Progress,
    captured: Collection[str] = (),
    hold: Hold | None = None,
    *,
    stop_if_late: bool = False,
) -> None:
    """Run a scenario and leave its records in a run directory, as tables, not yet analysed.

    Raises what `record_experiment` raises.
    """
    record_experiment(scenario, directory, progress, captured, hold, stop_if_late=stop_if_late)
    progress("collecting", 0.95)
    # Here and not in the sandbox: Polars runs threads, which do not survive a fork.
    run = json.loads((directory / "run.json").read_text())
    collect(directory / RAW, directory, run["t0_ns"])
    shutil.rmtree(directory / RAW)


def record_experiment(
    scenario: Scenario,
    directory: Path,
    progress: Progress,
    captured: Collection[str] = (),
    hold: Hold | None = None,
    *,
    stop_if_late: bool = False,
) -> None:
    """Run a scenario and leave in a run directory what its processes recorded, as they did.

    What both ends of the `captured` links send goes to `pcaps/<link>.pcap` in it. With `hold`
    everything goes on after the timeline, until that ends it. With `stop_if_late` it ends once the
    machine was so late that the run cannot be trusted.

    Nothing of the run survives this call, however it ends: all of it lives in a sandbox of
    namespaces that ends with its first process.

    Raises:
        MachineError: this machine cannot run it.
        LateError: the machine was so late that it was ended.
        RunFailedError: a part of it died or a fault did not take effect.
        KeyboardInterrupt: the user stopped it; what was recorded stays.
    """
    with openvswitch.trial() as found:
        require()
        require_stack(scenario.transport)
        # Mininet loads slowly: while Open vSwitch is tried, and before anything is forked.
        from testbed.experiment.inside import run_in_sandbox  # noqa: PLC0415

        switch = found()
    (directory / "logs").mkdir(exist_ok=True)
    wires = switch.datapath is not None

    def run(told: Progress) -> None:
        run_in_sandbox(
            scenario, directory, told, captured, hold, openvswitch=wires, stop_if_late=stop_if_late
        )

    if captured:
        (directory / PCAPS).mkdir()
    with cpus_awake() as cannot:
        write_manifest(directory, scenario, switch, cannot)
        reader, writer = os.pipe()
        waiter = start_sandbox(lambda: _first_process(run, directory, writer))
        os.close(writer)
        try:
            with os.fdopen(reader) as lines:
                for line in lines:
                    what, done = json.loads(line)
                    progress(what, done)
        except BaseException:
            os.kill(waiter, signal.SIGTERM)  # ends the sandbox and everything in it
            raise
        finally:
            _, status = os.waitpid(waiter, 0)
    _raise_error_of(directory)
    code = os.waitstatus_to_exitcode(status)
    if code:
        raise RunFailedError(f"the run ended early ({_words(code)}); see {directory / 'logs'}")


def _words(code: int) -> str:
    if code < 0:
        return f"killed by signal {-code}"
    return f"killed by signal {code - 128}" if code > 128 else f"exit status {code}"  # noqa: PLR2004 - the shell's convention


def _raise_error_of(directory: Path) -> None:
    """Raise here what was raised in the sandbox."""
    place = directory / _ERROR_FILE
    if not place.exists():
        return
    error = pickle.loads(place.read_bytes())  # noqa: S301 - written by our own child
    place.unlink()
    raise error


def _first_process(run: Callable[[Progress], None], directory: Path, writer: int) -> int:
    """Run the experiment as PID 1 of the sandbox; returns its exit status."""
    log = os.open(directory / "logs" / "run.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.set_inheritable(writer, False)

    def progress(what: str, done: float) -> None:
        os.write(writer, json.dumps([what, done]).encode() + b"\n")

    try:
        run(progress)
    except TestbedError as error:
        (directory / _ERROR_FILE).write_bytes(pickle.dumps(error))
        return error.exit_status
    return os.EX_OK
