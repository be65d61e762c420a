"""Comparison of runs: medians of metrics, their confidence intervals, and their differences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.model.errors import InputError
from testbed.model.run_files.layout import SUMMARY
from testbed.model.summary import FaultSummary, FlowSummary, Integrity, Latency, Summary
from testbed.model.summary.metric import Combine, MetricGroup, Quantity, Value
from testbed.model.summary.unit import Unit
from testbed.results.analysis.estimates import Estimate, difference, estimate


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ by their seed only.

    Attributes:
        name: what differs from other groups.
        runs: their directories.
        summaries: the summary of each.
    """

    name: str
    runs: tuple[Path, ...]
    summaries: tuple[Summary, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A metric of one group, and its difference from the first group's; None where none exists."""

    value: Estimate | None
    difference: Estimate | None


@dataclass(frozen=True, slots=True)
class Row:
    """A metric of all groups.

    Attributes:
        name: its name.
        unit: its unit; empty for a plain number.
        cells: a cell for each group.
    """

    name: str
    unit: str
    cells: tuple[Cell, ...]


def group_of(name: str, runs: Sequence[Path]) -> Group:
    """The group of some run directories.

    Raises:
        InputError: a run has no summary.
    """
    summaries = []
    for run in runs:
        file = run / SUMMARY
        if not file.is_file():
            remedy = f"testbed report {run}"
            raise InputError.of(str(file), "", "the summary of a finished run", remedy)
        summaries.append(Summary.model_validate_json(file.read_text(encoding="utf-8")))
    return Group(name, tuple(runs), tuple(summaries))


_Read = Callable[[Summary], Value]
"""Takes one number of a run's summary."""


def compare(groups: Sequence[Group]) -> tuple[Row, ...]:
    """Every compared metric of every group, with its difference from the first group's."""
    rows = []
    for name, unit, read in (*_rows_of_run(), *_rows_of_faults(groups)):
        samples = [_samples(group, read, unit.compared[1]) for group in groups]
        cells = [
            Cell(
                estimate(values) if values else None,
                difference(values, samples[0]) if values and samples[0] and i else None,
            )
            for i, values in enumerate(samples)
        ]
        rows.append(Row(name, unit.compared[0], tuple(cells)))
    return tuple(rows)


def _samples(group: Group, read: _Read, divisor: float) -> list[float]:
    values = (read(summary) for summary in group.summaries)
    return [value / divisor for value in values if value is not None]


_PARTS: Mapping[type[MetricGroup], Callable[[Summary], Sequence[MetricGroup]]] = {
    FlowSummary: lambda summary: summary.flows,
    Latency: lambda summary: [flow.latency for flow in summary.flows if flow.latency],
    Integrity: lambda summary: [summary.integrity],
    Summary: lambda summary: [summary],
}
"""Where the metrics of a run are found, in the order in which they are compared."""


def _rows_of_run() -> Iterator[tuple[str, Unit, _Read]]:
    for group, parts in _PARTS.items():
        for metric in group.metrics():
            if metric.compared is not None:
                read = partial(_combined, parts, metric.compared_quantity, metric.compared.combine)
                yield metric.compared.name or metric.label, metric.compared_quantity.unit, read


def _combined(
    parts: Callable[[Summary], Sequence[MetricGroup]],
    quantity: Quantity,
    combine: Combine,
    summary: Summary,
) -> Value:
    return combine([quantity.of(part) for part in parts(summary)])


def _rows_of_faults(groups: Sequence[Group]) -> Iterator[tuple[str, Unit, _Read]]:
    """Metrics of faults, each by its place on the timeline: in a sweep the target may differ."""
    count = max(len(summary.faults) for group in groups for summary in group.summaries)
    for index in range(count):
        for metric in FaultSummary.metrics():
            if metric.compared is not None:
                quantity = metric.compared_quantity
                read = partial(_of_fault, index, quantity)
                yield f"fault {index}, {metric.label}", quantity.unit, read


def _of_fault(index: int, quantity: Quantity, summary: Summary) -> Value:
    fault = next((fault for fault in summary.faults if fault.index == index), None)
    return None if fault is None else quantity.of(fault)
