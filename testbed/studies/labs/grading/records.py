"""Whether the records of a run are those that its simulation gives."""

from pathlib import Path

from testbed.model.faults.record import FAULTS
from testbed.model.run_files.layout import RUN
from testbed.results.records import TABLES


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
