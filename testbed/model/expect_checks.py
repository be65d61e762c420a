"""Whether the metrics that a scenario sets bounds for exist in its runs."""

from collections.abc import Iterator
from typing import get_args

from testbed.model.errors import Problem, did_you_mean
from testbed.model.scenario import Scenario
from testbed.model.summary.scopes import SCOPES
from testbed.model.workload import Collective, Connections, Incast


def expectation_problems(scenario: Scenario) -> Iterator[Problem]:
    """Bounds for metrics that no summary has, or not the summary of such a run."""
    expect, workload = scenario.expect, scenario.workload
    if expect.clustermapper and scenario.clustermapper is None:
        yield Problem(
            "expect.clustermapper",
            "metrics of the Clustermapper, which does not run",
            "no such key",
            "clustermapper: {} starts it",
        )
    if expect.victim and victim_of(scenario) is None:
        yield Problem(
            "expect.victim",
            "metrics of a victim, which the workload does not have",
            "no such key",
            "an incast has one: workload: {kind: incast, victim: [h4, h1], ...}",
        )
    if expect.operations and not isinstance(workload, (*get_args(Collective), Connections)):
        yield Problem(
            "expect.operations",
            f"metrics of operations, which the workload {workload.kind} does not have",
            "no such key",
            "collectives, training and connection matrices have operations",
        )
    for key, scope in SCOPES.items():
        names = list(scope.quantities)
        for name in getattr(expect, key):
            if name not in names:
                yield Problem(
                    f"expect.{key}.{name}",
                    f"the unknown metric {name}",
                    f"one of {', '.join(names)}",
                    did_you_mean(name, names),
                )


def victim_of(scenario: Scenario) -> tuple[str, str] | None:
    """Source and destination of the flow beside an incast; None if there is none."""
    workload = scenario.workload
    return workload.victim if isinstance(workload, Incast) else None
