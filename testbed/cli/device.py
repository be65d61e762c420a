"""`testbed device`: programs on a simulated fabric, as any user."""

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.fault import print_fault_help
from testbed.cli.live import Watch, watch_options
from testbed.cli.options import (
    AllowCode,
    Json,
    NoFigures,
    RequireTrusted,
    Results,
    Seed,
    SetKeys,
    settings_of,
)
from testbed.cli.run import watching_simulated
from testbed.cli.screen import ending_in_words, print_warning, showing_progress, stderr
from testbed.cli.summary import end_with
from testbed.command_options import with_options
from testbed.model.errors import InputError, Problem, printable, raise_any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testbed.device.paced.run import Observer
    from testbed.model.fabric.topology import Topology
    from testbed.model.files.reading import Document
    from testbed.model.files.scenarios import Dilation
    from testbed.model.scenario import Scenario
    from testbed.results.run_directory import RunDirectory
    from testbed.runs.fitting import Machines

_DEFAULT: dict[str, Any] = {
    "name": "device",
    "description": "Programs of the user's own on a simulated fabric.",
    "topology": {"base": "clos-4plane", "dilation": "auto"},
    "duration": "1440 min",
}
"""The scenario where none is named: without faults, until the programs end."""

_RACKS, _HOSTS_PER_RACK = 2, 4
"""Of its topology."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line asks for.

    Attributes:
        command: the program and its arguments; none: the scenario's.
        hosts: how many hosts run it; None: those of the scenario, or all.
        name: the scenario's name or file; None: none.
        settings: the values of `--set`.
        seed: instead of the scenario's.
        allow_code: whether what any file names may be executed.
    """

    command: "Sequence[str]"
    hosts: int | None
    name: str | None
    settings: dict[str, Any]
    seed: int | None
    allow_code: bool

    def made(self, machines: "Machines") -> "Scenario":
        """The scenario, at the dilation that the machine carries if it is `auto`; checked.

        Raises:
            InputError: it or an option is wrong, or it cannot be run in this form.
            MachineError: this machine cannot run it.
        """
        from testbed.runs.fitting import with_fitting_dilation

        return with_fitting_dilation(self._loaded, machines)[0]

    def _loaded(self, dilation: "Dilation") -> "Scenario":
        from testbed.model.checks import require_no_code
        from testbed.model.files.catalog import find_scenario, is_shipped
        from testbed.model.files.reading import Document, read_document
        from testbed.model.files.scenarios import scenario_of
        from testbed.runs.making import require_makeable
        from testbed.runs.series import require_seed

        if self.name is not None:
            document = read_document(find_scenario(self.name))
        elif self.command:
            document = Document(None, self._default())
        else:
            expected = "a program after --, or a scenario that has one"
            raise InputError.of("PROGRAM", "none", expected, "testbed device -- ib_devinfo")
        self._require_one_workload(document)
        if self.command:
            document = _with_workload(document, command=list(self.command))
        settings = dict(self.settings)
        if self.hosts is not None:
            topology = scenario_of(document, settings=settings).topology
            settings["workload.hosts"] = spread(topology, self.hosts)
        scenario = scenario_of(document, dilation, settings)
        if self.seed is not None:
            require_seed(self.seed)
            scenario = scenario.model_copy(update={"seed": self.seed})
        if self.name is not None and not self.allow_code and not is_shipped(self.name):
            typed = ("workload.command",) if self.command else ()
            require_no_code(scenario, self.name, but=(*typed, *self.settings))
        require_makeable(scenario, "paced")
        return scenario

    def _require_one_workload(self, document: "Document") -> None:
        """Check that nothing asked for here is what the jobs of a scenario say themselves.

        Raises:
            InputError: it is.
        """
        if isinstance(document.data, dict) and document.data.get("jobs"):
            asked = {"PROGRAM": " ".join(self.command), "-n": str(self.hosts or "")}
            expected = f"none: {self.name} has jobs, which have their own programs and hosts"
            raise_any(
                Problem(where, printable(found), expected, "write it into the file")
                for where, found in asked.items()
                if found
            )

    def _default(self) -> dict[str, Any]:
        """The scenario where none is named, with enough hosts."""
        topology = dict(_DEFAULT["topology"])
        if self.hosts is not None and self.hosts > _RACKS * _HOSTS_PER_RACK:
            topology["hosts_per_t0"] = -(-self.hosts // _RACKS)
        return {**_DEFAULT, "topology": topology}


def _with_workload(document: "Document", command: list[str]) -> "Document":
    """A document whose workload is a program: the file's with another command, if it has one."""
    workload = document.data.get("workload") if isinstance(document.data, dict) else None
    usual = workload if isinstance(workload, dict) and workload.get("kind") == "program" else {}
    made = {**usual, "kind": "program", "command": command}
    return replace(document, data={**document.data, "workload": made})


def spread(topology: "Topology", count: int) -> list[str]:
    """The names of some hosts, as many of each rack as of the others.

    Raises:
        InputError: there are not so many.
    """
    if count > len(topology.hosts):
        expected = f"at most {len(topology.hosts)}, the hosts of {topology.name}"
        raise InputError.of("-n", str(count), expected, "--set topology.hosts_per_t0=N")
    racks = topology.t0_per_plane
    return [
        host.name
        for rack in range(racks)
        for host in topology.hosts_below(rack)[: count // racks + (rack < count % racks)]
    ]


@with_options(watch_options, "watch")
def device(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- PROGRAM ARGS...",
            help="What each host runs; default: the scenario's. {host}, {rank} and {hosts} in it "
            "become the host's name, its number from 0 and all names.",
        ),
    ] = None,
    *,
    hosts: Annotated[
        int | None,
        typer.Option(
            "-n",
            min=2,
            metavar="N",
            help="Hosts that run it, spread over the racks; default: the scenario's, or all.",
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(metavar="SCENARIO", help="Name or file: its fabric, faults and expectations."),
    ] = None,
    results: Results = Path("results"),
    seed: Seed = None,
    set_: SetKeys = None,
    allow_code: AllowCode = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Do not print what the programs print.")
    ] = False,
    require_trusted: RequireTrusted = False,
    no_figures: NoFigures = False,
    as_json: Json = False,
    watch: Watch,
) -> None:
    """Run RDMA programs on a simulated fabric, without root.

    Each host has the device mrc0, an address of its own on the loopback, and a name, such as h4.
    The fabric keeps step with the clock; the verdict says when this machine could not. What the
    programs print goes to standard error, after their hosts' names. Exit status: 0 as expected, 1
    a program failed, data was lost or an expectation is not met, 2 wrong input, 3 this machine
    cannot run it, 4 the run cannot be trusted.
    """
    from testbed.runs.fitting import Machines
    from testbed.runs.job import How
    from testbed.runs.making import make, signals_stop

    how = How(not no_figures, require_trusted)
    asked = _Asked(command or [], hosts, scenario, settings_of(set_), seed, allow_code=allow_code)

    @contextmanager
    def watched(run: "Scenario", directory: "RunDirectory") -> "Iterator[Observer | None]":
        with signals_stop(), watching_simulated(watch, run, directory) as observer:
            print_fault_help(directory.path, run.topology)
            yield observer

    with ending_in_words():
        made = asked.made(Machines.pacing(showing=showing_progress, warn=print_warning))
        watch.check_packets(made)
        for key, code in made.executes.items():
            stderr().print(printable(f"{made.name}: executes {code} ({key})"))
        with showing_progress() as progress:
            result = make(
                made,
                "paced",
                results,
                how=how,
                progress=progress,
                watch=watched,
                warn=print_warning,
                screen=None if quiet else os.dup(sys.stderr.fileno()),
            )
        end_with(result, how, as_json=as_json)
