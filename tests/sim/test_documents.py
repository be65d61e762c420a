"""Figures of simulated runs in the documents are those of this version."""

from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from testbed.model.files.scenarios import load_scenario
from testbed.model.summary import Summary
from tests.modules import SCRIPTS, module_at

from .measuring import measured

pytestmark = [pytest.mark.simulated, pytest.mark.long]

PROJECT = Path(__file__).parents[2]
REMEDY = "python scripts/simulated_tables.py"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """The script that writes the tables."""
    return module_at(SCRIPTS / "simulated_tables.py")


@cache
def simulated(name: str) -> Summary:
    return measured(load_scenario(name))


def document(name: str) -> str:
    return (PROJECT / "docs" / name).read_text(encoding="utf-8")


def test_the_examples_of_the_metrics_are_those_of_the_run_that_they_name(
    tables: ModuleType,
) -> None:
    text = " ".join(document("metrics.md").split())
    missing = [
        example
        for example in tables.examples(simulated("link-failure"))
        if " ".join(example.split()) not in text
    ]
    assert not missing, REMEDY


def test_the_row_of_mrc_beside_other_transports(tables: ModuleType) -> None:
    row = tables.transport_row("MRC", simulated("link-failure"))
    assert row in document("baselines.md"), REMEDY


@pytest.mark.parametrize("name", ["link-failure-loud", "longer-fibre"])
def test_rows_of_the_faults(tables: ModuleType, name: str) -> None:
    """Two of sixteen: that all are made again is the script's part."""
    row = tables.fault_row(name, simulated(name))
    assert row in document("faults.md"), REMEDY


def test_every_scenario_of_the_table_has_a_row(tables: ModuleType) -> None:
    text = document("faults.md")
    for names in tables.KINDS.values():
        assert all(f"| `{name}` |" in text for name in names)
