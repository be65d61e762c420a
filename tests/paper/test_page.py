"""The rows of the paper as a document."""

from pathlib import Path

import pytest

from testbed.model.errors import InputError
from testbed.runs.job import FORMS, Form
from testbed.studies.paper.commands import FULL_SEEDS
from testbed.studies.paper.figure import at_least
from testbed.studies.paper.outcome import CheckOutcome, FigureOutcome, OutcomeStore
from testbed.studies.paper.planning import FIGURES, select_figures
from testbed.studies.paper.published import (
    PublishedCheck,
    PublishedFigure,
    PublishedSeeds,
    Row,
    as_document,
    read_results,
)
from testbed.studies.paper.report import ReportRow
from tests.modules import SCRIPTS, module_at

pytestmark = pytest.mark.simulated


paper_page = module_at(SCRIPTS / "paper_page.py")

DOCUMENT = Path(__file__).parents[2] / "docs" / "paper" / "rows.md"


def _row(number: str, *, share: float) -> Row:
    """A row that was simulated with two seeds."""
    (figure,) = select_figures([number])
    simulated = _published(number, "simulated", share, at_least=0.9).outcome
    return ReportRow(figure, {"emulated": None, "simulated": simulated}, {})


def _published(number: str, form: Form, share: float, *, at_least: float) -> PublishedFigure:
    """A figure with two seeds and one check."""
    return PublishedFigure(
        figure=number,
        form=form,
        setup="",
        checks=(PublishedCheck(what="share | of it", low=at_least, high=None, form="{:.1%}"),),
        results=tuple(
            PublishedSeeds(seeds=(seed,), values=((share,),), runs=1, trusted=1) for seed in (1, 2)
        ),
    )


def test_a_row_has_claim_commands_figures_and_verdict() -> None:
    rows = [_row("9a", share=0.95), _row("10", share=0.5)]
    document = as_document(rows, "images/paper", {"9a-simulated.png"})
    lines = document.splitlines()
    assert lines[0] == "1 of 2 rows of the paper hold; 1 do not; own studies: 0 of 0 hold."
    assert "| [10](#10-a-t0-goes-down) | A T0 goes down | **does not hold** | not made |" in lines
    assert "### 10: A T0 goes down" in lines
    assert "sudo testbed figures 9a --seeds 1    # not made here" in lines
    assert "testbed figures 9a --form simulated --seeds 2" in lines
    assert "| share / of it | ≥ 90.0% | 95.0% | - |" in lines
    assert "| share / of it | ≥ 90.0% | 50.0% **no** | - |" in lines
    assert "- share / of it: 50.0% simulated. Why: unknown" in lines
    assert "![9a, simulated](images/paper/9a-simulated.png)" in lines
    assert "![10, simulated](images/paper/10-simulated.png)" not in lines


def test_bounds_that_differ_between_the_forms_are_both_named() -> None:
    (figure,) = select_figures(["ablation"])
    simulated = _published("ablation", "simulated", 0.95, at_least=0.9)
    for least, bound in ((0.9, "≥ 90.0%"), (0.8, "≥ 90.0% simulated; ≥ 80.0% emulated")):
        emulated = _published("ablation", "emulated", 0.85, at_least=least)
        row = ReportRow(figure, {"simulated": simulated.outcome, "emulated": emulated.outcome}, {})
        document = as_document([row], "images/paper", set())
        assert f"| share / of it | {bound} | 95.0% | 85.0%" in document


def test_a_row_that_cannot_be_emulated_has_no_command_that_does() -> None:
    document = as_document([_row("22", share=0.95)], "images/paper", set())
    assert "figures 22 --form simulated" in document
    assert "sudo" not in document
    assert "| holds | - |" in document


def test_our_own_studies_are_not_counted_as_rows_of_the_paper() -> None:
    rows = [_row("9a", share=0.5), _row("failover", share=0.95), _row("scale", share=0.95)]
    document = as_document(rows, "images/paper", set())
    assert document.startswith(
        "0 of 1 rows of the paper hold; 1 do not; own studies: 2 of 2 hold.\n"
    )
    paper, own = document.split("### ")[0].split("| own study | what | simulated | emulated |")
    assert "| row of the paper | what | simulated | emulated |" in paper
    assert "[9a]" in paper
    assert "[failover]" not in paper
    assert own.count("\n| [") == 2
    assert document.count("**Our own study**") == 2


def test_the_documents_are_those_of_the_kept_results() -> None:
    """`python scripts/paper_page.py` would change neither."""
    rows = paper_page.rows_of(read_results(paper_page.RESULTS))
    page, readme = DOCUMENT.read_text(), (paper_page.ROOT / "README.md").read_text()
    assert paper_page.with_rows(page, rows) == page
    assert paper_page.with_sum(readme, rows) == readme
    for before in ("; 1 do not", ""):
        holds = f"[0 of 1 rows of the paper hold](docs/paper/rows.md){before}"
        said = f"{holds}; own studies: 0 of 1 hold"
        assert paper_page.with_sum(said, rows) in readme


def test_every_row_has_all_its_seeds() -> None:
    """As many as `make figures-full` makes, in each form in which the figure has runs."""
    outcomes = read_results(paper_page.RESULTS).outcomes
    forms = [(figure, form) for figure in FIGURES for form in FORMS if figure.variants_in(form)]
    assert {(figure.number, form) for figure, form in forms} == {*outcomes}
    fewer = {key for key, outcome in outcomes.items() if len(outcome.seeds) < FULL_SEEDS[key[1]]}
    assert fewer == set()


def test_results_of_changed_runs_are_no_results_of_a_row(tmp_path: Path) -> None:
    (figure,) = select_figures(["9a"])
    check = CheckOutcome.of(figure, at_least("rate", 1.0, 0.5))
    outcome = FigureOutcome(
        number="9a", form="simulated", checks=(check,), seeds=(1,), overrides="--longer 5"
    )
    OutcomeStore(tmp_path / "figures", "simulated").save(figure, outcome)
    with pytest.raises(InputError, match="figure 9a with --longer 5"):
        paper_page.added(read_results(paper_page.RESULTS), tmp_path)


def test_reasons_are_those_of_today_and_of_checks_that_there_are() -> None:
    results = read_results(paper_page.RESULTS)
    for figure in FIGURES:
        outcomes = (results.outcomes.get((figure.number, form)) for form in FORMS)
        checks = [check for outcome in outcomes if outcome for check in outcome.checks]
        assert {*figure.text.reasons} <= {check.what for check in checks}
        assert all(check.why_not == figure.reason(check.what) for check in checks)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_every_row_is_made_in_each_of_its_forms(figure: object, form: Form) -> None:
    (known,) = (known for known in FIGURES if known is figure)
    results = read_results(paper_page.RESULTS).figures
    assert ((known.number, form) in results) == bool(known.variants_in(form))


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: str(figure.number))
def test_the_document_says_of_a_row_what_the_code_does(figure: object) -> None:
    document = DOCUMENT.read_text()
    said = " ".join(document.split())
    (known,) = (known for known in FIGURES if known is figure)
    text = known.text
    assert f"### {known.number}: {text.title}\n" in document
    assert f"**The paper**: {text.observed}." in said
    assert f"**Here**: {text.setup}" in said
    assert not text.not_shown or f"**What this row does not show**: {text.not_shown}" in said
