"""A run as its caller sees it: checks the machine, starts the sandbox and follows its progress."""

import resource

from testbed.emulation.endpoint.clock import realtime_offset_ns
from testbed.emulation.endpoint.kernel.stack import require_kernel_support
from testbed.emulation.experiment.experiment import Experiment
from testbed.emulation.experiment.machine import cpus_awake
from testbed.emulation.experiment.manifest import write_manifest
from testbed.emulation.fabric.capabilities import require
from testbed.emulation.fabric.openvswitch import availability
from testbed.model.errors import CrashError, RunFailedError
from testbed.model.progress import Progress
from testbed.model.run_files.layout import LOGS, PCAPS
from testbed.results.records import collect
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import ProcessFailedError, spawn


def run_experiment(experiment: Experiment, progress: Progress) -> None:
    """Make a run and leave its records in its run directory, as tables, not yet analysed.

    The arguments, and what it raises, are those of `record_experiment`.
    """
    record_experiment(experiment, progress)
    progress("collecting", 0.95)
    # Not in the sandbox, whose process was forked: Polars starts threads.
    collect(experiment.directory)


def record_experiment(experiment: Experiment, progress: Progress) -> None:
    """Make a run and leave the raw records of its processes in its run directory.

    Nothing of the run outlives this call, however it ends: all processes live in a sandbox of
    namespaces, which ends with its first process.

    Args:
        experiment: the run.
        progress: called with what the run is doing.

    Raises:
        MachineError: this machine cannot run it.
        LateError: the machine was too late, and `stop_if_late` is set.
        RunFailedError: a process ended, or a fault did not take effect.
        KeyboardInterrupt: the user stopped the run; its records stay.
    """
    scenario, directory = experiment.scenario, experiment.directory
    _raise_file_limit()
    with availability.trial() as result:
        require()
        require_kernel_support(scenario.transport)
        # Mininet loads slowly, and here Open vSwitch is being tried meanwhile.
        from testbed.emulation.experiment.inside import run_in_sandbox  # noqa: PLC0415

        switch = result()
    (directory / LOGS).mkdir(exist_ok=True)

    offset_ns = realtime_offset_ns()

    def run(channel: Channel) -> None:
        run_in_sandbox(
            experiment,
            channel.report,
            openvswitch=switch.datapath is not None,
            realtime_offset_ns=offset_ns,
        )

    if experiment.captured:
        (directory / PCAPS).mkdir()
    with cpus_awake() as reason:
        write_manifest(directory, scenario, switch, reason, offset_ns)
        try:
            process = spawn(run, title="the run", log=directory / LOGS / "run.log")
            process.result(progress)
        except ProcessFailedError as error:
            failure = CrashError if isinstance(error, CrashError) else RunFailedError
            raise failure(
                f"the run ended early ({error.reason}); see {directory / LOGS}"
            ) from error


def _raise_file_limit() -> None:
    """Allow as many open files as may be: a fabric takes several for each node."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
