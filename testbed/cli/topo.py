"""`testbed topo`, `paths` and `trace`: draw or export a fabric, and show the ways through it."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import Dst, Json, Src, TopologyName, hosts_named
from testbed.cli.screen import plain_table, print_error, print_json, print_table, stdout
from testbed.model.errors import InputError
from testbed.results.whole_file import writing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv6Network

    from testbed.emulation.fabric.capture import LiveTrace, Seen
    from testbed.model.fabric.addressing import Path as FabricPath
    from testbed.model.fabric.names import Hop
    from testbed.model.fabric.nodes import Node
    from testbed.model.fabric.topology import Topology

_SUFFIXES = (".png", ".svg", ".dot", ".mmd")

MAX_LINKS = 20_000
"""Most links of a fabric that is drawn: a picture of more shows only lines."""

MAX_EXPORTED_LINKS = 100_000
"""Most links of a fabric that is exported. SONiC's form has a kilobyte for each end of one."""


def topo(
    topology: TopologyName = "clos-4plane",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write a picture: .png, .svg, .dot (Graphviz) or .mmd (Mermaid).",
        ),
    ] = None,
    export: Annotated[
        tuple[str, Path] | None,
        typer.Option(
            metavar="FORM DIRECTORY",
            help="Write it for containerlab, frr, sonic, linux or htsim (docs/export.md).",
        ),
    ] = None,
) -> None:
    """Draw a fabric: planes side by side, T1s above T0s above hosts. Or export it."""
    from testbed.model.files.topologies import load_topology

    fabric = load_topology(topology)
    if export is not None:
        _export(fabric, topology, *export)
    if output is not None:
        _require_few_links(fabric, topology, MAX_LINKS, "in a picture")
        _write(fabric, output)
        stdout().print(f"wrote {output}")
    if export is None and output is None:
        from testbed.drawings import compact

        _require_few_links(fabric, topology, MAX_LINKS, "in a picture")
        stdout().print(compact(fabric))


def _require_few_links(topology: "Topology", where: str, most: int, what: str) -> None:
    if topology.link_count > most:
        expected = f"at most {most} links {what}"
        remedy = "take a smaller fabric of the same shape"
        raise InputError.of(where, f"{topology.link_count} links", expected, remedy)


def _export(topology: "Topology", where: str, form: str, directory: Path) -> None:
    """Write the files of a form: all of them, or none and no directory.

    Raises:
        InputError: the form is unknown, the fabric is too large, or something is in the directory.
    """
    from testbed.exports import FORMS

    if form not in FORMS:
        raise InputError.of("--export", form, f"one of {', '.join(FORMS)}")
    _require_few_links(topology, where, MAX_EXPORTED_LINKS, "to export")
    written = 0
    with (
        writing("--export", directory, "a new or empty directory in one that is there"),
        tempfile.TemporaryDirectory(dir=directory.parent, prefix=".export-") as place,
    ):
        made = Path(place) / "made"
        for name, text in FORMS[form](topology):
            file = made / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            file.chmod(0o755 if file.suffix == ".sh" else 0o644)
            written += 1
        made.replace(directory)
    stdout().print(f"wrote {written} file{'s' * (written > 1)} to {directory}")


def _write(topology: "Topology", output: Path) -> None:
    from testbed.drawings import graphviz, mermaid

    if output.suffix not in _SUFFIXES:
        raise InputError.of("--output", output.name, f"a name that ends in {', '.join(_SUFFIXES)}")
    with writing("--output", output):
        if output.suffix in (".dot", ".mmd"):
            text = graphviz(topology) if output.suffix == ".dot" else mermaid(topology)
            output.write_text(text + "\n", encoding="utf-8")
        else:
            from testbed.drawings import draw

            draw(topology, output)


def paths(topology: TopologyName, src: Src, dst: Dst, as_json: Json = False) -> None:
    """Show the paths between two hosts.

    For each path an EV that selects it, its carrier address and its links. Between two nodes, such
    as n0 and n1, those between their NICs on each rail.
    """
    from testbed.model.faults.schedule import nics_named
    from testbed.model.files.topologies import load_topology

    fabric = load_topology(topology)
    of_src, of_dst = nics_named(fabric, src), nics_named(fabric, dst)
    if src != dst and of_src and of_dst:
        rows = [
            {"src": a.name, "dst": b.name, **row}
            for a, b in zip(of_src, of_dst, strict=True)
            for row in _paths(fabric, a, b)
        ]
    elif of_src or of_dst:
        expected = f"two hosts, or two different nodes of n0 to n{fabric.node_count - 1}"
        raise InputError.of("SRC DST", f"{src} {dst}", expected)
    else:
        rows = _paths(fabric, *hosts_named(fabric, SRC=src, DST=dst))
    if as_json:
        print_json(rows)
        return
    ends = [key for key in ("src", "dst") if key in rows[0]]
    table = plain_table(*ends, "path", "EV", "carrier address", "links")
    for row in rows:
        cells = row["path"], f"{row['ev']:#010x}", row["carrier"], " ".join(row["links"])
        table.add_row(*(row[end] for end in ends), *cells)
    print_table(table)


def _paths(topology: "Topology", src: "Node", dst: "Node") -> list[dict[str, Any]]:
    from testbed.model.fabric import addressing

    return [
        {
            "path": path.name,
            "plane": path.plane,
            "t1": path.t1,
            "ev": addressing.ev_for_path(path),
            "carrier": str(addressing.carrier_address(topology, src, dst, path)),
            "links": [link.name for link in addressing.links_of_path(topology, src, dst, path)],
        }
        for path in addressing.paths(topology, src, dst)
    ]


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
) -> "tuple[FabricPath, int]":
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


def _live(
    topology: "Topology", src: "Node", dst: "Node", path: "FabricPath", ev: int
) -> "LiveTrace":
    from testbed.emulation.fabric.capabilities import require
    from testbed.emulation.fabric.capture import trace_live

    require()
    return trace_live(topology, src, dst, path, ev)


def _expected(hops: "Sequence[Hop]", ev: int) -> "list[Seen]":
    """The packets to capture if the fabric behaves as the model."""
    from socket import IPPROTO_IPV6

    from testbed.emulation.fabric.capture import Seen
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
