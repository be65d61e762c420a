"""What the machines carry: the dilation for `auto`, and a check of the load."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from testbed.model.errors import MachineError
from testbed.model.files.scenarios import Dilation
from testbed.model.progress import Progress
from testbed.runs.making import Warn, to_stderr

if TYPE_CHECKING:
    from testbed.emulation.experiment.machine import Capacity
    from testbed.model.scenario import Scenario

Loaded = TypeVar("Loaded")

Showing = Callable[[], AbstractContextManager[Progress]]
"""Shows progress during a block."""


def silently() -> AbstractContextManager[Progress]:
    """Show no progress during a block."""
    return nullcontext(lambda *_: None)


@dataclass(frozen=True)
class Machines:
    """The machines that emulate.

    Attributes:
        find: finds what each of them carries, when that is first needed; none: it is not known.
        force: whether a load that is far too high is no error.
        warn: called with a load that is probably too high.
    """

    find: "Callable[[], tuple[Capacity, ...]]"
    force: bool = False
    warn: Warn = to_stderr

    @classmethod
    def here(
        cls, *, force: bool = False, showing: Showing = silently, warn: Warn = to_stderr
    ) -> "Machines":
        """This machine. It is measured if that is not known; not where a load is forced."""

        def find() -> "tuple[Capacity, ...]":
            from testbed.emulation.experiment.machine import load_capacity

            capacity = load_capacity() if force else machine_capacity(showing, warn)
            return () if capacity is None else (capacity,)

        return cls(find, force, warn)

    @classmethod
    def pacing(cls, *, showing: Showing = silently, warn: Warn = to_stderr) -> "Machines":
        """This machine where programs send on a simulated fabric; it is measured each time."""

        def find() -> "tuple[Capacity, ...]":
            from testbed.device.paced.fitting import measured

            with showing() as progress:
                progress("measuring what this machine carries", 0.0)
                return (measured(),)

        return cls(find, warn=warn)

    @cached_property
    def capacities(self) -> "tuple[Capacity, ...]":
        """What each of them carries; none: it is not known.

        Raises:
            MachineError: it cannot be found out.
        """
        return self.find()

    def load(self, scenario: "Scenario") -> float:
        """The share of its CPUs that a scenario takes of the slowest, 1.0 being all of them."""
        return max(capacity.load(scenario) for capacity in self.capacities)

    def lateness(self, scenario: "Scenario") -> float:
        """How late event loops run on the slowest, as a share of a scenario's round trip."""
        return max(capacity.lateness(scenario) for capacity in self.capacities)

    def fitting_dilation(self, scenario: "Scenario") -> float:
        """The smallest dilation at which all of them carry a scenario.

        Raises:
            MachineError: what they carry is not known, and `force` does not measure.
        """
        if not self.capacities:
            raise MachineError(
                "dilation: auto needs what this machine carries, and --force measures nothing",
                "testbed doctor --measure once, or give a number: --set topology.dilation=100000",
            )
        return max(capacity.fitting_dilation(scenario) for capacity in self.capacities)

    def carry(self, scenarios: "Iterable[Scenario]") -> bool:
        from testbed.emulation.experiment.machine import is_too_much

        return not any(is_too_much(s, machine) for s in scenarios for machine in self.capacities)

    def require(self, scenario: "Scenario", name: str = "") -> None:
        """Check that every machine carries a scenario, and warn if that is not sure.

        Raises:
            MachineError: it is far too much for one, and not forced.
        """
        from testbed.emulation.experiment.machine import judge_load

        if not self.capacities:
            return
        slowest = max(self.capacities, key=lambda capacity: capacity.fitting_dilation(scenario))
        if (warning := judge_load(scenario, slowest, force=self.force)) is not None:
            self.warn(f"{name or scenario.name}: {warning}")


def with_fitting_dilation(
    load: Callable[[Dilation], Loaded],
    machines: Machines,
    known: float | None = None,
) -> tuple[Loaded, float | None]:
    """Load scenarios with one dilation for `auto`: the smallest that all machines carry with all.

    Args:
        load: loads them with a dilation for `auto`; it is called twice if one of them has that.
        machines: what carries them.
        known: the dilation that was chosen before, if any.

    Returns:
        The scenarios, and that dilation; None if none of them has `auto`.

    Raises:
        MachineError: what the machines carry is not known.
    """
    to_fit = list["Scenario"]()

    def note(scenario: "Scenario") -> float:
        to_fit.append(scenario)
        return scenario.topology.dilation

    loaded = load(note)
    if not to_fit:
        return loaded, None
    dilation = known or max(map(machines.fitting_dilation, to_fit))
    return load(lambda _: dilation), dilation


def machine_capacity(showing: Showing = silently, warn: Warn = to_stderr) -> "Capacity":
    """What this machine carries, measured now if it is not known.

    Raises:
        MachineError: this machine cannot run the testbed, or not even be measured.
    """
    from testbed.emulation.experiment.machine import load_capacity
    from testbed.emulation.fabric.capabilities import require

    capacity = load_capacity()
    if capacity is not None:
        return capacity
    require()
    return measure_capacity(showing, warn)


def measure_capacity(showing: Showing = silently, warn: Warn = to_stderr) -> "Capacity":
    """Measure what this machine carries, and store it."""
    from testbed.emulation.experiment.calibration import calibrate
    from testbed.emulation.experiment.machine import save_capacity

    with showing() as progress:
        capacity = calibrate(lambda _, done: progress("measuring what this machine carries", done))
    try:
        save_capacity(capacity)
    except OSError as error:
        warn(f"what was measured is not kept for the next run: {error}")
    return capacity
