"""The file of a study, and the series of runs that it stands for."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from testbed.model.checks import refuse_code, require_no_code, unknown_metric
from testbed.model.errors import InputError, Problem, RefusedValueError, did_you_mean, raise_any
from testbed.model.fabric.topology import NAME_PATTERN
from testbed.model.file_names import for_directory
from testbed.model.files.catalog import find_scenario, is_path
from testbed.model.files.own_code import own_function
from testbed.model.files.reading import Document, read_document
from testbed.model.files.scenarios import Dilation, load_scenario
from testbed.model.files.validation import validated
from testbed.model.own_code import REFERENCE, OwnCode
from testbed.model.part import Part
from testbed.model.scenario import MAX_SEED, Bound, Number, Scenario
from testbed.model.summary.scopes import SCOPES
from testbed.model.summary.unit import Unit
from testbed.runs.job import Form
from testbed.runs.making import require_makeable
from testbed.runs.python import plain
from testbed.runs.series import SeriesPlan, plan_series
from testbed.studies.study.inputs import NAMES_FILES, OF_PROGRAMS, OF_WORKLOADS
from testbed.studies.study.own_metrics import title_of, unit_of

MOST_CASES = 12
"""So many a figure tells apart, in colour and in print."""

MOST_SEEDS = 100

_FOLDER_BYTES = 60

Name = Annotated[str, Field(min_length=1, max_length=40)]


class StudiedScenario(Part):
    """A scenario of a study: its name or file, and the keys that all cases have in it."""

    scenario: str = Field(description="name or file of a scenario, relative to the study's file")
    set: dict[str, Any] = Field(default={}, description="keys of the scenario with their values")


class Shown(Part):
    """A metric that tables and figures show: one of the testbed's, or a function `FILE.py:NAME`."""

    metric: str
    title: str = ""

    @property
    def function(self) -> str:
        """The name of the user's function; empty for a metric of the testbed."""
        return self.metric.rpartition(":")[2] if REFERENCE.fullmatch(self.metric) else ""

    @property
    def stem(self) -> str:
        """The name of its files, without suffix."""
        if self.function:
            return f"{Path(self.metric.rpartition(':')[0]).stem}-{self.function}"
        return self.metric.replace(".", "-")

    @property
    def unit(self) -> Unit:
        """The unit of its number."""
        scope, _, key = self.metric.partition(".")
        return unit_of(self.function) if self.function else SCOPES[scope].quantities[key].unit

    @property
    def name(self) -> str:
        """What it is called, without its unit: as in comparisons, which say of what it is."""
        if self.function:
            return self.title or title_of(self.function)
        scope, _, key = self.metric.partition(".")
        metric = SCOPES[scope].quantities[key].metric
        compared = metric.compared.name if metric.compared is not None else ""
        return self.title or compared or metric.title


def _as_list(value: Any) -> Any:
    """A text alone is the only one."""
    return [value] if isinstance(value, str) else value


class Hypothesis(Part):
    """What is expected of the median of a metric over the seeds.

    It has bounds, as in `expect:` of a scenario, or is compared with another case, or with the same
    case in another scenario. With `of` the bounds are those of its ratio to that.
    """

    claim: str = ""
    metric: str
    case: str = ""
    scenario: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    of: str | None = None
    at_least: Number | None = None
    at_most: Number | None = None
    less_than: str | None = None
    more_than: str | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        bounds = (self.at_least, self.at_most) != (None, None)
        if [bounds, self.less_than is not None, self.more_than is not None].count(True) != 1:
            raise ValueError("one of: at_least and at_most, less_than, more_than")
        if bounds:
            _ = self.bound
        elif self.of is not None:
            raise ValueError("of: only beside at_least and at_most")
        return self

    @property
    def bound(self) -> Bound:
        """What its value may be."""
        return Bound(at_least=self.at_least, at_most=self.at_most)

    @property
    def other(self) -> str | None:
        """The case or scenario that its own is compared with, if any."""
        return self.of or self.less_than or self.more_than

    def __str__(self) -> str:
        return self.claim or self.asked

    @property
    def in_full(self) -> str:
        """Its claim, with what that is taken for."""
        return f"{self.claim} ({self.asked})" if self.claim else self.asked

    @property
    def asked(self) -> str:
        """What is expected: `REPS: faults.stall_rtt less than that of blind`."""
        what = f"{self.case}: {self.metric}"
        if self.of is not None:
            return f"{what} {self.bound} of that of {self.of}"
        if self.other is not None:
            return f"{what} {'less' if self.less_than else 'more'} than that of {self.other}"
        return f"{what} {self.bound}"


