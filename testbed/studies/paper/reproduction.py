"""Makes the figures of the paper: their runs, each figure judged and drawn, and the report."""

import json
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from testbed.model.errors import RunFailedError
from testbed.model.progress import Progress
from testbed.model.summary import Summary
from testbed.results.report.figures.style import save, style
from testbed.results.run_directory import RunDirectory
from testbed.runs.job import FORMS, STATES, Executor, JobKey, JobRecord, PlannedRun
from testbed.runs.many import RetryPolicy, many
from testbed.runs.result import Result
from testbed.runs.store import Results, Store, machine_of
from testbed.studies.paper.figure import PaperFigure, most_typical, repeated
from testbed.studies.paper.outcome import CheckOutcome, FigureOutcome, FigureRun, OutcomeStore
from testbed.studies.paper.planning import BY_NAME, FIGURES, Plan, setup_of
from testbed.studies.paper.report import ReportRow, as_json, as_markdown, render


def judge(
    figure: PaperFigure,
    planned_runs: Sequence[PlannedRun],
    failures: Mapping[JobKey, JobRecord],
    store: Store,
    outcome_store: OutcomeStore,
) -> FigureOutcome:
    """Measure a figure's runs and draw them; both are written into the outcome store.

    Args:
        figure: which.
        planned_runs: its runs in the form of the outcome store, with every seed.
        failures: the records of those that were not finished, by the keys of their jobs.
        store: where runs are found.
        outcome_store: where the outcome goes.
    """
    figure_runs, missing, crashed = [], {}, False
    best: dict[int, dict[str, tuple[PlannedRun, Result]]] = {}
    for planned in planned_runs:
        of_seed = best.setdefault(planned.job.seed, {})
        if (run := store.best(planned)) is None:
            record = failures.get(planned.job.key)
            missing[planned.job.name] = "not run" if record is None else record.failure
            crashed |= record is not None and record.crashed
        else:
            figure_runs.append(_figure_run(planned, run, len(store.attempts(planned))))
            of_seed[planned.scenario.name] = planned, run
    count = len({planned.scenario.name for planned in planned_runs})
    complete = {seed: best[seed] for seed in sorted(best) if len(best[seed]) == count}
    outcome = FigureOutcome(
        number=figure.number,
        form=outcome_store.form,
        setup=setup_of(figure, outcome_store.form),
        overrides=str(figure.overrides),
        runs=tuple(figure_runs),
        failures=missing,
        crashed=crashed,
    )
    outcome_store.directory.mkdir(parents=True, exist_ok=True)
    if complete:
        try:
            outcome = outcome.model_copy(update=_measure(figure, complete, outcome_store))
        except RunFailedError as error:
            outcome = outcome.model_copy(update={"failures": {**missing, "measuring": str(error)}})
        except Exception as error:  # noqa: BLE001 - a figure that fails must not end the others
            log = outcome_store.directory / f"{figure.stem}.log"
            log.write_text(traceback.format_exc(), encoding="utf-8")
            failure = f"{type(error).__name__}: {error}; traceback: {log}"
            update = {"failures": {**missing, "measuring": failure}, "crashed": True}
            outcome = outcome.model_copy(update=update)
    outcome_store.save(figure, outcome)
    return outcome


def _measure(
    figure: PaperFigure,
    complete: Mapping[int, Mapping[str, tuple[PlannedRun, Result]]],
    outcome_store: OutcomeStore,
) -> dict[str, Any]:
    """Judge and draw the runs of some seeds; the fields of the outcome that follow."""
    by_seed: dict[int, Results] = {
        seed: {name: run for name, (_, run) in runs.items()} for seed, runs in complete.items()
    }
    drawn, seeds = None, [*by_seed]
    if figure.compares_seeds:
        checks = figure.measure(*by_seed.values())
    else:
        checks_by_seed = [figure.measure(runs) for runs in by_seed.values()]
        checks = repeated(checks_by_seed)
        drawn = seeds[most_typical(checks_by_seed)]
        seeds = [drawn]
    summaries = [summary for seed in seeds for summary in _that_count(complete[seed].values())]
    worst = max(summaries, key=lambda summary: STATES.index(summary.verdict))
    with style():
        drawing = figure.draw(*(by_seed[seed] for seed in seeds))
        save(drawing, outcome_store.directory, figure.stem, worst, svg=True)
    checked = tuple(CheckOutcome.of(figure, check) for check in checks)
    return {"checks": checked, "seeds": tuple(complete), "drawn": drawn}


def _figure_run(planned: PlannedRun, run: Result, attempts: int) -> FigureRun:
    summary = run.summary
    return FigureRun(
        name=planned.job.name,
        directory=run.directory,
        seed=summary.seed,
        dilation=summary.dilation,
        verdict=planned.verdict(summary),
        reasons=summary.reasons,
        attempts=attempts,
        expected_load=planned.load,
        machine=machine_of(run.directory),
        bytes_damaged=summary.integrity.bytes_damaged,
    )


def _that_count(runs: Iterable[tuple[PlannedRun, Result]]) -> list[Summary]:
    """The summaries of runs, without those that may stall and did, unless all of them did."""
    pairs = [(planned, run.summary) for planned, run in runs]
    return [
        summary for planned, summary in pairs if planned.verdict(summary) == summary.verdict
    ] or [summary for _, summary in pairs]


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
