"""`testbed watch`: a run in a terminal, and as Prometheus metrics."""

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.screen import stdout
from testbed.model.errors import InputError, MachineError

if TYPE_CHECKING:
    from testbed.live.stream.records import RunState

REFRESH_S = 0.25


def watch(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="The directory of a run with --live, or a finished one."
        ),
    ],
    metrics: Annotated[
        int | None,
        typer.Option(
            "--metrics", metavar="PORT", min=1, max=65535, help="Serve Prometheus metrics as well."
        ),
    ] = None,
) -> None:
    """Watch a run in the terminal: paths, flows, faults, events."""
    from rich.live import Live

    from testbed.live.stream.records import RunState, StreamReader
    from testbed.live.stream.writer import STREAM
    from testbed.live.terminal import shown

    if not run.exists():
        from testbed.runs.series import run_meant

        run = run_meant(run).path
    directory = _directory(run)
    run_state, stream = RunState(), directory / STREAM
    if metrics is not None:
        _serve(metrics, run_state)
    if not stream.is_file():
        _replay(directory, run_state)
        stdout().print(shown(run_state))
        return
    reader = StreamReader(stream)
    with (
        suppress(KeyboardInterrupt),
        Live(shown(run_state), console=stdout(), screen=False) as live,
    ):
        while run_state.outcome is None:
            for record in reader.new_records():
                run_state.take(record)
            live.update(shown(run_state))
            time.sleep(REFRESH_S)


def _directory(given: Path) -> Path:
    """The run that is meant: of a scenario's directory the newest that can be watched."""
    from testbed.live.stream.writer import STREAM, is_of_prompt
    from testbed.model.run_files.layout import MANIFEST
    from testbed.results.run_directory import RunDirectory, is_locked, newest_run

    def can_be_watched(run: RunDirectory) -> bool:
        goes_on = (run.path / STREAM).is_file() and is_locked(run.path)
        return goes_on or run.complete or is_of_prompt(run.path)

    if any((given / name).is_file() for name in (MANIFEST, STREAM)):
        return given
    newest = newest_run(given, can_be_watched)
    return given if newest is None else newest.path


def _replay(directory: Path, run_state: "RunState") -> None:
    """Take a finished run's whole stream.

    Raises:
        InputError: it is no run, or one that goes on and writes no stream.
    """
    from testbed.live.stream.recorded import recorded_stream
    from testbed.model.run_files.layout import MANIFEST, RUN
    from testbed.results.run_directory import find_run

    if (directory / MANIFEST).is_file() and not (directory / RUN).is_file():
        expected = "a run that writes its event stream, or a finished one"
        raise InputError.of("RUN", str(directory), expected, "start the run with --live")
    for record in recorded_stream(find_run(directory).path):
        run_state.take(record)


def _serve(port: int, run_state: "RunState") -> None:
    try:
        from testbed.live.metrics import serve_metrics
    except ModuleNotFoundError as error:
        raise MachineError(
            f"no metrics can be served: {error.name} is not installed",
            "pip install 'mrc-testbed[live]'",
        ) from None
    try:
        serve_metrics(port, lambda: run_state)
    except OSError as error:
        raise InputError.of("--metrics", str(port), f"a free TCP port ({error})") from None
    stdout().print(f"metrics: http://127.0.0.1:{port}/metrics")
