"""Many runs of one scenario or several: repeats with different seeds, and sweeps over keys.

A series is a directory: `sweep.json` lists what it consists of and what has been run. Below it is a
directory for every case, which holds the case's runs. A case has a number and a name, which are
given to it once, in `sweep.json`; commands take either.

Users mean runs by a path: a run, a scenario's latest, a series or its cases.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product
from math import inf
from pathlib import Path, PurePath
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from testbed.model.errors import InputError, did_you_mean, few
from testbed.model.file_names import for_directory
from testbed.model.files.scenarios import Dilation, nominal, require_taken, taken
from testbed.model.run_files.layout import JUNIT, RUN
from testbed.model.scenario import MAX_SEED, Scenario
from testbed.results.comparison import Group, group_of
from testbed.results.run_directory import (
    TIME_FORMAT,
    RunDirectory,
    find_run,
    locked,
    new_directory,
    newest_run,
)
from testbed.results.whole_file import writing
from testbed.rights import acting_for
from testbed.runs.cluster.launch import is_of_start
from testbed.runs.cluster.place import place_of
from testbed.runs.fitting import Machines, Showing, silently, with_fitting_dilation
from testbed.runs.job import (
    DRAWN,
    UNDRAWN,
    Executor,
    Form,
    How,
    JobKey,
    JobRecord,
    PlannedRun,
    planned_run,
)
from testbed.runs.making import Warn, naming_how_to_resume, naming_shortage
from testbed.runs.many import ONCE, RetryPolicy, SeriesPolicy, many
from testbed.runs.places import executor_at, keep_slower_out, know_finished, machines_of
from testbed.runs.result import Result
from testbed.runs.store import Store, machine_of

INDEX = "sweep.json"
PREFIX = "series-"
"""The name of a series' directory begins with it; the time follows."""

SEVERAL = "several"
"""The directory of series of several scenarios, in that of all results."""

_FOLDER_BYTES = 80
"""The longest name of a case's folder, without its number."""

Settings = dict[str, Any]
"""Values by key path of the scenario, such as transport.evs."""

