"""`testbed trace`: a packet's walk, the address at each hop."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import Json
from testbed.cli.paths import hosts_named
from testbed.cli.screen import print_error, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv6Network

    from testbed.fabric.live_trace import LiveTrace, Seen
    from testbed.model.fabric.addressing import Path
    from testbed.model.fabric.nodes import Node
    from testbed.model.fabric.topology import Topology
    from testbed.model.fabric.walk import Hop


def trace(
    topology: Annotated[str, typer.Argument(help="A topology's name or file.")],
    src: Annotated[str, typer.Argument(help="The sending host, such as h0.")],
    dst: Annotated[str, typer.Argument(help="The receiving host, such as h4.")],
    path: Annotated[
        str | None, typer.Option(metavar="PATH", help="The path, such as p2/t1_3.")
    ] = None,
    ev: Annotated[
        str | None, typer.Option(metavar="N", help="The EV that chooses it, such as 0x1a.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Send a real packet and compare (root).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Walk a packet from host to host: the address at each hop.

    And what each node does with it. With --live a real packet crosses a real fabric, and every port
    that it leaves by is compared. Exit status: 0, or 1 where that differs from the model.
    """
    from testbed.files.topologies import load_topology
    from testbed.model.fabric.walk import walk
    from testbed.mrc.constants import HOP_LIMIT

    fabric = load_topology(topology)
    sender, receiver = hosts_named(fabric, SRC=src, DST=dst)
    way, number = _way(fabric, sender, receiver, path, ev)
    hops = walk(fabric, sender, receiver, way, HOP_LIMIT)
    found = _live(fabric, sender, receiver, way, number) if live else None
    differences = [] if found is None else _differences(hops, found, number)
    if as_json:
        print_json(_as_json(hops, way, number, found, differences))
    else:
        _show(fabric, hops, way, number, found)
        for difference in differences:
            print_error(difference)
    raise typer.Exit(1 if differences else 0)


def _way(
    topology: "Topology", src: "Node", dst: "Node", path: str | None, ev: str | None
) -> "tuple[Path, int]":
    """The path that the options name, and an EV that takes it.

    Raises:
        InputError: they name none.
    """
    from testbed.model.errors import InputError
    from testbed.model.fabric.addressing import ev_for_path, path_of_ev, paths

    if path is not None and ev is not None:
        raise InputError.of("--ev", ev, "nothing beside --path: each names the path")
    if path is not None:
        known = {one.name: one for one in paths(topology, src, dst)}
        if path not in known:
            expected = f"a path from {src.name} to {dst.name}, such as {next(iter(known))}"
            remedy = f"testbed paths {topology.name} {src.name} {dst.name} lists them"
            raise InputError.of("--path", path, expected, remedy)
        return known[path], ev_for_path(known[path])
    try:
        number = int(ev or "0", 0)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 32:
        raise InputError.of("--ev", str(ev), "a number of 32 bits, such as 0x1a or 26")
    return path_of_ev(topology, src, dst, number), number


def _live(topology: "Topology", src: "Node", dst: "Node", path: "Path", ev: int) -> "LiveTrace":
    from testbed.fabric.capabilities import require
    from testbed.fabric.live_trace import trace_live

    require()
    return trace_live(topology, src, dst, path, ev)


def _expected(hops: "Sequence[Hop]", ev: int) -> "list[Seen]":
    """What captures must see, if the fabric is as the model says."""
    from socket import IPPROTO_IPV6

    from testbed.fabric.live_trace import Seen
    from testbed.model.fabric.addressing import flow_label_of_ev

    return [
        Seen(hop.port.name, str(hop.leaves), hop.hop_limit, IPPROTO_IPV6, flow_label_of_ev(ev))
        for hop in hops
        if hop.port is not None
    ]


def _differences(hops: "Sequence[Hop]", found: "LiveTrace", ev: int) -> list[str]:
    expected = _expected(hops, ev)
    missing = [one for one in expected if one not in found.seen]
    strange = [one for one in found.seen if one not in expected]
    told = [f"not captured as the model says: {_told(one)}" for one in missing]
    told += [f"captured, not in the model: {_told(one)}" for one in strange]
    if not told and list(found.seen) != expected:
        told = ["captured in another order: " + ", ".join(one.port for one in found.seen)]
    if not found.delivered:
        told.append(f"{hops[-1].node.name} did not get the packet")
    return told


def _told(seen: "Seen") -> str:
    return (
        f"{seen.port} to {seen.destination}, hop limit {seen.hop_limit}, "
        f"next header {seen.next_header}, flow label {seen.flow_label:#x}"
    )


# --- showing --------------------------------------------------------------------------------------


def _does(hop: "Hop") -> str:
    """What a node does with the packet, by uSIDs."""
    if hop.arrives is None:
        return f"sends, route {_usid(hop.route)}"
    if hop.leaves is None:
        return f"receives as {_usid(hop.own)}"
    return f"uN {_usid(hop.own)}, route {_usid(hop.route)}"


def _usid(prefix: "IPv6Network | None") -> str:
    """The first uSID of a prefix, the only one that is matched."""
    return "" if prefix is None else prefix.network_address.exploded.split(":")[2]


def _show(
    topology: "Topology", hops: "Sequence[Hop]", path: "Path", ev: int, found: "LiveTrace | None"
) -> None:
    from rich.table import Table

    title = f"{topology.name}: {path.name}, EV {ev:#010x}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.caption = "uN: the node's own uSID, shifted out; route: the static /48 of the next one"
    table.caption_justify = "left"
    for heading in ("node", "what it does", "leaves by"):
        table.add_column(heading, no_wrap=True)
    table.add_column("hop limit", justify="right")
    table.add_column("destination address", overflow="fold")
    table.columns[0].style = "cyan"
    if found is not None:
        table.add_column("captured", overflow="fold")
    captured = {seen.port: seen for seen in found.seen} if found is not None else {}
    for hop in hops:
        last = hop.port is None
        row = [
            hop.node.name,
            _does(hop),
            "" if hop.port is None else hop.port.name,
            "" if last else str(hop.hop_limit),
            "" if last else str(hop.leaves),
        ]
        if found is not None:
            row.append(_captured(hop, captured, delivered=found.delivered))
        table.add_row(*row)
    print_table(table)


def _captured(hop: "Hop", captured: "dict[str, Seen]", *, delivered: bool) -> str:
    if hop.port is None:
        return "delivered" if delivered else "NOT DELIVERED"
    seen = captured.get(hop.port.name)
    if seen is None:
        return "NOTHING"
    same = seen.destination == str(hop.leaves)
    return f"{seen.destination}" if same else f"DIFFERS: {seen.destination}"


def _as_json(
    hops: "Sequence[Hop]",
    path: "Path",
    ev: int,
    found: "LiveTrace | None",
    differences: list[str],
) -> dict[str, Any]:
    from dataclasses import asdict

    def text(value: object) -> str | None:
        return None if value is None else str(value)

    told: dict[str, Any] = {
        "path": path.name,
        "ev": ev,
        "hops": [
            {
                "node": hop.node.name,
                "does": _does(hop),
                "arrives": text(hop.arrives),
                "own": text(hop.own),
                "route": text(hop.route),
                "port": None if hop.port is None else hop.port.name,
                "leaves": text(hop.leaves),
                "hop_limit": hop.hop_limit,
            }
            for hop in hops
        ],
    }
    if found is not None:
        live = {**asdict(found), "as_expected": not differences, "differences": differences}
        told["live"] = live
    return told
