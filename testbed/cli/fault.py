"""`testbed fault`: inject and heal faults in a fabric that runs."""

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.options import OF_WHOM, Json
from testbed.cli.screen import print_json, stderr, stdout

if TYPE_CHECKING:
    from testbed.emulation.controller.live import Client
    from testbed.model.fabric.topology import Topology

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run in progress.")]

_ALL = "all"
"""Names every fault in place of a number."""


def commands() -> typer.Typer:
    """The subcommands."""
    app = typer.Typer(help=f"Inject and heal faults during a run. {OF_WHOM}", no_args_is_help=True)
    app.command("inject")(inject)
    app.command("heal")(heal)
    app.command("list")(list_)
    app.command("publish")(publish)
    return app


def print_fault_help(directory: Path, topology: "Topology") -> None:
    """Say how faults are injected into a fabric that is about to run."""
    from testbed.emulation.controller.live import SOCKET

    link = topology.fabric_link(0, 0, 0).name
    stderr().print(
        f"Faults, from another terminal: testbed fault inject {directory} cut {link}\n"
        f"over HTTP: {directory / SOCKET}, or on the loopback by testbed fault publish {directory}"
    )


def inject(
    run: Run,
    kind: Annotated[str, typer.Argument(help="cut, blackhole, loss, ... (docs/faults.md)")],
    target: Annotated[str, typer.Argument(help="What it affects; join several by commas.")],
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Keys as in a timeline: probability=0.05 for=3s"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Inject a fault; it heals after `for`, by default ten minutes.

    Exit status: 0 it took effect, 2 wrong input, 4 it did not take effect.
    """
    entry = {"kind": kind, "target": target.split(","), **_pairs(more or [])}
    with _connect(run) as client:
        _show([client.inject(entry)], as_json=as_json)


def heal(
    run: Run,
    number: Annotated[
        str, typer.Argument(metavar="N|all", help="The fault's number, or all that are in force.")
    ],
    as_json: Json = False,
) -> None:
    """Heal one fault, or all that are in force."""
    from testbed.emulation.controller.live import heal_all, socket_of
    from testbed.model.errors import InputError

    if number != _ALL and not re.fullmatch(r"[0-9]{1,9}", number):
        raise InputError.of("N", number, f"the number of a fault, or {_ALL}")
    if number != _ALL:
        with _connect(run) as client:
            _show([client.heal(int(number))], as_json=as_json)
        return
    healed = heal_all(socket_of(run))
    if not healed and not as_json:
        stdout().print("no fault that heals is in force")
    _show(healed, as_json=as_json)


def list_(run: Run, as_json: Json = False) -> None:
    """Show every fault so far, including those of the timeline."""
    with _connect(run) as client:
        _show(client.faults(), as_json=as_json)


def publish(
    run: Run,
    port: Annotated[int, typer.Option(min=1, max=65535, help="TCP port on the loopback.")] = 8080,
) -> None:
    """Serve the run's HTTP interface on the loopback until interrupted.

    Only who knows the address that it prints can use it, and no page of another site.
    """
    from functools import partial

    from testbed.cli.live import ask_controller
    from testbed.emulation.controller.live import socket_of
    from testbed.model.errors import MachineError

    socket_of(run)  # a run that is over is said at once
    try:
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        remedy = f"pip install 'mrc-testbed[live]', or use the UNIX socket in {run}"
        what = f"nothing can be published: {error.name} is not installed"
        raise MachineError(what, remedy) from None
    from testbed.live.serving import publishing, wait

    with suppress(KeyboardInterrupt), publishing(port) as site:
        stdout().print(f"{site.address}faults  (Ctrl-C ends it)", soft_wrap=True)
        wait(site, partial(ask_controller, run))


def _connect(run: Path) -> "Client":
    from testbed.emulation.controller.live import Client, socket_of

    return Client(socket_of(run))


def _pairs(words: list[str]) -> dict[str, Any]:
    """The keys and values of `key=value` words; values are parsed as YAML.

    Raises:
        InputError: a word is no such pair, or its key comes twice.
    """
    from testbed.model.errors import InputError
    from testbed.model.files.reading import parse_value

    pairs: dict[str, Any] = {}
    for word in words:
        key, _, text = word.partition("=")
        if not key or not text:
            raise InputError.of("KEY=VALUE", word, "key=value, such as for=3s")
        if key in {"kind", "target", *pairs}:
            raise InputError.of("KEY=VALUE", word, f"{key} once")
        pairs[key] = parse_value(text, "KEY=VALUE")
    return pairs


_EFFECTS = {
    "passed": "got through",
    "forwarded": "forwarded",
    "dropped": "dropped",
    "dropped_by_flows": "dropped by OpenFlow rules",
    "corrupted": "corrupted",
}
"""What the counters of a proof count."""


def effect_of(record: dict[str, Any]) -> str:
    """What a fault has done to packets so far, by its last proof, in words; empty if unknown."""
    from testbed.model.faults.impairment import in_words

    proof = record.get("proof") or {}
    last: dict[str, Any] = next(
        (proof[key] for key in ("until_end", "healed", "now", "injected") if proof.get(key)), {}
    )
    counted = {key: sum(last[key]) for key in _EFFECTS if isinstance(last.get(key), list)}
    packets = [f"{count:,} {_EFFECTS[key]}" for key, count in counted.items() if count]
    carrier = last.get("carrier")
    ends = carrier if isinstance(carrier, list) else [carrier]
    ends = [up for up in ends if isinstance(up, bool)]
    words = [f"packets: {', '.join(packets)}"] if packets else []
    if record.get("healed_ns"):
        return "; ".join(words)  # what was read back, and the carrier, were the fault's
    words += in_words(last.get("read_back") or {})
    words += [f"carrier {'up' if all(ends) else 'down'}"] if ends else []
    return "; ".join(words)


def _show(records: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(records)
        return
    from testbed.model.units import show_duration

    console = stdout()
    for record in records:
        requested_ns, effective_ns = record["requested_ns"], record["effective_ns"]
        if record["error"]:
            state = f"failed: {record['error']}"
        elif record["healed_ns"]:
            state = "healed"
        elif effective_ns is None:
            state = "requested"
        else:
            delay = show_duration(effective_ns - requested_ns)
            state = f"in force, {delay} after it was requested"
        effects = effect_of(record)
        line = f"{record['index']}: {record['kind']} of {record['target']}: {state}"
        console.print(f"{line}; {effects}" if effects else line)