Load = Callable[[str, Settings], Scenario]
"""Loads and checks a scenario, named as the user did, with some of its keys set."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SeriesCase(_Record):
    """Runs of a series that differ by their seed only.

    No two cases of a series have the same `number`, `name` or `folder`, the directory of its runs.
    `label` is what its scenario is called in the series. `settings` are the swept values that it
    has. `content` is a digest of its scenario and topology, without the seed: runs of another
    content do not belong to it, whatever it is called.
    """

    number: int
    name: str
    folder: str
    label: str
    scenario: str
    settings: Settings
    seeds: list[int]
    content: str


class SeriesPlan(_Record):
    """What a series consists of; `settings` are those of all its cases.

    `dilation` is the one that was chosen for `auto`; None if no case has that.
    """

    name: str
    simulated: bool
    settings: Settings
    dilation: float | None = None
    cases: list[SeriesCase]

    @property
    def runs(self) -> list[tuple[SeriesCase, int]]:
        """Every run: all cases with their first seed, then with the next.

        So drift meets all cases alike.
        """
        return [
            (case, seed)
            for seeds in zip(*(case.seeds for case in self.cases), strict=True)
            for case, seed in zip(self.cases, seeds, strict=True)
        ]

    @property
    def first(self) -> str:
        return _called(*self.runs[0])

    def differences(self, other: "SeriesPlan") -> list[str]:
        """The names of what differs from another plan."""
        different = _different(self, other)
        if [case.name for case in self.cases] != [case.name for case in other.cases]:
            return different
        of_cases = {
            name: None
            for case, counterpart in zip(self.cases, other.cases, strict=True)
            for name in _different(case, counterpart)
        }
        return [*(name for name in different if name != "cases"), *of_cases]

    def cases_called(self, text: str) -> list[SeriesCase]:
        """The cases that a user means: one by its number, name or folder, or all of a scenario.

        Raises:
            InputError: that is the number of one and the name of another.
        """
        names = {case.number: (str(case.number), str(PurePath(case.name))) for case in self.cases}
        number = text.lstrip("0") if text.isdecimal() else text
        meant = [
            case
            for case in self.cases
            if case.folder == text or number == names[case.number][0] or text in names[case.number]
        ]
        if len(meant) > 1:
            folders = " and ".join(case.folder for case in meant)
            expected = f"one case; it is the number of one, and the name of another: {folders}"
            raise InputError.of("CASE", text, expected, "give the name of its directory")
        return (
            meant
            or [case for case in self.cases if case.label == text]
            or [case for case in self.cases if case.scenario == text]
        )


def _different(record: _Record, other: _Record) -> list[str]:
    return [n for n in type(record).model_fields if getattr(record, n) != getattr(other, n)]


class SeriesRun(_Record):
    """A run of a series that has ended: the number of its case, and its seed.

    `run` is its directory relative to the series'; of a run that failed, its log, `error` is the
    reason, and `status` the exit status of its command (minus the signal that killed it).
    """

    case: int
    seed: int
    run: str
    seconds: float
    error: str | None = None
    status: int | None = None


class Series(_Record):
    """The content of `sweep.json`."""

    plan: SeriesPlan
    done: list[SeriesRun] = []

    def write(self, directory: Path) -> None:
        """Write `sweep.json`."""
        RunDirectory(directory).write(INDEX, self.model_dump_json(indent=2) + "\n")

    @property
    def called(self) -> list[tuple[str, SeriesRun]]:
        """The runs that have ended, each with what it is called."""
        cases = {case.number: case for case in self.plan.cases}
        return [(_called(cases[run.case], run.seed), run) for run in self.done]


def plan_series(
    names: Sequence[str],
    load: Load,
    *,
    labels: Sequence[str] = (),
    sweep: Mapping[str, Sequence[Any]],
    seeds: int | Sequence[int] = 1,
    settings: Settings,
    simulated: bool,
) -> tuple[SeriesPlan, dict[int, Scenario]]:
    """What a series consists of, and the scenario of each of its cases by number.

    Combinations of swept values that differ only by keys that their transport does not know are
    one case.

    Args:
        names: the scenarios.
        load: loads the scenario of a case.
        labels: what each scenario is called; none: as its file calls it.
        sweep: for key paths the values that each takes; the last key varies first.
        seeds: those of each case, or how many, counting up from its scenario's.
        settings: what is set in all cases. They are set by `load`.
        simulated: whether its runs are.

    Raises:
        InputError: a case is wrong, two scenarios are called the same, or a seed is out of range.
    """
    combinations = [
        (i, label, case_settings, scenario)
        for i, name in enumerate(names)
        for label in [labels[i] if labels else ""]
        for case_settings, scenario in _combinations(name, load, sweep)
    ]
    digits = len(str(len(combinations)))
    cases, sources = list[SeriesCase](), dict[str, int]()
    for number, (i, label, case_settings, scenario) in enumerate(combinations, 1):
        needs_name = len(names) > 1 or not case_settings
        name = named(label or (scenario.name if needs_name else ""), case_settings)
        if sources.setdefault(name, i) != i:
            remedy = "--label gives each scenario a name"
            raise InputError.of("SCENARIO", f"two named {name}", "one", remedy)
        while name in (case.name for case in cases):  # values that are written alike
            name = f"{name} ({number})"
        sources[name] = i
        case = SeriesCase(
            number=number,
            name=name,
            folder=case_folder(number, name, digits),
            label=label or scenario.name,
            scenario=scenario.name,
            settings=case_settings,
            seeds=_seeds(scenario, seeds),
            content=digest(scenario),
        )
        cases.append(case)
    scenarios = {number: each[3] for number, each in enumerate(combinations, 1)}
    for option, values in (("--set", settings), ("--sweep", sweep)):
        require_taken(option, values, scenarios.values())
    plan = SeriesPlan(
        name=", ".join(labels or dict.fromkeys(case.scenario for case in cases)),
        simulated=simulated,
        settings=settings,
        cases=cases,
    )
    return plan, scenarios


def _combinations(
    name: str, load: Load, sweep: Mapping[str, Sequence[Any]]
) -> Iterator[tuple[Settings, Scenario]]:
    """Each combination of the swept values that a scenario knows, with its own scenario."""
    seen = set[str]()
    for values in product(*sweep.values()):
        swept = dict(zip(sweep, values, strict=True))
        scenario = load(name, swept)
        settings = taken(swept, scenario)
        written = json.dumps(settings, default=repr)
        if written not in seen:
            yield settings, scenario
        seen.add(written)


def _seeds(scenario: Scenario, seeds: int | Sequence[int]) -> list[int]:
    each = range(scenario.seed, scenario.seed + seeds) if isinstance(seeds, int) else seeds
    for seed in each:
        require_seed(seed)
    return [*each]


def require_seed(seed: int) -> None:
    """Check a seed that does not come from a file.

    Raises:
        InputError: it is out of range.
    """
    if not 0 <= seed <= MAX_SEED:
        raise InputError.of("--seed", str(seed), f"a whole number from 0 to {MAX_SEED}")


def new_series(plan: SeriesPlan, results: Path) -> Path:
    """Make the directory of a new series, which is nobody else's.

    Raises:
        InputError: the directory of all results cannot be written to.
    """
    scenarios = {case.scenario for case in plan.cases}
    parent = results / (scenarios.pop() if len(scenarios) == 1 else SEVERAL)
    stamp = datetime.now().astimezone().strftime(TIME_FORMAT)
    return new_directory(parent, f"{PREFIX}{stamp}")


def planned_runs(
    plan: SeriesPlan, scenarios: Mapping[int, Scenario], how: How = UNDRAWN
) -> list[PlannedRun]:
    """The runs of a plan, in its order."""
    return [
        planned_run(
            scenarios[case.number].model_copy(update={"seed": seed}),
            "simulated" if plan.simulated else "emulated",
            case.folder,
            name=_called(case, seed),
            how=how,
        )
        for case, seed in plan.runs
    ]


def _called(case: SeriesCase, seed: int) -> str:
    return f"{case.name}, seed {seed}"


def series_of(
    plan: SeriesPlan, runs: Sequence[PlannedRun], records: Mapping[JobKey, JobRecord]
) -> Series:
    """A series with the runs that have ended, in the order of the plan.

    Args:
        plan: what it consists of.
        runs: its planned runs.
        records: what became of them, by the keys of their jobs.
    """
    ended = [
        SeriesRun(
            case=case.number,
            seed=seed,
            run=record.run or str(run.job.log),
            seconds=round(record.seconds, 1),
            error=record.failure or None,
            status=record.status if record.failure else None,
        )
        for (case, seed), run in zip(plan.runs, runs, strict=True)
        if (record := records.get(run.job.key)) is not None
    ]
    return Series(plan=plan, done=ended)


def digest(scenario: Scenario) -> str:
    """A digest of a scenario and its topology, without the seed."""
    content = scenario.model_dump(mode="json", by_alias=True, exclude={"seed"})
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def named(scenario: str, settings: Settings) -> str:
    """The name of a case: its scenario's, if any, and the swept values."""
    values = (f"{key}={_written(value)}" for key, value in settings.items())
    return ", ".join(filter(None, (scenario, *values)))


