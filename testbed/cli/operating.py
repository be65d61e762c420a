"""`testbed ev` and `testbed port`: what an operator does with EVs and ports while a run goes on."""

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import OF_WHOM, Json
from testbed.cli.screen import plain_table, print_json, print_table, stderr, stdout

if TYPE_CHECKING:
    from testbed.model.operator.commands import EvRow

_FOLLOW_S = 0.5
"""Seconds between two looks for events, in real time."""

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run in progress.")]
Flow = Annotated[str, typer.Argument(metavar="FLOW", help="Such as h0-h4; h0-h4#1: its second QP.")]
Evs = Annotated[
    list[str], typer.Argument(metavar="EV...", help="Paths (p2/t1_3), planes (p2) or numbers.")
]
Host = Annotated[str, typer.Argument(metavar="HOST", help="Such as h0.")]
Plane = Annotated[int, typer.Argument(metavar="PLANE", help="The number of the port's plane.")]


def ev_commands() -> typer.Typer:
    """The subcommands of `testbed ev`."""
    app = typer.Typer(
        help=f"Show and control a run's EVs; try other EV modes. {OF_WHOM}",
        no_args_is_help=True,
    )
    for command in (list_evs, deny, allow, replace, probe, events):
        app.command(command.__name__.removesuffix("_evs"))(command)
    return app


def port_commands() -> typer.Typer:
    """The subcommands of `testbed port`."""
    app = typer.Typer(
        help=f"Disable and enable ports of a run's hosts. {OF_WHOM}",
        no_args_is_help=True,
    )
    app.command("list")(list_ports)
    app.command("disable")(disable)
    app.command("enable")(enable)
    return app


def list_evs(run: Run, flow: Flow, as_json: Json = False) -> None:
    """Show the EVs of a flow with state, counts and last change."""
    _show_evs(_operate(run, "list", flow=_flow(flow)), as_json=as_json)


def deny(run: Run, flow: Flow, evs: Evs, as_json: Json = False) -> None:
    """Take EVs out of use until they are allowed."""
    _show_evs(_operate(run, "deny", flow=_flow(flow), ev=evs), as_json=as_json)


def allow(run: Run, flow: Flow, evs: Evs, as_json: Json = False) -> None:
    """Use denied EVs again, once they have answered probes."""
    _show_evs(_operate(run, "allow", flow=_flow(flow), ev=evs), as_json=as_json)


def replace(
    run: Run,
    flow: Flow,
    ev: Annotated[str, typer.Argument(metavar="EV", help="The EV to deny.")],
    by: Annotated[str, typer.Argument(metavar="BY", help="The one to use instead, of its plane.")],
    as_json: Json = False,
) -> None:
    """Deny an EV, and use another of its plane instead."""
    _show_evs(_operate(run, "replace", flow=_flow(flow), ev=ev, by=by), as_json=as_json)


def probe(
    run: Run,
    flow: Flow,
    evs: Annotated[
        list[str] | None, typer.Argument(metavar="EV...", help="None: every EV of the flow.")
    ] = None,
    within: Annotated[
        str, typer.Option(metavar="TIME", help="The deadline, such as 300ms or '2 RTT'.")
    ] = "4 RTT",
    as_json: Json = False,
) -> None:
    """Probe EVs, and show which answer in time.

    All are probed at the same time, with one deadline.
    Exit status: 0 all have answered, 1 some have not.
    """
    results = _operate(run, "probe", flow=_flow(flow), ev=evs or [], within=within)["evs"]
    if as_json:
        print_json(results)
    else:
        from testbed.model.units import show_duration

        table = plain_table("EV", "path", "port", "result", "round trip")
        for result in results:
            rtt_ns = result["rtt_ns"]
            table.add_row(
                f"{result['ev']:#010x}",
                result["path"],
                str(result["port"]),
                result["result"],
                "" if rtt_ns is None else show_duration(rtt_ns),
            )
        print_table(table)
    if any(result["rtt_ns"] is None for result in results):
        raise typer.Exit(1)


