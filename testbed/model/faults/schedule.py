"""From a timeline to scheduled faults: which places have which impairment, and when.

A timeline is what the user writes. Here every repetition of every entry becomes a `ScheduledFault`
with its steps in time. Chance (jitter, targets drawn at random) is drawn here, from the seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.faults.kinds import Fault, OperationStart
from testbed.model.faults.targets import (
    choose_targets,
    expand_groups,
    hosts_meant,
    target_directions,
)


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """From a time on, counted from the fault's origin, the places are in this state."""

    at_ns: int
    state: Impairment = field(compare=False)


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """One repetition of one entry of a timeline.

    Attributes:
        index: its number among all faults of the run.
        kind: its kind.
        target: the names of what it strikes, joined by commas.
        places: what it strikes: directions of links, or hosts where it strikes endpoints.
        steps: its course in order of time; the last step leaves the places healthy if it heals.
        after: the operation from whose start its times count; None: from the start of the run.
    """

    index: int
    kind: str
    target: str
    places: tuple[str, ...]
    steps: tuple[Step, ...]
    after: OperationStart | None = None

    @property
    def at_ns(self) -> int:
        """When it begins, from its origin."""
        return self.steps[0].at_ns

    @property
    def heals_at_ns(self) -> int | None:
        """When it heals, from its origin; None if it never does."""
        last = self.steps[-1]
        return last.at_ns if last.state == HEALTHY else None

    def is_healed_by(self, step: Step) -> bool:
        """Whether this step of its course is the one that heals it."""
        return step is self.steps[-1] and step.state == HEALTHY


def scheduled_faults(
    topology: Topology, timeline: Sequence[Fault], duration_ns: int, seed: int
) -> tuple[ScheduledFault, ...]:
    """Every fault of a timeline, entry by entry.

    Args:
        topology: the fabric; the timeline's names must be names of it.
        timeline: the entries.
        duration_ns: of the run; entries repeat within it.
        seed: repeats the choice of targets and the jitter.
    """
    faults: list[ScheduledFault] = []
    for entry, fault in enumerate(timeline):
        faults += repetitions(topology, fault, duration_ns, f"{seed}/{entry}", first=len(faults))
    return tuple(faults)


def repetitions(
    topology: Topology, fault: Fault, duration_ns: int, seed: str, first: int = 0
) -> Iterator[ScheduledFault]:
    """Every repetition of one entry, numbered from `first` on."""
    for i, start_ns in enumerate(fault.start_times_ns(duration_ns)):
        yield schedule_fault(topology, fault, first + i, start_ns, f"{seed}/{i}")


def schedule_fault(
    topology: Topology, fault: Fault, index: int, start_ns: int, seed: str
) -> ScheduledFault:
    """One repetition of an entry, which begins at `start_ns` of the run, or from `after` on."""
    names = expand_groups(topology, fault.target)
    if fault.choose is not None:
        names = choose_targets(names, fault.choose, seed)
    course = fault.course(Random(f"{seed}/course"))  # noqa: S311 - repeatable chance
    steps = [
        Step(start_ns + offset, replace(state, delay_ns=round(state.delay_ns * topology.dilation)))
        for offset, state in course
    ]
    if fault.heals_at_ns is not None:
        steps.append(Step(start_ns + fault.heals_at_ns - fault.at, HEALTHY))
    target = ", ".join(fault.target if fault.choose is None else names)
    places = _places(topology, fault, names)
    return ScheduledFault(index, fault.kind, target, places, tuple(steps), fault.after)


def _places(topology: Topology, fault: Fault, names: tuple[str, ...]) -> tuple[str, ...]:
    if fault.strikes_hosts:
        return hosts_meant(topology, names)
    directions = (place for name in names for place in target_directions(topology, name) or ())
    return tuple(dict.fromkeys(directions))