def _seeds(value: Any) -> tuple[int, ...]:
    """The seeds, of which there may stand how many, or all."""
    seeds = [*range(1, 1 + min(value, MOST_SEEDS + 1))] if type(value) is int else value
    if (
        not isinstance(seeds, list | tuple)
        or not all(type(seed) is int and 0 <= seed <= MAX_SEED for seed in seeds)
        or not 1 <= len({*seeds}) == len(seeds) <= MOST_SEEDS
    ):
        raise RefusedValueError(f"how many, 1 to {MOST_SEEDS}, or a list of different seeds")
    return tuple(seeds)


def _as_mapping(key: str) -> BeforeValidator:
    """A text alone is the value of a key."""
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


class StudyFile(Part):
    """The content of a study's file."""

    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=60)]
    description: str = ""
    form: Literal["simulated", "emulated"] = "simulated"
    seeds: Annotated[tuple[int, ...], BeforeValidator(_seeds)] = tuple(range(1, 7))
    scenarios: dict[Name, Annotated[StudiedScenario, _as_mapping("scenario")]] = Field(
        min_length=1, max_length=MOST_CASES
    )
    cases: dict[Name, dict[str, Any]] = Field(min_length=1, max_length=MOST_CASES)
    metrics: Annotated[
        tuple[Annotated[Shown, _as_mapping("metric")], ...], Field(max_length=MOST_CASES)
    ] = ()
    expect: Annotated[tuple[Hypothesis, ...], Field(max_length=200)] = ()
    width_mm: Annotated[float, Field(ge=60, le=300)] = 85.0

    @model_validator(mode="before")
    @classmethod
    def _of_the_only_case(cls, data: Any) -> Any:
        """Hypotheses need not name the case where there is one."""
        match data:
            case {"cases": {**cases}, "expect": [*expect]} if len(cases) == 1:
                named = [
                    {"case": next(iter(cases)), **h} if isinstance(h, dict) else h for h in expect
                ]
                return {**data, "expect": named}
        return data

    @property
    def shown(self) -> tuple[Shown, ...]:
        """The metrics of tables and figures: those that it names, else those of hypotheses."""
        named = dict.fromkeys(hypothesis.metric for hypothesis in self.expect)
        return self.metrics or tuple(Shown(metric=metric) for metric in named)

    def asks(self, scenario: str, case: str, metric: str) -> bool:
        """Whether it asks for a metric of its own of these runs: it lists it, or expects it."""
        return any(shown.metric == metric for shown in self.metrics) or any(
            (scenario, case) in self.compared(each, place)
            for each in self.expect
            if each.metric == metric
            for place in each.scenario or self.scenarios
        )

    def compared(self, hypothesis: Hypothesis, scenario: str) -> list[tuple[str, str]]:
        """Scenario and case of the runs of a hypothesis, then of those that it compares with."""
        case, other = hypothesis.case, hypothesis.other
        if other is None:
            return [(scenario, case)]
        return [(scenario, case), (scenario, other) if other in self.cases else (other, case)]

    @property
    def cells(self) -> list[tuple[str, str]]:
        """Scenario and case of all its runs that differ by their seed only."""
        return list(product(self.scenarios, self.cases))


def folder(scenario: str, case: str) -> str:
    """The directory of the runs of a case in a scenario, below the study's."""
    return "--".join(for_directory(name, _FOLDER_BYTES) for name in (scenario, case))