def _written(value: Any) -> str:
    if not isinstance(value, dict | list):
        return str(value)
    text: str = yaml.safe_dump(value, default_flow_style=True, width=inf, sort_keys=False)
    return text.strip()


def case_folder(number: int, name: str, digits: int = 1) -> str:
    """The name of the directory of a case's runs: its number, and as much of its name as fits.

    Args:
        number: the case's, which no other one has.
        name: what it is called.
        digits: how many the number has at least.
    """
    return f"{number:0{digits}}-{for_directory(name, _FOLDER_BYTES)}"


def load_series(directory: Path) -> Series:
    """Read `sweep.json` of a directory.

    Raises:
        InputError: there is none, or it is damaged.
    """
    file = directory / INDEX
    try:
        return Series.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError.of(str(file), "", f"a series ({error.strerror})") from None
    except ValidationError as error:
        first = error.errors()[0]
        message = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        remedy = "if another version of the testbed made it, compare its runs' directories"
        raise InputError.of(str(file), "", f"a series ({message})", remedy) from None


Planned = Callable[[Dilation], tuple[SeriesPlan, dict[int, Scenario]]]
"""Plans a series with a dilation for `auto`: what it consists of, and its scenarios by case."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a series is made.

    Attributes:
        results: the directory of all results.
        into: that of the series; None for one that is named after the time.
        on: the value of `--on`; None: on this machine.
        grows: whether the series in the directory may have changed since it was begun: it then
            needs only the same name. What it has made of the runs that it has now is used.
    """

    results: Path
    into: Path | None = None
    on: str | None = None
    grows: bool = False

    @property
    def begun(self) -> Series | None:
        """The series that is continued; None: a new one begins."""
        if self.into is None or not (self.into / INDEX).is_file():
            return None
        return load_series(self.into)

    def directory(self, plan: SeriesPlan) -> Path:
        """The directory of a new series, which is made, or of the one that is continued.

        Raises:
            InputError: it is taken, or cannot be written to.
        """
        if self.into is None:
            return new_series(plan, self.results)
        if (self.into / INDEX).is_file():
            return self.into
        there = self.into.iterdir() if self.into.is_dir() else ()
        if not all(is_of_start(path.name) for path in there):
            raise InputError.of("--into", str(self.into), "an empty directory or a series")
        with writing("--into", self.into, "a directory to write to"):
            self.into.mkdir(parents=True, exist_ok=True)
        return self.into


