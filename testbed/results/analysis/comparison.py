"""Runs beside one another: their figures, how sure they are, and how they differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.model.errors import InputError, Problem
from testbed.results.analysis.estimates import Estimate, difference, estimate
from testbed.results.run_directory import SUMMARY
from testbed.results.summary import FaultSummary, Summary


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ by their seed only.

    Attributes:
        name: what tells them from the others.
        runs: their directories.
        summaries: what each came to.
    """

    name: str
    runs: tuple[Path, ...]
    summaries: tuple[Summary, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of one group, and how far it is from that of the first; None where it has none."""

    value: Estimate | None
    difference: Estimate | None


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of all groups.

    Attributes:
        name: what it is.
        unit: in what; empty for a plain number.
        cells: one for every group.
    """

    name: str
    unit: str
    cells: tuple[Cell, ...]


_Figure = Callable[[Summary], float | None]
_OF_RUN: Mapping[tuple[str, str], _Figure] = {
    ("slowest flow, of attainable", ""): lambda s: min(
        (flow.attainable_fraction for flow in s.flows), default=None
    ),
    ("goodput of all flows", "Mbit/s"): lambda s: (
        sum(flow.goodput_run_bps for flow in s.flows) / 1e6
    ),
    ("message latency, p99", "RTT"): lambda s: max(
        (flow.latency.p99_rtt for flow in s.flows if flow.latency), default=None
    ),
    ("packets lost", ""): lambda s: sum(flow.packets_lost for flow in s.flows),
    ("packets sent again", ""): lambda s: sum(flow.packets_retransmitted for flow in s.flows),
    ("bytes lost or corrupted", "B"): lambda s: (
        s.integrity.bytes_lost + s.integrity.bytes_corrupted
    ),
    ("base RTT, real-equivalent", "us"): lambda s: s.base_rtt_real_us,
}
_OF_FAULT = ("detection_rtt", "detection_last_rtt", "stall_rtt", "recovery_rtt", "deficit_rtt")


def group_of(name: str, runs: Sequence[Path]) -> Group:
    """The group of some run directories.

    Raises:
        InputError: one has no summary.
    """
    summaries = []
    for run in runs:
        file = run / SUMMARY
        if not file.is_file():
            remedy = f"testbed report {run}"
            raise InputError([Problem(str(file), "", "the summary of a finished run", remedy)])
        summaries.append(Summary.model_validate_json(file.read_text(encoding="utf-8")))
    return Group(name, tuple(runs), tuple(summaries))


def compare(groups: Sequence[Group]) -> tuple[Row, ...]:
    """Every figure of every group, with its difference from the first group's."""
    figures = {**_OF_RUN, **_of_faults(groups)}
    rows = []
    for (name, unit), figure in figures.items():
        samples = [_samples(group, figure) for group in groups]
        cells = [
            Cell(
                estimate(own) if own else None,
                difference(own, samples[0]) if own and samples[0] and i else None,
            )
            for i, own in enumerate(samples)
        ]
        rows.append(Row(name, unit, tuple(cells)))
    return tuple(rows)


def _samples(group: Group, figure: _Figure) -> list[float]:
    values = (figure(summary) for summary in group.summaries)
    return [float(value) for value in values if value is not None]


def _of_faults(groups: Sequence[Group]) -> dict[tuple[str, str], _Figure]:
    """Figures of faults, each by its place on the timeline: in a sweep the target may differ."""
    count = max(len(one.faults) for group in groups for one in group.summaries)
    return {
        (f"fault {index}, {name.removesuffix('_rtt').replace('_', ' ')}", "RTT"): _of_fault(
            index, name
        )
        for index in range(count)
        for name in _OF_FAULT
    }


def _of_fault(index: int, name: str) -> _Figure:
    def figure(summary: Summary) -> float | None:
        fault: FaultSummary | None = next((f for f in summary.faults if f.index == index), None)
        value: float | None = getattr(fault, name) if fault is not None else None
        return value

    return figure
