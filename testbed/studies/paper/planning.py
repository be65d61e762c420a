"""Every figure of the paper that is reproduced, which runs they need, and which are missing."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from testbed.model.errors import InputError, did_you_mean
from testbed.model.files.catalog import SCENARIOS
from testbed.model.files.reading import Document, read_document
from testbed.model.files.scenarios import scenario_of
from testbed.model.scenario import Scenario
from testbed.runs.job import FIRST_SEED, FORMS, Form, PlannedRun, planned_run, slowed
from testbed.runs.store import Store
from testbed.studies.paper.experiments.ablation import ABLATION
from testbed.studies.paper.experiments.claims import (
    ECMP,
    LOSSY_NIC,
    PLANES,
    PROBES,
    REMAP,
    TRANSCEIVER,
)
from testbed.studies.paper.experiments.collectives import COLLECTIVES, SCALE
from testbed.studies.paper.experiments.failover import (
    FAILOVER,
    JOBS,
    LINKS_AND_SWITCHES,
    UNEQUAL_LINKS,
    UPLINKS,
)
from testbed.studies.paper.experiments.incast import ARRIVALS, INCAST, INCAST_WITHOUT_DCQCN
from testbed.studies.paper.experiments.paths import PATHS
from testbed.studies.paper.experiments.rates import PERMUTATION, SEND_RECEIVE, TABLE
from testbed.studies.paper.experiments.training import TRAINING
from testbed.studies.paper.figure import PaperFigure, Variant

# --------------------------------------------------------------------------------------------------
# How much an emulated scenario is slowed down so that a machine carries it.


class Machine(Protocol):
    """The measured capacity of a machine."""

    def load(self, scenario: Scenario) -> float:
        """The share of its CPUs that a scenario takes, 1.0 being all of them."""
        ...

    def lateness(self, scenario: Scenario) -> float:
        """How late its event loops run, as a share of a scenario's round trip."""
        ...


MAX_LOAD = 0.85
"""The largest expected share of the CPUs; the real share is a tenth less."""

MAX_LATENESS = 0.025
"""The largest lateness of event loops, as a share of a round trip; twice as much degrades a run."""

AT_FAULTS = 2.0
"""The least factor for runs with faults. A single late second makes them degraded, and virtual
machines stall for 5 to 15 ms now and then: of a base RTT of 130 ms that is 4% to 12%, and 5% are
allowed."""

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0)
"""The possible factors: few, so that a machine that is measured again gets the same runs."""


def factor_for(scenario: Scenario, machine: Machine, least: float = 1.0) -> float:
    """The factor by which a scenario is slowed down; the largest factor if none is enough.

    Args:
        scenario: the scenario.
        machine: the machine that is to carry it.
        least: the least factor.
    """
    least = max(least, AT_FAULTS if scenario.timeline else 1.0)
    fitting = max(machine.load(scenario) / MAX_LOAD, machine.lateness(scenario) / MAX_LATENESS)
    needed = max(least, fitting)
    return next((factor for factor in FACTORS if factor >= needed), FACTORS[-1])


PAPER_SCENARIOS = SCENARIOS / "paper"
ONE_SEED: Mapping[Form, int] = MappingProxyType(dict.fromkeys(FORMS, 1))


def select_figures(numbers: Sequence[str], *, large: bool = False) -> tuple[PaperFigure, ...]:
    """The figures of these numbers, in the paper's order.

    Without numbers all figures; those that are large only if `large` is set.

    Raises:
        InputError: there is no such figure.
    """
    known = (*FIGURES, *BY_NAME)
    names = [name for figure in known for name in figure.names]
    unknown = [number for number in numbers if number not in names]
    if unknown:
        expected = f"one of {', '.join(names)}"
        raise InputError.of("FIG", unknown[0], expected, did_you_mean(unknown[0], names))
    if not numbers:
        return tuple(figure for figure in FIGURES if large or not figure.large)
    return tuple(figure for figure in known if {*figure.names} & {*numbers})


def forms_of(figure: PaperFigure, requested: Sequence[Form]) -> tuple[Form, ...]:
    """In which of the requested forms a figure is made; in the other if it can be in none."""
    possible = tuple(form for form in FORMS if figure.variants_in(form))
    return tuple(form for form in possible if form in requested) or possible