@dataclass(frozen=True, slots=True)
class Front:
    """Who wants runs, and is told how they go: nobody by default.

    Attributes:
        showing: shows progress.
        fails: called with a run that failed.
        stopping: has signals stop a block.
        begins: called when all that decides the runs is known, before the first is made.
        resuming: how a series in the directory {} is continued; empty: nobody asks.
    """

    showing: Showing = silently
    fails: Warn = lambda _: None
    stopping: Callable[[], AbstractContextManager[object]] = nullcontext
    begins: Callable[[], object] = lambda: None
    resuming: str = ""


@dataclass(frozen=True, slots=True)
class MadeSeries:
    """A series all of whose runs have ended.

    Attributes:
        directory: its directory.
        series: its content.
        runs: its runs, in the order of its plan.
        records: what became of them, by the keys of their jobs: of several attempts the best.
    """

    directory: Path
    series: Series
    runs: list[PlannedRun]
    records: dict[JobKey, JobRecord]


@contextmanager
def series_made(
    planned: Planned,
    form: Form,
    place: Place,
    *,
    how: How = DRAWN,
    machines: Machines | None = None,
    retry: RetryPolicy | None = None,
    front: Front = Front(),
) -> Iterator[MadeSeries]:
    """Make every run of a series that is missing, for a block that reports what it came to.

    Args:
        planned: plans it.
        form: how its runs are made.
        place: where.
        how: how each is made, beside its scenario.
        machines: this machine; None: whether it carries a run is judged when it is made.
        retry: which runs are made again; None: on a cluster those that cannot be trusted.
        front: is told how it goes.

    Raises:
        InputError: a case is wrong, or the directory holds another series. Nothing was run then.
        MachineError: the machine, or all of a cluster, cannot make a run, or ran out of something.
        Stopped: a signal ended it.
    """
    judged = machines if form == "emulated" else None
    if place.on is not None:
        place_of(place.on)  # before anything is made
    with acting_for(place.into or place.results):
        if judged is None or place.on is not None:
            plan, scenarios = planned(nominal)
        else:
            plan, scenarios = _fitted(planned, judged, judged, place)
        directory = place.directory(plan)
        with (
            locked(directory),
            naming_how_to_resume(front.resuming.format(directory)),
            naming_shortage(directory),
            front.stopping(),
            executor_at(place.on, directory, {form: plan.first}) as executor,
        ):
            if judged is not None and place.on is not None:
                # `auto` needs what each machine carries, whether forced or not.
                of_all = machines_of(executor, judged)
                known = machines_of(executor, judged, unmeasured=how.force)
                plan, scenarios = _fitted(planned, of_all, known, place)
            front.begins()
            _begin_or_continue(plan, directory, grows=place.grows)
            runs = planned_runs(plan, scenarios, how)
            keep_slower_out(executor, runs, force=how.force)
            know_finished(executor, runs)
            policy = retry or (ONCE if place.on is None else SeriesPolicy())
            yield _all_made(plan, runs, directory, executor, policy, front)


