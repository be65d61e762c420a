"""`testbed replay`: a finished run once more, event by event."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import writing
from testbed.cli.screen import stdout
from testbed.model.errors import InputError

_STDOUT = Path("-")


def replay(
    run_directory: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run's directory, or its scenario's.")
    ],
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the page as one HTML file that works offline."),
    ] = None,
    stream: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the event stream as NDJSON; - for the screen."),
    ] = None,
) -> None:
    """Show a finished run in a browser: look back, step by step."""
    from testbed.live.page import exported
    from testbed.live.recorded import recorded_stream
    from testbed.live.records import to_line
    from testbed.results.run_directory import find_run

    run = find_run(run_directory)
    if export is None and stream is None:
        raise InputError.of("--export", "", "a file to write: --export or --stream")
    records = [*recorded_stream(run.path)]
    if stream == _STDOUT:
        for record in records:
            typer.echo(to_line(record), nl=False)
    elif stream is not None:
        _write("--stream", stream, "".join(map(to_line, records)))
    if export is not None:
        _write("--export", export, exported(records, f"{run.name} - MRC testbed"))


def _write(option: str, file: Path, content: str) -> None:
    with writing(option, file):
        file.write_text(content, encoding="utf-8")
    stdout().print(f"wrote {file}")
