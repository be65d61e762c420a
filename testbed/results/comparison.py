"""Comparison of runs: medians of metrics, their confidence intervals, and their differences."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

from testbed.model.errors import InputError, few
from testbed.model.run_files.layout import SUMMARY
from testbed.model.summary import FaultEffect, FaultSummary, Summary
from testbed.model.summary.metric import Quantity, Value
from testbed.model.summary.scopes import SCOPES, number_of
from testbed.model.summary.unit import NEVER, Unit
from testbed.results.analysis.estimates import Estimate, difference, estimate

# --------------------------------------------------------------------------------------------------
# Which faults of several runs are compared with each other, and what they are called.


FindFault = Callable[[Summary], FaultSummary | None]
"""Finds a fault in a run's summary; None if the run does not have it."""


def faults_compared(summaries: Sequence[Summary]) -> Iterator[tuple[str, FindFault]]:
    """Each fault with its name, and how to find it in each of the runs.

    Runs of one scenario are compared fault by fault in the order of the timeline: in a sweep the
    target or the kind may differ. Faults of several scenarios are compared if their kinds and
    targets are equal.
    """
    if len({summary.scenario for summary in summaries}) == 1:
        yield from _by_place(summaries)
    else:
        yield from _by_name(summaries)


def _by_place(summaries: Sequence[Summary]) -> Iterator[tuple[str, FindFault]]:
    indices = sorted({fault.index for summary in summaries for fault in summary.faults})
    finds = [partial(_at, index) for index in indices]
    names = [
        _common_name([fault for summary in summaries if (fault := find(summary)) is not None])
        for find in finds
    ]
    yield from zip(_distinct(names), finds, strict=True)


def _at(index: int, summary: Summary) -> FaultSummary | None:
    return next((fault for fault in summary.faults if fault.index == index), None)


def _common_name(faults: Sequence[FaultSummary]) -> str:
    """`cut of p0_t0_0--p0_t1_1`, or what the faults have in common."""
    kinds, targets = (
        tuple(dict.fromkeys(values))
        for values in zip(*((fault.kind, fault.target) for fault in faults), strict=True)
    )
    target = targets[0] if len(targets) == 1 else "different targets"
    return f"{few(kinds)} of {target}"


def _distinct(names: Sequence[str]) -> Iterator[str]:
    """The names; of faults with the same name the second and further ones are numbered."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}, no. {seen[name]}"


def _by_name(summaries: Sequence[Summary]) -> Iterator[tuple[str, FindFault]]:
    names = dict.fromkeys(name for summary in summaries for name in _named(summary))
    for name in names:
        yield name, partial(_with_name, name)


def _with_name(name: str, summary: Summary) -> FaultSummary | None:
    return _named(summary).get(name)


def _named(summary: Summary) -> dict[str, FaultSummary]:
    faults = sorted(summary.faults, key=lambda fault: fault.index)
    return dict(zip(_distinct([fault.name for fault in faults]), faults, strict=True))


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ by their seed only.

    Attributes:
        name: what differs from other groups.
        runs: their directories.
        summaries: the summary of each.
        failed: how many further runs did not finish.
        own: numbers that the summaries do not have, of each run, by their metrics' names.
    """

    name: str
    runs: tuple[Path, ...]
    summaries: tuple[Summary, ...]
    failed: int = 0
    own: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def planned(self) -> int:
        """How many runs were planned for it."""
        return len(self.runs) + self.failed

    def numbers(self, metric: str) -> Sequence[float | None]:
        """The number that a metric has in each run, as `number_of` gives it, without noise."""
        found = self.own.get(metric)
        if found is None:
            found = [number_of(summary, metric) for summary in self.summaries]
        return [None if number is None else _without_noise(number) for number in found]


@dataclass(frozen=True, slots=True)
class Cell:
    """A metric of one group.

    Attributes:
        value: the median of the runs in which it was measured; None if in none.
        difference: from the first group's; None of that group, or where one has no value.
        measured: in how many runs it was measured, those with the value NEVER included.
        never: in how many runs its value is NEVER.
        runs: how many runs were planned for the group.
    """

    value: Estimate | None
    difference: Estimate | None
    measured: int
    never: int
    runs: int

    @property
    def basis(self) -> str:
        """The runs that the value is based on: `2 of 3`, `3 of 3, 1 never`."""
        never = f", {self.never} never" if self.never else ""
        return f"{self.measured} of {self.runs}{never}"


