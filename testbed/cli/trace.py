"""`testbed trace`: a packet's path, with its destination address at each hop."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import Dst, Json, Src, TopologyName, hosts_named
from testbed.cli.screen import plain_table, print_error, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv6Network

    from testbed.fabric.live_trace import LiveTrace, Seen
    from testbed.model.fabric.addressing import Path
    from testbed.model.fabric.nodes import Node
    from testbed.model.fabric.topology import Topology
    from testbed.model.fabric.walk import Hop


def trace(
    topology: TopologyName,
    src: Src,
    dst: Dst,
    path: Annotated[
        str | None, typer.Option(metavar="PATH", help="The path, such as p2/t1_3.")
    ] = None,
    ev: Annotated[
        str | None, typer.Option(metavar="N", help="The EV that selects it, such as 0x1a.")
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
    from testbed.files.topologies import load_topology
    from testbed.model.fabric.walk import walk
    from testbed.mrc.constants import HOP_LIMIT

    fabric = load_topology(topology)
    sender, receiver = hosts_named(fabric, SRC=src, DST=dst)
    selected, ev_value = _selected(fabric, sender, receiver, path, ev)
    hops = walk(fabric, sender, receiver, selected, HOP_LIMIT)
    capture = _live(fabric, sender, receiver, selected, ev_value) if live else None
    differences = [] if capture is None else _differences(hops, capture, ev_value)
    if as_json:
        print_json(_as_json(hops, selected, ev_value, capture, differences))
    else:
        _print(fabric, hops, selected, ev_value, capture)
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
    from testbed.model.errors import InputError
    from testbed.model.fabric.addressing import ev_for_path, path_of_ev, paths

    if path is not None and ev is not None:
        raise InputError.of("--ev", ev, "only one of --ev and --path: each selects the path")
    if path is not None:
        by_name = {candidate.name: candidate for candidate in paths(topology, src, dst)}
        if path not in by_name:
            expected = f"a path from {src.name} to {dst.name}, such as {next(iter(by_name))}"
            remedy = f"testbed paths {topology.name} {src.name} {dst.name} lists them"
            raise InputError.of("--path", path, expected, remedy)
        return by_name[path], ev_for_path(by_name[path])
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
    """The packets to capture if the fabric is as the model."""
    from socket import IPPROTO_IPV6

    from testbed.fabric.live_trace import Seen
    from testbed.model.fabric.addressing import flow_label_of_ev

    return [
        Seen(hop.port.name, str(hop.leaves), hop.hop_limit, IPPROTO_IPV6, flow_label_of_ev(ev))
        for hop in hops
        if hop.port is not None
    ]


def _differences(hops: "Sequence[Hop]", capture: "LiveTrace", ev: int) -> list[str]:
    expected = _expected(hops, ev)
    lines = [
        f"in the model, not captured: {_described(seen)}"
        for seen in expected
        if seen not in capture.seen
    ]
    lines += [
        f"captured, not in the model: {_described(seen)}"
        for seen in capture.seen
        if seen not in expected
    ]
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


def _print(
    topology: "Topology",
    hops: "Sequence[Hop]",
    path: "Path",
    ev: int,
    capture: "LiveTrace | None",
) -> None:
    table = plain_table(
        "node",
        "what it does",
        "leaves by",
        "hop limit",
        "destination address",
        title=f"{topology.name}: {path.name}, EV {ev:#010x}",
    )
    table.caption = "uN: the node's own uSID, shifted out; route: the static /48 of the next one"
    table.caption_justify = "left"
    for column in table.columns[:3]:
        column.no_wrap = True
    table.columns[3].justify = "right"
    table.columns[4].overflow = "fold"
    if capture is not None:
        table.add_column("captured", overflow="fold")
    for hop in hops:
        last = hop.port is None
        row = [
            hop.node.name,
            _action(hop),
            "" if hop.port is None else hop.port.name,
            "" if last else str(hop.hop_limit),
            "" if last else str(hop.leaves),
        ]
        if capture is not None:
            row.append(_captured(hop, capture))
        table.add_row(*row)
    print_table(table)


def _captured(hop: "Hop", capture: "LiveTrace") -> str:
    """What was captured at the port of a hop; at the receiver whether the packet arrived."""
    if hop.port is None:
        return "delivered" if capture.delivered else "NOT DELIVERED"
    destination = {seen.port: seen.destination for seen in capture.seen}.get(hop.port.name)
    if destination is None:
        return "NOTHING"
    return destination if destination == str(hop.leaves) else f"DIFFERS: {destination}"


def _as_json(
    hops: "Sequence[Hop]",
    path: "Path",
    ev: int,
    capture: "LiveTrace | None",
    differences: list[str],
) -> dict[str, Any]:
    from dataclasses import asdict

    def text(value: object) -> str | None:
        return None if value is None else str(value)

    trace: dict[str, Any] = {
        "path": path.name,
        "ev": ev,
        "hops": [
            {
                "node": hop.node.name,
                "does": _action(hop),
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
    if capture is not None:
        result = {"as_expected": not differences, "differences": differences}
        trace["live"] = asdict(capture) | result
    return trace
