"""`testbed topo` and `testbed paths`: draw or export a fabric, show the paths between two hosts."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import Dst, Json, Src, TopologyName, hosts_named
from testbed.cli.screen import plain_table, print_json, print_table, stdout
from testbed.model.errors import InputError
from testbed.results.whole_file import writing

if TYPE_CHECKING:
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
    from testbed.model.faults.targets import nics_named
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
