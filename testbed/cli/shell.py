"""`testbed shell`: Mininet's prompt in a live fabric."""

import os
import shlex
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from testbed.cli import fault, operating
from testbed.cli.fault import print_fault_help
from testbed.cli.live import Live, Port, ReadOnly, listening, watching_prompt
from testbed.cli.options import Json, NoFigures, Pcap, RequireTrusted, TopologyName
from testbed.cli.screen import stderr
from testbed.model.errors import InputError, MachineError
from testbed.model.run_files.layout import PCAP_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testbed.emulation.fabric.fabric import Fabric
    from testbed.emulation.fabric.prompt import Beside, Commands
    from testbed.live.serving import Listening
    from testbed.model.fabric.nodes import Link
    from testbed.model.fabric.topology import Topology
    from testbed.runs.job import How


def shell(
    topology: TopologyName = "clos-4plane",
    pcap: Pcap = None,
    directory: Annotated[
        Path, typer.Option(metavar="DIR", help="Where to write captures, one file for each link.")
    ] = Path(),
    live: Live = False,
    port: Port = "0",
    read_only: ReadOnly = False,
    results: Annotated[
        Path, typer.Option(metavar="DIR", help="Where --live and --script keep their records.")
    ] = Path("results"),
    script: Annotated[
        Path | None,
        typer.Option(
            "--script",
            metavar="FILE",
            help="Carry out the commands of a file as a run: with report, verdict and JUnit.",
        ),
    ] = None,
    limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="The longest time of --script; 10 min.")
    ] = None,
    require_trusted: RequireTrusted = False,
    no_figures: NoFigures = False,
    as_json: Json = False,
) -> None:
    """Open Mininet's prompt in a live fabric (root).

    A command after a host's name runs in that host; its ping, TCP and MPTCP cross the fabric, such
    as h0 ping h4. Commands may also be piped in. The fabric ends with the prompt. With --live a
    browser shows it: what RDMA programs such as write_bw send, faults, EVs and ports; ev and port
    are commands of the prompt then, and with --script; fault is one in any case.
    """
    from testbed.device.nic import devices
    from testbed.emulation.endpoint.clock import realtime_offset_ns
    from testbed.emulation.fabric.capabilities import require
    from testbed.emulation.fabric.prompt import run_shell
    from testbed.model.files.topologies import load_topology
    from testbed.rights import acting_for
    from testbed.runs.job import How
    from testbed.runs.room import require_room_for_fabric

    if script is not None:
        if live:
            raise InputError.of("--live", "--script", "one of the two: testbed replay shows a run")
        how = How(not no_figures, require_trusted, pcap=tuple(pcap or ()))
        _run_script(load_topology(topology), script, limit or _LIMIT, results, how, as_json=as_json)
    of_script = {
        "--limit": limit,
        "--require-trusted": require_trusted,
        "--no-figures": no_figures,
        "--json": as_json,
    }
    for option in (option for option, given in of_script.items() if given):
        raise InputError.of(option, "no --script", "--script FILE, whose run it is about")
    fabric = load_topology(topology)
    pcaps = pcap_files(fabric, pcap or [], directory)
    where = listening(port, read_only=read_only) if live else None
    require()
    require_room_for_fabric(fabric)
    console = stderr()
    beside = _unwatched(fabric) if where is None else _watched(fabric, results, where)
    with acting_for(directory) if pcaps else nullcontext(), beside as (run, further):

        @contextmanager
        def beside_prompt(built: "Fabric") -> "Iterator[None]":
            with run(built), devices(built, console.print):
                yield

        status = run_shell(
            fabric, pcaps, realtime_offset_ns(), console.print, beside_prompt, further
        )
    raise typer.Exit(status)


_LIMIT = "10 min"


def _run_script(
    fabric: "Topology", file: Path, limit: str, results: Path, how: "How", *, as_json: bool
) -> NoReturn:
    """Carry out commands of the prompt as a run, whose programs they are; ends the command."""
    from testbed.cli.screen import ending_in_words, print_warning, showing_progress
    from testbed.cli.summary import end_with
    from testbed.emulation.experiment.script import Script
    from testbed.model.file_names import is_there, name_after
    from testbed.model.files.reading import text_lines
    from testbed.runs.making import make, require_makeable, signals_stop
    from testbed.runs.python import scenario

    expected = "a file with commands of the prompt"
    if not is_there(file, Path.is_file):
        raise InputError.of("--script", str(file), expected)
    lines = [*text_lines(file, expected)]
    if not any(line.partition("#")[0].strip() for line in lines):
        raise InputError.of(
            "--script", f"{file}, which has none", expected, "such as h0 ping -c1 h1"
        )
    name = name_after(file, "script")
    content = {"name": name, "topology": fabric, "duration": limit}
    command = ["testbed", "shell", "--script", str(file)]
    try:
        run = scenario(content | {"workload": {"kind": "program", "command": command}})
    except InputError as error:
        wrong = [
            replace(p, where="--limit") if p.where == "duration" else p for p in error.problems
        ]
        raise InputError(wrong) from None
    require_makeable(run, "emulated", how)
    screen = os.dup(sys.stderr.fileno() if as_json else sys.stdout.fileno())
    with ending_in_words(), signals_stop(), showing_progress() as progress:
        result = make(
            run,
            "emulated",
            results,
            how=how,
            progress=progress,
            warn=print_warning,
            screen=screen,
            script=Script(file, partial(_commands_of_run, fabric)),
        )
    end_with(result, how, as_json=as_json)


