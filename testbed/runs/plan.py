"""A planned run: its job, how long it will take, and when it can be trusted."""

import json
from dataclasses import dataclass, replace
from typing import Any

from testbed.model.flows import SIMULATED_HOPS_PER_S, packet_hops
from testbed.model.scenario import Scenario
from testbed.model.summary import State, Summary
from testbed.model.units import NS_PER_S
from testbed.results.analysis.trust.verdict import FINDINGS
from testbed.runs.job import FIRST_SEED, Form, Job

STATES: tuple[State, ...] = ("trusted", "degraded", "invalid")
"""Verdicts, from the best to the worst."""

SLOWED = (1.0, 1.5, 2.0)
"""How many times slower each attempt at an emulated run is than the first one: a machine that
stalls for some milliseconds now and then is late by less of a round trip that takes longer."""

_OVERHEAD_S = 6.0
"""What a run takes beside its duration: to build the fabric, to end and to be measured."""

_PATIENCE, _LEAST_TIMEOUT_S = 8.0, 300.0
"""A run is given up after this multiple of the expected time, but not before the least timeout."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of a campaign.

    Attributes:
        job: what an executor is given.
        scenario: the scenario of the job.
        may_stall: whether a run that finishes no operation, or whose payload is still under way
            at its end, is a result, and the run can still be trusted.
        packet_hops: an upper bound of its packets times the links that they cross.
        load: the share of the machine's CPUs that it will take; None if it is simulated, or if
            that is not known.
    """

    job: Job
    scenario: Scenario
    may_stall: bool
    packet_hops: float
    load: float | None = None

    def expected_s(self, factor: float = 1.0) -> float:
        """How long it will take, slowed down by a factor."""
        if self.job.form == "simulated":
            return self.packet_hops / SIMULATED_HOPS_PER_S + _OVERHEAD_S / 2
        base_rtt_ns = self.scenario.topology.propagation_rtt_ns
        drain_ns = self.scenario.drain_ns(base_rtt_ns) if self.may_stall else 0
        return factor * (self.scenario.duration + drain_ns) / NS_PER_S + _OVERHEAD_S

    def slowed(self, factor: float) -> "PlannedRun":
        """The same run with its dilation multiplied by a factor."""
        if factor == 1:
            return self
        scenario = slowed(self.scenario, factor)
        load = None if self.load is None else self.load / factor
        job = replace(self.job, scenario=as_recorded(scenario))
        return replace(self, job=job, scenario=scenario, load=load)

    def verdict(self, summary: Summary) -> State:
        """Whether a run of it can be trusted."""
        stalled = self.may_stall and FINDINGS.issuperset(summary.reasons)
        return "trusted" if stalled else summary.verdict


def planned_run(
    scenario: Scenario,
    form: Form,
    folder: str,
    *,
    may_stall: bool = False,
    carries: float = 1.0,
    load: float | None = None,
    name: str = "",
    options: tuple[str, ...] = (),
) -> PlannedRun:
    """Plan a run of a scenario (see `PlannedRun` and `Job`).

    `carries` is the share that its flows are expected to send of the packets that they may send.
    The run is called after its folder and its seed if no name is given.
    """
    if not name:
        stem = folder.rpartition("/")[2]
        name = stem if scenario.seed == FIRST_SEED else f"{stem}, seed {scenario.seed}"
    job = Job(name, form, as_recorded(scenario), folder, 0.0, options)
    planned = PlannedRun(job, scenario, may_stall, carries * packet_hops(scenario), load)
    slowest_s = planned.expected_s(SLOWED[-1])
    timeout_s = max(_PATIENCE * slowest_s, _LEAST_TIMEOUT_S)
    return replace(planned, job=replace(job, timeout_s=timeout_s))


def slowed(scenario: Scenario, factor: float) -> Scenario:
    """A scenario with its dilation multiplied by a factor."""
    return scenario if factor == 1 else scenario.at_dilation(factor * scenario.topology.dilation)


def as_recorded(scenario: Scenario) -> Any:
    """A scenario as a run's manifest has it."""
    return json.loads(scenario.model_dump_json(by_alias=True))
