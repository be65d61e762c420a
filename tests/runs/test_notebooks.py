"""The notebooks of examples/ run from their first cell to their last, as they were executed."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

PROJECT = Path(__file__).parents[2]
NOTEBOOKS = sorted((PROJECT / "examples").glob("*.ipynb"))

each_notebook = pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: str(file.name))


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _kinds(notebook: Any) -> list[list[set[str]]]:
    """The kinds of the outputs of each cell with code."""
    return [
        [{output["output_type"], *output.get("data", {})} for output in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_there_are_two() -> None:
    assert {file.stem for file in NOTEBOOKS} >= {"first-failure", "sweep"}


@each_notebook
def test_it_was_executed(file: Path) -> None:
    notebook = _read(file)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in cells]
    assert counts == [*range(1, len(counts) + 1)]
    kinds = {kind for cell in _kinds(notebook) for output in cell for kind in output}
    assert "error" not in kinds
    assert "text/html" in kinds
    assert kinds & {"image/svg+xml", "image/png"}


@pytest.mark.simulated
@each_notebook
def test_it_runs(file: Path) -> None:
    pytest.importorskip("nbclient", reason="no nbclient: the group documents is left out")
    program = runpy.run_path(str(PROJECT / "scripts/notebooks.py"))
    assert _kinds(program["executed"](file)) == _kinds(_read(file))
