"""The paper's rows that are studies: `testbed study` makes the same runs."""

import re
from pathlib import Path

import pytest

from testbed.model.files.scenarios import nominal
from testbed.studies.paper import rows
from testbed.studies.paper.planning import FIGURES, scenario_as_written
from testbed.studies.paper.rows import STUDIES
from testbed.studies.study.file import load_study

FILES = sorted(STUDIES.glob("*.yaml"))
VARIANTS = {variant.name: variant for figure in FIGURES for variant in figure.variants}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_a_study_makes_the_runs_of_its_rows(file: Path) -> None:
    loaded = load_study(file)
    _, scenarios = loaded.plan(nominal)
    alone = len(loaded.content.cases) == 1
    for (name, case), scenario in zip(loaded.content.cells, scenarios.values(), strict=True):
        variant = VARIANTS[name if alone else f"{name}-{case}"]
        row = scenario_as_written(variant, "simulated")
        unlike = {"name", "description", *(("timeline",) if variant.with_seed else ())}
        assert scenario.model_dump(exclude=unlike) == row.model_dump(exclude=unlike)


def test_the_document_names_the_rows_that_are_no_studies() -> None:
    page = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()
    (said,) = re.findall(r"The other rows are in Python: (.*?)\n\n", page, re.DOTALL)
    named = {*re.findall(r"[\w-]+", said)}
    for figure in FIGURES:
        is_study = getattr(figure.measure, "__module__", "") == rows.__name__
        assert (figure.number in named) is not is_study, figure.number
