"""The runs of a lab: made with the student's seed, after the predictions.

An emulated run is for looking: it counts nowhere. A hidden run is made in `.lab/sealed`. A student
gets a copy: of the tables that hosts can see, and of all files once its questions were answered. A
copy that a crash broke off is made by the next command.
"""

import filecmp
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.installation import describe_version
from testbed.model.errors import InputError, MachineError, did_you_mean
from testbed.model.faults.record import FAULTS
from testbed.model.progress import Progress
from testbed.model.run_files.layout import RUN, table_file
from testbed.results.code_version import code_version
from testbed.results.records import (
    ARRIVALS,
    COMPLETIONS,
    EV_EVENTS,
    LOSSES,
    PROBES,
    QP,
    TABLES,
    TRANSMISSIONS,
)
from testbed.results.run_directory import LATEST, RunDirectory
from testbed.results.whole_file import scratch
from testbed.rights import acting_for, reading_for
from testbed.runs.job import How, planned_run, slowed
from testbed.runs.making import make
from testbed.runs.many import made_here
from testbed.runs.result import with_paths
from testbed.runs.store import Store
from testbed.studies.labs.grading.limits import CPU_S, slowness
from testbed.studies.labs.students import may_read
from testbed.studies.labs.work import EMULATED, RESULTS, SEALED, STATE, Work

if TYPE_CHECKING:
    import polars as pl

    from testbed.model.scenario import Scenario
    from testbed.model.summary import Summary
    from testbed.runs.result import Result

UNSEALED = ARRIVALS, TRANSMISSIONS, LOSSES, EV_EVENTS, QP, COMPLETIONS, PROBES
"""The tables of a hidden run that a student gets at once: what hosts can see."""


@dataclass(frozen=True, slots=True)
class MadeRun:
    """A run that was made.

    Attributes:
        summary: its metrics.
        directory: where its files are for the student.
        hidden: whether its fault is to be found yet.
        reasons: why it cannot be trusted, as far as the student may know.
    """

    summary: "Summary"
    directory: RunDirectory
    hidden: bool
    reasons: tuple[str, ...]


def checked_run(work: Work, name: str | None) -> str:
    """The run that is due: by its name, or the first that was not made.

    Raises:
        InputError: there is no such run, or it has no predictions yet.
    """
    runs = work.assignment.directory.lab.runs
    if not runs:
        raise InputError.of("RUN", name or "", "a lab with runs", "this lab has none to make")
    if name is None:
        name = next((run for run in runs if work.counted_run(run) is None), [*runs][-1])
    if name not in runs:
        remedy = did_you_mean(name, tuple(runs))
        task = work.assignment.directory.lab.task(name)
        if task is not None:
            verb = "predict" if task.is_prediction else "check"
            remedy = f"{name} is a task: testbed lab {verb} {name}"
        raise InputError.of("RUN", name, f"one of {', '.join(runs)}", remedy)
    if (changed := work.changed_since_start()) is not None:
        raise changed
    for task in work.assignment.directory.lab.predictions(name):
        if work.last("prediction", task=task.id) is None:
            expected = f"your prediction {task.id} ({task.title}) first"
            remedy = f"testbed lab predict {task.id} shows the question"
            raise InputError.of(f"run {name}", "", expected, remedy)
    return name


def make_run(work: Work, name: str, progress: Progress, *, drawn: bool) -> MadeRun:
    """Simulate a run, analyse it, and write it into the journal.

    Args:
        work: the student's.
        name: of the run; its predictions were made.
        progress: is told how far it is.
        drawn: whether with figures and report, of a run that is not hidden.

    Raises:
        InputError: the student's code is wrong, or does not do the same again.
    """
    hidden = is_hidden(work, name)
    scenario, code = work.assignment.scenario(name), work.assignment.code_digest(name)
    sealed = work.assignment.directory.lab.runs[name].hidden
    results = work.path / (Path(STATE) / SEALED if sealed else RESULTS)
    progress = _without_counts(progress) if hidden else progress
    result = _simulated(work, scenario, results, progress, How(drawn=drawn and not hidden))
    directory, summary = RunDirectory(result.directory), result.summary
    work.journal.append(
        "run",
        run=name,
        directory=directory.path.relative_to(work.path).as_posix(),
        verdict=summary.verdict,
        code=code,
        version=code_version(),
        testbed=describe_version(),
    )
    if sealed:
        _show(directory.path, shown_directory(work, name), whole=not hidden)
        directory = RunDirectory(shown_directory(work, name))
    reasons = _without_faults(summary.reasons, scenario) if hidden else summary.reasons
    return MadeRun(summary, directory, hidden, tuple(reasons))