@dataclass(frozen=True, slots=True)
class LoadedStudy:
    """A study as its file gives it.

    Attributes:
        document: the file.
        content: what it says.
        functions: the metrics of the user's own, by their names in the study.
    """

    document: Document
    content: StudyFile
    functions: Mapping[str, OwnCode]

    @property
    def form(self) -> Form:
        """How its runs are made."""
        return self.content.form

    @property
    def executes(self) -> dict[str, str]:
        """The files of the metrics of the user's own, by their names."""
        return {
            f"metric {name}": ", ".join((code.file, *code.files))
            for name, code in self.functions.items()
        }

    def plan(
        self, dilation: Dilation, *, allow_code: bool = True, here: bool = True
    ) -> tuple[SeriesPlan, dict[int, Scenario]]:
        """The series of its runs, and the scenario of each case by its number.

        Args:
            dilation: finds the dilation for `auto`.
            allow_code: whether it may execute code that it names.
            here: whether its runs are made on this machine.

        Raises:
            InputError: a scenario or a case is wrong.
            MachineError: this machine cannot make its runs.
        """
        content, cells = self.content, self.content.cells
        if not allow_code:
            for name, code in self.executes.items():
                refuse_code(name, code, "study")
        loaded = {
            f"{scenario}, {case}": self._scenario(scenario, case, dilation)
            for scenario, case in cells
        }
        for name, loaded_scenario in loaded.items():
            if not allow_code:
                require_no_code(loaded_scenario, name)
            require_makeable(loaded_scenario, self.form, here=here)
        plan, scenarios = plan_series(
            list(loaded),
            lambda name, _: loaded[name],
            labels=list(loaded),
            sweep={},
            seeds=content.seeds,
            settings={},
            simulated=self.form == "simulated",
        )
        cases = [
            made.model_copy(
                update={
                    "folder": folder(scenario, case),
                    "label": scenario,
                    "settings": content.cases[case],
                }
            )
            for made, (scenario, case) in zip(plan.cases, cells, strict=True)
        ]
        return plan.model_copy(update={"name": content.name, "cases": cases}), scenarios

    def _scenario(self, name: str, case: str, dilation: Dilation) -> Scenario:
        """A scenario with the keys of a case."""
        studied, of_case = self.content.scenarios[name], self.content.cases[case]
        file = studied.scenario
        if is_path(file):
            file = str(self.document.directory / file)
        settings = {**studied.set, **of_case}
        if missing := settings.keys() & {"name", "seed"}:
            where = self.document.where(f"cases.{case}.{min(missing)}")
            raise InputError.of(where, min(missing), "another key: seeds: gives the seeds")
        here = {key: self._from_here(value, key) for key, value in settings.items()}
        places = self._places(name, case, studied)
        raise_any(_replaced(settings, places))
        try:
            return load_scenario(file, dilation, here)
        except InputError as error:
            changed = f"{file}, changed as the case {case}" if settings else ""
            problems = [_located(problem, places, file, changed) for problem in error.problems]
            raise InputError(problems) from None

    def _from_here(self, value: Any, key: str) -> Any:
        """A value whose paths, which are relative to the study's file, lead there from here."""
        last = key.rpartition(".")[2]
        if last in OF_PROGRAMS:
            return value
        if isinstance(value, dict):
            return {inner: self._from_here(part, inner) for inner, part in value.items()}
        if isinstance(value, list):
            return [self._from_here(part, key) for part in value]
        if not isinstance(value, str):
            return value
        is_topology = last in NAMES_FILES and is_path(value)
        if is_topology or last in {*OF_WORKLOADS, "directory"}:  # which lead on from the scenario
            return str((self.document.directory / value).absolute())
        return str(self.document.directory / value) if REFERENCE.fullmatch(value) else value

    def _places(self, name: str, case: str, studied: StudiedScenario) -> dict[str, str]:
        """The place of each key that the study sets; of the scenario itself under ""."""
        whole = "" if f"scenarios.{name}.scenario" not in self.document.lines else ".scenario"
        return {
            "": self.document.where(f"scenarios.{name}{whole}"),
            **{key: self.document.where(f"scenarios.{name}.set.{key}") for key in studied.set},
            **{key: self.document.where(f"cases.{case}.{key}") for key in self.content.cases[case]},
        }


def _replaced(settings: Mapping[str, Any], places: Mapping[str, str]) -> Iterator[Problem]:
    """What is wrong with keys that would replace others, which stand before them, unseen."""
    keys = [*settings]
    for i, key in enumerate(keys):
        for lost in keys[:i]:
            if lost.startswith((f"{key}.", f"{key}[")):
                expected = f"keys below it, or {lost} in it: it would replace {places[lost]}"
                yield Problem(places[key], key, expected)


def _located(problem: Problem, places: Mapping[str, str], file: str, changed: str) -> Problem:
    """A problem of a scenario, at the place of the study that has its cause, if it is there.

    Args:
        problem: of the scenario.
        places: those of the keys that the study sets; of the scenario itself under "".
        file: the scenario's.
        changed: which scenario it is, if the study sets keys of it.
    """
    if problem.where in {"scenario", str(Path(file))}:
        found = f"{file}, {problem.found}" if problem.where != "scenario" else problem.found
        return replace(problem, where=places[""], found=found)
    _, is_set, path = problem.where.partition("--set: ")
    if not is_set and problem.where != "--set":
        if not changed:
            return problem
        found = f"{changed}: {problem.where}: {problem.found}"
        return replace(problem, where=places[""], found=found)
    key = next((k for k in places if k and f"{path}.".startswith((f"{k}.", f"{k}["))), "")
    if problem.where == "--set":  # no such path
        key = problem.found if problem.found in places else ""
    return replace(problem, where=places[key])


