"""Options that several commands share, those of `run` and `simulate`, with their checks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from testbed.cli.screen import print_warning, stderr
from testbed.model.errors import InputError, Problem, printable, raise_any

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node
    from testbed.model.fabric.topology import Topology
    from testbed.model.files.reading import Document
    from testbed.model.files.scenarios import Dilation
    from testbed.model.scenario import Scenario
    from testbed.runs.job import Form, How
    from testbed.runs.series import SeriesPlan, Settings

OF_WHOM = "An emulated run is root's, one of testbed device its user's."
"""Who may command a run: the help of the commands by hand says it."""


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
RunForm: TypeAlias = Literal["emulated", "simulated"]
"""How a command makes its runs, where it can make both."""

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
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="The seed, instead of the scenario's.")
]
AllowCode = Annotated[
    bool, typer.Option("--allow-code", help="Execute the commands or classes that a file names.")
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


MAX_RUNS = 10_000
"""Most runs of a series."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Which runs of which scenarios are made, where, and what is written of them.

    Attributes:
        names: the scenarios' names or files.
        labels: what they are called in tables and figures; none: as their files call them.
        results: the directory of all results.
        seed: instead of the scenarios'; None: theirs.
        settings: the values that `--set` gives, by key path.
        sweep: the values that `--sweep` gives, by key path.
        repeat: how many runs are made of each case, each with the next seed.
        into: the directory of the series; None for one that is named after the time.
        on: where the runs of a series are made; None: on this machine.
        allow_code: whether a file that does not ship may execute code.
        drawn: whether each run gets figures and a report.
        require_trusted: whether a degraded run is an error.
        as_json: whether results are printed as JSON.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    results: Path
    seed: int | None
    settings: dict[str, Any]
    sweep: dict[str, list[Any]]
    repeat: int
    into: Path | None
    on: str | None
    allow_code: bool
    drawn: bool
    require_trusted: bool
    as_json: bool
    _loaded: "dict[str, tuple[str, Scenario, Document, Settings]]" = field(default_factory=dict)

    @property
    def several(self) -> bool:
        """Whether a series is to be made; else it is a single run."""
        return len(self.names) * self.repeat > 1 or bool(self.sweep) or self.into is not None

    def scenario(
        self, name: str, form: "Form", how: "How", dilation: "Dilation", swept: "Settings"
    ) -> "Scenario":
        """Load a scenario with these options, and check that a run of it can be made.

        Args:
            name: the scenario's name or file.
            form: how it is to be run.
            how: the same, beside the scenario.
            dilation: finds the dilation for `auto`.
            swept: the values of one case of `--sweep`.

        Raises:
            InputError: there is no such scenario, or it or an option is wrong.
            MachineError: this machine, on which it is to run, cannot run it.
        """
        from testbed.model.files.scenarios import load_with_document
        from testbed.runs.making import require_makeable
        from testbed.runs.series import require_seed

        scenario, document = load_with_document(name, dilation, self.settings, swept)
        if self.seed is not None:
            require_seed(self.seed)
            scenario = scenario.model_copy(update={"seed": self.seed})
        self._require_code(name, scenario)
        try:
            require_makeable(scenario, form, how, here=self.on is None)
        except InputError as error:
            raise InputError([_located(name, problem) for problem in error.problems]) from None
        self._loaded[f"{name} {swept}"] = name, scenario, document, swept
        return scenario

    def plan(
        self, form: "Form", how: "How", dilation: "Dilation"
    ) -> "tuple[SeriesPlan, dict[int, Scenario]]":
        """What the series consists of, and the scenario of each of its cases by number.

        The arguments, and what it raises, are those of `scenario`.
        """
        from testbed.runs.series import plan_series

        return plan_series(
            self.names,
            lambda name, swept: self.scenario(name, form, how, dilation, swept),
            labels=self.labels,
            sweep=self.sweep,
            seeds=self.repeat,
            settings=self.settings,
            simulated=form == "simulated",
        )

    def _require_code(self, name: str, scenario: "Scenario") -> None:
        """Check that a scenario may execute its code, if any: what ships may, and an option's.

        Raises:
            InputError: it may not.
        """
        from testbed.model.checks import require_no_code
        from testbed.model.files.catalog import is_shipped

        if self.allow_code or is_shipped(name):
            return
        require_no_code(scenario, name, but={*self.settings, *self.sweep})

    def tell(self) -> None:
        """Print which code the scenarios execute, and their remarks as warnings, each once.

        In a sweep each key and consequence once, for the first case: what differs between the cases
        are the numbers of a remark.
        """
        from testbed.model import checks
        from testbed.model.files.scenarios import time_remarks

        told = set[str]()
        for name, scenario, document, swept in self._loaded.values():
            for key, code in scenario.executes.items():
                line = f"{name}: executes {code} ({key})"
                if line not in told:
                    stderr().print(printable(line))
                told.add(line)
            case = ", ".join(f"{key}={value}" for key, value in swept.items())
            for remark in (*checks.remarks(scenario), *time_remarks(scenario, document)):
                kind = f"{name}: {re.sub(r'[0-9.,]+', '', str(remark))}"
                if kind not in told:
                    also = f" (with {case}, and so on)" if case else ""
                    print_warning(f"{name}: {remark}{also}")
                told.add(kind)