def emulate_run(
    work: Work, name: str, progress: Progress, *, drawn: bool, slower: float = 1.0
) -> MadeRun:
    """Make a run with real packets (root), to look at: answers are about the simulated run.

    Args:
        work: the student's.
        name: of the run; its predictions were made.
        progress: is told how far it is.
        drawn: whether with figures and report.
        slower: how many times longer all its times are, for a machine that is too late otherwise.

    Raises:
        InputError: its fault is still to be found, or the student's code is wrong.
        MachineError: this machine cannot emulate it.
    """
    if is_hidden(work, name):
        remedy = f"find it in the simulated run first: testbed lab run {name}"
        raise InputError.of("--form emulated", name, "a run whose fault was found", remedy)
    progress("emulating", 0.0)
    try:
        scenario = slowed(work.assignment.scenario(name), slower)
        result = _emulated(scenario, work.path / EMULATED, How(drawn=drawn))
    except MachineError as error:
        remedy = f"{error.remedy}, or without --form emulated: simulated runs are those that count"
        raise MachineError(error.what, remedy) from None
    directory, summary = RunDirectory(result.directory), result.summary
    shown = directory.path.relative_to(work.path).as_posix()
    work.journal.append("emulated", run=name, directory=shown, verdict=summary.verdict)
    return MadeRun(summary, directory, hidden=False, reasons=tuple(summary.reasons))


def _emulated(scenario: "Scenario", results: Path, how: How) -> "Result":
    """Emulate a run in a process of its own (root); nothing but the run is left in the results.

    Raises:
        MachineError: this machine cannot run it; the message says what is missing.
        RunFailedError: it did not finish.
    """
    planned = planned_run(scenario, "emulated", scenario.name, how=how)
    store = Store(results, since=datetime.now().astimezone(), exclusive=False)
    (result,) = made_here([planned], store, anew=True)
    with acting_for(results):
        for left in (results / planned.job.file, results / planned.job.log):
            left.unlink(missing_ok=True)
        with suppress(OSError):  # others are made below these results
            (results / planned.job.file).parent.rmdir()
    return result


def _simulated(
    work: Work, scenario: "Scenario", results: Path, progress: Progress, how: How
) -> "Result":
    """Simulate a run; with code of the student's own twice, as it is graded, with the same limits.

    Raises:
        InputError: the student's code is wrong, takes too long, or does not do the same again.
    """
    from testbed.host.own_code import run_apart  # noqa: PLC0415 - it takes long

    runs = work.assignment.directory.lab.runs
    if not runs[scenario.name].code:
        return make(scenario, "simulated", results, how=how, progress=progress)

    @contextmanager
    def apart(*_: object) -> Iterator[None]:
        with run_apart(slowness()):
            yield

    within = _within_limit(progress, len(runs))
    result = make(scenario, "simulated", results, how=how, progress=within, watch=apart)
    progress("once more: two runs have to be equal", 1.0)
    try:
        with run_apart(slowness()):
            _check_repeatable(scenario, result.directory)
    except BaseException:
        with acting_for(results):
            RunDirectory(result.directory).remove()  # it does not count
        raise
    return result


_FEW = 3


def _without_counts(progress: Progress) -> Progress:
    """Tell how far a hidden run is, and not how many packets were dropped so far."""

    def tell(what: str, share: float) -> None:
        progress(what.partition(",")[0], share)

    return tell


def _without_faults(reasons: Sequence[str], scenario: "Scenario") -> list[str]:
    """The reasons that name neither a fault nor a place of the fabric."""
    names = ("fault", *scenario.topology.nodes)
    return [reason for reason in reasons if not any(name in reason for name in names)]


