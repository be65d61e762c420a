"""Arguments and options that several commands share, and checks of their values."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.model.errors import InputError, raise_any

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node
    from testbed.model.fabric.topology import Topology


def _shipped_scenarios() -> list[str]:
    """The names that a shell completes."""
    from testbed.model.files.catalog import SCENARIOS, files_in

    return list(files_in(SCENARIOS))


def _shipped_topologies() -> list[str]:
    """The names that a shell completes."""
    from testbed.model.files.catalog import TOPOLOGIES, files_in

    return list(files_in(TOPOLOGIES))


ScenarioNames = Annotated[
    list[str],
    typer.Argument(
        metavar="SCENARIO...",
        help="Names or files of scenarios; several are compared.",
        autocompletion=_shipped_scenarios,
    ),
]
TopologyName = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY", help="A topology's name or file.", autocompletion=_shipped_topologies
    ),
]
Src = Annotated[str, typer.Argument(metavar="SRC", help="The sending host, such as h0.")]
Dst = Annotated[str, typer.Argument(metavar="DST", help="The receiving host, such as h4.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Pcap = Annotated[
    list[str] | None,
    typer.Option(
        "--pcap",
        metavar="PLACE",
        help="Capture a link, a node's links, or all links; may be repeated.",
    ),
]
NoFigures = Annotated[
    bool,
    typer.Option("--no-figures", help="No figures and no report; testbed report makes them later."),
]
RequireTrusted = Annotated[
    bool,
    typer.Option(
        "--require-trusted", help="Treat a degraded run as an error, too: exit status 4, for CI."
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="PLACE",
        help="Where runs are made: local, dask:ADDRESS, ssh:HOSTFILE or slurm[:JOBS] "
        "(docs/campaigns.md); "
        "default: on this machine, without Dask.",
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME",
        help="A name for each in tables and figures; give it once for each, in order.",
    ),
]
Results = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="The directory of all results.")
]


def hosts_named(topology: "Topology", **names: str) -> "list[Node]":
    """The hosts with these names, given by the argument that holds each.

    Raises:
        InputError: the fabric has no such host, or they are the same.
    """
    from testbed.model.fabric.names import unknown_host

    raise_any(unknown_host(topology, argument, name) for argument, name in names.items())
    for argument, name in names.items():
        if [*names.values()].count(name) > 1:
            raise InputError.of(argument, name, "two different hosts: a path has two ends")
    return [topology.host_named(name) for name in names.values()]


def require_labels(labels: Sequence[str], count: int, things: str) -> None:
    """Check the names that `--label` gives, if any: one for each of several things.

    Raises:
        InputError: there are fewer or more, two are equal, or one is no text.
    """
    from testbed.model.files.reading import no_text

    for label in labels:
        if code := no_text(label):
            raise InputError.of("--label", label, f"text without the character {code}")
    if len(labels) not in (0, count):
        expected = f"one for each of the {count} {things}"
        remedy = "give --label NAME once for each, in their order, or leave it out"
        raise InputError.of("--label", f"{len(labels)} names", expected, remedy)
    if len({*labels}) < len(labels):
        remedy = "give each another one, or leave --label out"
        raise InputError.of("--label", ", ".join(labels), "different names", remedy)
