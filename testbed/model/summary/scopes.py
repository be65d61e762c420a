"""The keys of a scenario's `expect:`, and the things whose metrics each of them bounds."""

from dataclasses import dataclass

from testbed.model.summary.faults import FaultSummary
from testbed.model.summary.flows import FlowSummary, NodeSummary
from testbed.model.summary.metric import MetricGroup, Quantity
from testbed.model.summary.run import (
    Expectation,
    Integrity,
    JobSummary,
    Localisation,
    OperationSummary,
    ProcessMemory,
    Summary,
)
from testbed.model.summary.unit import NEVER, NUMBER


@dataclass(frozen=True, slots=True)
class Scope:
    """One key of `expect:`.

    Attributes:
        groups: the metrics that can be bounded.
        subject: the things that have these metrics, in words.
        absent: why nothing was measured, where nothing was.
        example: a bound as a scenario writes it.
    """

    groups: tuple[type[MetricGroup], ...]
    subject: str
    absent: str
    example: str

    @property
    def quantities(self) -> dict[str, Quantity]:
        """The numbers that can be bounded, by their keys in `summary.json`."""
        return {q.key: q for group in self.groups for q in group.quantities()}

    @property
    def description(self) -> str:
        """What belongs under the key."""
        return f"of {self.subject}, such as {self.example}"


SCOPES = {
    "run": Scope((Summary, Integrity), "the whole run", "there was no run", "bytes_lost: 0"),
    "flows": Scope(
        (FlowSummary,),
        "every flow",
        "there was no flow",
        "before_fraction: {at_least: 0.97}",
    ),
    "nodes": Scope(
        (NodeSummary,),
        "every node of several NICs",
        "each node has one NIC",
        "run_fraction: {at_least: 0.9}",
    ),
    "victim": Scope(
        (FlowSummary,),
        "the victim's flow of an incast",
        "there was no victim",
        "before_fraction: {at_least: 0.9}",
    ),
    "faults": Scope(
        (FaultSummary,),
        "every fault, its worst effect on any flow",
        "no flow had an active EV through a fault",
        "recovery_rtt: {at_most: 10}",
    ),
    "operations": Scope(
        (OperationSummary,),
        "every kind of operation",
        "the workload has no operations",
        "unfinished: 0",
    ),
    "jobs": Scope(
        (JobSummary,),
        "every job of several",
        "there were no jobs",
        "interference: {at_most: 1.5}",
    ),
    "processes": Scope(
        (ProcessMemory,),
        "every process of an emulated run",
        "the memory of no process was sampled often enough",
        "growth: {at_most: 0.05}",
    ),
    "clustermapper": Scope(
        (Localisation,),
        "what the Clustermapper found",
        "no Clustermapper ran",
        "precision: {at_least: 1}",
    ),
}

JOB_SCOPES = {"job": "jobs", "flows": "flows", "operations": "operations"}
"""The keys of a job's own `expect:`, and the scopes whose metrics they bound."""


def outcome(expectation: Expectation) -> str:
    """The worst value of what was expected, in words, or why there is none."""
    if not expectation.where:
        return f"not measured: {SCOPES[expectation.scope].absent}"
    if expectation.value is None:
        return f"no value at {expectation.where}"
    if expectation.value == NEVER:
        return f"never happened at {expectation.where}"
    return f"{NUMBER.show(expectation.value)} at {expectation.where}"