def _within_limit(progress: Progress, runs: int) -> Progress:
    """Progress that ends a run which would exceed its share of what grading allows.

    Args:
        progress: is told how far the run is.
        runs: how many runs the lab has; all are graded within one limit.
    """
    began, limit_s = time.process_time(), CPU_S * slowness() / runs

    def limited(what: str, share: float) -> None:
        used_s = time.process_time() - began
        if used_s > limit_s:
            found = f"a run that needs more than {limit_s:.0f} s of CPU (at {share:.0%} of it)"
            remedy = "send fewer packets that are lost: each costs the simulation time"
            raise InputError.of("your code", found, "a run within the CPU limit of grading", remedy)
        progress(what, share)

    return limited


def _check_repeatable(scenario: "Scenario", directory: Path) -> None:
    """Check that the student's code does the same again with the same seed.

    Its processes are new ones, which have other hashes of texts.

    Raises:
        InputError: it does not.
    """
    from testbed.sim import simulate  # noqa: PLC0415 - it takes long

    with scratch("testbed-lab-") as place:
        again = place / "again"
        again.mkdir()
        simulate(scenario, again)
        differing = differing_tables(directory, again)
    if differing:
        found = f"two runs of one seed that differ (in {', '.join(differing[:_FEW])})"
        remedy = (
            "draw random numbers from random.Random(seed), read no clock, sort what is in a set"
        )
        raise InputError.of("your code", found, "the same decisions each time", remedy)


def shown_directory(work: Work, name: str) -> Path:
    """The directory of a run's latest files that a student may see.

    Of a hidden run it is a copy; else the run itself. A link to it may be missing, or lead to
    another run of a scenario of the same name.
    """
    made = work.made_run(name)
    if made is None or work.assignment.directory.lab.runs[name].hidden:
        return work.path / RESULTS / name / LATEST
    return work.path / str(made.content["directory"])


def is_hidden(work: Work, name: str) -> bool:
    """Whether a run's fault is to be found yet: once found, it is known of later runs, too."""
    if not work.assignment.directory.lab.runs[name].hidden:
        return False
    about = [task for task in work.tasks if name in task.after]
    return not all(work.last("attempt", task=task.id, passed=True) for task in about)


def unseal(work: Work) -> list[Path]:
    """Give the student what they may see of hidden runs, where they do not have it yet.

    Returns:
        The directories of those of which they got all files.
    """
    copied = []
    for name, run in work.assignment.directory.lab.runs.items():
        entry = work.counted_run(name)
        if not run.hidden or entry is None:
            continue
        sealed, shown = work.path / str(entry.content["directory"]), shown_directory(work, name)
        whole = not is_hidden(work, name)
        if _shows(sealed, shown) and (shown / RUN).exists() >= whole:
            continue
        _show(sealed, shown, whole=whole)
        if whole:
            copied.append(shown)
    return copied


def _shows(sealed: Path, shown: Path) -> bool:
    """Whether a student's copy has the tables of a run, and not those of an earlier one."""
    with reading_for(shown.parent), may_read():
        return all(
            (shown / file.name).is_file() and filecmp.cmp(file, shown / file.name)
            for file in _unsealed(sealed)
        )


def _unsealed(sealed: Path) -> list[Path]:
    """The files of a hidden run's tables that a student gets at once."""
    return [file for table in UNSEALED if (file := sealed / table.file).is_file()]


def _show(sealed: Path, shown: Path, *, whole: bool) -> None:
    """Replace a student's copy of a run, such that a crash leaves no part of one."""
    with reading_for(shown.parent), may_read():
        _replace(sealed, shown, whole=whole)


def _replace(sealed: Path, shown: Path, *, whole: bool) -> None:
    new, old = (shown.with_name(f".{shown.name}.{which}") for which in ("new", "old"))
    for left in (new, old):  # by a crash
        shutil.rmtree(left, ignore_errors=True)
    if whole:
        shutil.copytree(sealed, new)
    else:
        new.mkdir(parents=True)
        for file in _unsealed(sealed):
            shutil.copy2(file, new / file.name)
    if shown.is_symlink():  # a run of an earlier version
        shown.unlink()
    elif shown.exists():
        shown.rename(old)
    new.rename(shown)
    shutil.rmtree(old, ignore_errors=True)


