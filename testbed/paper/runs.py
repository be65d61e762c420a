"""The runs behind the figures: where each lies, whether it is there, and what it recorded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from testbed.documents import read_document
from testbed.loading import SCENARIOS, load_scenario
from testbed.model.scenario import Scenario
from testbed.paper.figure import Variant
from testbed.results.fault_metrics import FlowTables
from testbed.results.metrics import flow_tables
from testbed.results.run_data import RunData, load_run
from testbed.results.run_directory import LATEST, SUMMARY, give_to_user
from testbed.results.summary import Summary

PAPER_SCENARIOS = SCENARIOS / "paper"

FIRST_SEED = 1
"""Of a variant's runs; its directory is that of the figures, those of the others lie in `seed-2/`
and so on."""


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
    """A variant ready to be run.

    Attributes:
        variant: what is to be run.
        file: its scenario, as a file that can be run by hand.
        scenario: the same, loaded.
        results: where its directory is made.
        simulated: whether it is simulated.
    """

    variant: Variant
    file: Path
    scenario: Scenario
    results: Path
    simulated: bool

    @property
    def name(self) -> str:
        """What it is called among the runs of all seeds."""
        seed = self.scenario.seed
        return self.variant.name if seed == FIRST_SEED else f"{self.variant.name}, seed {seed}"

    @property
    def log(self) -> Path:
        """What the run said."""
        return self.file.with_suffix(".log")

    def finished(self) -> Run | None:
        """The latest run of just this scenario, if it was carried through."""
        directory = self.results / self.variant.name / LATEST
        if not (directory / SUMMARY).is_file():
            return None
        run = Run(directory.resolve())
        same = run.manifest.get("scenario") == _as_recorded(self.scenario)
        return run if same and run.summary.simulated == self.simulated else None


def order(variant: Variant, directory: Path, *, simulate: bool, seed: int = FIRST_SEED) -> Order:
    """Write a variant's scenario where its runs go, and load it.

    Raises:
        InputError: it is wrong.
    """
    data = dict(read_document(PAPER_SCENARIOS / f"{variant.scenario}.yaml").data)
    data |= {**variant.changes, "name": variant.name, "seed": seed}
    results = directory if seed == FIRST_SEED else directory / f"seed-{seed}"
    file = results / "scenarios" / f"{variant.name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    give_to_user(file)
    simulated = simulate or variant.only_simulated
    return Order(variant, file, load_scenario(str(file)), results, simulated)


def _as_recorded(scenario: Scenario) -> Any:
    return json.loads(scenario.model_dump_json(by_alias=True))
