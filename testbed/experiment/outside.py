"""A run as its caller sees it: checks the machine, starts the sandbox and follows its progress."""

import shutil
from collections.abc import Collection
from pathlib import Path

from testbed.endpoint.kernel.available import require_stack
from testbed.experiment.hold import Hold
from testbed.experiment.manifest import write_manifest
from testbed.experiment.wakeful import cpus_awake
from testbed.fabric.capabilities import require
from testbed.fabric.openvswitch import availability
from testbed.model.errors import RunFailedError
from testbed.model.progress import Progress
from testbed.model.run_files.layout import LOGS, PCAPS, RAW, RUN
from testbed.model.run_files.run import RunRecord
from testbed.model.scenario import Scenario
from testbed.results.records import collect
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import ProcessFailedError, spawn


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

    The arguments, and what it raises, are those of `record_experiment`.
    """
    record_experiment(scenario, directory, progress, captured, hold, stop_if_late=stop_if_late)
    progress("collecting", 0.95)
    # Not in the sandbox, whose process was forked: Polars starts threads.
    run = RunRecord.model_validate_json((directory / RUN).read_text())
    collect(directory / RAW, directory, run.t0_ns)
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
    """Run a scenario and leave the raw records of its processes in a run directory.

    Nothing of the run outlives this call, however it ends: all processes live in a sandbox of
    namespaces, which ends with its first process.

    Args:
        scenario: what to run.
        directory: the run directory, which exists.
        progress: called with what the run is doing.
        captured: names of the links whose packets, from both ends, go to `pcaps/<link>.pcap`.
        hold: how long the run goes on after its timeline; None: it ends with the timeline.
        stop_if_late: whether the run ends once it cannot be trusted because the machine was late.

    Raises:
        MachineError: this machine cannot run it.
        LateError: the machine was too late, and `stop_if_late` is set.
        RunFailedError: a process ended, or a fault did not take effect.
        KeyboardInterrupt: the user stopped the run; its records stay.
    """
    with availability.trial() as result:
        require()
        require_stack(scenario.transport)
        # Mininet loads slowly, and here Open vSwitch is being tried meanwhile.
        from testbed.experiment.inside import run_in_sandbox  # noqa: PLC0415

        switch = result()
    (directory / LOGS).mkdir(exist_ok=True)

    def run(channel: Channel) -> None:
        run_in_sandbox(
            scenario,
            directory,
            channel.report,
            captured,
            hold,
            openvswitch=switch.datapath is not None,
            stop_if_late=stop_if_late,
        )

    if captured:
        (directory / PCAPS).mkdir()
    with cpus_awake() as reason:
        write_manifest(directory, scenario, switch, reason)
        try:
            process = spawn(run, title="the run", log=directory / LOGS / "run.log")
            process.result(progress)
        except ProcessFailedError as error:
            raise RunFailedError(
                f"the run ended early ({error.reason}); see {directory / LOGS}"
            ) from error
