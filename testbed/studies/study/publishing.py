"""What a study publishes: tables, figures and their captions, README, and an archive of all."""

import gzip
import io
import json
import os
import re
import shlex
import tarfile
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.installation import describe_version
from testbed.model.errors import InputError
from testbed.model.run_files.layout import JUNIT, MANIFEST, SUMMARY
from testbed.results.report.comparison_report import as_data
from testbed.results.report.html import template
from testbed.results.run_directory import RunDirectory
from testbed.results.whole_file import whole_file, writing
from testbed.runs.store import machine_of
from testbed.studies.study.file import StudyFile
from testbed.studies.study.judging import Cells, Judgement
from testbed.studies.study.tables import (
    RUNS,
    Table,
    as_csv,
    as_latex,
    as_markdown,
    in_latex,
    in_markdown,
    judgements_as_markdown,
    runs_as_csv,
)

if TYPE_CHECKING:
    from testbed.studies.study.figures import Picture

README, RESULTS, LATEX = "README.md", "study.json", "study.tex"
TABLES, FIGURES = "tables", "figures"
_SUFFIXES = {".md", ".tex", ".csv", ".svg", ".pdf", ".png"}


def provenance(content: StudyFile, cells: Cells, command: str) -> str:
    """What a caption says of where its numbers are from: runs, seeds, version and command."""
    made = sum(len(group.runs) for group in cells.values())
    failed = sum(group.failed for group in cells.values())
    also = f" ({failed} more did not finish)" if failed else ""
    seeds = content.seeds
    if seeds == tuple(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 1:
        written = f"seeds {seeds[0]} to {seeds[-1]}"
    else:
        written = f"seed{'s' if seeds[1:] else ''} {', '.join(map(str, seeds))}"
    size = f"{_count(content.cases, 'case')} in {_count(content.scenarios, 'scenario')}"
    machines = {machine_of(run) for group in cells.values() for run in group.runs} - {""}
    where = f"; on {'; on '.join(sorted(machines))}" if machines else ""
    return (
        f"{made} {content.form} run{'' if made == 1 else 's'}{also}: {size}, {written}{where}. "
        f"mrc-testbed {describe_version()}: {command}"
    )


def _count(things: Sized, what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def publish(
    content: StudyFile,
    cells: Cells,
    tables: tuple[Table, ...],
    judgements: tuple[Judgement, ...],
    directory: Path,
    copy: Path | None,
    *,
    executes: bool,
) -> None:
    """Write tables, figures, LaTeX, `study.json` and README into the study's directory.

    Args:
        content: the study.
        cells: its runs.
        tables: its estimates.
        judgements: what became of its hypotheses.
        directory: its own.
        copy: the copy of its file, relative to the directory; None: it has none.
        executes: whether its scenarios execute code that they name.
    """
    from testbed.studies.study.figures import draw  # noqa: PLC0415 - loads Matplotlib, Polars

    allowing = " --allow-code" if executes else ""
    command = "testbed.study of a mapping"
    if copy is not None:
        command = f"testbed study {shlex.quote(copy.name)}{allowing}"
    source = provenance(content, cells, command)
    place = RunDirectory(directory)
    for folder in (TABLES, FIGURES):
        (directory / folder).mkdir(exist_ok=True)
        for path in (directory / folder).iterdir():  # of metrics that the study had before
            if path.suffix in _SUFFIXES:
                path.unlink()
    pictures = [*draw(content, cells, tables, directory / FIGURES)]
    place.write(f"{TABLES}/estimates.csv", as_csv(tables))
    place.write(f"{TABLES}/{RUNS}", runs_as_csv(content, cells))
    for table in tables:
        place.write(f"{TABLES}/{table.stem}.md", as_markdown(table))
        caption = f"{table.heading}. {'; '.join(table.notes)}. {source}"
        place.write(f"{TABLES}/{table.stem}.tex", as_latex(table, caption))
    place.write(LATEX, _latex(tables, pictures, source))
    results = {
        "study": content.model_dump(mode="json"),
        "source": source,
        "hypotheses": [asdict(judgement) for judgement in judgements],
        "tables": [
            {"metric": table.shown.metric, "cases": table.cases, "rows": as_data(table.rows)}
            for table in tables
        ],
    }
    place.write(RESULTS, json.dumps(results, indent=1) + "\n")
    form = template(
        f"{README}.j2",
        "testbed.studies.study",
        escaped=False,  # Markdown, whose signs `in_markdown` escapes
        markdown=in_markdown,
        table=as_markdown,
    )
    readme = form.render(
        content=content,
        tables=tables,
        pictures=pictures,
        judgements=judgements,
        hypotheses=judgements_as_markdown(judgements).rstrip(),
        source=source,
        copy=None if copy is None else shlex.quote(str(copy)),
        allowing=allowing,
        version=describe_version(),
    )
    place.write(README, f"{readme}\n")


def _latex(tables: Sequence[Table], pictures: Sequence["Picture"], source: str) -> str:
    """All tables and figures, to be copied into a paper."""
    parts = [
        "% Tables and figures of the study. Packages: booktabs, graphicx.",
        "% Names in other scripts than Latin and Greek need LuaLaTeX or XeLaTeX.",
        *(f"\\input{{{TABLES}/{table.stem}}}" for table in tables),
    ]
    for picture in pictures:
        caption = in_latex(f"{picture.title}. {picture.caption} {source}")
        parts.append(
            "\\begin{figure}\n  \\centering\n"
            f"  \\includegraphics{{{FIGURES}/{picture.stem}.pdf}}\n"
            f"  \\caption{{{caption}}}\n  \\label{{fig:{picture.stem}}}\n\\end{{figure}}"
        )
    return "\n".join(parts) + "\n"


# --------------------------------------------------------------------------------------------------
# The archive.


def require_archive(file: Path) -> None:
    """Check that an archive can be written, before the runs are made.

    Raises:
        InputError: its name is that of no archive, or its directory takes no files.
    """
    if not file.name.endswith((".tar.gz", ".tgz")):
        raise InputError.of("--archive", str(file), "a file that ends in .tar.gz")
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK) or file.is_dir():
        raise InputError.of("--archive", str(file), "a file in a directory that you may write to")


def archive(
    file: Path, directory: Path, content: StudyFile, runs: Iterable[Path], inputs: Iterable[Path]
) -> None:
    """Write an archive for an artifact evaluation: all but the records of the runs.

    It names neither this machine nor its directories and users, nor values of environment
    variables of programs.

    Args:
        file: the archive, a `.tar.gz`.
        directory: the study's.
        content: the study.
        runs: the directories of its runs.
        inputs: the copies of its files, relative to its directory.

    Raises:
        InputError: it cannot be written.
        MachineError: no space is left.
    """
    with (
        writing("--archive", file),
        whole_file(file) as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(
            fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8"
        ) as whole,
    ):
        kept = {directory / place for place in inputs}
        for path in [*_archived(directory, runs), *sorted(kept)]:
            data = path.read_bytes()
            if path not in kept and path.suffix not in {".pdf", ".png"}:
                data = _anonymous(path, data.decode()).encode()
            member = tarfile.TarInfo(f"{content.name}/{path.relative_to(directory)}")
            member.size, member.mode = len(data), 0o644
            whole.addfile(member, io.BytesIO(data))


def _archived(directory: Path, runs: Iterable[Path]) -> Iterator[Path]:
    for name in (README, RESULTS, LATEX, JUNIT):  # no index: without records it is no series
        yield directory / name
    for folder in (TABLES, FIGURES):
        yield from sorted(path for path in (directory / folder).rglob("*") if path.is_file())
    for run in sorted(runs):
        yield from (run / MANIFEST, run / SUMMARY)


def _anonymous(path: Path, text: str) -> str:
    """A file's text without what tells of this machine."""
    if path.name == MANIFEST:
        manifest: dict[str, Any] = json.loads(text)
        manifest.pop("host", None)
        text = json.dumps(_without_values(manifest), indent=1)
    places = {os.path.abspath("."), os.path.realpath("."), str(Path.home())} - {"/"}  # noqa: PTH100
    for place in sorted(places, key=len, reverse=True):
        text = re.sub(rf"{re.escape(place)}(/|(?![\w-]))", lambda m: "" if m[1] else ".", text)
    return text


def _without_values(value: Any) -> Any:
    """Data in which environment variables of programs have no values."""
    if isinstance(value, list):
        return [_without_values(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {
        key: dict.fromkeys(part, "") if key == "env" else _without_values(part)
        for key, part in value.items()
    }