def _located(name: str, problem: Problem) -> Problem:
    """A problem of a scenario with its name, if it is not one of an option."""
    if problem.where.startswith("--"):
        return problem
    return replace(problem, where=f"{name}: {problem.where}")


SetKeys = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the scenario; may be repeated."),
]


def settings_of(arguments: list[str] | None) -> dict[str, Any]:
    """The values that `--set` gives, by key path.

    Raises:
        InputError: an argument is not KEY=VALUE.
    """
    from testbed.model.files.reading import parse_value

    pairs = _pairs("--set", arguments)
    return {key: parse_value(text, f"--set: {key}") for key, text in pairs}


def run_options(
    names: ScenarioNames,
    results: Results = Path("results"),
    seed: Seed = None,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat",
            min=1,
            max=MAX_RUNS,
            metavar="N",
            help="Make N runs, each with the next seed.",
        ),
    ] = 1,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            "--sweep",
            metavar="KEY=A,B,..",
            help="Make runs with each of these values of a key; several --sweep: all combinations.",
        ),
    ] = None,
    set_: SetKeys = None,
    label: Labels = None,
    require_trusted: RequireTrusted = False,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="DIR",
            help="Directory for the runs of a series; continues an interrupted one.",
        ),
    ] = None,
    on: On = None,
    allow_code: AllowCode = False,
    no_figures: NoFigures = False,
    as_json: Json = False,
) -> RunOptions:
    """Read the options.

    Raises:
        InputError: one is not KEY=VALUE, or there are not as many labels as scenarios.
    """
    from testbed.model.files.reading import parse_value

    settings = settings_of(set_)
    pairs = _pairs("--sweep", sweep)
    swept = {key: parse_value(f"[{text}]", f"--sweep: {key}") for key, text in pairs}
    options = RunOptions(
        names=tuple(names),
        labels=tuple(label or ()),
        results=results,
        seed=seed,
        settings=settings,
        sweep=swept,
        repeat=repeat,
        into=into,
        on=on,
        allow_code=allow_code,
        drawn=not no_figures,
        require_trusted=require_trusted,
        as_json=as_json,
    )
    runs = len(names) * repeat * prod(map(len, swept.values()))
    if runs > MAX_RUNS:
        expected = f"{MAX_RUNS:,} at most: scenarios, times --repeat, times the values of --sweep"
        raise InputError.of("--sweep" if swept else "--repeat", f"{runs:,} runs", expected)
    require_labels(options.labels, len(names), "scenarios")
    for option, value in (("--label", options.labels), ("--on", on)):
        if value and not options.several:
            expected = "a series (several scenarios, --repeat, --sweep or --into)"
            raise InputError.of(option, "a single run", expected)
    return options


def _pairs(option: str, arguments: list[str] | None) -> list[tuple[str, str]]:
    pairs = []
    for argument in arguments or []:
        key, equals, value = argument.partition("=")
        if not key or not equals or not value:
            raise InputError.of(option, argument, "KEY=VALUE, such as transport.evs=64")
        pairs.append((key.strip(), value))
    return pairs
