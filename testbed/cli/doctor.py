"""`testbed doctor`: what this machine can and cannot do."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import Json
from testbed.cli.running import measure_capacity
from testbed.cli.screen import print_json, stdout

if TYPE_CHECKING:
    from testbed.fabric.capabilities import Finding


def doctor(
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure what it carries, too, for `testbed run` to know."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Try what this machine can do; say what is missing (root).

    Exit status: 0 all that is required is there, 3 something required is missing.
    """
    from testbed.experiment.diagnosis import diagnose
    from testbed.model.errors import ExitStatus

    findings = diagnose()
    able = all(found.ok for found in findings if found.required)
    capacity = measure_capacity() if measure and able else None
    if as_json:
        answer = {"able": able, "findings": [asdict(found) for found in findings]}
        print_json(answer | ({"capacity": asdict(capacity)} if capacity else {}))
    else:
        _show(findings, able=able)
        if capacity is not None:
            stdout().print(
                f"a data packet costs {capacity.endpoint_ns / 1e3:.0f} us of CPU time at its ends "
                f"and {capacity.link_ns / 1e3:.1f} us on each link"
            )
    raise typer.Exit(ExitStatus.AS_EXPECTED if able else ExitStatus.MACHINE_CANNOT)


def _show(findings: "list[Finding]", *, able: bool) -> None:
    from rich.table import Table

    console = stdout()
    table = Table("what", "", "found")
    for found in findings:
        state = "ok" if found.ok else "MISSING" if found.required else "missing"
        style = "green" if found.ok else "bold red" if found.required else "yellow"
        table.add_row(found.name, f"[{style}]{state}[/]", found.detail)
    console.print(table, markup=True)
    for found in findings:
        if not found.ok:
            console.print(f"{found.name}: needed for {found.needed_for}\n  remedy: {found.remedy}")
    console.print("this machine can run the testbed" if able else "this machine cannot run it yet")
