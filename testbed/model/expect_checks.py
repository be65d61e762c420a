"""Whether the metrics that a scenario sets bounds for exist in its runs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from testbed.model.errors import Problem, did_you_mean, few
from testbed.model.scenario import Scenario
from testbed.model.summary.scopes import JOB_SCOPES, SCOPES
from testbed.model.workload import Collective, Connections, Incast, Program

_WITH_OPERATIONS = (*get_args(Collective), Connections, Program)

_HAVE_OPERATIONS = "collectives, training and connection matrices have operations"

_NONE = "no such key"
_SHOWN = 12
"""Metrics that a message about an unknown one names."""


def expectation_problems(scenario: Scenario) -> Iterator[Problem]:
    """Bounds for metrics that no summary has, or not the summary of such a run."""
    expect = scenario.expect
    if expect.clustermapper and scenario.clustermapper is None:
        found = "metrics of the Clustermapper, which does not run"
        yield Problem("expect.clustermapper", found, _NONE, "clustermapper: {} starts it")
    if expect.victim and victim_of(scenario) is None:
        found = "metrics of a victim, which the workload does not have"
        remedy = "an incast has one: workload: {kind: incast, victim: [h4, h1], ...}"
        yield Problem("expect.victim", found, _NONE, remedy)
    kinds = [workload.kind for workload in scenario.workloads.values()]
    has_any = any(isinstance(each, _WITH_OPERATIONS) for each in scenario.workloads.values())
    if expect.operations and not has_any:
        found = f"metrics of operations, which the workload {few(kinds)} does not have"
        yield Problem("expect.operations", found, _NONE, _HAVE_OPERATIONS)
    if expect.jobs and not scenario.jobs:
        found = "metrics of jobs, where there is a single workload"
        yield Problem("expect.jobs", found, _NONE, "make it one of jobs")
    if expect.nodes and scenario.topology.nics_per_node == 1:
        found = "metrics of nodes, each of which has one NIC"
        yield Problem("expect.nodes", found, _NONE, "topology.nics_per_node, or expect.flows")
    for key in SCOPES:
        yield from _unknown_metrics(f"expect.{key}", key, getattr(expect, key))
    for i, job in enumerate(scenario.jobs):
        where = f"jobs[{i}].expect"
        if job.expect.operations and not isinstance(job.workload, _WITH_OPERATIONS):
            found = f"metrics of operations, which the workload {job.workload.kind} does not have"
            yield Problem(f"{where}.operations", found, _NONE, _HAVE_OPERATIONS)
        for key, scope in JOB_SCOPES.items():
            yield from _unknown_metrics(f"{where}.{key}", scope, getattr(job.expect, key))


def _unknown_metrics(where: str, scope: str, bounds: Iterable[str]) -> Iterator[Problem]:
    names = list(SCOPES[scope].quantities)
    for name in bounds:
        if name not in names:
            expected, remedy = _existing(name, names)
            elsewhere = _in_other_scope(scope, name)
            found = f"the unknown metric {name}"
            yield Problem(f"{where}.{name}", found, expected, elsewhere or remedy)


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
    victims = (each.victim for each in scenario.workloads.values() if isinstance(each, Incast))
    return next(filter(None, victims), None)
