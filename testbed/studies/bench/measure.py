"""The parts of the bench: what each is given, and the measurements that it returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TypeVar

from testbed.emulation.experiment.machine import cpus_awake
from testbed.model.summary.unit import NEVER
from testbed.model.units import show_duration, show_number, show_share
from testbed.sandbox.processes import call

Sample = TypeVar("Sample")

_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
"""Nanoseconds in each unit of a time."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How to measure.

    Attributes:
        repeats: of each measurement.
        results: where runs and pictures are written.
        progress: called with what is being measured.
        htsim: a checkout of uet-htsim in which it is built, for the part that runs it.
    """

    repeats: int
    results: Path
    progress: Callable[[str], None]
    htsim: Path | None = None

    def repeat(self, what: str, measure: Callable[[], Sample]) -> list[Sample]:
        """Measure this many times, and report each measurement."""
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


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value that was measured, with its target.

    Attributes:
        name: what was measured.
        unit: of samples and target; empty for a plain number.
        samples: a value for every repeat; none if it could not be measured.
        at_most: the target where less is better, else None.
        at_least: the target where more is better, else None.
        every: whether every sample must meet the target, not only their median.
        missing: why it could not be measured, and what to do about it; empty where it was.
    """

    name: str
    unit: str
    samples: tuple[float, ...]
    at_most: float | None = None
    at_least: float | None = None
    every: bool = False
    missing: str = ""

    @property
    def median(self) -> float | None:
        """The median of the samples; None if it could not be measured."""
        return median(self.samples) if self.samples else None

    @property
    def holds(self) -> bool:
        """Whether the median, or every sample, meets the target; False if it was not measured."""
        middle = self.median
        if middle is None:
            return False
        judged = self.samples if self.every else (middle,)
        too_much = self.at_most is not None and max(judged) > self.at_most
        too_little = self.at_least is not None and min(judged) < self.at_least
        return not too_much and not too_little

    def show(self, value: float) -> str:
        """A value with its unit; a time in a unit that fits it; what never happened as "never"."""
        if value == NEVER:
            return "never"
        if self.unit in _NS:
            return show_duration(value * _NS[self.unit])
        if self.unit == "%":
            return show_share(value / 100)
        return f"{show_number(value)} {self.unit}".rstrip()

    @property
    def target(self) -> str:
        """The target in words, empty if there is none."""
        each = ", each" if self.every else ""
        if self.at_most is not None:
            return f"≤ {self.show(self.at_most)}{each}"
        if self.at_least is not None:
            return f"≥ {self.show(self.at_least)}{each}"
        return ""

    def to_json(self) -> dict[str, object]:
        """It as plain data; what never happened is "never"."""
        keys = ("name", "unit", "target", "holds", "missing")
        samples = [_in_json(sample) for sample in self.samples]
        numbers = {"median": _in_json(self.median), "samples": samples}
        return {key: getattr(self, key) for key in keys} | numbers


def _in_json(number: float | None) -> float | str | None:
    return "never" if number == NEVER else number


def at_most(
    name: str, unit: str, samples: Sequence[float], target: float, *, every: bool = False
) -> Measurement:
    """A value that must not be above its target."""
    return Measurement(name, unit, tuple(samples), at_most=target, every=every)


def at_least(
    name: str, unit: str, samples: Sequence[float], target: float, *, every: bool = False
) -> Measurement:
    """A value that must not be below its target."""
    return Measurement(name, unit, tuple(samples), at_least=target, every=every)


def no_target(name: str, unit: str, samples: Sequence[float]) -> Measurement:
    return Measurement(name, unit, tuple(samples))


def not_measured(measurement: Measurement, why: str) -> Measurement:
    """A value that this machine cannot measure: it does not hold, and says why."""
    return replace(measurement, samples=(), missing=why)


@dataclass(frozen=True, slots=True)
class BenchPart:
    """A part of the bench.

    Attributes:
        what: what it measures, in a line.
        module: the module of this package that measures it, in a function of its name.
        most_repeats: what takes long and varies little is not repeated more often.
        root: whether it needs root.
        only_if_named: whether it is measured only if it is named: it needs another program.
    """

    what: str
    module: str
    most_repeats: int = 1000
    root: bool = True
    only_if_named: bool = False


PARTS: Mapping[str, BenchPart] = {
    "bring-up": BenchPart("the default fabric, against stock Mininet and iproute2", "bring_up"),
    "link-model": BenchPart("CPU time of a packet on a link", "links"),
    "rate": BenchPart("links against the rate that they were given", "links", 3),
    "faults": BenchPart("how soon the controller's faults hold, and heal", "links", 5),
    "packet-rate": BenchPart("one queue pair beside a C program", "packet_rate"),
    "device": BenchPart("perftest on the device beside write_bw and write_lat", "device"),
    "torch": BenchPart(
        "PyTorch on 8 hosts: its start, all_reduce beside the workload", "emulated", 3
    ),
    "device-rate": BenchPart(
        "packets/s of perftest in 8 hosts, without root beside emulated", "device", 3
    ),
    "delay": BenchPart("packets against the propagation delay of their path", "emulated", 3),
    "permutation": BenchPart("8 hosts at full rate: load, goodput, trust", "emulated", 3),
    "failover": BenchPart("silent link failures over seeds", "emulated"),
    "dilation": BenchPart(
        "link failures at three dilations, in round trips; a picture", "emulated", 3
    ),
    "scale": BenchPart("bring-up of five sizes, to 1024 links; a picture", "bring_up", 3),
    "simulator": BenchPart("packet-hops/min of the simulator", "cost", 3, root=False),
    "simulator-cost": BenchPart(
        "time and memory of a simulated run, by stage, at 8 to 1024 hosts",
        "cost",
        5,
        root=False,
    ),
    "analysis-cost": BenchPart(
        "time and memory from raw records to the report, of 56 to 64,512 flows",
        "cost",
        3,
        root=False,
    ),
    "reading": BenchPart("large files of traffic: time and memory", "cost", 3, root=False),
    "htsim": BenchPart(
        "the simulator beside uet-htsim (--htsim)",
        "htsim",
        5,
        root=False,
        only_if_named=True,
    ),
    "htsim-validate": BenchPart(
        "uet-htsim's own cases, in both (--htsim); a table",
        "htsim",
        1,
        root=False,
        only_if_named=True,
    ),
    "agreement": BenchPart(
        "ten scenarios and perftest, emulated and simulated; a table", "agreement", 3
    ),
    "leaf-spine": BenchPart("a permutation of 1024 hosts, simulated", "cost", 3, root=False),
}


def load(name: str) -> Callable[[Setting], list[Measurement]]:
    """Import the function that measures a part.

    Not before it is called: some modules load Polars, which starts threads, and other parts fork.
    """
    module = import_module(f"testbed.studies.bench.{PARTS[name].module}")
    measure: Callable[[Setting], list[Measurement]] = getattr(module, name.replace("-", "_"))
    return measure
