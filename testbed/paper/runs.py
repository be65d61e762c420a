"""The runs behind the figures: where each lies, whether it is there, and what it recorded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from testbed.files.catalog import SCENARIOS
from testbed.files.documents import read_document
from testbed.files.scenarios import load_scenario
from testbed.model.scenario import Scenario
from testbed.paper.figure import FIRST_SEED, Form, Variant
from testbed.paper.fitting import Machine, factor_for, packet_hops
from testbed.results.analysis.fault_metrics import FlowTables
from testbed.results.analysis.metrics import flow_tables
from testbed.results.analysis.verdict import FINDINGS
from testbed.results.run_data import RunData, load_run
from testbed.results.run_directory import SUMMARY, give_to_user
from testbed.results.summary import State, Summary

PAPER_SCENARIOS = SCENARIOS / "paper"

SLOWED = (1.0, 1.5, 2.0)
"""How many times slower each attempt at an emulated run is than the first one: a machine that
stalls for some milliseconds now and then is late by less of a round trip that takes longer."""

STATES: tuple[State, ...] = ("trusted", "degraded", "invalid")
"""Verdicts, from the best to the worst."""


class Run:
    """A finished run.

    Attributes:
        directory: where it lies.
        summary: its figures.
    """

    def __init__(self, directory: Path) -> None:
        """Read its summary; the records only when they are asked for."""
        self.directory = directory
        self.summary = Summary.model_validate_json((directory / SUMMARY).read_text())

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """What it was made of."""
        found: dict[str, Any] = json.loads((self.directory / "manifest.json").read_text())
        return found

    @cached_property
    def data(self) -> RunData:
        """All that it recorded."""
        return load_run(self.directory)

    @cached_property
    def flows(self) -> tuple[FlowTables, ...]:
        """The records of its flows, in order."""
        return flow_tables(self.data)


@dataclass(frozen=True, slots=True)
class Order:
    """A variant ready to be run, in one form, with one seed.

    Attributes:
        variant: what is to be run.
        form: how.
        file: its scenario, as a file that can be run by hand.
        scenario: the same, loaded.
        results: where its directory is made.
        load: the share of the CPUs that it will take; None for a simulated run, or if not known.
    """

    variant: Variant
    form: Form
    file: Path
    scenario: Scenario
    results: Path
    load: float | None

    @property
    def name(self) -> str:
        """What it is called among the runs of all seeds."""
        seed = self.scenario.seed
        return self.variant.name if seed == FIRST_SEED else f"{self.variant.name}, seed {seed}"

    @property
    def log(self) -> Path:
        """What the run said."""
        return self.file.with_suffix(".log")

    @property
    def expected_s(self) -> float:
        """How long it will take."""
        return self.takes_s()

    @property
    def packet_hops(self) -> float:
        """How many packet-hops it has."""
        return self.variant.carries * packet_hops(self.scenario)

    def takes_s(self, times: float = 1.0) -> float:
        """How long it will take, slowed down so many times (see `slowed`)."""
        if self.form == "simulated":
            return self.packet_hops / _HOPS_PER_S + _AROUND_S / 2
        stalls, base_rtt_ns = self.variant.may_stall, self.scenario.topology.propagation_rtt_ns
        wait_ns = self.scenario.drain_ns(base_rtt_ns) if stalls else 0
        return times * (self.scenario.duration + wait_ns) / 1e9 + _AROUND_S

    def slowed(self, times: float) -> "Order":
        """The same at so many times the dilation, in the same file."""
        if times == 1:
            return self
        slower = _slowed(self.scenario, times).model_dump(mode="json", by_alias=True)
        load = None if self.load is None else self.load / times
        return replace(self, scenario=_written(slower, self.file), load=load)

    def attempts(self) -> tuple[Run, ...]:
        """The runs of just this scenario that were carried through, oldest first.

        Those that were slowed down are among them: all that is told of a run is in round trips, or
        as at full speed.
        """
        found = sorted((self.results / self.variant.name).glob(f"*/{SUMMARY}"))
        runs = [Run(file.parent) for file in found if not file.parent.is_symlink()]
        wanted = [_as_recorded(_slowed(self.scenario, times)) for times in SLOWED]
        return tuple(run for run in runs if run.manifest.get("scenario") in wanted)

    def finished(self) -> Run | None:
        """The run that counts: that with the best verdict, of these the newest."""
        return min(
            reversed(self.attempts()),
            key=lambda run: STATES.index(verdict(self.variant, run.summary)),
            default=None,
        )


def verdict(variant: Variant, summary: Summary) -> State:
    """Whether a run can be trusted for what its figure asks."""
    stalled = variant.may_stall and FINDINGS.issuperset(summary.reasons)
    return "trusted" if stalled else summary.verdict


_AROUND_S = 6.0
"""What a run takes beside its duration: to build the fabric, to end and to be measured."""

_HOPS_PER_S = 60_000.0
"""Packet-hops a second of one CPU in the simulator (docs/simulator.md), somewhat below."""


def order(
    variant: Variant,
    results: Path,
    form: Form,
    seed: int = FIRST_SEED,
    machine: Machine | None = None,
) -> Order:
    """Write a variant's scenario where its runs go, and load it.

    Args:
        variant: what is to be run.
        results: where its directory is to be made, beside `scenarios/`.
        form: how it is run.
        seed: with which seed.
        machine: what is known of it: an emulated run that would be too much for it is slowed down
            until it is not.

    Raises:
        InputError: it is wrong.
    """
    data = dict(read_document(PAPER_SCENARIOS / f"{variant.scenario}.yaml").data)
    data |= {**variant.changes, "name": variant.name, "seed": seed}
    if variant.with_seed is not None:
        data |= variant.with_seed(data, seed)
    if form == "emulated" and variant.emulated is not None:
        data |= variant.emulated(data)
    stem = variant.name if seed == FIRST_SEED else f"{variant.name}-{seed}"
    file = results / "scenarios" / f"{stem}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    scenario, expected = _written(data, file), None
    if form == "emulated" and machine is not None:
        factor = factor_for(scenario, machine, variant.slowed)
        if factor > 1:
            slower = _slowed(scenario, factor)
            scenario = _written(slower.model_dump(mode="json", by_alias=True), file)
        expected = machine.load(scenario)
    return Order(variant, form, file, scenario, results, expected)


def _slowed(scenario: Scenario, times: float) -> Scenario:
    return scenario if times == 1 else scenario.at_dilation(times * scenario.topology.dilation)


def _written(data: dict[str, Any], file: Path) -> Scenario:
    file.write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    give_to_user(file)
    return load_scenario(str(file))


def _as_recorded(scenario: Scenario) -> Any:
    return json.loads(scenario.model_dump_json(by_alias=True))
