"""A run as its caller sees it: checks the machine, starts the sandbox and follows its progress."""

import os
import platform
import resource
from dataclasses import asdict
from pathlib import Path

from testbed import fast
from testbed.emulation.endpoint.clock import realtime_offset_ns
from testbed.emulation.endpoint.kernel_tcp import require_kernel_support
from testbed.emulation.experiment.experiment import Experiment
from testbed.emulation.experiment.machine import cpu_model, cpus_awake, load_capacity
from testbed.emulation.fabric import openvswitch
from testbed.emulation.fabric.capabilities import require
from testbed.emulation.fabric.link_model import link_model
from testbed.emulation.fabric.openvswitch import Availability
from testbed.installation import commit
from testbed.model.errors import CrashError, RunFailedError
from testbed.model.progress import Progress
from testbed.model.run_files.layout import LOGS, MANIFEST, PCAPS
from testbed.model.run_files.manifest import CarriedLoad, Manifest
from testbed.model.scenario import Scenario
from testbed.results.code_version import code_version
from testbed.results.records import collect
from testbed.results.whole_file import write_file
from testbed.sandbox.channel import Channel
from testbed.sandbox.processes import ProcessFailedError, spawn

PACKAGES = ("mrc-testbed", "mininet", "ryu", "pyroute2", "matplotlib")


def write_manifest(
    directory: Path,
    scenario: Scenario,
    switch: Availability,
    asleep: str | None,
    realtime_offset_ns: int,
) -> None:
    """Write the manifest of an emulated run.

    Args:
        directory: the run's.
        scenario: as it is run.
        switch: what there is of Open vSwitch.
        asleep: why idle CPUs are not kept awake; None if they are.
        realtime_offset_ns: CLOCK_REALTIME minus CLOCK_MONOTONIC.
    """
    manifest = Manifest.of(
        scenario,
        PACKAGES,
        code=code_version(),
        core="C, built by mypyc" if fast.is_built() else "Python",
        kernel=platform.release(),
        cpu=cpu_model(),
        cpus=os.cpu_count(),
        idle_cpus="kept awake" if asleep is None else f"sleep, and may wake up late ({asleep})",
        openvswitch={"datapath": switch.datapath, "reason": switch.reason},
        propagation_delay="held by the endpoints from the kernel's receive timestamp on",
        link_model=_link_model(),
        realtime_offset_ns=realtime_offset_ns,
        capacity=_capacity(scenario),
        git=commit(),
    )
    write_file(directory / MANIFEST, manifest.to_json())


def _capacity(scenario: Scenario) -> CarriedLoad | None:
    """What this machine was measured to carry, and the load to expect; None if it was not."""
    capacity = load_capacity()
    if capacity is None:
        return None
    return CarriedLoad(**asdict(capacity), load=capacity.load(scenario))


def _link_model() -> str:
    missing = link_model.missing()
    if missing is None:
        return "tc-BPF: ECN, trimming, priority, faults; HTB: rate"
    return f"HTB rate and tail drop: no ECN, no trimming, no priority ({missing.what})"


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

    Raises:
        MachineError: this machine cannot run it.
        LateError: the machine was too late, and `stop_if_late` is set.
        RunFailedError: a process ended, or a fault did not take effect.
        KeyboardInterrupt: the user stopped the run; its records stay.
    """
    scenario, directory = experiment.scenario, experiment.directory
    _raise_file_limit()
    with openvswitch.trial() as result:
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
