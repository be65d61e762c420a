"""A study is made: its missing runs, then tables, figures, and what became of its hypotheses."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.model.errors import ExitStatus, exit_status_of
from testbed.model.run_files.layout import JUNIT
from testbed.results.comparison import group_of
from testbed.results.report.junit import junit_of_series, suite_of, suite_of_failed
from testbed.results.run_directory import RunDirectory
from testbed.runs.fitting import Machines
from testbed.runs.job import UNDRAWN
from testbed.runs.python import RESULTS, until_trusted
from testbed.runs.result import Result
from testbed.runs.series import Front, MadeSeries, Place, series_made
from testbed.studies.study.file import LoadedStudy, StudyFile, load_study
from testbed.studies.study.inputs import inputs_of
from testbed.studies.study.judging import Cells, Judgement, judged, suite_of_hypotheses
from testbed.studies.study.own_metrics import OwnMetric, measured
from testbed.studies.study.publishing import archive as write_archive
from testbed.studies.study.publishing import publish, require_archive
from testbed.studies.study.tables import Table, tables_of

if TYPE_CHECKING:
    import polars as pl

PREFIX = "study-"
"""The name of a study's directory begins with it; its own follows."""

ATTEMPTS = 3
"""An emulated run that this machine was too late for is made so often at most."""


@dataclass(frozen=True)
class Study:
    """A study that was made.

    Attributes:
        directory: where its runs, tables and figures are.
        content: what its file says.
        cells: the runs of each case in each scenario, by their names.
        tables: each metric of all cases in all scenarios.
        judgements: what became of each hypothesis.
        failures: the runs that did not finish, each with its exit status.
    """

    directory: Path
    content: StudyFile
    cells: Cells
    tables: tuple[Table, ...]
    judgements: tuple[Judgement, ...]
    failures: Mapping[str, ExitStatus]

    def results(self, scenario: str, case: str) -> tuple[Result, ...]:
        """The runs of a case in a scenario, in the order of their seeds."""
        return tuple(map(Result, self.cells[scenario, case].runs))

    @cached_property
    def frame(self) -> "pl.DataFrame":
        """A row for each metric, scenario and case, as in `tables/estimates.csv`."""
        import polars as pl  # noqa: PLC0415 - it starts threads

        return pl.read_csv(self.directory / "tables/estimates.csv", infer_schema_length=None)

    @property
    def exit_status(self) -> ExitStatus:
        """What it came to: the worst of its runs and hypotheses.

        What scenarios expect of their runs is not counted: a study has hypotheses of its own.
        """
        answers = {judgement.answer for judgement in self.judgements}
        of_runs = {
            summary.model_copy(update={"expectations": ()}).exit_status(require_trusted=False)
            for group in self.cells.values()
            for summary in group.summaries
        }
        found = {*of_runs, *self.failures.values()}
        if answers & {"refuted", "undecided"}:
            found.add(ExitStatus.FAILED)
        if "not judged" in answers:
            found.add(ExitStatus.UNTRUSTED)
        return next((status for status in _WORST_FIRST if status in found), ExitStatus.AS_EXPECTED)


_WORST_FIRST = (
    ExitStatus.CRASHED,
    ExitStatus.WRONG_INPUT,
    ExitStatus.MACHINE_CANNOT,
    ExitStatus.FAILED,
    ExitStatus.UNTRUSTED,
)