def events(
    run: Run,
    host: Host,
    follow: Annotated[
        bool, typer.Option("--follow", help="Also show later events, until the run ends.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the new events of a host's EVs and ports.

    New are those since the last call. With --follow --json each event is a line.
    """
    first = _operate(run, "events", host=host)
    show = _show_events if not as_json else _print_lines if follow else print_json
    show(first)
    with suppress(KeyboardInterrupt):
        while follow and (reply := _further_events(run, host)) is not None:
            show(reply)
            time.sleep(_FOLLOW_S)


def _further_events(run: Path, host: str) -> dict[str, Any] | None:
    """The next events; None if the run has ended."""
    from testbed.model.errors import InputError, RunFailedError

    try:
        return _operate(run, "events", host=host)
    except (InputError, RunFailedError) as ended:
        stderr().print(f"no more events: {ended}", markup=False)
        return None


def _print_lines(reply: dict[str, Any]) -> None:
    """Each event as a line of JSON; the first has the number of those dropped before it."""
    dropped = reply["dropped"]
    for event in reply["events"]:
        sys.stdout.write(json.dumps({**event, "dropped": dropped}) + "\n")
        dropped = 0
    sys.stdout.flush()


def _show_events(reply: dict[str, Any]) -> None:
    if reply["dropped"]:
        stdout().print(f"{reply['dropped']} earlier events were dropped")
    for event in reply["events"]:
        of_ev = f"  {event['profile']}  EV {event['ev']:#010x}" if "ev" in event else ""
        role = f", {'active' if event['active'] else 'not active'}" if "active" in event else ""
        why = f"  ({event['reason']})" if "reason" in event else ""
        stdout().print(
            f"{event['t']:.4f} s{of_ev}  port {event['port']}: {event['state']}{role}{why}"
        )


def list_ports(run: Run, host: Host, as_json: Json = False) -> None:
    """Show the ports of a host."""
    _show_ports(_operate(run, "ports", host=host), as_json=as_json)


def disable(run: Run, host: Host, plane: Plane, as_json: Json = False) -> None:
    """Disable a port: its EVs are out of use, and peers are told."""
    _show_ports(_operate(run, "disable", host=host, plane=plane), as_json=as_json)


def enable(run: Run, host: Host, plane: Plane, as_json: Json = False) -> None:
    """Use a disabled port again."""
    _show_ports(_operate(run, "enable", host=host, plane=plane), as_json=as_json)


def _operate(run: Path, kind: str, **keys: Any) -> dict[str, Any]:
    from testbed.emulation.controller.client import Client, socket_of

    with Client(socket_of(run)) as client:
        return client.operate({"kind": kind, **keys})


def _flow(name: str) -> str:
    """The name of a flow with the arrow, which a shell would take for a redirection."""
    return name if "->" in name else name.replace("-", "->", 1)


def _show_evs(reply: dict[str, Any], *, as_json: bool) -> None:
    from testbed.model.operator.commands import EvRow

    if as_json:
        print_json(reply["evs"])
        return
    columns = ("EV", "path", "state", "active", "losses", "condemned", "last change", "denied by")
    table = plain_table(*columns)
    for ev in (EvRow(**row) for row in reply["evs"]):
        table.add_row(
            f"{ev.ev:#010x}",
            ev.path,
            ev.state,
            "yes" if ev.active else "no",
            str(ev.losses),
            str(ev.condemnations),
            _last_change(ev),
            ", ".join(ev.denied_by),
        )
    print_table(table)


def _last_change(ev: "EvRow") -> str:
    ago = ev.changed_rtts_ago
    return ev.reason if ago is None else f"{ev.reason}, {ago:g} RTT ago"


def _show_ports(reply: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(reply["ports"])
        return
    table = plain_table("port", "state")
    for port in reply["ports"]:
        table.add_row(str(port["port"]), port["state"])
    print_table(table)
