"""What every part of the bench is given, and how a part measures in a sandbox."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from testbed.experiment.wakeful import cpus_awake
from testbed.sandbox.processes import call

Sample = TypeVar("Sample")


@dataclass(frozen=True, slots=True)
class Setting:
    """How to measure.

    Attributes:
        repeats: of each measurement.
        results: where runs and pictures are written.
        progress: called with what is being measured.
    """

    repeats: int
    results: Path
    progress: Callable[[str], None]

    def repeat(self, what: str, measure: Callable[[], Sample]) -> list[Sample]:
        """Measure so many times, and report each."""
        samples = []
        for number in range(1, self.repeats + 1):
            self.progress(f"{what} {number}/{self.repeats}")
            samples.append(measure())
        return samples

    @property
    def pictures(self) -> Path:
        """The directory for pictures; it is made if it does not exist."""
        place = self.results / "bench"
        place.mkdir(parents=True, exist_ok=True)
        return place


def in_sandbox(measure: Callable[[], Sample]) -> Sample:
    """Call a function as the first process of a sandbox; return its result, a plain value.

    On CPUs that are kept awake, where that is possible: as in a run.

    Raises what `testbed.sandbox.processes.call` raises.
    """
    with cpus_awake():
        return call(measure, title="the measurement")
