"""Whether a run's figures are what its scenario expects of them."""

from collections.abc import Iterator, Sequence
from typing import get_args

from pydantic import BaseModel

from testbed.model.errors import Problem, did_you_mean
from testbed.model.expect import Bound, Expect
from testbed.model.scenario import Scenario
from testbed.model.workload import Collective, Connections, Incast
from testbed.results.summary import (
    Expectation,
    FaultSummary,
    FlowSummary,
    Integrity,
    Localisation,
    OperationSummary,
    ProcessMemory,
    Summary,
)

_RUN = (
    "qps_in_error",
    "fairness",
    "duration_s",
    "base_rtt_us",
    "base_rtt_real_us",
    *Integrity.model_fields,
)
_MODELS: dict[str, type[BaseModel]] = {
    "flows": FlowSummary,
    "victim": FlowSummary,
    "faults": FaultSummary,
    "operations": OperationSummary,
    "processes": ProcessMemory,
    "clustermapper": Localisation,
}


def figures(scope: str) -> tuple[str, ...]:
    """The figures that can be expected of the run, or of its flows, faults, operations, ..."""
    return _RUN if scope == "run" else (*_numbers(_MODELS[scope]),)


def _numbers(model: type[BaseModel]) -> Iterator[str]:
    """The fields that hold a number and are not one's own."""
    own = {"flow", "index"}
    for name, field in model.model_fields.items():
        if name not in own and field.annotation in (int, float, float | None):
            yield name


def unknown_figures(scenario: Scenario) -> Iterator[Problem]:
    """Figures that no summary has, or not that of such a run."""
    expect = scenario.expect
    if expect.clustermapper and scenario.clustermapper is None:
        yield Problem(
            "expect.clustermapper",
            "figures of a Clustermapper that does not run",
            "nothing expected of it",
            "clustermapper: {} has it run",
        )
    workload = scenario.workload
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
    for scope in Expect.model_fields:
        known = figures(scope)
        for name in getattr(expect, scope):
            if name not in known:
                yield Problem(
                    f"expect.{scope}.{name}",
                    f"the unknown figure {name}",
                    f"one of {', '.join(known)}",
                    did_you_mean(name, known),
                )


def victim_of(scenario: Scenario) -> tuple[str, str] | None:
    """Source and destination of the flow beside an incast."""
    workload = scenario.workload
    return workload.victim if isinstance(workload, Incast) else None


def evaluate(
    summary: Summary, expect: Expect, victim: tuple[str, str] | None = None
) -> tuple[Expectation, ...]:
    """Look at every figure that is expected; of flows and faults at the worst of them.

    `victim` is the flow beside an incast (`victim_of`).

    A figure that does not exist, such as the recovery of a fault from which nothing recovered, is
    worse than any. A fault that no flow had an active EV through is left out: it did nothing that
    could be measured. Where nothing is left to look at, nothing was shown, and the expectation does
    not hold. Nothing is expected of processes in virtual time, where there are none.
    """
    run = [("the run", {**summary.model_dump(), **summary.integrity.model_dump()})]
    flows = [(f"{flow.src} -> {flow.dst}", flow.model_dump()) for flow in summary.flows]
    beside = " -> ".join(victim or ())
    faults = [
        (f"{fault.kind} of {fault.target}", fault.model_dump())
        for fault in summary.faults
        if fault.flows_affected
    ]
    operations = [(one.kind, one.model_dump()) for one in summary.operations]
    found = summary.localisation
    named = [] if found is None else [("the Clustermapper", found.model_dump())]
    processes = [(one.process, one.model_dump()) for one in summary.memory]
    of = {
        "run": run,
        "flows": flows,
        "victim": [(where, values) for where, values in flows if where == beside],
        "faults": faults,
        "operations": operations,
        "processes": processes,
        "clustermapper": named,
    }
    return tuple(
        _worst(scope, name, bound, [(where, values[name]) for where, values in of[scope]])
        for scope in Expect.model_fields
        if scope != "processes" or not summary.simulated
        for name, bound in getattr(expect, scope).items()
    )


def _worst(
    scope: str, name: str, bound: Bound, values: Sequence[tuple[str, float | None]]
) -> Expectation:
    def badness(one: tuple[str, float | None]) -> float:
        return float("inf") if one[1] is None else bound.excess(one[1])

    where, value = max(values, key=badness, default=("", None))
    return Expectation(
        scope=scope,
        figure=name,
        bound=str(bound),
        where=where,
        value=value,
        holds=bool(values) and all(bound.allows(value) for _, value in values),
    )
