"""The tables of a run as students look at them: with the path of each EV."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.model.errors import InputError, did_you_mean
from testbed.model.run_files.layout import table_file
from testbed.rights import reading_for
from testbed.runs.result import with_paths
from testbed.studies.labs.runs import shown_directory
from testbed.studies.labs.work import Work

_COLUMNS = {"psn": "seq", "time": "t"}
"""Columns by other names that people know them by."""

_SHOWN = 4
_DIGITS = re.compile(r"\d+")
_BOOLEANS = ("true", "false")

if TYPE_CHECKING:
    import polars as pl


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