def _all_made(
    plan: SeriesPlan,
    runs: list[PlannedRun],
    directory: Path,
    executor: Executor,
    policy: RetryPolicy,
    front: Front,
) -> MadeSeries:
    """Make the runs that are missing, and those again that cannot be trusted."""
    store = Store(directory)
    there = {run.job.key: store.record(run) for run in runs}
    records = {key: record for key, record in there.items() if record is not None}

    def keep(run: PlannedRun, record: JobRecord) -> None:
        records[run.job.key] = store.record(run) or record
        series_of(plan, runs, records).write(directory)
        if record.failure:
            front.fails(f"{run.job.name}: {record.failure}\n  its log: {directory / run.job.log}")

    series_of(plan, runs, records).write(directory)
    due = [run for run in runs if run.job.key not in records]
    made = [run for run in runs if run.job.key in records]
    with front.showing() as progress:
        many(
            due,
            store,
            pool=executor,
            retry=policy,
            again=[run for run in made if policy.may_improve(run, None, store)],
            progress=progress,
            on_end=keep,
            made_before=len(made),
        )
    series = series_of(plan, runs, records)
    required = runs[0].job.how.require_trusted
    RunDirectory(directory).write(JUNIT, _junit(series, directory, require_trusted=required))
    return MadeSeries(directory, series, runs, records)


def _fitted(
    planned: Planned,
    machines: Machines,
    judging: Machines,
    place: Place,
) -> tuple[SeriesPlan, dict[int, Scenario]]:
    """The plan of a series, and its scenarios at one dilation for `auto`, which machines carry.

    Args:
        planned: plans it.
        machines: what carries it.
        judging: the load is judged by these.
        place: where it is made. If it was begun, it keeps its dilation.
    """
    begun = place.begun
    known = None if begun is None else begun.plan.dilation
    (plan, scenarios), dilation = with_fitting_dilation(planned, machines, known)
    for scenario in scenarios.values():
        judging.require(scenario)
    return plan.model_copy(update={"dilation": dilation}), scenarios


def _begin_or_continue(plan: SeriesPlan, directory: Path, *, grows: bool) -> None:
    """Write the index of a new series; require that one that is there is the same.

    One that grows is the same if it has the same name.

    Raises:
        InputError: it is another one.
    """
    if not (directory / INDEX).is_file():
        Series(plan=plan).write(directory)
        return
    begun = load_series(directory).plan
    if grows and plan.name != begun.name:
        raise InputError.of("--into", str(directory), f"that of {plan.name}, not of {begun.name}")
    if not grows and (different := plan.differences(begun)):
        expected = f"the series that it holds (different here: {', '.join(different)})"
        raise InputError.of("--into", str(directory), expected, "another directory")


