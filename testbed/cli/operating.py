"""`testbed ev` and `testbed port`: what an operator does with EVs and ports; runs of EV modes."""

import json
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import OF_WHOM, Json
from testbed.cli.screen import plain_table, print_error, print_json, print_table, stderr, stdout
from testbed.model.errors import ExitStatus, InputError

if TYPE_CHECKING:
    from testbed.emulation.ev_modes import Setting, TrialOutcome
    from testbed.model.fabric.ev_set import ListedProfile
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
    from testbed.emulation.controller.live import Client, socket_of

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


_MODES = ("ecmp", "structured")


def run_mode(
    mode: Annotated[str, typer.Argument(metavar="MODE", help="ecmp or structured.")],
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="FILE",
            help="A file with the EVs, explicit or generated; none: generated by default.",
        ),
    ] = None,
    planes: Annotated[int, typer.Option(min=1, max=8, help="Planes: ports of each host.")] = 2,
    t1s: Annotated[int, typer.Option(min=2, max=64, help="T1s of each plane: its paths.")] = 4,
    dead: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The path that dies; default: the path of the first EV."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the choice of generated EVs.")] = 1,
    pcap: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Capture the sender's links into this directory."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run MRC by ECMP or structured EVs, without SRv6 (root).

    In a fabric of two hosts in two racks, a packet with each EV shows its path. Then h0 sends
    WRITEs to h1, a path drops everything for a while, and the packets of each EV are compared with
    the fabric's counters.

    Exit status: 0 all is as expected, 1 something is not.
    """
    setting = _setting(mode, profile, planes, t1s, dead, seed)
    from testbed.emulation.ev_modes import run
    from testbed.emulation.fabric.capabilities import require
    from testbed.results.whole_file import writing
    from testbed.rights import acting_for

    require()
    if pcap is not None:
        with writing("--pcap", pcap, "a directory to write to"):
            pcap.mkdir(parents=True, exist_ok=True)
    with nullcontext() if pcap is None else acting_for(pcap):
        outcome = run(setting, pcap)
    if as_json:
        print_json(outcome.as_dict())
    else:
        _show(outcome)
    for wrong in outcome.wrong:
        print_error(wrong)
    if outcome.wrong:
        raise typer.Exit(ExitStatus.FAILED)


def _setting(
    mode: str, profile: Path | None, planes: int, t1s: int, dead: str | None, seed: int
) -> "Setting":
    from testbed.emulation.ev_modes import Setting, default_profile
    from testbed.model.fabric.addressing import EvMode, path_named, path_remedy

    if mode not in _MODES:
        remedy = "testbed run runs srv6, the default" if mode == "srv6" else ""
        raise InputError.of("MODE", mode, " or ".join(_MODES), remedy)
    path = None if dead is None else path_named(dead)
    if dead is not None and path is None:
        raise InputError.of("--dead", dead, "a path such as p0/t1_1", path_remedy(dead))
    chosen = EvMode(mode)
    evs = default_profile(chosen, planes, t1s) if profile is None else _profile(profile)
    setting = Setting(chosen, planes, t1s, evs, seed, path)
    setting.check("--profile" if profile is None else f"{profile}: ev_profile")
    return setting


def _profile(file: Path) -> "ListedProfile":
    from testbed.model.fabric.ev_set import EvProfileFile
    from testbed.model.files.reading import read_document
    from testbed.model.files.validation import validated

    remedy = "docs/ev-modes.md shows one"
    document = read_document(file, remedy=remedy)
    return validated(EvProfileFile, document.data, document).ev_profile


def _show(outcome: "TrialOutcome") -> None:
    halves = "source port and flow label" if outcome.hashes_label else "source port"
    how = {
        "ecmp": f"T0s hash the EV: {halves}",
        "structured": "each tier reads its field of the EV",
    }[outcome.mode]
    stdout().print(f"mode {outcome.mode}: {how}\n")
    evs = plain_table("EV", "port", "path", "path back", "packets", "condemned")
    for ev in outcome.evs:
        number = f"{ev.ev:#010x}"
        sent, condemned = str(ev.sent), str(ev.condemnations)
        evs.add_row(number, str(ev.port), ev.path, ev.back, sent, condemned)
    print_table(evs)
    stdout().print()
    paths = plain_table("from", "path", "packets sent with its EVs", "packets counted")
    for row in outcome.paths:
        paths.add_row(row.sender, row.path, str(row.sent), str(row.counted))
    print_table(paths)
    dead = outcome.dead
    left = "never left" if dead.left is None else f"left after {dead.left:g} RTT"
    back = "not used again" if dead.returned is None else f"used again after {dead.returned:g} RTT"
    stdout().print(
        f"\n{dead.path} died: {left} by its EVs ({dead.evs}), {dead.swallowed} packets lost, "
        f"{dead.others_left} EVs of other paths condemned; {back} once it had returned"
    )
    stdout().print(
        f"{outcome.messages} WRITEs of {outcome.message_bytes} bytes, every byte checked"
    )
