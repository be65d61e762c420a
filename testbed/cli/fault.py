"""`testbed fault`: inject and heal faults in a fabric that runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import Json
from testbed.cli.screen import print_json, stderr, stdout

if TYPE_CHECKING:
    from testbed.model.fabric.topology import Topology

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="The directory of a run that is under way.")
]


def commands() -> typer.Typer:
    """The subcommands."""
    app = typer.Typer(
        help="Inject and heal faults in a fabric that runs (root).", no_args_is_help=True
    )
    app.command("inject")(inject)
    app.command("heal")(heal)
    app.command("list")(list_)
    app.command("publish")(publish)
    return app


def print_fault_help(directory: Path, topology: "Topology") -> None:
    """Say how faults are injected into a fabric that is about to run."""
    from testbed.controller.live import SOCKET

    link = topology.fabric_link(0, 0, 0).name
    stderr().print(
        f"Faults, from another terminal: testbed fault inject {directory} cut {link}\n"
        f"over HTTP: {directory / SOCKET}, or on the loopback by testbed fault publish {directory}"
    )


def inject(
    run: Run,
    kind: Annotated[str, typer.Argument(help="cut, blackhole, loss, ... (docs/faults.md)")],
    target: Annotated[str, typer.Argument(help="What it strikes; several joined by commas.")],
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="As in a timeline: probability=0.05 for=3s"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Inject a fault now; it heals after `for`, or ten minutes.

    Exit status: 0 it took effect, 2 wrong input, 4 it did not take effect.
    """
    from testbed.controller.client import Client

    entry = {"kind": kind, "target": target.split(","), **_pairs(more or [])}
    with Client.of(run) as client:
        _show([client.inject(entry)], as_json=as_json)


def heal(
    run: Run,
    number: Annotated[int, typer.Argument(metavar="N", help="The fault's number.")],
    as_json: Json = False,
) -> None:
    """Heal a fault now."""
    from testbed.controller.client import Client

    with Client.of(run) as client:
        _show([client.heal(number)], as_json=as_json)


def list_(run: Run, as_json: Json = False) -> None:
    """Show every fault so far, those of the timeline among them."""
    from testbed.controller.client import Client

    with Client.of(run) as client:
        _show(client.faults(), as_json=as_json)


def publish(
    run: Run,
    port: Annotated[int, typer.Option(min=1, max=65535, help="TCP port on the loopback.")] = 8080,
) -> None:
    """Offer the run's HTTP interface on the loopback until interrupted."""
    from testbed.controller.client import forward, socket_of

    stdout().print(f"http://127.0.0.1:{port}/faults  (Ctrl-C ends it)")
    forward(socket_of(run), port)


def _pairs(words: list[str]) -> dict[str, Any]:
    """What `key=value` words say, values as YAML reads them.

    Raises:
        InputError: a word is no such pair, or says what another has said.
    """
    from testbed.files.documents import parse_value
    from testbed.model.errors import InputError, Problem

    found: dict[str, Any] = {}
    for word in words:
        key, _, text = word.partition("=")
        if not key or not text:
            raise InputError([Problem("KEY=VALUE", word, "key=value, such as for=3s")])
        if key in {"kind", "target", *found}:
            raise InputError([Problem("KEY=VALUE", word, f"{key} once")])
        found[key] = parse_value(text, "KEY=VALUE")
    return found


def _show(records: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(records)
        return
    console = stdout()
    for one in records:
        asked, effective = one["asked_ns"], one["effective_ns"]
        state = (
            f"failed: {one['error']}"
            if one["error"]
            else "healed"
            if one["healed_ns"]
            else "asked for"
            if effective is None
            else f"in force, {(effective - asked) / 1e6:.2f} ms after it was asked for"
        )
        console.print(f"{one['index']}: {one['kind']} of {one['target']}: {state}")
