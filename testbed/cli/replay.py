"""`testbed replay`: a finished run once more, event by event."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.options import writing
from testbed.cli.screen import stdout

_STDOUT = Path("-")


def replay(
    run_directory: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run's directory, or its scenario's.")
    ],
    stream: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the event stream as NDJSON; - for the screen."),
    ] = None,
) -> None:
    """Replay a finished run."""
    from testbed.live.recorded import recorded_stream
    from testbed.live.records import to_line
    from testbed.results.run_directory import find_run

    run = find_run(run_directory)
    lines = map(to_line, recorded_stream(run.path))
    if stream == _STDOUT:
        for line in lines:
            typer.echo(line, nl=False)
    elif stream is not None:
        content = "".join(lines)
        with writing("--stream", stream):
            stream.write_text(content, encoding="utf-8")
        stdout().print(f"wrote {stream}")