def plan_variant(
    variant: Variant,
    form: Form,
    seed: int = FIRST_SEED,
    machine: Machine | None = None,
    store: Store | None = None,
) -> PlannedRun:
    """Plan the run of a variant.

    Args:
        variant: what is to be run.
        form: how it is run.
        seed: with which seed.
        machine: the machine that is to carry it, if known: an emulated run that would be too much
            for it is slowed down until it is not.
        store: where emulated runs may be that other machines made: one that can be trusted is
            planned as it was made, however much it was slowed down.

    Raises:
        InputError: its scenario is wrong.
    """
    as_written = scenario_as_written(variant, form, seed)

    def planned(factor: float) -> PlannedRun:
        scenario = slowed(as_written, factor)
        return planned_run(
            scenario,
            form,
            f"{form}/{variant.name}",
            may_stall=variant.may_stall,
            carries=variant.carries,
            load=None if machine is None or form == "simulated" else machine.load(scenario),
        )

    if form == "simulated":
        return planned(1.0)
    factor = 1.0 if machine is None else factor_for(as_written, machine, variant.slowed)
    if store is not None:
        for run in map(planned, (factor, *reversed(FACTORS))):
            if not _is_due(run, store):
                return run
    return planned(factor)


def scenario_as_written(variant: Variant, form: Form, seed: int = FIRST_SEED) -> Scenario:
    """The scenario of a variant, before any machine slows it down.

    Raises:
        InputError: it is wrong.
    """
    overrides = variant.overrides
    written = scenario_of(_document(variant, form, seed), settings=overrides.settings)
    return written.longer(overrides.longer)


def _document(variant: Variant, form: Form, seed: int) -> Document:
    """The scenario file of a variant, with its changes."""
    document = read_document(PAPER_SCENARIOS / f"{variant.scenario}.yaml")
    data = {**document.data, **variant.changes, "name": variant.name, "seed": seed}
    if variant.with_seed is not None:
        data |= variant.with_seed(data, seed)
    if form == "emulated" and variant.emulated is not None:
        data |= variant.emulated(data)
    return replace(document, data=data)


def setup_of(figure: PaperFigure, form: Form) -> str:
    """A digest of what all runs of a figure are: results of different ones do not add up."""
    files = [_document(variant, form, FIRST_SEED).data for variant in figure.variants_in(form)]
    said = [{key: value for key, value in data.items() if key != "description"} for data in files]
    if overrides := str(figure.overrides):
        said.append({"overrides": overrides})
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs of some figures.

    Attributes:
        store: where the runs are kept, and beside them `figures/`, `report.html` and the table.
        runs: the runs of each figure, by the form in which it is made.
        due: those of them that are to be made.
    """

    store: Store
    runs: Mapping[tuple[str, Form], Sequence[PlannedRun]]
    due: Sequence[PlannedRun]

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms in which figures are made."""
        return tuple(form for form in FORMS if any(run_form == form for _, run_form in self.runs))


def plan(
    figures: Sequence[PaperFigure],
    directory: Path,
    forms: Sequence[Form],
    *,
    seeds: Mapping[Form, int] = ONE_SEED,
    again: bool = False,
    machine: Machine | None = None,
) -> Plan:
    """Plan the runs of some figures.

    Args:
        figures: which.
        directory: where everything goes.
        forms: how their runs are made; a figure that can be made in none of them, in the other.
        seeds: with how many seeds in each form, from 1 on, at least; figures may need more.
        again: whether to make also runs that are there and can be trusted.
        machine: the machine, if known (see `plan_variant`).

    Raises:
        InputError: a scenario is wrong, or the directory cannot be written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        expected = f"a directory to write to ({error.strerror})"
        raise InputError.of("--results", str(directory), expected) from error
    store = Store(directory)
    all_runs: dict[tuple[Form, str, int], PlannedRun] = {}
    by_figure: dict[tuple[str, Form], list[PlannedRun]] = {}
    for figure in figures:
        for form in forms_of(figure, forms):
            runs = by_figure.setdefault((figure.number, form), [])
            for seed in figure.seeds_in(form, seeds[form]):
                for variant in figure.variants_in(form, seeds[form]):
                    key = form, variant.name, seed
                    if key not in all_runs:
                        known = None if again else store
                        all_runs[key] = plan_variant(variant, form, seed, machine, known)
                    runs.append(all_runs[key])
    due = [run for run in all_runs.values() if again or _is_due(run, store)]
    return Plan(store, by_figure, due)


def _is_due(planned: PlannedRun, store: Store) -> bool:
    """Whether a run is missing, or could not be trusted and may be another time."""
    run = store.best(planned)
    if run is None:
        return True
    return planned.job.form == "emulated" and planned.verdict(run.summary) != "trusted"


FIGURES: tuple[PaperFigure, ...] = (
    TABLE,
    *JOBS,
    *LINKS_AND_SWITCHES,
    *PATHS,
    SEND_RECEIVE,
    *COLLECTIVES,
    INCAST,
    *UPLINKS,
    PERMUTATION,
    INCAST_WITHOUT_DCQCN,
    ARRIVALS,
    PLANES,
    REMAP,
    LOSSY_NIC,
    PROBES,
    ECMP,
    TRANSCEIVER,
    FAILOVER,
    ABLATION,
    UNEQUAL_LINKS,
    *SCALE,
)

BY_NAME: tuple[PaperFigure, ...] = (TRAINING,)
"""Those that are made only if they are named, as they need what the testbed does not bring."""
