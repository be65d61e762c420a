"""A run's summary as tables, and the exit status that it means; `testbed report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from testbed.cli.options import Json, RequireTrusted
from testbed.cli.screen import print_json, ruled_table, showing_progress, stderr, stdout
from testbed.model.errors import ExitStatus, InputError
from testbed.results.whole_file import writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, RenderableType

    from testbed.model.summary import FaultSummary, Metric, MetricGroup, Quantity, Summary
    from testbed.model.summary.metric import Spreads
    from testbed.results.run_directory import RunDirectory
    from testbed.runs.job import How
    from testbed.runs.result import Result


_MOST_ROWS = 40
"""Rows of tables of nodes, operations and jobs."""

_VERDICT_STYLES = {"trusted": "bold green", "degraded": "bold yellow", "invalid": "bold red"}


def why(summary: "Summary", *, require_trusted: bool) -> str:
    """What made the exit status of a finished run other than 0, in words; empty if it is 0."""
    integrity = summary.integrity
    match summary.exit_status(require_trusted=require_trusted):
        case ExitStatus.AS_EXPECTED:
            return ""
        case ExitStatus.UNTRUSTED:
            return f"the run is {summary.verdict}: its figures cannot be trusted"
        case _ if not integrity.intact:
            return "data was lost or corrupted"
        case _ if summary.failed_programs:
            return "a program failed"
    missed = sum(not expected.holds for expected in summary.expectations)
    return f"{missed} of {len(summary.expectations)} expectations of the scenario are not met"


def print_status(status: ExitStatus, reason: str) -> None:
    """Print an exit status that is not 0, with its reason."""
    if status:
        stderr().print(f"exit status {int(status)}: {reason}")


def end_with(result: "Result", how: "How", *, as_json: bool) -> NoReturn:
    """Show a finished run, to people or to a program, and end the command with its status."""
    from testbed.results.run_directory import RunDirectory

    summary = result.summary
    status = summary.exit_status(require_trusted=how.require_trusted)
    if as_json:
        run = {"run": str(result.directory), "exit_status": int(status)}
        print_json({**run, "summary": summary.model_dump(mode="json")})
    else:
        show(summary, RunDirectory(result.directory), stdout(), drawn=how.drawn)
        print_status(status, why(summary, require_trusted=how.require_trusted))
    raise typer.Exit(status)


def show(
    summary: "Summary", run: "RunDirectory", console: "Console", *, drawn: bool = True
) -> None:
    """Print a run's metrics, and where to find the rest or how to make it."""
    from rich.text import Text

    from testbed.model.run_files.content import health_of, watching_shares
    from testbed.model.run_files.layout import REPORT
    from testbed.model.summary.unit import SECONDS, US
    from testbed.model.units import show_share

    console.print(
        f"{summary.scenario}{' (simulated)' if summary.simulated else ''}, seed {summary.seed}: "
        f"{SECONDS.show(summary.duration_s)}, base RTT "
        f"{US.show(summary.base_rtt_us)} ({US.show(summary.base_rtt_real_us)} at full speed)",
        style="bold",
    )
    parts = [*_flows(summary), *_nodes(summary), *_operations(summary), *_jobs(summary)]
    for part in (*parts, *_faults(summary), *_located(summary), *_programs(summary, run)):
        console.print(part)
    console.print(_integrity(summary))
    if summary.expectations:
        console.print(_expectations(summary))
    verdict = Text("verdict: ").append(summary.verdict, _VERDICT_STYLES[summary.verdict])
    console.print(verdict)
    for reason in summary.reasons:
        console.print(f"  {reason}")
    for process, share in watching_shares(health_of(run.path)).items():
        console.print(f"  being watched: the {process} used {show_share(share)} of a core")
    if summary.advice:
        console.print(f"  {summary.advice}")
    if drawn:
        console.print(f"report: {run.path / REPORT}", f"figures: {run.figures}", sep="\n")
    else:
        console.print(f"neither report nor figures yet: testbed report {run.path}")


def _table(
    heading: str, group_type: "type[MetricGroup]", rows: "Sequence[tuple[str, MetricGroup]]"
) -> "RenderableType":
    """A row for each named group, a column for each metric of the terminal that any of them has."""
    from testbed.model.summary import View

    metrics = [
        metric
        for metric in group_type.shown_in(View.TERMINAL)
        if any(metric.quantities[0].of(group) is not None for _, group in rows)
    ]
    table = ruled_table(heading, numbers=[metric.title for metric in metrics])
    for name, group in rows:
        table.add_row(name, *(_shown(metric.quantities[0], group) for metric in metrics))
    return table


