"""`testbed trace`: a packet's path, with its destination address at each hop."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import Dst, Json, Src, TopologyName, hosts_named
from testbed.cli.screen import plain_table, print_error, print_json, print_table
from testbed.model.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv6Network

    from testbed.emulation.fabric.live_trace import LiveTrace, Seen
    from testbed.model.fabric.addressing import Path
    from testbed.model.fabric.names import Hop
    from testbed.model.fabric.nodes import Node
    from testbed.model.fabric.topology import Topology


def trace(
    topology: TopologyName,
    src: Src,
    dst: Dst,
    path: Annotated[
        str | None, typer.Option(metavar="PATH", help="The path, such as p2/t1_3.")
    ] = None,
    ev: Annotated[
        str | None, typer.Option(metavar="N", help="The EV that selects it, such as 0x1a0000.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Send a real packet and compare (root).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Follow a packet: its destination address at each hop.

    Also shows what each node does with it. With --live a real packet crosses a real fabric and is
    captured at each port. Exit status: 0, or 1 if a capture differs from the model.
    """
    from testbed.model.fabric.names import walk
    from testbed.model.files.topologies import load_topology
    from testbed.mrc.constants import HOP_LIMIT

    fabric = load_topology(topology)
    sender, receiver = hosts_named(fabric, SRC=src, DST=dst)
    selected, ev_value = _selected(fabric, sender, receiver, path, ev)
    hops = walk(fabric, sender, receiver, selected, HOP_LIMIT)
    capture = _live(fabric, sender, receiver, selected, ev_value) if live else None
    differences = [] if capture is None else _differences(hops, capture, ev_value)
    rows = [_row(hop) for hop in hops]
    if as_json:
        result = {"path": selected.name, "ev": ev_value, "hops": rows}
        if capture is not None:
            comparison = {"as_expected": not differences, "differences": differences}
            result["live"] = asdict(capture) | comparison
        print_json(result)
    else:
        _print(f"{fabric.name}: {selected.name}, EV {ev_value:#010x}", rows, capture)
        for difference in differences:
            print_error(difference)
    raise typer.Exit(1 if differences else 0)


def _selected(
    topology: "Topology", src: "Node", dst: "Node", path: str | None, ev: str | None
) -> "tuple[Path, int]":
    """The path that the options select, and an EV on it.

    Raises:
        InputError: the options select none.
    """
    from testbed.model.fabric.addressing import ev_for_path, path_of_ev, path_remedy, paths

    if path is not None and ev is not None:
        raise InputError.of("--ev", ev, "only one of --ev and --path: each selects the path")
    if path is not None:
        by_name = {candidate.name: candidate for candidate in paths(topology, src, dst)}
        if path not in by_name:
            expected = f"a path from {src.name} to {dst.name}, such as {next(iter(by_name))}"
            remedy = path_remedy(path)
            remedy = remedy or f"testbed paths {topology.name} {src.name} {dst.name} lists them"
            raise InputError.of("--path", path, expected, remedy)
        return by_name[path], ev_for_path(by_name[path])
    try:
        number = int(ev or "0", 0)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 32:
        raise InputError.of("--ev", str(ev), "a number of 32 bits, such as 0x1a0000 or 1703936")
    return path_of_ev(topology, src, dst, number), number


def _live(topology: "Topology", src: "Node", dst: "Node", path: "Path", ev: int) -> "LiveTrace":
    from testbed.emulation.fabric.capabilities import require
    from testbed.emulation.fabric.live_trace import trace_live

    require()
    return trace_live(topology, src, dst, path, ev)


def _expected(hops: "Sequence[Hop]", ev: int) -> "list[Seen]":
    """The packets to capture if the fabric behaves as the model."""
    from socket import IPPROTO_IPV6

    from testbed.emulation.fabric.live_trace import Seen
    from testbed.model.fabric.addressing import flow_label_of_ev

    return [
        Seen(hop.port.name, str(hop.leaves), hop.hop_limit, IPPROTO_IPV6, flow_label_of_ev(ev))
        for hop in hops
        if hop.port is not None
    ]


def _differences(hops: "Sequence[Hop]", capture: "LiveTrace", ev: int) -> list[str]:
    expected = _expected(hops, ev)
    missing = [seen for seen in expected if seen not in capture.seen]
    extra = [seen for seen in capture.seen if seen not in expected]
    lines = [f"in the model, not captured: {_described(seen)}" for seen in missing]
    lines += [f"captured, not in the model: {_described(seen)}" for seen in extra]
    if not lines and list(capture.seen) != expected:
        lines = ["captured in another order: " + ", ".join(seen.port for seen in capture.seen)]
    if not capture.delivered:
        lines.append(f"{hops[-1].node.name} did not receive the packet")
    return lines


def _described(seen: "Seen") -> str:
    return (
        f"{seen.port} to {seen.destination}, hop limit {seen.hop_limit}, "
        f"next header {seen.next_header}, flow label {seen.flow_label:#x}"
    )


# --- output ---------------------------------------------------------------------------------------


def _action(hop: "Hop") -> str:
    """What a node does with the packet, in terms of uSIDs."""
    if hop.arrives is None:
        return f"sends, route {_usid(hop.route)}"
    if hop.leaves is None:
        return f"receives as {_usid(hop.own)}"
    return f"uN {_usid(hop.own)}, route {_usid(hop.route)}"


def _usid(prefix: "IPv6Network | None") -> str:
    """The first uSID of a prefix."""
    return "" if prefix is None else prefix.network_address.exploded.split(":")[2]


def _row(hop: "Hop") -> dict[str, Any]:
    addresses = {"arrives": hop.arrives, "own": hop.own, "route": hop.route, "leaves": hop.leaves}
    return {
        "node": hop.node.name,
        "does": _action(hop),
        "port": None if hop.port is None else hop.port.name,
        "hop_limit": hop.hop_limit,
        **{key: None if value is None else str(value) for key, value in addresses.items()},
    }


def _print(title: str, rows: "Sequence[dict[str, Any]]", capture: "LiveTrace | None") -> None:
    headings = ("node", "what it does", "leaves by", "hop limit", "destination address")
    table = plain_table(*headings, *(() if capture is None else ("captured",)), title=title)
    table.caption = "uN: the node's own uSID, shifted out; route: the static /48 of the next one"
    table.caption_justify = "left"
    table.columns[3].justify = "right"
    for column in table.columns[:3]:
        column.no_wrap = True
    for column in table.columns[4:]:
        column.overflow = "fold"
    for row in rows:
        hop_limit = str(row["hop_limit"]) if row["port"] else ""
        cells = (row["node"], row["does"], row["port"] or "", hop_limit, row["leaves"] or "")
        table.add_row(*cells, *(() if capture is None else (_captured(row, capture),)))
    print_table(table)


def _captured(row: dict[str, Any], capture: "LiveTrace") -> str:
    """What was captured at the port of a hop; at the receiver whether the packet arrived."""
    if row["port"] is None:
        return "delivered" if capture.delivered else "NOT DELIVERED"
    destination = {seen.port: seen.destination for seen in capture.seen}.get(row["port"])
    if destination is None:
        return "NOTHING"
    return destination if destination == row["leaves"] else f"DIFFERS: {destination}"
