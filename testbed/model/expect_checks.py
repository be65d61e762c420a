"""Whether the metrics that a scenario sets bounds for exist in its runs."""

from collections.abc import Iterator, Sequence
from typing import get_args

from testbed.model.errors import Problem, did_you_mean
from testbed.model.scenario import Scenario
from testbed.model.summary.scopes import SCOPES
from testbed.model.workload import Collective, Connections, Incast, Program

_NONE = "no such key"
_SHOWN = 12
"""Metrics that a message about an unknown one names."""


def expectation_problems(scenario: Scenario) -> Iterator[Problem]:
    """Bounds for metrics that no summary has, or not the summary of such a run."""
    expect, workload = scenario.expect, scenario.workload
    if expect.clustermapper and scenario.clustermapper is None:
        found = "metrics of the Clustermapper, which does not run"
        yield Problem("expect.clustermapper", found, _NONE, "clustermapper: {} starts it")
    if expect.victim and victim_of(scenario) is None:
        found = "metrics of a victim, which the workload does not have"
        remedy = "an incast has one: workload: {kind: incast, victim: [h4, h1], ...}"
        yield Problem("expect.victim", found, _NONE, remedy)
    with_operations = (*get_args(Collective), Connections, Program)
    if expect.operations and not isinstance(workload, with_operations):
        found = f"metrics of operations, which the workload {workload.kind} does not have"
        remedy = "collectives, training and connection matrices have operations"
        yield Problem("expect.operations", found, _NONE, remedy)
    for key, scope in SCOPES.items():
        names = list(scope.quantities)
        for name in getattr(expect, key):
            if name not in names:
                where, found = f"expect.{key}.{name}", f"the unknown metric {name}"
                expected, remedy = _existing(name, names)
                yield Problem(where, found, expected, _in_other_scope(key, name) or remedy)


def _in_other_scope(key: str, name: str) -> str:
    """Where a metric stands that has these words, in any order; empty if nowhere else."""
    words = sorted(name.split("_"))
    for other, scope in SCOPES.items():
        for metric in scope.quantities:
            if other != key and sorted(metric.split("_")) == words:
                return f"did you mean expect.{other}.{metric}?"
    return ""


def _existing(name: str, names: Sequence[str]) -> tuple[str, str]:
    """What is expected in place of an unknown metric, and the metrics that may be meant."""
    forms = [existing for existing in names if existing.startswith(f"{name}_")]
    remedy = f"did you mean {' or '.join(forms)}?" if forms else did_you_mean(name, names)
    shown = names[:_SHOWN]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"one of {', '.join(shown)}{more} (docs/metrics.md)", remedy


def victim_of(scenario: Scenario) -> tuple[str, str] | None:
    """Source and destination of the flow beside an incast; None if there is none."""
    workload = scenario.workload
    return workload.victim if isinstance(workload, Incast) else None
