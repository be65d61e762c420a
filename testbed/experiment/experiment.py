"""What one emulated run is to be."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from testbed.experiment.hold import Hold
from testbed.model.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Experiment:
    """One emulated run.

    Attributes:
        scenario: what to run.
        directory: the run directory, which exists.
        captured: names of the links whose packets, from both ends, go to `pcaps/<link>.pcap`.
        hold: how long the run goes on after its timeline; None: it ends with the timeline.
        stop_if_late: whether the run ends once it cannot be trusted because the machine was late.
    """

    scenario: Scenario
    directory: Path
    captured: Collection[str] = ()
    hold: Hold | None = None
    stop_if_late: bool = False
