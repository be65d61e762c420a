"""What every part of the bench is given, and how a part measures in a sandbox."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from testbed.experiment.wakeful import cpus_awake
from testbed.model.errors import RunFailedError
from testbed.sandbox.namespaces import start_sandbox

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


def in_sandbox(measure: Callable[[], object]) -> Any:
    """Call a function as the first process of a sandbox; returns its result, as JSON carries it.

    On CPUs that are kept awake, where that is possible: as in a run.

    Raises:
        RunFailedError: it failed; it has said why on stderr.
    """
    reader, writer = os.pipe()

    def answer() -> int:
        found = json.dumps(measure()).encode()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(found)
        return 0

    with cpus_awake():
        waiter = start_sandbox(answer)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            answered = pipe.read()
        os.waitpid(waiter, 0)
    if not answered:
        raise RunFailedError("nothing could be measured: see the messages above")
    return json.loads(answered)
