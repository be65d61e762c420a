"""Scenarios and runs from Python: a scenario as an object, one run, or a sweep and its comparison.

Scenarios and topologies are loaded, or written in Python. Simulated runs are made in this process,
a sweep and emulated ones by processes of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from testbed.model.checks import problems
from testbed.model.errors import InputError, raise_any
from testbed.model.fabric.topology import Topology
from testbed.model.files import scenarios, topologies
from testbed.model.files.reading import Document, no_text
from testbed.model.files.scenarios import Dilation
from testbed.model.files.validation import validated
from testbed.model.own_code import OwnCode, recorded_code
from testbed.model.scenario import Scenario
from testbed.model.summary.scopes import SCOPES, number_of
from testbed.results.comparison import Row, compare, group_of
from testbed.results.run_directory import TIME_FORMAT, new_directory
from testbed.runs.job import SLOWED, UNDRAWN, error_of, planned_run
from testbed.runs.making import make, require_makeable
from testbed.runs.many import RetryPolicy, made_here
from testbed.runs.result import Result
from testbed.runs.series import Place, SeriesPlan, plan_series, run_meant, series_made
from testbed.runs.store import Store

if TYPE_CHECKING:
    import polars as pl

Settings = Mapping[str, Any]
"""Values by key path, such as `{"transport.evs": 8, "timeline[0].at": "1 s"}`."""

_NONE: Settings = MappingProxyType({})


def load_scenario(name_or_path: str | Path, settings: Settings = _NONE) -> Scenario:
    """Load a scenario: one that ships, by name, or a YAML file.

    Args:
        name_or_path: such as `link-failure`, or `my/scenario.yaml`.
        settings: values by key path in place of those of the file, as `--set` of the commands.

    Raises:
        InputError: there is no such scenario, or a value is wrong.
    """
    with _in_terms_of_python():
        return scenarios.load_scenario(str(name_or_path), settings=settings)


def load_topology(name_or_path: str | Path) -> Topology:
    """Load a topology: one that ships, by name, or a YAML file.

    Raises:
        InputError: there is no such topology, or a value is wrong.
    """
    return topologies.load_topology(str(name_or_path))


def scenario(content: Mapping[str, Any]) -> Scenario:
    """Make a scenario of what would stand in its YAML file; its parts may be objects.

    Args:
        content: such as `{"name": "mine", "topology": "clos-4plane", "duration": "40 RTT",
            "workload": {"kind": "permutation"}}`.

    Raises:
        InputError: a value is wrong, or two do not fit together.
    """
    return _scenario_of(plain(content), _NONE)


def topology(content: Mapping[str, Any]) -> Topology:
    """Make a topology of what would stand in its YAML file.

    Raises:
        InputError: a value is wrong.
    """
    return validated(Topology, topologies.with_dilation(plain(content)), Document(None, {}))


def changed(scenario: Scenario, settings: Settings) -> Scenario:
    """A copy of a scenario with other values, checked.

    Args:
        scenario: the scenario.
        settings: values by key path, such as `{"transport.spray": "blind"}`.

    Raises:
        InputError: there is no such key, a value is wrong, or two do not fit together.
    """
    return _scenario_of(plain(scenario), {key: plain(value) for key, value in settings.items()})


def checked(scenario: Scenario | str | Path, settings: Settings = _NONE) -> Scenario:
    """A scenario that can be run: an object, or one that is loaded by name or path.

    Raises:
        InputError: a value is wrong, or two do not fit together.
    """
    if not isinstance(scenario, Scenario):
        return load_scenario(scenario, settings)
    changed_scenario = changed(scenario, settings) if settings else scenario
    raise_any(problems(changed_scenario))
    return changed_scenario


def _scenario_of(content: dict[str, Any], settings: Settings) -> Scenario:
    with _in_terms_of_python():
        return scenarios.scenario_of(Document(None, content), settings=settings)


@contextmanager
def _in_terms_of_python() -> Iterator[None]:
    """Name no option of a command where a setting is wrong."""
    try:
        yield
    except InputError as error:
        raise InputError(
            [
                replace(problem, where=problem.where.removeprefix("--set: "))
                for problem in error.problems
            ]
        ) from None


def plain(value: Any) -> Any:
    """Objects of the model as the mappings that stand in files."""
    if isinstance(value, OwnCode):
        return value
    if isinstance(value, BaseModel):
        content = value.model_dump(mode="json", by_alias=True)
        if isinstance(value, Scenario):
            return content | {"transport": recorded_code(content["transport"])}
        return recorded_code(content)
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, str) and (code := no_text(value)):
        raise InputError.of("", f"the character {code}", "text without it")
    return str(value) if isinstance(value, Path) else value


RESULTS = Path("results")
"""Where runs are written by default: in the current directory."""

PREFIX = "python-"
"""The name of the directory of an emulated run begins with it; the time follows."""


def simulate(
    scenario: Scenario | str | Path, *, seed: int | None = None, results: str | Path = RESULTS
) -> Result:
    """Simulate a scenario in virtual time: no root, and equal seeds give equal results.

    Args:
        scenario: an object, or the name or path of a scenario.
        seed: in place of the scenario's.
        results: the directory of all results; the run gets one of its own in it.

    Raises:
        InputError: the scenario is wrong, or cannot be simulated (kernel TCP and MPTCP).
        RunFailedError: the run did not finish.
        MachineError: this process was forked after Polars had been loaded, or memory is short.
    """
    simulated = _with_seed(checked(scenario), seed)
    require_makeable(simulated, "simulated")
    return make(simulated, "simulated", Path(results), how=UNDRAWN)


def emulate(
    scenario: Scenario | str | Path,
    *,
    seed: int | None = None,
    results: str | Path = RESULTS,
    attempts: int = 3,
) -> Result:
    """Run a scenario with real packets through the kernel (root), by `testbed run`.

    A run that this machine was too late for is made again, at larger dilations; the best counts.
    Look at `Result.verdict`.

    Args:
        scenario: an object, or the name or path of a scenario.
        seed: in place of the scenario's.
        results: the directory of all results.
        attempts: how often the run is made at most until it can be trusted: 1, 2 or 3.

    Raises:
        InputError: the scenario is wrong.
        MachineError: this machine cannot run it; the message says what is missing.
        RunFailedError: the run did not finish.
    """
    emulated = _with_seed(checked(scenario), seed)
    run = planned_run(emulated, "emulated", "run", name=emulated.name)
    stamp = datetime.now().astimezone().strftime(TIME_FORMAT)
    directory = new_directory(Path(results) / emulated.name, f"{PREFIX}{stamp}")
    (result,) = made_here([run], Store(directory), retry=until_trusted(attempts))
    return result


def load_result(directory: str | Path) -> Result:
    """The result of a run that was made before, by `testbed run`, `testbed simulate` or Python.

    Args:
        directory: the run's, its scenario's or SERIES/CASE; of several runs the latest counts.

    Raises:
        InputError: it is no directory of a run.
    """
    return Result(run_meant(Path(directory)).path)


def _with_seed(scenario: Scenario, seed: int | None) -> Scenario:
    return scenario if seed is None else checked(scenario, {"seed": seed})


def until_trusted(attempts: int) -> RetryPolicy:
    """Make an emulated run again, slower, until it can be trusted, so often at most in all."""
    return RetryPolicy(factors=SLOWED[:attempts], stop_if_late=False)


@dataclass(frozen=True)
class Case:
    """One combination of swept values.

    Attributes:
        name: the values in one line: `transport.spray=blind`.
        settings: the values, by key path.
        runs: the result with each seed, in order.
    """

    name: str
    settings: Mapping[str, Any]
    runs: tuple[Result, ...]


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep; a notebook displays their comparison.

    Attributes:
        directory: where all runs are.
        cases: each combination of values, in order; the last key varies first.
    """

    directory: Path
    cases: tuple[Case, ...]

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def __len__(self) -> int:
        """How many cases there are."""
        return len(self.cases)

    @cached_property
    def frame(self) -> "pl.DataFrame":
        """A row for each run: the swept values, `seed`, `verdict`, and metrics.

        Metrics are called as under `expect:` of a scenario, such as `faults.stall_rtt`; of several
        flows or faults the worst counts (or the sum, of counts). Null: not measured; inf: never.
        """
        import polars as pl

        rows = [
            {
                **{key: _scalar(value) for key, value in case.settings.items()},
                "seed": run.seed,
                "verdict": run.verdict,
                **_metrics(run),
            }
            for case in self.cases
            for run in case.runs
        ]
        return pl.DataFrame(rows, infer_schema_length=None, strict=False)

    @cached_property
    def comparison(self) -> "pl.DataFrame":
        """A row for each metric and case, over the seeds.

        Columns: `fault` (empty: of the whole run), `metric`, `unit`, `case`, `median`, `low` and
        `high`, `confident`, `runs` (in how many it was measured, such as `2 of 3`). With six values
        or more `confident` is true: `low` to `high` is a 95% confidence interval of the median.
        With fewer it is false: they are the least and the greatest value.
        """
        import polars as pl

        rows = [
            {
                "fault": row.fault,
                "metric": row.metric,
                "unit": row.unit,
                "case": case.name,
                "median": None if cell.value is None else cell.value.median,
                "low": None if cell.value is None else cell.value.low,
                "high": None if cell.value is None else cell.value.high,
                "confident": None if cell.value is None else cell.value.confident,
                "runs": cell.basis,
            }
            for row in self._rows
            for case, cell in zip(self.cases, row.cells, strict=True)
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        return compare(
            [group_of(case.name, [run.directory for run in case.runs]) for case in self.cases]
        )

    def __repr__(self) -> str:
        runs = sum(len(case.runs) for case in self.cases)
        return f"Sweep({self.directory}, {len(self.cases)} cases, {runs} runs)"

    def _repr_html_(self) -> str:
        from testbed.results.report.comparison_report import format_estimate

        head = "".join(f"<th>{escape(case.name)}</th>" for case in self.cases)
        rows = "".join(
            f"<tr><td>{escape(row.name)}</td>"
            + "".join(
                f"<td>{format_estimate(cell.value)} {escape(row.unit)}</td>" for cell in row.cells
            )
            + "</tr>"
            for row in self._rows
        )
        from testbed.results.analysis.estimates import interval_meaning

        meaning = interval_meaning([len(case.runs) for case in self.cases])
        said = f"<p>Medians{f', with their {meaning}' if meaning else ''}.</p>"
        return f"{said}<table><tr><th></th>{head}</tr>{rows}</table>"


def sweep(
    scenario: Scenario | str | Path,
    values: Mapping[str, Sequence[Any]],
    *,
    seeds: int | Sequence[int] = 1,
    emulated: bool = False,
    results: str | Path = RESULTS,
    attempts: int = 3,
) -> Sweep:
    """Make a run for each combination of values and each seed, several at a time if simulated.

    Args:
        scenario: an object, or the name or path of a scenario.
        values: for key paths the values that each takes:
            `{"transport.spray": ["adaptive", "blind"]}`.
        seeds: the seeds, or how many, counting up from the scenario's.
        emulated: whether with real packets (root), one run at a time.
        results: the directory of all results.
        attempts: how often an emulated run is made at most until it can be trusted: 1, 2 or 3.

    Raises:
        InputError: a value is wrong. Nothing was run then.
        MachineError: this machine cannot run it.
        RunFailedError: a run did not finish.
    """
    base = checked(scenario)
    if not isinstance(seeds, int) and "seed" in values:
        raise InputError.of("seeds", str([*seeds]), "how many, where seed is swept")
    swept = {key: [plain(value) for value in of_key] for key, of_key in values.items()}

    def planned(_: Dilation) -> tuple[SeriesPlan, dict[int, Scenario]]:
        return plan_series(
            [base.name],
            lambda _, settings: checked(base, settings),
            sweep=swept,
            seeds=seeds,
            settings={},
            simulated=not emulated,
        )

    with series_made(
        planned,
        "emulated" if emulated else "simulated",
        Place(Path(results)),
        how=UNDRAWN,
        retry=until_trusted(attempts),
    ) as made:
        pass
    runs = dict[int, list[Result]]()
    for (case, _), run in zip(made.series.plan.runs, made.runs, strict=True):
        record = made.records.get(run.job.key)
        if record is None or record.run is None:
            raise error_of(record, made.directory / run.job.log)
        runs.setdefault(case.number, []).append(Result(made.directory / record.run))
    cases = made.series.plan.cases
    return Sweep(
        made.directory,
        tuple(Case(case.name, case.settings, tuple(runs[case.number])) for case in cases),
    )


def _metrics(run: Result) -> dict[str, float | None]:
    """The metrics of a run, one number each."""
    names = (f"{scope}.{key}" for scope in SCOPES for key in SCOPES[scope].quantities)
    return {name: number_of(run.summary, name) for name in names}


def _scalar(value: Any) -> Any:
    """A swept value in a column."""
    return value if isinstance(value, str | int | float) else str(value)
