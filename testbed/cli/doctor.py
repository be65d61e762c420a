"""`testbed doctor`: what this machine can do, and what is missing."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Json
from testbed.cli.screen import print_json, print_warning, showing_progress, stdout
from testbed.installation import not_linux
from testbed.model.errors import ExitStatus, MachineError

if TYPE_CHECKING:
    from testbed.emulation.fabric.capabilities import RequirementResult


def doctor(
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Also measure the load that it carries, for testbed run."),
    ] = False,
    ci: Annotated[
        bool, typer.Option("--ci", help="Print a Markdown table, for the summary of a CI job.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check what this machine can do, by trying it.

    Without root it lists what works without root; as root it also tries what emulation needs. Exit
    status: 0 if nothing required is missing, otherwise 3; without root always 0.
    """
    if (elsewhere := not_linux()) is not None:
        raise MachineError(*elsewhere)
    if os.geteuid() != 0 and not (as_json or ci):
        _show_without_root()
        return
    from testbed.emulation.experiment.diagnosis import apt_command, diagnose
    from testbed.emulation.experiment.machine import cpu_model, load_capacity
    from testbed.limits import usable_cpus
    from testbed.model.units import show_duration
    from testbed.runs.fitting import measure_capacity

    results = diagnose()
    able = all(result.ok for result in results if result.required)
    is_measured = measure and able
    capacity = measure_capacity(showing_progress, print_warning) if is_measured else None
    known = capacity or load_capacity()
    if as_json:
        result = {
            "able": able,
            "findings": [asdict(result) for result in results],
            "apt": apt_command(results),
            "machine": {"cpu": cpu_model(), "cpus": usable_cpus()},
        }
        print_json(result | ({"capacity": asdict(known)} if known else {}))
    elif ci:
        typer.echo(_markdown(results, able=able))
    else:
        _show(results, apt_command(results), able=able)
        if capacity is not None:
            stdout().print(
                f"a data packet costs {show_duration(capacity.endpoint_ns)} of CPU time at its "
                f"ends and {show_duration(capacity.link_ns)} on each link"
            )
    raise typer.Exit(ExitStatus.AS_EXPECTED if able else ExitStatus.MACHINE_CANNOT)


WITHOUT_ROOT = (
    "simulate, device, study, lab, report, compare, replay, watch, validate, paths, trace, topo",
    "figures --form simulated, figures --list; fault, port and ev of a run of testbed device",
)
WITH_ROOT = "run, shell, write-bw, write-lat, ev run, figures, bench, trace --live"


def _show_without_root() -> None:
    from testbed.emulation.experiment.diagnosis import without_root

    console = stdout()
    console.print("without root, this works here:", *WITHOUT_ROOT, sep="\n  testbed ")
    for result in without_root():
        console.print(f"{result.name}: {result.detail}")
        if not result.ok:
            console.print(f"  remedy: {result.remedy}")
    console.print(f"root adds emulation, with real packets: testbed {WITH_ROOT}")
    console.print("whether this machine can do that is found by trying, as root: sudo", end=" ")
    console.print(f"{Path(sys.argv[0]).resolve()} doctor")


def _markdown(results: "list[RequirementResult]", *, able: bool) -> str:
    rows = [
        (result.name, "ok" if result.ok else "**missing**", result.detail, result.needed_for)
        for result in results
    ]
    head = ("capability", "", "found", "needed for")
    lines = (" | ".join(text.replace("|", "\\|") for text in row) for row in (head, *rows))
    table = [f"| {line} |" for line in lines]
    table.insert(1, "| --- " * len(head) + "|")
    means = "emulate fabrics" if able else "only simulate: it lacks something that every run needs"
    return "\n".join([f"### This machine can {means}", "", *table, ""])


def _show(results: "list[RequirementResult]", apt: str, *, able: bool) -> None:
    from rich.table import Table

    console = stdout()
    table = Table("what", "", "found")
    for result in results:
        state = "ok" if result.ok else "MISSING" if result.required else "missing"
        style = "green" if result.ok else "bold red" if result.required else "yellow"
        table.add_row(result.name, f"[{style}]{state}[/]", result.detail)
    console.print(table, markup=True)
    for result in results:
        if not result.ok:
            needed = f"{result.name}: needed for {result.needed_for}"
            console.print(f"{needed}\n  remedy: {result.remedy}")
    if apt:
        console.print(f"missing packages, on Debian and Ubuntu: {apt}")
    console.print("this machine can run the testbed" if able else "this machine cannot run it yet")