def _flows(summary: "Summary") -> "Iterator[RenderableType]":
    from testbed.model.summary import FlowSummary
    from testbed.model.summary.flows import slowest_flows
    from testbed.model.summary.metric import worth_showing

    if not summary.flows:
        yield "no queue pair has sent anything"
        return
    flows = [(flow.name, flow) for flow in slowest_flows(summary.flows)]
    count = len(summary.flows)
    yield _table("flow" if len(flows) == count else f"slowest of {count}", FlowSummary, flows)
    if worth_showing(summary.over_flows):
        yield _distribution(FlowSummary, {f"{count} flows": summary.over_flows})
    if summary.messages and count > 1:
        yield f"messages: {summary.messages.completion}"
    if summary.more_than_share:
        yield summary.more_than_share
    yield ""


def _nodes(summary: "Summary") -> "Iterator[RenderableType]":
    from testbed.model.summary import NodeSummary

    if summary.nodes:
        yield _table("node", NodeSummary, [(n.name, n) for n in summary.nodes[:_MOST_ROWS]])
        if len(summary.nodes) > _MOST_ROWS:
            yield f"{len(summary.nodes) - _MOST_ROWS} more nodes: see the report"
        yield ""


def _operations(summary: "Summary") -> "Iterator[RenderableType]":
    from testbed.model.summary import OperationSummary

    if summary.operations:
        kinds = [(operation.kind, operation) for operation in summary.operations]
        yield _table("operation", OperationSummary, kinds[:_MOST_ROWS])
        if len(kinds) > _MOST_ROWS:
            yield f"{len(kinds) - _MOST_ROWS} more operations: see the report"
        for name, operation in kinds[:_MOST_ROWS]:
            if operation.unfinished:
                yield f"{name}: {operation.finished}"
            if operation.unfinished and operation.planned:
                yield "  all have to, unless expect.operations bounds count or unfinished"
        yield ""


def _jobs(summary: "Summary") -> "Iterator[RenderableType]":
    from testbed.model.summary import JobSummary

    if summary.jobs:
        yield _table("job", JobSummary, [(job.job, job) for job in summary.jobs[:_MOST_ROWS]])
        if len(summary.jobs) > _MOST_ROWS:
            yield f"{len(summary.jobs) - _MOST_ROWS} more jobs: see the report"
        yield from summary.interference_unknown
        yield ""


def _programs(summary: "Summary", run: "RunDirectory") -> "Iterator[RenderableType]":
    """How programs ended: each that failed, and where the output of all is."""
    from rich.text import Text

    from testbed.model.errors import printable
    from testbed.model.run_files.layout import PROGRAMS
    from testbed.model.units import show_size

    if not summary.programs:
        return
    failed = summary.failed_programs
    count = f"{len(failed)} of {len(summary.programs)} failed" if failed else "none failed"
    yield Text("programs: ").append(count, "bold red" if failed else "")
    for program in failed:
        who, output = f"{program.place} (rank {program.rank})", run.path / program.output
        yield Text(f"  {who}: {program.ending}; its output: {output}")
        if last := _last_line(output):
            yield Text(f"    {last}")
    for program in summary.programs:
        if program.output_dropped:
            dropped = show_size(program.output_dropped)
            yield Text(f"  {program.place} printed more than is kept: without the last {dropped}")
        if program.reports_refused:
            lines = "1 line" if program.reports_refused == 1 else f"{program.reports_refused} lines"
            first = printable(program.report_refused)
            yield Text(f"  {program.place} reported {lines} that say nothing, first: {first}")
    if not failed:
        yield Text(f"  their output: {run.path / PROGRAMS}")


_TAIL = 500
"""Bytes at the end of a program's output in which its last line is looked for."""


def _last_line(output: Path) -> str:
    """The last line that a program printed, as far as it can be printed here."""
    from testbed.model.errors import printable

    if not output.is_file():
        return ""
    with output.open("rb") as file:
        file.seek(max(output.stat().st_size - _TAIL, 0))
        lines = file.read().decode("utf-8", "replace").split("\n")
    return printable(next((line for line in reversed(lines) if line.strip()), "")).strip()


def _faults(summary: "Summary") -> "Iterator[RenderableType]":
    from testbed.model.summary import FaultSummary, View
    from testbed.model.summary.metric import worth_showing

    if not summary.faults:
        return
    duration = "simulated" if summary.simulated else "emulated"
    whose = "of the worst pair" if summary.flows[1:] else ""
    table = ruled_table("fault", whose, numbers=(duration, "base RTTs", "at full speed"))
    for fault in summary.faults:
        name = f"{fault.kind} {fault.target}"
        for metric in FaultSummary.shown_in(View.TERMINAL) if fault.flows_affected else ():
            table.add_row(name, metric.title, *_forms(metric, fault))
            name = ""
        table.add_section()
    if table.rows:
        yield table
    rows = {
        fault.name: fault.over_pairs for fault in summary.faults if worth_showing(fault.over_pairs)
    }
    if rows:
        yield _distribution(FaultSummary, rows)
    for fault in summary.faults:
        yield f"{fault.name}: {fault.affected_in_words}"
        for remark in summary.remarks_on(fault):
            yield f"  {remark}"
    yield ""


