"""Which faults of several runs are compared with each other, and what they are called."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from testbed.model.errors import few
from testbed.model.summary import FaultSummary, Summary

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
