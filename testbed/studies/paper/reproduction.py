"""Makes the figures of the paper: from their runs to the report."""

import json
from collections.abc import Sequence

from testbed.model.progress import Progress
from testbed.results.run_directory import RunDirectory
from testbed.runs.job import FORMS, Executor
from testbed.runs.many import RetryPolicy, many
from testbed.studies.paper.figure import PaperFigure
from testbed.studies.paper.judging import judge
from testbed.studies.paper.outcome import FigureOutcome, OutcomeStore
from testbed.studies.paper.planning import Plan
from testbed.studies.paper.registry import BY_NAME, FIGURES
from testbed.studies.paper.report import ReportRow, as_json, as_markdown, render


def reproduce(
    figures: Sequence[PaperFigure],
    plan: Plan,
    executor: Executor,
    progress: Progress,
    policy: RetryPolicy | None = None,
) -> tuple[FigureOutcome, ...]:
    """Make the runs that are due, judge and draw the figures, and write the report.

    The report shows all figures: those that are not among the given ones as they were last made.

    Args:
        figures: which are made.
        plan: their runs.
        executor: makes the runs.
        progress: called with what is being done, and the share done.
        policy: which emulated runs are made again, and for how long.

    Returns:
        What became of the figures, in each of their forms.
    """
    retry = policy or RetryPolicy()
    failures = many(plan.due, plan.store, pool=executor, retry=retry, progress=progress)
    directory = plan.store.directory
    outcome_stores = {form: OutcomeStore(directory / "figures", form) for form in FORMS}
    outcomes = []
    for number, figure in enumerate(figures):
        progress(f"drawing {figure.number}", number / len(figures))
        for form, outcome_store in outcome_stores.items():
            if (runs := plan.runs.get((figure.number, form))) is not None:
                outcomes.append(judge(figure, runs, failures, plan.store, outcome_store))
    rows = []
    for figure in (*FIGURES, *BY_NAME):
        last = {form: store.load(figure) for form, store in outcome_stores.items()}
        if figure in FIGURES or any(last.values()):
            rows.append(ReportRow(figure, last, outcome_stores))
    place = RunDirectory(directory)
    place.write("report.html", render(rows))
    place.write("table.json", json.dumps(as_json(rows), indent=1) + "\n")
    place.write("table.md", as_markdown(rows))
    return tuple(outcomes)