@dataclass(frozen=True, slots=True)
class Row:
    """A metric of all groups.

    Attributes:
        fault: the name of its fault, `cut of p0_t0_0--p0_t1_1`; empty for one of the whole run.
        metric: its name.
        unit: its unit; empty for a plain number.
        cells: a cell for each group.
    """

    fault: str
    metric: str
    unit: str
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        return f"{self.fault}, {self.metric}" if self.fault else self.metric

    @property
    def heading(self) -> str:
        return f"{self.metric} ({self.unit})" if self.unit else self.metric


def group_of(name: str, runs: Sequence[Path], failed: int = 0) -> Group:
    """The group of some run directories, and of some runs that failed.

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
    return Group(name, tuple(runs), tuple(summaries), failed)


Read = Callable[[Summary], Value]
"""Takes one number of a run's summary."""


def compare(groups: Sequence[Group]) -> tuple[Row, ...]:
    """Every compared metric of every group, with its difference from the first group's."""
    return tuple(
        row_of(groups, fault, metric, unit, partial(_read_each, read))
        for fault, metric, unit, read in (*_rows_of_run(groups), *_rows_of_faults(groups))
    )


def _read_each(read: Read, group: Group) -> Sequence[Value]:
    return [read(summary) for summary in group.summaries]


def row_of(
    groups: Sequence[Group],
    fault: str,
    metric: str,
    unit: Unit,
    numbers: Callable[[Group], Sequence[Value]],
) -> Row:
    """One metric of every group, with its difference from the first group's.

    Args:
        groups: they.
        fault: what it is about; empty: the whole run.
        metric: its name.
        unit: the unit of its numbers; the row is in that of comparisons.
        numbers: gives its number in each run of a group.
    """
    samples = [_samples(numbers(group), unit.compared[1]) for group in groups]
    cells = [
        Cell(
            estimate(values) if values else None,
            difference(values, samples[0]) if values and samples[0] and i else None,
            len(values),
            values.count(NEVER),
            group.planned,
        )
        for i, (group, values) in enumerate(zip(groups, samples, strict=True))
    ]
    return Row(fault, metric, unit.compared[0], tuple(cells))


def _samples(values: Sequence[Value], divisor: float) -> list[float]:
    return [_without_noise(value / divisor) for value in values if value is not None]


_NOISE = 1e-9
"""Less than this, in the unit of a comparison, is what rounding has left of zero."""


def _without_noise(value: float) -> float:
    return 0.0 if abs(value) < _NOISE else value


_RowSource = tuple[str, str, Unit, Read]
"""Fault, metric, unit, and how to read the number."""

_OF_FAULTS = {"faults", "run_faults"}


def _rows_of_run(groups: Sequence[Group]) -> Iterator[_RowSource]:
    """The compared metrics of everything but faults, in the order of the scopes.

    Of operations and jobs each kind has its rows; of flows and processes there is one for all.
    """
    summaries = [summary for group in groups for summary in group.summaries]
    for key, scope in SCOPES.items():
        if key in _OF_FAULTS:
            continue
        names = dict.fromkeys(name for summary in summaries for name, _ in scope.found(summary))
        each = list(names) if key in {"operations", "jobs"} else [""][: len(names)]
        for name, of in product(each, scope.groups):
            for metric in of.metrics():
                if metric.compared is not None:
                    quantity = metric.compared_quantity
                    read = partial(scope.number, key=quantity.key, of=name)
                    label = metric.compared.name or metric.title
                    prefix = name or ("victim" if key == "victim" else "")
                    if any(read(summary) is not None for summary in summaries):
                        yield "", f"{prefix}: {label}" if prefix else label, quantity.unit, read


def _rows_of_faults(groups: Sequence[Group]) -> Iterator[_RowSource]:
    for name, find in faults_compared([s for group in groups for s in group.summaries]):
        for metric in FaultSummary.metrics():
            if metric.compared is not None:
                quantity = metric.compared_quantity
                yield name, metric.title, quantity.unit, partial(_of_fault, find, quantity)
        for metric in FaultEffect.metrics():
            if metric.compared is not None and metric.compared.of_run:
                quantity = metric.compared_quantity
                title = f"all flows: {metric.title}"
                yield name, title, quantity.unit, partial(_of_all_flows, find, quantity)


def _of_fault(find: FindFault, quantity: Quantity, summary: Summary) -> Value:
    """The number of a fault; None if the run does not have the fault, or if it affected no flow."""
    fault = find(summary)
    return None if fault is None or not fault.flows_affected else quantity.of(fault)


def _of_all_flows(find: FindFault, quantity: Quantity, summary: Summary) -> Value:
    """The same of the fault's effect on all flows together."""
    fault = find(summary)
    whole = fault.run if fault is not None and fault.flows_affected else None
    return None if whole is None else quantity.of(whole)
