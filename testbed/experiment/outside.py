"""The host's side of a run: starts the sandbox, follows its progress, ends it whatever happens."""

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

    Raises what `record_experiment` raises.
    """
    record_experiment(scenario, directory, progress, captured, hold, stop_if_late=stop_if_late)
    progress("collecting", 0.95)
    # Here and not in the sandbox: Polars runs threads, which do not survive a fork.
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
    with availability.trial() as found:
        require()
        require_stack(scenario.transport)
        # Mininet loads slowly: while Open vSwitch is tried, and before anything is forked.
        from testbed.experiment.inside import run_in_sandbox  # noqa: PLC0415

        switch = found()
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
    with cpus_awake() as cannot:
        write_manifest(directory, scenario, switch, cannot)
        try:
            process = spawn(run, title="the run", log=directory / LOGS / "run.log")
            process.result(progress)
        except ProcessFailedError as error:
            raise RunFailedError(
                f"the run ended early ({error.reason}); see {directory / LOGS}"
            ) from error
