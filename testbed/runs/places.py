"""Where runs are made: on this machine, or by the workers of a cluster (`--on`)."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor as Pool
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.model.errors import MachineError
from testbed.results.whole_file import writing
from testbed.runs.cluster.executor import ClusterExecutor, cluster_executor, worker_pool
from testbed.runs.cluster.place import place_of
from testbed.runs.fitting import Machines
from testbed.runs.job import Executor, Form, PlannedRun
from testbed.runs.process import LocalExecutor

if TYPE_CHECKING:
    from testbed.emulation.experiment.machine import Capacity
    from testbed.runs.cluster.calls import Worker


@contextmanager
def executor_at(on: str | None, directory: Path, wanted: Mapping[Form, str]) -> Iterator[Executor]:
    """Make runs at a place during a block.

    Args:
        on: the value of `--on`; None: on this machine.
        directory: the directory of the runs.
        wanted: the forms of the runs that will be made, each with the name of its first one.

    Raises:
        InputError: there is no such place.
        MachineError: it cannot make the runs.
    """
    if on is not None:
        with cluster_executor(place_of(on), directory, wanted) as cluster:
            yield cluster
        return
    here = LocalExecutor(directory)
    try:
        yield here
    finally:
        here.stop()


@contextmanager
def pool_at(on: str | None, name: str, directory: Path) -> Iterator[Pool | None]:
    """Workers for calls of functions of the testbed during a block; None: this machine's threads.

    Args:
        on: the value of `--on`.
        name: what is done there, for errors.
        directory: all machines have it under one path; certificates and logs are written there.

    Raises:
        InputError: there is no such place.
        MachineError: it has no worker with this version of the code.
    """
    if on is None:
        yield None
        return
    place = place_of(on)
    with writing("--on", directory, "a directory to write to, for its certificates and logs"):
        directory.mkdir(parents=True, exist_ok=True)
    with worker_pool(place, name, directory) as pool:
        yield pool


def know_finished(executor: Executor, runs: Iterable[PlannedRun]) -> bool:
    """Have a cluster take for known what is finished now; whether it is one.

    The command looks at the runs after that (`ClusterExecutor.know_finished`).
    """
    if not isinstance(executor, ClusterExecutor):
        return False
    executor.know_finished(run.job for run in runs)
    return True


def machines_of(executor: Executor, here: Machines, *, unmeasured: bool = False) -> Machines:
    """The machines on which an executor makes emulated runs.

    Args:
        executor: of a cluster, or of this machine.
        here: this machine.
        unmeasured: whether machines that have not been measured are left out, and are no error.
    """
    if not isinstance(executor, ClusterExecutor):
        return here

    def find() -> "tuple[Capacity, ...]":
        from testbed.emulation.experiment.machine import Capacity

        capacities = []
        for worker in executor.calls.workers.values():
            if worker.reason("emulated"):
                continue
            if worker.calibration is not None:
                capacities.append(Capacity(**worker.calibration))
            elif not unmeasured:
                what = f"{worker.host}: it is not known what this machine carries"
                why = f" ({worker.unmeasured})" if worker.unmeasured else ""
                raise MachineError(what + why, "there, as root: testbed doctor --measure")
        return tuple(capacities)

    return Machines(find, here.force, here.warn)


def keep_slower_out(executor: Executor, runs: Iterable[PlannedRun], *, force: bool = False) -> None:
    """Have workers that join a cluster later emulate only if they carry what is planned.

    Args:
        executor: of a cluster; of this machine, there is nothing to do.
        runs: what is planned for the machines that are there. An emulated run that is too much for
            one of these keeps no worker out.
        force: whether workers that have not been measured make runs, too.

    Raises:
        MachineError: one of the machines has not been measured, and not forced.
    """
    emulated = [run.scenario for run in runs if run.job.form == "emulated"]
    if not isinstance(executor, ClusterExecutor) or not emulated:
        return
    from testbed.emulation.experiment.machine import Capacity, is_too_much

    machines = machines_of(executor, Machines.here(force=force), unmeasured=force)
    carried = [scenario for scenario in emulated if machines.carry([scenario])]

    def unfit(worker: "Worker") -> str:
        if worker.calibration is None:
            unknown = "it is not known what it carries (there, as root: testbed doctor --measure)"
            return "" if force else unknown
        capacity = Capacity(**worker.calibration)
        for scenario in carried:
            if is_too_much(scenario, capacity):
                dilation, least = scenario.topology.dilation, capacity.fitting_dilation(scenario)
                return (
                    f"it came later, and is too slow for {scenario.name} with dilation "
                    f"{dilation:g}, which was chosen without it (it carries {least})"
                )
        return ""

    executor.calls.require(unfit)