def _junit(series: Series, directory: Path, *, require_trusted: bool) -> str:
    """The expectations of all runs in one file, each run as a suite."""
    from testbed.results.report.junit import junit_of_series, suite_of, suite_of_failed

    return junit_of_series(
        [
            suite_of(Result(directory / run.run).summary, name, require_trusted=require_trusted)
            if run.error is None
            else suite_of_failed(name, run.error)
            for name, run in series.called
        ]
    )


@dataclass(frozen=True, slots=True)
class FoundCases:
    """Cases that a user means by a path."""

    directory: Path
    series: Series
    cases: Sequence[SeriesCase]


def find_cases(given: Path) -> FoundCases | None:
    """The cases that a user means by SERIES, SERIES/CASE or SERIES/SCENARIO; None: by neither.

    Raises:
        InputError: the series has no such case, or its `sweep.json` is damaged.
    """
    if (given / INDEX).is_file():
        series = load_series(given)
        return FoundCases(given, series, series.plan.cases)
    if (given / RUN).is_file():
        return None
    place = given.absolute()  # not resolved: a name of a case may look like a path
    directory = next((above for above in place.parents if (above / INDEX).is_file()), None)
    if directory is None:
        return None
    series, text = load_series(directory), str(place.relative_to(directory))
    if cases := series.plan.cases_called(text):
        return FoundCases(directory, series, cases)
    if given.exists():
        return None
    names = [case.name for case in series.plan.cases]
    expected = f"a case of {directory}: 1 to {len(names)}, or one of {few(names)}"
    raise InputError.of("CASE", text, expected, did_you_mean(text, names))


def run_meant(given: Path) -> RunDirectory:
    """The run that a user means: a run's directory, or a scenario's or SERIES/CASE for its latest.

    Raises:
        InputError: it is none of them.
    """
    if newest_run(given) is None:
        found = find_cases(given)
        if found is not None and len(found.cases) == 1:
            return find_run(found.directory / found.cases[0].folder)
    return find_run(given)


def groups_of(places: Sequence[Path], labels: Sequence[str] = ()) -> tuple[Group, ...]:
    """The groups to compare: a run by itself, or cases of a series.

    Args:
        places: directories of runs, of scenarios (their latest run counts) or of series, or one
            case of a series, or those of one scenario (`find_cases`).
        labels: what each of them is called; none: after its directory.

    Raises:
        InputError: one is neither, or has no finished run.
    """
    found = [find_cases(place) for place in places]
    alone = len({each and each.directory.resolve() for each in found}) == 1
    groups: list[tuple[Group, Path]] = []
    for place, cases, name in zip(places, found, labels or [""] * len(places), strict=True):
        if cases is None:
            run = find_run(place)
            groups.append((group_of(name or run.name, [run.path]), place))
        else:
            groups += [(group, place) for group in _groups(cases, name, alone=alone)]
    counts = Counter(group.name for group, _ in groups)
    return tuple(
        replace(group, name=f"{group.name} ({place})") if counts[group.name] > 1 else group
        for group, place in groups
    )


def _groups(found: FoundCases, name: str, *, alone: bool) -> list[Group]:
    """Those of some cases that have a finished run; `alone`: no other series is compared.

    Emulated runs of unlike machines are groups of their own. Runs that failed are counted in the
    first of them.
    """
    groups = []
    for case in found.cases:
        ended = [run for run in found.series.done if run.case == case.number]
        runs = [found.directory / run.run for run in ended if run.error is None]
        if not runs:
            continue
        only = len(found.cases) == 1
        prefix = name or ("" if alone else found.directory.name)
        called = name if name and only else ": ".join(filter(None, (prefix, case.name)))
        failed = len(ended) - len(runs)
        machines: dict[str, list[Path]] = {}
        for run_directory in runs:
            machines.setdefault(machine_of(run_directory), []).append(run_directory)
        for machine, made_there in machines.items():
            where = f" on {machine}" if len(machines) > 1 else ""
            groups.append(group_of(called + where, made_there, failed))
            failed = 0
    if not groups:
        raise InputError.of(str(found.directory), "", "a series with a run that has ended")
    return groups
