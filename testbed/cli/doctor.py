"""`testbed doctor`: what this machine can do, and what is missing."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Json
from testbed.cli.running import measure_capacity
from testbed.cli.screen import print_json, stdout
from testbed.model.errors import ExitStatus

if TYPE_CHECKING:
    from testbed.fabric.attempts import Finding


def doctor(
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Also measure the load that it carries, for testbed run."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check what this machine can do, by trying it (root).

    Exit status: 0 if nothing required is missing, otherwise 3.
    """
    from testbed.experiment.diagnosis import apt_command, diagnose

    findings = diagnose()
    able = all(finding.ok for finding in findings if finding.required)
    capacity = measure_capacity() if measure and able else None
    if as_json:
        result = {
            "able": able,
            "findings": [asdict(finding) for finding in findings],
            "apt": apt_command(findings),
        }
        print_json(result | ({"capacity": asdict(capacity)} if capacity else {}))
    else:
        _show(findings, apt_command(findings), able=able)
        if capacity is not None:
            stdout().print(
                f"a data packet costs {capacity.endpoint_ns / 1e3:.0f} us of CPU time at its ends "
                f"and {capacity.link_ns / 1e3:.1f} us on each link"
            )
    raise typer.Exit(ExitStatus.AS_EXPECTED if able else ExitStatus.MACHINE_CANNOT)


def _show(findings: "list[Finding]", apt: str, *, able: bool) -> None:
    from rich.table import Table

    console = stdout()
    table = Table("what", "", "found")
    for finding in findings:
        state = "ok" if finding.ok else "MISSING" if finding.required else "missing"
        style = "green" if finding.ok else "bold red" if finding.required else "yellow"
        table.add_row(finding.name, f"[{style}]{state}[/]", finding.detail)
    console.print(table, markup=True)
    for finding in findings:
        if not finding.ok:
            needed = f"{finding.name}: needed for {finding.needed_for}"
            console.print(f"{needed}\n  remedy: {finding.remedy}")
    if apt:
        console.print(f"missing packages, on Debian and Ubuntu: {apt}")
    console.print("this machine can run the testbed" if able else "this machine cannot run it yet")