def make_study(
    loaded: LoadedStudy,
    place: Place,
    *,
    allow_code: bool,
    archive: Path | None = None,
    machines: Machines | None = None,
    front: Front | None = None,
) -> Study:
    """Make the runs of a study that are missing, and publish it in its directory.

    Args:
        loaded: the study.
        place: where.
        allow_code: whether it may execute code that it names.
        archive: the file of an archive; None: none is written.
        machines: what emulates.
        front: is told how it goes; None: nobody.

    Raises:
        InputError: something in it is wrong, or the directory holds another study.
        MachineError: the machine cannot make a run, or ran out of something.
    """
    content, file = loaded.content, loaded.document.file
    inputs = None if file is None else inputs_of(file, portable=archive is not None)
    with series_made(
        lambda dilation: loaded.plan(dilation, allow_code=allow_code, here=place.on is None),
        loaded.form,
        place,
        how=UNDRAWN,
        machines=machines,
        retry=until_trusted(ATTEMPTS) if place.on is None else None,
        front=front or Front(),
    ) as made:
        metrics = {name: OwnMetric.of(code) for name, code in loaded.functions.items()}
        cells = {
            cell: measured(group, metrics, partial(content.asks, *cell))
            for cell, group in _cells(content, made).items()
        }
        tables, judgements = tables_of(content, cells), judged(content, cells)
        if inputs is not None:
            inputs.write(made.directory)
        copy = None if inputs is None else inputs.study
        executes = any(run.scenario.executes for run in made.runs) or bool(metrics)
        publish(content, cells, tables, judgements, made.directory, copy, executes=executes)
        _write_junit(content, made, judgements)
        if archive is not None:
            runs = [run for group in cells.values() for run in group.runs]
            kept = [] if inputs is None else [*inputs.contents]
            write_archive(archive, made.directory, content, runs, kept)
    failures = {
        name: ExitStatus.UNTRUSTED if run.status is None else exit_status_of(run.status)
        for name, run in made.series.called
        if run.error is not None
    }
    return Study(made.directory, content, cells, tables, judgements, failures)


def _cells(content: StudyFile, made: MadeSeries) -> Cells:
    ended: dict[int, tuple[list[Path], list[Path]]] = {
        case.number: ([], []) for case in made.series.plan.cases
    }
    for run in made.series.done:
        ended[run.case][run.error is not None].append(made.directory / run.run)
    return {
        (scenario, case): group_of(case, runs, len(failed))
        for (scenario, case), (runs, failed) in zip(content.cells, ended.values(), strict=True)
    }


def _write_junit(content: StudyFile, made: MadeSeries, judgements: tuple[Judgement, ...]) -> None:
    """Write hypotheses and verdicts; what scenarios expect is left out, as of the exit status."""
    suites = [suite_of_hypotheses(content.name, judgements)]
    for name, run in made.series.called:
        if run.error is not None:
            suites.append(suite_of_failed(name, run.error))
        else:
            summary = Result(made.directory / run.run).summary
            suites.append(suite_of(summary.model_copy(update={"expectations": ()}), name))
    RunDirectory(made.directory).write(JUNIT, junit_of_series(suites))


def study(
    given: str | Path | Mapping[str, Any],
    *,
    into: str | Path | None = None,
    results: str | Path = RESULTS,
    on: str | None = None,
    archive: str | Path | None = None,
) -> Study:
    """Make a study: scenarios times cases times seeds, tables, figures, hypotheses.

    What is there of it already, with just this code, is not made again.

    Args:
        given: its YAML file, or what would stand in it.
        into: its directory; None: `study-NAME` in that of all results.
        results: the directory of all results.
        on: where its runs are made, as `--on`; None: on this machine.
        archive: a `.tar.gz` for others, which is written at the end; None: none is.

    Raises:
        InputError: something in it is wrong, or the directory holds another study.
        MachineError: this machine cannot make a run.
    """
    if archive is not None:
        require_archive(Path(archive))
    loaded = load_study(given)
    place = place_of(loaded, Path(results), None if into is None else Path(into), on)
    return make_study(
        loaded, place, allow_code=True, archive=None if archive is None else Path(archive)
    )


def place_of(loaded: LoadedStudy, results: Path, into: Path | None, on: str | None) -> Place:
    """Where a study is made."""
    return Place(results, into or results / f"{PREFIX}{loaded.content.name}", on, grows=True)
