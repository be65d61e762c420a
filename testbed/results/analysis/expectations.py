"""Compares a run's metrics with the bounds that its scenario sets."""

from collections.abc import Iterator, Mapping, Sequence

from testbed.model.expect import Bound, Expect
from testbed.model.summary import Expectation, OperationSummary, Summary
from testbed.model.summary.combine import Value
from testbed.model.summary.scopes import SCOPES


def evaluate(
    summary: Summary, expect: Expect, victim: tuple[str, str] | None = None
) -> tuple[Expectation, ...]:
    """Compare every bound with the worst value of its metric.

    A value that does not exist, such as the recovery of a fault from which nothing recovered, is
    worse than any number. Faults that no flow had an active EV through are left out: they have no
    metrics. If nothing at all was measured, the expectation does not hold. Bounds on processes are
    left out in simulated runs, which have none. That all planned operations finish is expected as
    well, unless the scenario itself says how many do.

    Args:
        summary: the run's.
        expect: the scenario's bounds.
        victim: source and destination of the flow beside an incast.
    """
    measured = dict(_measured(summary, victim))
    bounds = {scope: dict(getattr(expect, scope)) for scope in SCOPES}
    planned = any(kind.planned is not None for kind in summary.operations)
    if planned and not expect.says_how_many_finish:
        bounds["operations"][OperationSummary.unfinished.name] = Bound(at_least=0, at_most=0)
    return tuple(
        _worst(scope, key, bound, [(where, numbers[key]) for where, numbers in measured[scope]])
        for scope in SCOPES
        if scope != "processes" or not summary.simulated
        for key, bound in bounds[scope].items()
    )


_Subjects = list[tuple[str, Mapping[str, Value]]]
"""The name of each thing that was measured, and its numbers by key."""


def _measured(summary: Summary, victim: tuple[str, str] | None) -> Iterator[tuple[str, _Subjects]]:
    """For each scope what was measured."""
    yield "run", [("the run", {**summary.values, **summary.integrity.values})]
    yield "flows", [(flow.name, flow.values) for flow in summary.flows]
    yield "victim", [(f.name, f.values) for f in summary.flows if (f.src, f.dst) == victim]
    yield "faults", [(f.name, f.values) for f in summary.faults if f.flows_affected]
    yield "operations", [(kind.kind, kind.values) for kind in summary.operations]
    yield "processes", [(memory.process, memory.values) for memory in summary.memory]
    mapper = summary.localisation
    yield "clustermapper", [("the Clustermapper", mapper.values)] if mapper is not None else []


def _worst(scope: str, key: str, bound: Bound, values: Sequence[tuple[str, Value]]) -> Expectation:
    def excess(value: Value) -> float:
        return float("inf") if value is None else bound.excess(value)

    where, value = max(values, key=lambda item: excess(item[1]), default=("", None))
    return Expectation(
        scope=scope,
        figure=key,
        bound=str(bound),
        where=where,
        value=value,
        holds=bool(values) and all(bound.allows(value) for _, value in values),
    )