def _located(summary: "Summary") -> "Iterator[RenderableType]":
    """What the Clustermapper found, fault by fault."""
    from testbed.model.summary import LocalisedFault, View

    mapper = summary.localisation
    if mapper is None:
        return
    metrics = LocalisedFault.shown_in(View.TERMINAL)
    table = ruled_table("fault", "the Clustermapper accused", numbers=[m.title for m in metrics])
    for fault in mapper.faults:
        values = (_shown(metric.quantities[0], fault) for metric in metrics)
        table.add_row(f"{fault.kind} {fault.target}", fault.named or "nothing", *values)
    yield table
    yield (
        f"Clustermapper: {mapper.probes:,} probes, {mapper.probes_lost:,} of them lost; "
        f"{mapper.accusations} accusations, {mapper.accusations_right} right and "
        f"{mapper.accusations_wrong} wrong"
    )
    yield ""


def _distribution(
    group_type: "type[MetricGroup]", rows: "Mapping[str, Spreads]"
) -> "RenderableType":
    """How metrics are distributed over flows or pairs, of each subject by its name."""
    from testbed.model.summary.metric import shown_spreads

    table = ruled_table("over", "", numbers=("median", "p99", "worst"))
    table.add_column("of")
    for subject, found in rows.items():
        name = subject
        for metric, numbers, remark in shown_spreads(group_type, found):
            table.add_row(name, metric.title, *numbers, remark)
            name = ""
        table.add_section()
    return table


def _forms(metric: "Metric", fault: "FaultSummary") -> tuple[str, str, str]:
    """A metric's value in each form of times; in the first column if it is no time."""
    from testbed.model.summary.unit import RTT, US

    emulated = rtt = real = ""
    for quantity in metric.quantities:
        if quantity.unit is RTT:
            rtt = _shown(quantity, fault).removesuffix(f" {RTT.symbol}")  # the heading has it
        elif quantity.unit is US:
            real = _shown(quantity, fault)
        else:
            emulated = _shown(quantity, fault)
    return emulated, rtt, real


def _shown(quantity: "Quantity", group: "MetricGroup") -> str:
    value = quantity.of(group)
    return "-" if value is None else quantity.unit.show(value)


def _expectations(summary: "Summary") -> "RenderableType":
    from rich.text import Text

    from testbed.model.summary.scopes import outcome

    failed = [expected for expected in summary.expectations if not expected.holds]
    count = len(summary.expectations)
    if not failed:
        return Text(f"expectations: all {count} met")
    lines = Text("expectations: ").append(f"{len(failed)} of {count} not met", "bold red")
    for expected in failed:
        lines.append(
            f"\n  {expected.whose}: {expected.figure} {expected.bound}: {outcome(expected)}"
        )
    return lines


def _integrity(summary: "Summary") -> str:
    from testbed.model.units import show_size

    integrity = summary.integrity
    sent, verified = show_size(integrity.bytes_sent), show_size(integrity.bytes_verified)
    if integrity.intact:
        text = f"integrity: {verified} of {sent} verified, nothing lost or corrupted"
        if integrity.bytes_unaccounted:
            unchecked = show_size(integrity.bytes_unaccounted)
            text += f"; {unchecked} went to endpoints that were killed or queue pairs that failed"
        return text
    lost, corrupted = show_size(integrity.bytes_lost), show_size(integrity.bytes_corrupted)
    text = f"integrity: {lost} lost and {corrupted} corrupted of {sent}"
    if integrity.bytes_under_way:
        text += f"; {show_size(integrity.bytes_under_way)} of the lost were still under way"
    return text


def report(
    run_directory: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run's directory, its scenario's, or SERIES/CASE."),
    ],
    svg: Annotated[
        bool, typer.Option("--svg", help="Draw the figures, also in the report, as SVG too.")
    ] = False,
    require_trusted: RequireTrusted = False,
    as_json: Json = False,
) -> None:
    """Write the summary, figures and report of a run again.

    A run that broke off when all was recorded is reported too: its tables are made first.
    """
    from testbed.results.analyse import analyse
    from testbed.results.run_directory import lock_if_free
    from testbed.runs.series import run_meant

    run = run_meant(run_directory)
    with (
        writing("RUN", run.path, "a directory to write to"),
        lock_if_free(run.path) as is_over,
        showing_progress() as progress,
    ):
        if not is_over:
            expected = "a run that is over and that nobody else analyses at this moment"
            raise InputError.of("RUN", str(run.path), expected)
        progress("analysing", 0.0)
        summary = analyse(run.path, svg=svg, require_trusted=require_trusted)
    if as_json:
        print_json(summary.model_dump(mode="json"))
    else:
        show(summary, run, stdout())
    status = summary.exit_status(require_trusted=require_trusted)
    print_status(status, why(summary, require_trusted=require_trusted))
    raise typer.Exit(status)
