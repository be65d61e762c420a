"""Arguments and options that several commands share, and checks of their values."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.campaign.options import NO_FIGURES, REQUIRE_TRUSTED
from testbed.model.errors import InputError, MachineError, raise_any
from testbed.rights import acting_for

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
    typer.Option(NO_FIGURES, help="No figures and no report; testbed report makes them later."),
]
RequireTrusted = Annotated[
    bool,
    typer.Option(
        REQUIRE_TRUSTED, help="Treat a degraded run as an error, too: exit status 4, for CI."
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


ALL = "all"
"""All links, for `--pcap`."""


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


def links_named(topology: "Topology", names: list[str]) -> list[str]:
    """The links that `--pcap` names, each once: a link, a node (all its links), or `all`.

    Raises:
        InputError: the fabric has no such link or node.
    """
    from testbed.model.fabric.names import node_named, unknown_link

    known = [name for name in names if name == ALL or node_named(topology, name) is not None]
    raise_any(unknown_link(topology, "--pcap", name) for name in names if name not in known)
    links: dict[str, None] = {}
    for name in names:
        node = node_named(topology, name)
        if name == ALL:
            links |= dict.fromkeys(topology.links)
        elif node is not None:
            links |= dict.fromkeys(link.name for _, _, link in topology.adjacency[node])
        else:
            links[name] = None
    return list(links)


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
        raise InputError.of("--label", f"{len(labels)} names", expected)
    if len({*labels}) < len(labels):
        raise InputError.of("--label", ", ".join(labels), "different names")


@contextmanager
def writing(option: str, path: Path, kind: str = "a file to write") -> Iterator[None]:
    """Write to the path of an option in a block, as the one whose place it is (`acting_for`).

    Raises:
        InputError: the block could not write.
        MachineError: no space is left.
    """
    try:
        with acting_for(path.parent):
            yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            what = f"no space is left on the file system of {path}"
            raise MachineError(what, "free some, or write elsewhere") from None
        reason = (error.strerror or str(error)).lower()
        raise InputError.of(option, str(path), f"{kind} ({reason})") from None


@contextmanager
def located_in(scenario: str) -> Iterator[None]:
    """Name the scenario in the errors of a block that checks it.

    Raises:
        InputError: the block's, with the scenario's name before each place.
    """
    try:
        yield
    except InputError as error:
        problems = error.problems
        located = [replace(each, where=f"{scenario}: {each.where}") for each in problems]
        raise InputError(located) from None
