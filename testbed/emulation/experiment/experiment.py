"""The settings of one emulated run, and the hold after its timeline."""

import os
import select
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.model.scenario import Scenario
from testbed.model.units import NEVER_NS

if TYPE_CHECKING:
    from testbed.emulation.experiment.script import Script

HELD = "held"
"""The step that a run reports as its progress during the hold."""


class Hold:
    """How long a run goes on after its timeline, for faults by hand, until its user ends it.

    It is created before the run's process is forked. The parent ends it, the run's process sees
    that.

    Attributes:
        limit_ns: the longest time of the hold; None if only `end` ends it.
    """

    def __init__(self, limit_ns: int | None = None) -> None:
        """Create a hold of at most `limit_ns`, or without a limit."""
        self.limit_ns = limit_ns
        self._reader, self._writer = os.pipe()

    def end(self) -> None:
        """End the hold now; a signal handler may call this."""
        os.write(self._writer, b".")

    @property
    def has_ended(self) -> bool:
        """Whether `end` has been called, in this process or in its parent."""
        return bool(select.select([self._reader], [], [], 0)[0])

    def until_ns(self, timeline_end_ns: int) -> int:
        """The time at which the run ends unless `end` is called before."""
        return NEVER_NS if self.limit_ns is None else timeline_end_ns + self.limit_ns


@dataclass(frozen=True, slots=True)
class Experiment:
    """One emulated run.

    Attributes:
        scenario: what to run.
        directory: the run directory, which exists.
        captured: names of the links whose packets, from both ends, go to `pcaps/<link>.pcapng`.
        hold: how long the run goes on after its timeline; None: it ends with the timeline.
        stop_if_late: whether the run ends once the machine was too late for it to be trusted.
        screen: a descriptor to which what programs print goes, too.
        script: commands of the prompt, which take the place of the scenario's programs.
        serving: hosts whose endpoint takes its turns as if it served programs as well: those that
            do where the run is compared with another.
    """

    scenario: Scenario
    directory: Path
    captured: Collection[str] = ()
    hold: Hold | None = None
    stop_if_late: bool = False
    screen: int | None = None
    script: "Script | None" = None
    serving: frozenset[str] = frozenset()
