"""The rows of the paper as a document."""

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.campaign.job import FORMS
from testbed.paper.checks import at_least
from testbed.paper.outcome import CheckOutcome, FigureOutcome, OutcomeStore
from testbed.paper.page import as_document
from testbed.paper.planning import select_figures
from testbed.paper.registry import FIGURES
from testbed.paper.report import ReportRow

pytestmark = pytest.mark.simulated

DOCUMENT = Path(__file__).parents[2] / "docs" / "paper.md"


def _row(number: str, directory: Path, *, share: float) -> ReportRow:
    """A row that was simulated with two seeds, with a drawing."""
    (figure,) = select_figures([number])
    check = replace(at_least("share | of it", share, 0.9), why_not="links are slow")
    checks = (CheckOutcome.model_validate(check, from_attributes=True),)
    outcome = FigureOutcome(number=number, form="simulated", checks=checks, seeds=(1, 2))
    stores = {form: OutcomeStore(directory, form) for form in FORMS}
    stores["simulated"].directory.mkdir(exist_ok=True)
    stores["simulated"].picture(figure).touch()
    return ReportRow(figure, {"emulated": None, "simulated": outcome}, stores)


def test_a_row_has_claim_commands_figures_and_verdict(tmp_path: Path) -> None:
    rows = [_row("9a", tmp_path, share=0.95), _row("10", tmp_path, share=0.5)]
    document = as_document(rows, "images/paper")
    lines = document.splitlines()
    assert lines[0] == "1 of 2 rows hold; 1 do not."
    assert "| [10](#10-a-t0-goes-down) | A T0 goes down | **does not hold** | - |" in lines
    assert "### 10: A T0 goes down" in lines
    assert "sudo testbed figures 9a --seeds 1" in lines
    assert "testbed figures 9a --simulate --seeds 2" in lines
    assert "| share / of it | ≥ 90.0% | 95.0% | - |" in lines
    assert "| share / of it | ≥ 90.0% | 50.0% **no** | - |" in lines
    assert "- share / of it: 50.0%, links are slow" in lines
    assert "![9a, simulated](images/paper/9a-simulated.png)" in lines


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_the_document_says_of_a_row_what_the_code_does(figure: object) -> None:
    document = DOCUMENT.read_text()
    (known,) = (known for known in FIGURES if known is figure)
    text = known.text
    assert f"### {known.number}: {text.title}\n" in document
    assert f"**The paper**: {text.observed}." in document
    assert f"**Here**: {text.setup}\n" in document