def load_study(given: str | Path | Mapping[str, Any]) -> LoadedStudy:
    """Load a study: a YAML file, or a mapping of what would stand in it.

    Raises:
        InputError: it cannot be read, or something in it is wrong.
    """
    if isinstance(given, Mapping):
        document = Document(None, plain(given))
    else:
        document = read_document(Path(given), remedy="docs/studies.md has an example")
    content = validated(StudyFile, document.data, document)
    raise_any(replace(p, where=document.where(p.where)) for p in _problems(content))
    for name, studied in content.scenarios.items():
        if not is_path(studied.scenario):
            try:
                find_scenario(studied.scenario)
            except InputError as error:
                where = document.where(f"scenarios.{name}")
                raise InputError([replace(p, where=where) for p in error.problems]) from None
    named = {
        **{shown.metric: f"metrics[{i}]" for i, shown in enumerate(content.metrics)},
        **{each.metric: f"expect[{i}].metric" for i, each in enumerate(content.expect)},
    }
    functions = {
        metric: own_function(document, path, metric)
        for metric, path in named.items()
        if REFERENCE.fullmatch(metric)
    }
    return LoadedStudy(document, content, functions)


def _problems(content: StudyFile) -> Iterator[Problem]:
    """What does not fit together, at key paths."""
    folders = Counter(folder(*cell) for cell in content.cells)
    for scenario, case in content.cells:
        if folders[folder(scenario, case)] > 1:
            where = f"cases.{case}" if len(content.cases) > 1 else f"scenarios.{scenario}"
            expected = "a name that differs from the others in its letters or digits"
            yield Problem(where, case, expected)
            break
    if not content.shown:
        yield Problem("metrics", "", "a metric, such as faults.stall_rtt, here or in expect")
    for i, shown in enumerate(content.metrics):
        where = f"metrics[{i}]"
        yield from _metric_problems(shown.metric, where)
    for i, shown in enumerate(content.shown):
        if shown.stem in (other.stem for other in content.shown[:i]):
            yield Problem(f"metrics[{i}]", f"{shown.metric} a second time", "each metric once")
    for i, hypothesis in enumerate(content.expect):
        yield from _hypothesis_problems(content, hypothesis, f"expect[{i}]")


def _hypothesis_problems(
    content: StudyFile, hypothesis: Hypothesis, where: str
) -> Iterator[Problem]:
    yield from _metric_problems(hypothesis.metric, f"{where}.metric")
    cases = {key: getattr(hypothesis, key) for key in ("case", "of", "less_than", "more_than")}
    named = [(key, "case", name) for key, name in cases.items() if name is not None]
    named += [("scenario", "scenario", name) for name in hypothesis.scenario]
    for key, kind, name in named:
        known = tuple(content.scenarios if kind == "scenario" else content.cases)
        known += () if key in {"case", "scenario"} else tuple(content.scenarios)
        if name not in known:
            expected = f"a {kind} of the study: {', '.join(known)}"
            yield Problem(f"{where}.{key}", name, expected, did_you_mean(name, known))
    for scenario in hypothesis.scenario or content.scenarios:
        own, *others = content.compared(hypothesis, scenario)
        if own in others:
            expected = "another case, or another scenario, to compare it with"
            yield Problem(where, f"{hypothesis.case} in {scenario} twice", expected)
            break


def _metric_problems(metric: str, where: str) -> Iterator[Problem]:
    if REFERENCE.fullmatch(metric):
        return
    scope, dot, key = metric.partition(".")
    if not dot or scope not in SCOPES:
        own = "or a function of your own, such as ./mine.py:gap_rtt"
        expected = f"a metric of {', '.join(SCOPES)}, such as faults.stall_rtt, {own}"
        yield Problem(where, metric, expected, _meant(metric))
    elif (problem := unknown_metric(where, scope, key)) is not None:
        yield problem


_MOST_MEANT = 3


def _meant(metric: str) -> str:
    """The metrics that may be meant by a name without one of the scopes; empty if none is."""
    named = [f"{scope}.{key}" for scope in SCOPES for key in SCOPES[scope].quantities]
    ways: Sequence[Callable[[str], bool]] = (
        lambda name: name.endswith(f".{metric}"),  # without its scope
        lambda name: f".{metric}_" in name,  # without its unit
        lambda name: name.startswith(f"{metric}."),  # a scope alone
    )
    for way in ways:
        found = [*filter(way, named)]
        if found:
            return f"did you mean {' or '.join(found[:_MOST_MEANT])}?"
    return did_you_mean(metric, named)
