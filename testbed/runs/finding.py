"""The runs that a user means by a path: a run, a scenario's latest, a series or its cases."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.model.errors import InputError, did_you_mean, few
from testbed.model.run_files.layout import RUN
from testbed.results.comparison import Group, group_of
from testbed.results.run_directory import RunDirectory, find_run, newest_run
from testbed.runs.series import INDEX, Series, SeriesCase, load_series
from testbed.runs.store import machine_of


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
