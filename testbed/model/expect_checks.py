"""Whether the metrics that a scenario expects something of exist in such a run."""

from collections.abc import Iterator
from typing import get_args

from testbed.model.errors import Problem, did_you_mean
from testbed.model.scenario import Scenario
from testbed.model.summary.scopes import SCOPES
from testbed.model.workload import Collective, Connections, Incast


def expectation_problems(scenario: Scenario) -> Iterator[Problem]:
    """Expected metrics that no summary has, or not that of such a run."""
    expect, workload = scenario.expect, scenario.workload
    if expect.clustermapper and scenario.clustermapper is None:
        yield Problem(
            "expect.clustermapper",
            "figures of a Clustermapper that does not run",
            "nothing expected of it",
            "clustermapper: {} has it run",
        )
    if expect.victim and victim_of(scenario) is None:
        yield Problem(
            "expect.victim",
            "figures of a victim that there is none of",
            "nothing expected of it",
            "workload: {kind: incast, victim: [h4, h1], ...} has one",
        )
    if expect.operations and not isinstance(workload, (*get_args(Collective), Connections)):
        yield Problem(
            "expect.operations",
            f"figures of operations, of which the workload {workload.kind} has none",
            "nothing expected of them",
            "latency tells of single messages",
        )
    for key, scope in SCOPES.items():
        names = list(scope.quantities)
        for name in getattr(expect, key):
            if name not in names:
                yield Problem(
                    f"expect.{key}.{name}",
                    f"the unknown figure {name}",
                    f"one of {', '.join(names)}",
                    did_you_mean(name, names),
                )


def victim_of(scenario: Scenario) -> tuple[str, str] | None:
    """Source and destination of the flow beside an incast."""
    workload = scenario.workload
    return workload.victim if isinstance(workload, Incast) else None