@contextmanager
def _unwatched(fabric: "Topology") -> "Iterator[tuple[Beside, Commands]]":
    """Faults by hand from another terminal."""
    from testbed.emulation.controller.process import faults_by_hand
    from testbed.results.whole_file import scratch

    with scratch("testbed-shell-") as control:
        if sys.stdin.isatty():
            print_fault_help(control, fabric)
        further: Commands = {
            "fault": partial(run_command, fault.commands, "fault", control),
            "ev": _without_queue_pairs,
            "port": _without_queue_pairs,
        }
        yield lambda _: faults_by_hand(fabric, control), further


@contextmanager
def _watched(
    fabric: "Topology", results: Path, where: "Listening"
) -> "Iterator[tuple[Beside, Commands]]":
    """The page beside the prompt, and the prompt's own commands."""
    from testbed.emulation.experiment.prompt_fabric import watched_fabric
    from testbed.live.stream.stream import PROMPT
    from testbed.results.run_directory import making_run

    with (
        making_run(results, PROMPT, 1) as run,
        watching_prompt(fabric, run, replace(where, has_prompt=True)),
    ):
        further = _commands_of_run(fabric, run.path)
        yield lambda built: watched_fabric(built, run.path), further
        run.make_latest()


def _commands_of_run(fabric: "Topology", run: Path) -> "Commands":
    """The commands of a prompt whose fabric is recorded in a run directory."""
    return {
        name: partial(run_command, commands, name, run)
        for name, commands in (
            ("fault", fault.commands),
            ("ev", operating.ev_commands),
            ("port", operating.port_commands),
        )
    } | {"link": partial(_link, fabric, run)}


def _without_queue_pairs(_: str) -> int:
    """Say what `ev` and `port` need.

    Raises:
        MachineError: always.
    """
    raise MachineError(
        "ev and port need a prompt that watches queue pairs",
        "testbed shell --live watches those of RDMA programs; testbed run --hold has a scenario's",
    )


def run_command(commands: "Callable[[], typer.Typer]", name: str, run: Path, line: str) -> int:
    """Carry out `testbed fault`, `ev` or `port` for the fabric of this prompt.

    Returns:
        The exit status that the command has outside of the prompt.
    """
    from testbed.model.errors import ExitStatus, TestbedError

    try:
        words = _words(line)
        arguments = [words[0], str(run), *words[1:]] if words else ["--help"]
        status = commands()(arguments, prog_name=name, standalone_mode=False)
    except TestbedError as wrong:
        stderr().print(f"error: {wrong}", markup=False)
        return wrong.exit_status
    except typer.TyperException as wrong:
        stderr().print(f"error: {wrong.format_message()}", markup=False)
        return ExitStatus.WRONG_INPUT
    return int(status or ExitStatus.AS_EXPECTED)


def _words(line: str) -> list[str]:
    """The words of a line, of which some may be quoted.

    Raises:
        InputError: a quote is not closed, or the line ends with a backslash.
    """
    try:
        return shlex.split(line)
    except ValueError as wrong:
        expected = "a line in which every quote is closed and something follows every backslash"
        raise InputError.of("the line", line, expected) from wrong


_LINK_WORDS = 3
"""Two nodes, and up or down."""


def _link(topology: "Topology", run: Path, line: str) -> int:
    """Mininet's `link A B down` and `link A B up`, as a fault that is recorded."""
    from testbed.emulation.controller.live import Client, socket_of
    from testbed.model.errors import ExitStatus
    from testbed.model.fabric.names import link_between

    words = line.split()
    link = link_between(topology, words[0], words[1]) if len(words) == _LINK_WORDS else None
    if link is None or words[2] not in {"up", "down"}:
        example = topology.fabric_link(0, 0, 0)
        ends = f"{example.lower.node.name} {example.upper.node.name}"
        stderr().print(f"usage: link A B up|down, such as: link {ends} down")
        return ExitStatus.WRONG_INPUT
    if words[2] == "down":
        return run_command(fault.commands, "fault", run, f"inject cut {link.name}")
    with Client(socket_of(run)) as client:
        records = client.faults()
    for record in records:
        if (record["kind"], record["target"]) == ("cut", link.name) and not record["healed_ns"]:
            return run_command(fault.commands, "fault", run, f"heal {record['index']}")
    return ExitStatus.AS_EXPECTED


def pcap_files(topology: "Topology", places: list[str], directory: Path) -> "dict[Link, Path]":
    """The file of the capture of each link.

    Raises:
        InputError: there is no such link or no such directory.
    """
    from testbed.runs.making import links_named

    captured = links_named(topology, places)
    if captured and not directory.is_dir():
        raise InputError.of("--directory", str(directory), "a directory")
    return {topology.links[name]: directory / f"{name}{PCAP_SUFFIX}" for name in captured}
