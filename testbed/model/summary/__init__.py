"""The results of a run, as `summary.json` has them, and the metrics that they consist of."""

from testbed.model.summary.faults import FaultEffect, FaultSummary, FlowFault, LossShare, PairFault
from testbed.model.summary.flows import EvSummary, FlowSummary, Latency, NodeSummary
from testbed.model.summary.metric import Metric, MetricGroup, Quantity, Spread, View
from testbed.model.summary.run import (
    Expectation,
    Integrity,
    JobFault,
    JobSummary,
    LinkSummary,
    Localisation,
    LocalisedFault,
    OperationSummary,
    ProcessMemory,
    State,
    Summary,
)
from testbed.model.summary.unit import Scale, Time

__all__ = [
    "EvSummary",
    "Expectation",
    "FaultEffect",
    "FaultSummary",
    "FlowFault",
    "FlowSummary",
    "Integrity",
    "JobFault",
    "JobSummary",
    "Latency",
    "LinkSummary",
    "Localisation",
    "LocalisedFault",
    "LossShare",
    "Metric",
    "MetricGroup",
    "NodeSummary",
    "OperationSummary",
    "PairFault",
    "ProcessMemory",
    "Quantity",
    "Scale",
    "Spread",
    "State",
    "Summary",
    "Time",
    "View",
]
