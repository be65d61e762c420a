"""What the machines of a command carry: the dilation for `auto`, and a check of the load."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed.cli.running import machine_capacity
from testbed.cli.screen import print_warning
from testbed.model.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from testbed.emulation.experiment.capacity import Capacity
    from testbed.model.scenario import Scenario
    from testbed.runs.cluster.workers import Worker
    from testbed.runs.job import Executor
    from testbed.runs.plan import PlannedRun


@dataclass
class Fitting:
    """Fits scenarios to the machines that emulate them.

    A series is planned twice: first `collecting` its scenarios, then with the one dilation for
    `auto` that all its machines carry with all of them.

    Attributes:
        force: whether a load that is far too high is no error, and this machine is not measured.
        machines: what each machine carries; None: this machine only, measured when that is needed.
        dilation: that for `auto` in all runs of a series; None until it is chosen.
    """

    force: bool
    machines: "tuple[Capacity, ...] | None" = None
    dilation: float | None = None
    _collected: "list[Scenario] | None" = field(default=None, init=False)
    _meanwhile: float | None = field(default=None, init=False)

    @property
    def is_collecting(self) -> bool:
        """Whether scenarios are only collected now, and fitted later."""
        return self._collected is not None

    @contextmanager
    def collecting(self, dilation: float | None = None) -> "Iterator[list[Scenario]]":
        """Collect the scenarios that have `dilation: auto`, during a block; nothing is fitted.

        Args:
            dilation: what is loaded there instead of `auto`; None: the nominal one.
        """
        self._collected, self._meanwhile = [], dilation
        try:
            yield self._collected
        finally:
            self._collected = None

    def choose(self, scenarios: "Sequence[Scenario]", known: float | None) -> None:
        """Choose one dilation for the scenarios that have `dilation: auto`.

        Args:
            scenarios: these, at the nominal dilation; none: there is nothing to choose.
            known: the one that was chosen before, for the runs of the series that are there.

        Raises:
            MachineError: what the machines carry is not known.
        """
        if scenarios:
            self.dilation = known or max(map(self._fitting, scenarios))

    def carries(self, scenarios: "Iterable[Scenario]", dilation: float) -> bool:
        """Whether all machines carry scenarios at a dilation."""
        from testbed.emulation.experiment.capacity import is_too_much

        return not any(
            is_too_much(scenario.at_dilation(dilation), machine)
            for scenario in scenarios
            for machine in self._capacities()
        )

    def dilation_of(self, scenario: "Scenario") -> float:
        """The dilation for `auto` of a scenario.

        Raises:
            MachineError: what the machines carry is not known, and `--force` does not measure.
        """
        if self._collected is not None:
            self._collected.append(scenario)
            return self._meanwhile or scenario.topology.dilation
        return self.dilation or self._fitting(scenario)

    def require(self, name: str, scenario: "Scenario") -> None:
        """Check that every machine carries a scenario, and print a warning if that is not sure.

        Raises:
            MachineError: it is far too much for one, and not forced.
        """
        from testbed.emulation.experiment.capacity import judge_load

        if self._collected is not None:
            return
        capacities = self._capacities()
        if not capacities:
            return
        slowest = max(capacities, key=lambda capacity: capacity.fitting_dilation(scenario))
        if (warning := judge_load(scenario, slowest, force=self.force)) is not None:
            print_warning(f"{name}: {warning}")

    def _fitting(self, scenario: "Scenario") -> float:
        """The smallest dilation at which all machines carry a scenario."""
        capacities = self._capacities()
        if not capacities:
            raise MachineError(
                "dilation: auto needs what this machine carries, and --force measures nothing",
                "testbed doctor --measure once, or give a number: --set topology.dilation=100000",
            )
        return max(capacity.fitting_dilation(scenario) for capacity in capacities)

    def _capacities(self) -> "tuple[Capacity, ...]":
        """What each machine carries; none if that is not known, and `--force` does not measure."""
        from testbed.emulation.experiment.capacity import load_capacity

        if self.machines is not None:
            return self.machines
        capacity = load_capacity() if self.force else machine_capacity()
        return () if capacity is None else (capacity,)


def capacities_of(executor: "Executor", *, force: bool = False) -> "tuple[Capacity, ...] | None":
    """The capacity of each machine of a cluster that emulates; None without a cluster.

    Args:
        executor: of a cluster, or of this machine.
        force: whether machines that have not been measured are left out, and are no error.

    Raises:
        MachineError: one of them has not been measured, and not forced.
    """
    from testbed.emulation.experiment.capacity import Capacity
    from testbed.runs.cluster.executor import ClusterExecutor

    if not isinstance(executor, ClusterExecutor):
        return None
    capacities = []
    for worker in executor.workers:
        if worker.reason("emulated"):
            continue
        calibration = worker.description["calibration"]
        if calibration is not None:
            capacities.append(Capacity(**calibration))
        elif not force:
            raise MachineError(
                f"{worker.name}: it is not known what this machine carries",
                "there, as root: testbed doctor --measure",
            )
    return tuple(capacities)


def keep_slower_out(
    executor: "Executor", runs: "Iterable[PlannedRun]", *, force: bool = False
) -> None:
    """Have workers that join a cluster later emulate only if they carry what is planned.

    Args:
        executor: of a cluster; of this machine, there is nothing to do.
        runs: what is planned for the machines that are there. An emulated run that is too much for
            one of these keeps no worker out.
        force: whether workers that have not been measured make runs, too.

    Raises:
        MachineError: one of the machines has not been measured, and not forced.
    """
    from testbed.emulation.experiment.capacity import Capacity, is_too_much
    from testbed.runs.cluster.executor import ClusterExecutor

    emulated = [run.scenario for run in runs if run.job.form == "emulated"]
    if not isinstance(executor, ClusterExecutor) or not emulated:
        return
    machines = capacities_of(executor, force=force) or ()
    carried = [
        scenario
        for scenario in emulated
        if not any(is_too_much(scenario, machine) for machine in machines)
    ]

    def unfit(worker: "Worker") -> str:
        calibration = worker.description["calibration"]
        if calibration is None:
            unknown = "it is not known what it carries (there, as root: testbed doctor --measure)"
            return "" if force else unknown
        capacity = Capacity(**calibration)
        for scenario in carried:
            if is_too_much(scenario, capacity):
                dilation, least = scenario.topology.dilation, capacity.fitting_dilation(scenario)
                return (
                    f"it came later, and is too slow for {scenario.name} with dilation "
                    f"{dilation:g}, which was chosen without it (it carries {least})"
                )
        return ""

    executor.require(unfit)


def slowest_of(executor: "Executor") -> "Slowest":
    """What the slowest of a cluster's emulating machines carries.

    Raises:
        MachineError: one of them has not been measured.
    """
    return Slowest(capacities_of(executor) or ())


@dataclass(frozen=True)
class Slowest:
    """The capacity of several machines: of each scenario, that of the one that is slowest with it.

    Attributes:
        capacities: what each of them carries.
    """

    capacities: "tuple[Capacity, ...]"

    def load(self, scenario: "Scenario") -> float:
        """The share of its CPUs that a scenario takes, 1.0 being all of them."""
        return max(capacity.load(scenario) for capacity in self.capacities)

    def lateness(self, scenario: "Scenario") -> float:
        """How late its event loops run, as a share of a scenario's round trip."""
        return max(capacity.lateness(scenario) for capacity in self.capacities)
