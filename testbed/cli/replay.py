"""`testbed replay`: a finished run once more, event by event."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.live import Port, listening, print_address
from testbed.cli.screen import stderr, stdout
from testbed.model.errors import InputError, printable
from testbed.model.run_files.layout import LOGS, MANIFEST
from testbed.results.whole_file import writing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.live.forks import RunHistory
    from testbed.live.stream.records import StreamRecord

_STDOUT = Path("-")


def replay(
    run_directory: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run's directory, its scenario's, or SERIES/CASE."),
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
        typer.Option(metavar="SRC,DST", help="Show each packet of this flow, such as h0,h4."),
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a scenario with all faults of the run, also those by hand."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="In that scenario, leave out what began at TIME or later."
        ),
    ] = None,
    matrix: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write its transfers or collectives as htsim's matrix."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all that was sent as CSV.")
    ] = None,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Let forks execute the run's own classes.")
    ] = False,
    port: Port = "0",
) -> None:
    """Show a finished run in a browser, step by step."""
    from testbed.runs.series import run_meant

    prompt = _prompt(run_directory)
    if prompt is not None:
        given = {"--scenario": scenario, "--until": until, "--packets": packets}
        for option, value in (given | {"--matrix": matrix, "--csv": csv}).items():
            if value is not None:
                raise InputError.of(option, str(value), "a run of a scenario, not of a prompt")
        _replay_prompt(prompt, export, stream, port)
        return
    run = run_meant(run_directory).path
    if scenario is not None:
        _write_scenario(scenario, *_scenario_of(run, until))
    _write_traffic(run, matrix, csv)
    if export is None and stream is None:
        if scenario is not None or matrix is not None or csv is not None:
            return
        _serve(run, packets, port, allow_code=allow_code)
        return
    from testbed.live.stream.recorded import recorded_stream

    _keep([*recorded_stream(run, packets)], run.name, export, stream)


def _keep(
    records: "Sequence[StreamRecord]", title: str, export: Path | None, stream: Path | None
) -> None:
    """Write a stream as lines, as a page, or both."""
    from testbed.live.page import exported
    from testbed.live.stream.records import to_line

    if stream == _STDOUT:
        for record in records:
            typer.echo(to_line(record), nl=False)
    elif stream is not None:
        _write("--stream", stream, "".join(map(to_line, records)))
    if export is not None:
        _write("--export", export, exported(records, f"{title} - MRC testbed"))


def _prompt(given: Path) -> Path | None:
    """The directory of a watched prompt, which has its stream only; None: it is a run."""
    from testbed.live.stream.writer import is_of_prompt
    from testbed.results.run_directory import newest_run

    if is_of_prompt(given):
        return given
    newest = newest_run(given, lambda run: is_of_prompt(run.path))
    return None if newest is None else newest.path


def _replay_prompt(directory: Path, export: Path | None, stream: Path | None, port: str) -> None:
    """Show, or write, what was done in a fabric with a prompt."""
    from contextlib import suppress

    from testbed.live.stream.records import StreamReader
    from testbed.live.stream.writer import STREAM

    if export is not None or stream is not None:
        records = [*StreamReader(directory / STREAM).new_records()]
        _keep(records, directory.resolve().name, export, stream)
        return
    where = listening(port, read_only=True)
    from testbed.control_api import OVER
    from testbed.live.serving import at_once, serving, wait

    with suppress(KeyboardInterrupt), serving(directory / STREAM, where) as site:
        print_address(site.address, site.port, what="Replay")
        stderr().print("Ctrl-C ends it")
        wait(site, at_once(lambda *_: OVER))


def _scenario_of(run: Path, until: str | None) -> tuple[str, dict[str, str]]:
    """The scenario of a run, with the faults by hand in its timeline; the files of its code."""
    from testbed.live.forks import as_files
    from testbed.model.errors import RefusedValueError
    from testbed.model.units import parse_duration

    try:
        until_ns = None if until is None else parse_duration(until)
    except RefusedValueError as error:
        raise InputError.of("--until", str(until), error.expected, error.remedy) from None
    return as_files(_history(run).as_scenario(until_ns))


def _history(run: Path) -> "RunHistory":
    from testbed.live.forks import RunHistory
    from testbed.model.units import NS_PER_S
    from testbed.results.records import OPERATOR
    from testbed.results.run_data import load_run

    data = load_run(run)
    rows = data.tables[OPERATOR].to_dicts()
    lasted_ns = round(data.run.duration_s * NS_PER_S)
    return RunHistory(
        data.scenario, data.manifest.scenario, data.faults, tuple(rows), data.run.t0_ns, lasted_ns
    )


def _write_scenario(file: Path, text: str, code: dict[str, str]) -> None:
    """Write a scenario, and beside it the files of code that it names.

    Raises:
        InputError: a file of that name has other content.
    """
    for name, source in code.items():
        place = file.parent / name
        with writing("--scenario", place):
            if place.exists() and place.read_bytes() != source.encode():
                remedy = "name a file in another directory"
                expected = f"a directory without it: the scenario comes with its {name}"
                raise InputError.of("--scenario", f"{place}, which differs", expected, remedy)
    for name, source in code.items():
        place = file.parent / name
        if place.parent != file.parent:  # a folder for code of which another file has the name
            with writing("--scenario", place.parent):
                place.parent.mkdir(exist_ok=True)
        _write("--scenario", place, source)
    _write("--scenario", file, text)


def _write_traffic(run: Path, matrix: Path | None, csv: Path | None) -> None:
    """Write what the hosts of a run sent, in the forms that are asked for."""
    if matrix is None and csv is None:
        return
    from testbed.results.run_data import load_run
    from testbed.results.traffic import matrix_of_run, transfers_of_run

    data = load_run(run)
    if matrix is not None:
        _write("--matrix", matrix, matrix_of_run(data))
    if csv is not None:
        _write("--csv", csv, transfers_of_run(data).write_csv())


def _write(option: str, file: Path, content: str) -> None:
    with writing(option, file):
        file.write_text(content, encoding="utf-8", newline="")
    stdout().print(f"wrote {file}")


def _serve(run: Path, packets: str | None, port: str, *, allow_code: bool) -> None:
    """Serve the page of a run until Ctrl-C."""
    from contextlib import closing, suppress
    from dataclasses import replace

    where = replace(listening(port, read_only=False), is_replay=True)
    from testbed.control_api import OVER
    from testbed.live.forks import Forks
    from testbed.live.serving import at_once, serving, wait
    from testbed.results.whole_file import scratch
    from testbed.rights import acting_for

    with acting_for(run), scratch("testbed-replay-") as directory, suppress(KeyboardInterrupt):
        stream = directory / "stream.ndjson"
        stream.touch()
        (directory / LOGS).mkdir()
        with serving(stream, where, run) as site:  # first: Polars starts threads, and this forks
            from testbed.live.stream.recorded import recorded_stream
            from testbed.live.stream.records import to_line

            with stream.open("w", encoding="utf-8") as file:
                file.writelines(map(to_line, recorded_stream(run, packets)))
            print_address(site.address, site.port, what="Replay")
            stderr().print("Ctrl-C ends it")
            history = _history(run)  # once: what is told now is what forks execute
            _tell_code(history, allow_code=allow_code)
            with closing(Forks(run, stream, lambda: history, allow_code=allow_code)) as forks:
                wait(site, at_once(lambda *request: forks.answer(*request) or OVER))


def _tell_code(history: "RunHistory", *, allow_code: bool) -> None:
    """Print which code of the run's record forks execute, or that they do not."""
    for key, code in history.scenario.own_code.items():
        what = f"{code} ({key}), as {MANIFEST} has it"
        told = f"forks execute {what}"
        if not allow_code:
            told = f"no forks: they execute {what}; if it may run as you, add --allow-code"
        stderr().print(printable(told))
