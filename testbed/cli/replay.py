"""`testbed replay`: a finished run once more, event by event."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli.live import Port, listening, print_address
from testbed.cli.options import writing
from testbed.cli.screen import stderr, stdout

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
    packets: Annotated[
        str | None,
        typer.Option(metavar="SRC,DST", help="Show each packet of a flow too, such as h0,h4."),
    ] = None,
    port: Port = 0,
) -> None:
    """Show a finished run in a browser: look back, step by step."""
    from testbed.results.run_directory import find_run

    run = find_run(run_directory).path
    if export is None and stream is None:
        _serve(run, packets, port)
        return
    from testbed.live.page import exported
    from testbed.live.stream.recorded import recorded_stream
    from testbed.live.stream.records import to_line

    records = [*recorded_stream(run, packets)]
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


def _serve(run: Path, packets: str | None, port: int) -> None:
    """Serve the page of a run until Ctrl-C."""
    import tempfile
    from contextlib import suppress

    where = listening(port, read_only=True)
    from testbed.live.serving import serving, wait

    with tempfile.TemporaryDirectory() as scratch, suppress(KeyboardInterrupt):
        stream = Path(scratch) / "stream.ndjson"
        stream.touch()
        (Path(scratch) / "logs").mkdir()
        with serving(stream, where) as site:  # first: Polars starts threads, and this forks
            from testbed.live.stream.recorded import recorded_stream
            from testbed.live.stream.records import to_line

            with stream.open("w", encoding="utf-8") as file:
                file.writelines(map(to_line, recorded_stream(run, packets)))
            print_address(site.address, site.port, what="Replay")
            stderr().print("Ctrl-C ends it")
            wait(site)
