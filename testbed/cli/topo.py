"""`testbed topo`: draw a fabric."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.options import TopologyName
from testbed.cli.screen import stdout
from testbed.model.errors import InputError
from testbed.results.whole_file import writing

if TYPE_CHECKING:
    from testbed.model.fabric.topology import Topology

_SUFFIXES = (".png", ".svg", ".dot", ".mmd")

MAX_LINKS = 20_000
"""Most links of a fabric that is drawn: a picture of more shows only lines."""


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
) -> None:
    """Draw a fabric: planes side by side, T1s above T0s above hosts."""
    from testbed.drawings import compact
    from testbed.model.files.topologies import load_topology

    fabric = load_topology(topology)
    _require_drawable(fabric, topology)
    if output is None:
        stdout().print(compact(fabric))
        return
    _write(fabric, output)
    stdout().print(f"wrote {output}")


def _require_drawable(topology: "Topology", where: str) -> None:

    links_of_t0 = topology.t1_per_plane + topology.hosts_per_t0
    links = topology.planes * topology.t0_per_plane * links_of_t0
    if links > MAX_LINKS:
        expected = f"at most {MAX_LINKS} links in a picture"
        remedy = "draw a smaller fabric of the same shape"
        raise InputError.of(where, f"{links} links", expected, remedy)


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
