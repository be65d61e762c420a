"""A run's summary as tables, and the exit status that it means."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import typer

from testbed.cli.screen import say_json, stdout
from testbed.model.errors import ExitStatus

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from testbed.results.run_directory import RunDirectory
    from testbed.results.summary import FaultSummary, Summary

_MEASURES = ("detection", "stall", "recovery")
_VERDICT_STYLES = {"trusted": "bold green", "degraded": "bold yellow", "invalid": "bold red"}


def exit_status(summary: "Summary") -> ExitStatus:
    """What a finished run means: lost or corrupted data fails it, whatever else it shows.

    What is expected is expected of a run that can be trusted.
    """
    if not summary.integrity.intact:
        return ExitStatus.FAILED
    if summary.verdict == "invalid":
        return ExitStatus.UNTRUSTED
    if not summary.as_expected:
        return ExitStatus.FAILED
    return ExitStatus.AS_EXPECTED


def end_with(
    summary: "Summary", directory: "RunDirectory", *, drawn: bool, as_json: bool
) -> NoReturn:
    """Show a run that has been made, to people or to a program, and end the command."""
    status = exit_status(summary)
    if as_json:
        run = {"run": str(directory.path), "exit_status": int(status)}
        say_json({**run, "summary": summary.model_dump(mode="json")})
    else:
        show(summary, directory, stdout(), drawn=drawn)
    raise typer.Exit(status)


def show(
    summary: "Summary", run: "RunDirectory", console: "Console", *, drawn: bool = True
) -> None:
    """Print the figures of a run and where to find the rest, or how to come to it."""
    from rich.text import Text

    console.print(
        f"{summary.scenario}{' (simulated)' if summary.simulated else ''}, seed {summary.seed}: "
        f"{summary.duration_s:g} s, base RTT "
        f"{summary.base_rtt_us / 1000:.1f} ms ({summary.base_rtt_real_us:.1f} us real)",
        style="bold",
    )
    console.print(_flows(summary), "")
    if summary.operations:
        console.print(_operations(summary), "")
    if summary.faults:
        console.print(_faults(summary), "")
    console.print(_integrity(summary))
    if summary.expectations:
        console.print(_expectations(summary))
    verdict = Text("verdict: ").append(summary.verdict, _VERDICT_STYLES[summary.verdict])
    console.print(verdict)
    for reason in summary.reasons:
        console.print(f"  {reason}")
    if drawn:
        console.print(f"report: {run.path / 'report.html'}", f"figures: {run.figures}", sep="\n")
    else:
        console.print(f"neither report nor figures yet: testbed report {run.path}")


def _flows(summary: "Summary") -> "RenderableType":
    from rich.table import Table

    from testbed.model.units import show_rate

    table = Table()
    table.add_column("flow", style="cyan")
    for heading in ("goodput", "of attainable", "lost", "retransmitted"):
        table.add_column(heading, justify="right")
    for flow in summary.flows:
        table.add_row(
            f"{flow.src} -> {flow.dst}",
            show_rate(flow.goodput_bps),
            f"{flow.attainable_fraction:.1%}",
            str(flow.packets_lost),
            str(flow.packets_retransmitted),
        )
    return table


def _operations(summary: "Summary") -> "RenderableType":
    from rich.table import Table

    from testbed.model.units import show_rate, show_size

    table = Table()
    table.add_column("operation", style="cyan")
    for heading in ("hosts", "size", "count", "median", "p99", "longest", "bus bandwidth"):
        table.add_column(heading, justify="right")
    for one in summary.operations:
        table.add_row(
            one.kind,
            str(one.hosts),
            show_size(one.bytes),
            str(one.count),
            f"{one.median_ms:.1f} ms",
            f"{one.p99_ms:.1f} ms",
            f"{one.max_ms:.1f} ms",
            "-" if one.busbw_bps is None else show_rate(round(one.busbw_bps)),
        )
    return table


def _faults(summary: "Summary") -> "RenderableType":
    from rich.table import Table

    table = Table()
    table.add_column("fault", style="cyan")
    table.add_column("")
    ran = "simulated" if summary.simulated else "emulated"
    for heading in (ran, "base RTTs", "real"):
        table.add_column(heading, justify="right")
    for fault in summary.faults:
        name = f"{fault.kind} {fault.target}"
        for row in _measures(fault):
            table.add_row(name, *row)
            name = ""
        table.add_section()
    return table


def _measures(fault: "FaultSummary") -> Iterator[tuple[str, str, str, str]]:
    for measure in _MEASURES:
        ms, rtt, real_us = (
            getattr(fault, f"{measure}_{unit}") for unit in ("ms", "rtt", "real_us")
        )
        yield measure, _shown(ms, "{:.1f} ms"), _shown(rtt, "{:.2f}"), _shown(real_us, "{:.1f} us")
    yield "deficit", "", _shown(fault.deficit_rtt, "{:.2f}"), ""
    yield "residual loss", _shown(fault.residual_loss, "{:.3%}"), "", ""


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _expectations(summary: "Summary") -> "RenderableType":
    from rich.text import Text

    failed = [one for one in summary.expectations if not one.holds]
    count = len(summary.expectations)
    if not failed:
        return Text(f"expectations: all {count} met")
    lines = Text("expectations: ").append(f"{len(failed)} of {count} not met", "bold red")
    for one in failed:
        lines.append(f"\n  {one.scope}: {one.figure} {one.bound}: {one.found}")
    return lines


def _integrity(summary: "Summary") -> str:
    from testbed.model.units import show_size

    found = summary.integrity
    sent, verified = show_size(found.bytes_sent), show_size(found.bytes_verified)
    if found.intact:
        told = f"integrity: {verified} of {sent} verified, nothing lost or corrupted"
        if found.bytes_unaccounted:
            told += f"; {show_size(found.bytes_unaccounted)} went to endpoints that were killed"
        return told
    lost, corrupted = show_size(found.bytes_lost), show_size(found.bytes_corrupted)
    told = f"integrity: {lost} lost and {corrupted} corrupted of {sent}"
    if found.bytes_under_way:
        told += f"; {show_size(found.bytes_under_way)} of the lost were still under way"
    return told
