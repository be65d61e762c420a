"""The options of `run` and `simulate`: which runs are made, where, and what is written of them."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.campaign.options import RECORDED
from testbed.cli.options import (
    Json,
    Labels,
    NoFigures,
    RequireTrusted,
    Results,
    ScenarioNames,
    require_labels,
)
from testbed.cli.placing import On, StoreOption
from testbed.cli.screen import print_warning, stderr
from testbed.model.errors import InputError, Remark, printable

if TYPE_CHECKING:
    from testbed.campaign.series import SeriesPlan, Settings
    from testbed.model.files.scenarios import Dilation
    from testbed.model.scenario import Scenario

MAX_RUNS = 10_000
"""Most runs of a series."""

Load = Callable[[str, "Settings"], "Scenario"]
"""Loads and checks a scenario, named as the user did, with some of its keys set."""


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
        folder: the directory in that of all results for a single run; None for the scenario's name.
        recorded: whether the scenario's file is one that a campaign wrote.
        allow_code: whether a file that does not ship may execute code.
        require_trusted: whether a degraded run is an error.
        on: where the runs of a series are made; None: on this machine.
        store: where the workers of that place leave them; None: in the directory of the series.
        drawn: whether each run gets figures and a report.
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
    folder: str | None
    recorded: bool
    allow_code: bool
    require_trusted: bool
    on: str | None
    store: str | None
    drawn: bool
    as_json: bool
    _warned: set[str] = field(default_factory=set)

    @property
    def several(self) -> bool:
        """Whether a series is to be made; else it is a single run."""
        return len(self.names) * self.repeat > 1 or bool(self.sweep) or self.into is not None

    def scenario(
        self, name: str, dilation: "Dilation", swept: "Settings", *, remarks: bool = True
    ) -> "Scenario":
        """Load a scenario with these options, and print its remarks as warnings, each once.

        Args:
            name: the scenario's name or file.
            dilation: finds the dilation for `auto`.
            swept: the values of one case of `--sweep`.
            remarks: whether they are printed.

        Raises:
            InputError: there is no such scenario, or it or an option is wrong.
        """
        from testbed.model import checks
        from testbed.model.files.scenarios import load_recorded, load_with_document, time_remarks

        if self.recorded:
            return load_recorded(Path(name))
        scenario, document = load_with_document(name, dilation, self.settings, swept)
        if self.seed is not None:
            from testbed.campaign.series import require_seed

            require_seed(self.seed)
            scenario = scenario.model_copy(update={"seed": self.seed})
        self._name_code(name, scenario)
        if remarks:
            of_scenario = checks.remarks(scenario)
            self._warn(name, (*of_scenario, *time_remarks(scenario, document)), swept)
        return scenario

    def _name_code(self, name: str, scenario: "Scenario") -> None:
        """Print which code a scenario executes: classes and its command, each once.

        Raises:
            InputError: it may not. What ships may, and what an option names.
        """
        from testbed.model.files.catalog import is_shipped

        options = {*self.settings, *self.sweep}
        for key, code in scenario.executes.items():
            by_option = any(f"{key}.".startswith(f"{given}.") for given in options)
            if not (self.allow_code or by_option or is_shipped(name)):
                remedy = "read it; if it may run as you, add --allow-code"
                raise InputError.of(f"{name}: {key}", code, "a scenario without code", remedy)
            line = f"{name}: executes {code} ({key})"
            if line not in self._warned:
                stderr().print(printable(line))
            self._warned.add(line)

    def _warn(self, name: str, remarks: "Iterable[Remark]", swept: "Settings") -> None:
        """Print remarks as warnings; in a sweep each key and consequence once, for the first case.

        What differs between the cases of a sweep are the numbers of a remark.
        """
        case = ", ".join(f"{key}={value}" for key, value in swept.items())
        for remark in remarks:
            kind = f"{name}: {re.sub(r'[0-9.,]+', '', str(remark))}"
            if kind not in self._warned:
                print_warning(f"{name}: {remark}" + (f" (with {case}, and so on)" if case else ""))
            self._warned.add(kind)

    def plan(self, load: Load, *, simulated: bool) -> "tuple[SeriesPlan, dict[int, Scenario]]":
        """What the series consists of, and the scenario of each of its cases by number.

        Raises:
            InputError: a case is wrong (see `plan_series`).
        """
        from testbed.campaign.series import plan_series

        return plan_series(
            self.names,
            load,
            labels=self.labels,
            sweep=self.sweep,
            seeds=self.repeat,
            settings=self.settings,
            simulated=simulated,
        )


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
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="The seed, instead of the scenario's.")
    ] = None,
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
    store: StoreOption = None,
    folder: Annotated[
        str | None,
        typer.Option(
            "--folder", hidden=True, metavar="NAME", help="Instead of the scenario's name."
        ),
    ] = None,
    recorded: Annotated[
        bool, typer.Option(RECORDED, hidden=True, help="The file is one that a campaign wrote.")
    ] = False,
    allow_code: Annotated[
        bool,
        typer.Option("--allow-code", help="Run a file of yours that names classes or a command."),
    ] = False,
    no_figures: NoFigures = False,
    as_json: Json = False,
) -> RunOptions:
    """Read the options; `--folder` and `--recorded` are for campaigns.

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
        folder=folder,
        recorded=recorded,
        allow_code=allow_code,
        require_trusted=require_trusted,
        on=on,
        store=store,
        drawn=not no_figures,
        as_json=as_json,
    )
    runs = len(names) * repeat * prod(map(len, swept.values()))
    if runs > MAX_RUNS:
        expected = f"{MAX_RUNS:,} at most: scenarios, times --repeat, times the values of --sweep"
        raise InputError.of("--sweep" if swept else "--repeat", f"{runs:,} runs", expected)
    require_labels(options.labels, len(names), "scenarios")
    for option, value in (("--label", options.labels), ("--on", on), ("--store", store)):
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
