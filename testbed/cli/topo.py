"""`testbed topo`: draw a fabric."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli.screen import stdout

if TYPE_CHECKING:
    from testbed.model.fabric.topology import Topology

_KINDS = (".png", ".svg", ".dot", ".mmd")

MAX_LINKS = 20_000
"""Larger fabrics would be a picture of nothing but lines."""


def topo(
    topology: Annotated[str, typer.Argument(help="A topology's name or file.")] = "clos-4plane",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write FILE, by its ending: .png, .svg, .dot (Graphviz), .mmd (Mermaid).",
        ),
    ] = None,
) -> None:
    """Draw a fabric: planes side by side, T1s above T0s above hosts."""
    from testbed.drawings.text import compact
    from testbed.files.topologies import load_topology

    fabric = load_topology(topology)
    _require_drawable(fabric, topology)
    if output is None:
        stdout().print(compact(fabric))
        return
    _write(fabric, output)
    stdout().print(f"wrote {output}")


def _require_drawable(topology: "Topology", where: str) -> None:
    from testbed.model.errors import InputError

    links = topology.planes * topology.t0_per_plane
    links *= topology.t1_per_plane + topology.hosts_per_t0
    if links > MAX_LINKS:
        what = f"at most {MAX_LINKS} links, to be drawn"
        remedy = "draw a smaller fabric of the same shape"
        raise InputError.of(where, f"{links} links", what, remedy)


def _write(topology: "Topology", output: Path) -> None:
    from testbed.drawings.text import graphviz, mermaid
    from testbed.model.errors import InputError

    if output.suffix not in _KINDS:
        raise InputError.of("--output", output.name, f"a name in {', '.join(_KINDS)}")
    try:
        if output.suffix in (".dot", ".mmd"):
            text = graphviz(topology) if output.suffix == ".dot" else mermaid(topology)
            output.write_text(text + "\n", encoding="utf-8")
        else:
            from testbed.drawings.picture import draw

            draw(topology, output)
    except OSError as error:
        what = f"a file to write ({error.strerror})"
        raise InputError.of("--output", str(output), what) from None
