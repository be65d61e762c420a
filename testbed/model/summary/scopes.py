"""Where the metrics of a run are found: one list for `expect:`, comparisons, Python and labs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from testbed.model.summary.faults import FaultEffect, FaultSummary
from testbed.model.summary.flows import FlowSummary, Latency, NodeSummary
from testbed.model.summary.metric import MetricGroup, Quantity, Value
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

Found: TypeAlias = Callable[[Summary], Sequence[tuple[str, MetricGroup]]]
"""Returns the things of a run that have some metrics, each with its name."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One kind of things that have metrics, and a key of `expect:`.

    Attributes:
        groups: the metrics.
        found: returns the things.
        subject: the things that have these metrics, in words.
        absent: why nothing was measured, where nothing was.
        example: a bound as a scenario writes it.
    """

    groups: tuple[type[MetricGroup], ...]
    found: Found
    subject: str
    absent: str
    example: str

    @property
    def quantities(self) -> dict[str, Quantity]:
        """The numbers of the metrics, by their keys in `summary.json`."""
        return {q.key: q for group in self.groups for q in group.quantities()}

    def numbers(self, summary: Summary, key: str) -> list[tuple[str, Value]]:
        """One number of each thing of a run that has it, with its name; None: not measured."""
        quantity = self.quantities[key]
        return [
            (name, quantity.of(group))
            for name, group in self.found(summary)
            if quantity.metric.group is type(group)
        ]

    def number(self, summary: Summary, key: str, of: str = "") -> Value:
        """One number of a run: the worst, or the sum of counts; None if it was not measured.

        Args:
            summary: the run's.
            key: the number's in `summary.json`.
            of: the name of the only thing that counts; empty: all.
        """
        named = self.numbers(summary, key)
        numbers = [value for name, value in named if value is not None and of in ("", name)]
        return self.quantities[key].metric.combine(numbers) if numbers else None

    @property
    def description(self) -> str:
        """What belongs under the key."""
        return f"of {self.subject}, such as {self.example}"


SCOPES = {
    "run": Scope(
        (Summary, Integrity),
        lambda summary: [("the run", summary), ("the run", summary.integrity)],
        "the whole run",
        "there was no run",
        "bytes_lost: 0",
    ),
    "messages": Scope(
        (Latency,),
        lambda summary: [("all messages", summary.messages)] if summary.messages else [],
        "the messages of all flows",
        "no message was completed",
        "p99_rtt: {at_most: 10}",
    ),
    "flows": Scope(
        (FlowSummary,),
        lambda summary: [(flow.name, flow) for flow in summary.flows],
        "every flow",
        "there was no flow",
        "ideal_fraction: {at_least: 0.97}",
    ),
    "nodes": Scope(
        (NodeSummary,),
        lambda summary: [(node.node, node) for node in summary.nodes],
        "every node of several NICs",
        "each node has one NIC",
        "ideal_fraction: {at_least: 0.9}",
    ),
    "victim": Scope(
        (FlowSummary,),
        lambda summary: [(flow.name, flow) for flow in summary.flows if flow.victim],
        "the victim's flow of an incast",
        "there was no victim",
        "before_fraction: {at_least: 0.9}",
    ),
    "faults": Scope(
        (FaultSummary,),
        lambda summary: [(fault.name, fault) for fault in summary.faults if fault.flows_affected],
        "every fault, its worst effect on any two hosts",
        "no flow had an active EV through a fault",
        "recovery_rtt: {at_most: 10}",
    ),
    "run_faults": Scope(
        (FaultEffect,),
        lambda summary: [
            (fault.name, fault.run)
            for fault in summary.faults
            if fault.flows_affected and fault.run
        ],
        "every fault, its effect on all flows together",
        "no flow had an active EV through a fault",
        "level: {at_least: 0.9}",
    ),
    "operations": Scope(
        (OperationSummary,),
        lambda summary: [(kind.kind, kind) for kind in summary.operations],
        "every kind of operation",
        "the workload has no operations",
        "unfinished: 0",
    ),
    "jobs": Scope(
        (JobSummary,),
        lambda summary: [(job.job, job) for job in summary.jobs],
        "every job of several",
        "there were no jobs",
        "interference: {at_most: 1.5}",
    ),
    "processes": Scope(
        (ProcessMemory,),
        lambda summary: [(memory.process, memory) for memory in summary.memory],
        "every process of an emulated run",
        "the memory of no process was sampled often enough",
        "growth: {at_most: 0.05}",
    ),
    "clustermapper": Scope(
        (Localisation,),
        lambda summary: (
            [("the Clustermapper", summary.localisation)] if summary.localisation else []
        ),
        "what the Clustermapper found",
        "no Clustermapper ran",
        "precision: {at_least: 1}",
    ),
}

JOB_SCOPES = {"job": "jobs", "flows": "flows", "operations": "operations"}
"""The keys of a job's own `expect:`, and the scopes whose metrics they bound."""


def number_of(summary: Summary, metric: str) -> float | None:
    """The number that a metric has in a run: of several flows or faults the worst, or the sum.

    Args:
        summary: the run's.
        metric: scope and key, such as `faults.stall_rtt`.

    Returns:
        NEVER for what never happened; None where it was not measured.
    """
    scope, _, key = metric.partition(".")
    number = SCOPES[scope].number(summary, key)
    return None if number is None else float(number)


def outcome(expectation: Expectation) -> str:
    """The worst value of what was expected, in words, or why there is none."""
    if not expectation.where:
        return f"not measured: {SCOPES[expectation.scope].absent}"
    if expectation.value is None:
        return f"no value at {expectation.where}"
    if expectation.value == NEVER:
        return f"never happened at {expectation.where}"
    return f"{NUMBER.show(expectation.value)} at {expectation.where}"