def differing_tables(records: Path, simulated: Path) -> list[str]:
    """The files of a run that differ from those of another one, in what they say.

    Parquet files are compared by their rows: another version of the library writes other bytes.
    """
    import polars as pl  # noqa: PLC0415 - it takes long

    differing = [name for name in (RUN, FAULTS) if _text(records / name) != _text(simulated / name)]
    for table in TABLES:
        name = table.file
        if not (records / name).exists() and not (simulated / name).exists():
            continue  # some runs have it
        try:
            same = pl.read_parquet(records / name).equals(pl.read_parquet(simulated / name))
        except (OSError, pl.exceptions.PolarsError):  # missing or damaged
            same = False
        if not same:
            differing.append(name)
    return differing


def _text(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


_COLUMNS = {"psn": "seq", "time": "t"}
"""Columns by other names that people know them by."""

_SHOWN = 4
_DIGITS = re.compile(r"\d+")
_BOOLEANS = ("true", "false")


def tables_of(work: Work, run: str | None) -> dict[str, Path]:
    """The files of a run's tables by name, without empty ones.

    Raises:
        InputError: there is no such run, or it was not made.
    """
    runs = work.assignment.directory.lab.runs
    if run not in runs:
        remedy = did_you_mean(run, tuple(runs)) if run else f"testbed lab table {next(iter(runs))}"
        raise InputError.of("RUN", run or "nothing", f"one of {', '.join(runs)}", remedy)
    if work.made_run(run) is None or not shown_directory(work, run).is_dir():
        raise InputError.of("RUN", run, "a run that was made", f"testbed lab run {run}")
    suffix = Path(table_file("table")).suffix
    return {file.stem: file for file in sorted(shown_directory(work, run).glob(f"*{suffix}"))}


def read_table(
    work: Work,
    run: str | None,
    table: str,
    conditions: dict[str, str],
    begin_s: float,
    end_s: float,
) -> "pl.DataFrame":
    """The rows of a table that fulfil some conditions; of EVs also the path.

    Args:
        work: the student's.
        run: the run.
        table: the table.
        conditions: for some columns the value that they have.
        begin_s: the time from which on, in seconds of the run.
        end_s: the time up to which.

    Raises:
        InputError: there is no such table or column, or a value does not fit its column.
    """
    import polars as pl  # noqa: PLC0415 - it takes long

    files = tables_of(work, run)
    if table not in files:
        remedy = did_you_mean(table, tuple(files))
        raise InputError.of("TABLE", table, f"one of {', '.join(files)}", remedy)
    if begin_s > end_s:
        raise InputError.of("--from", f"{begin_s:g} s", f"a time before that of --to, {end_s:g} s")
    try:
        with reading_for(work.path):
            content = files[table].open("rb")
        with content:
            frame = pl.read_parquet(content)
    except (OSError, pl.exceptions.PolarsError):
        remedy, file = f"make it again: testbed lab run {run}", str(files[table])
        raise InputError.of(file, "a damaged file", "a table of the run", remedy) from None
    if {"ev", "flow"} <= {*frame.columns}:
        frame = with_paths(work.assignment.scenario(str(run)), frame)
    whole = frame
    frame = frame.filter(pl.col("t").is_between(begin_s, end_s))
    for column, value in conditions.items():
        if column not in frame.columns:
            name = _COLUMNS.get(column.lower(), "")
            remedy = did_you_mean(column, frame.columns)
            remedy = f"did you mean {name}?" if name in frame.columns else remedy
            expected = f"a column of {table}: {', '.join(frame.columns)}"
            raise InputError.of("COLUMN=VALUE", column, expected, remedy)
        _check_value(whole[column], value)
        frame = frame.filter(pl.col(column).cast(pl.String).str.to_lowercase() == value.lower())
    return frame


def _check_value(column: "pl.Series", value: str) -> None:
    """Check that a value looks like one in the column, apart from its digits.

    Raises:
        InputError: it looks like none.
    """
    known = column.unique(maintain_order=True).to_list()
    forms = {_DIGITS.sub("0", str(other).lower()) for other in known}
    if any(isinstance(other, bool) for other in known):
        forms.update(_BOOLEANS)
    if not known or _DIGITS.sub("0", value.lower()) in forms:
        return
    some = ", ".join(
        str(other).lower() if isinstance(other, bool) else str(other) for other in known[:_SHOWN]
    )
    raise InputError.of("COLUMN=VALUE", f"{column.name}={value}", f"a value such as {some}")
