"""The problems between the values of a scenario of which some are wrong by themselves.

So all errors of a file come at once: what is wrong is replaced by something that is right, and what
the checks then say about the replacement is left out.
"""

import re
from typing import Any

from pydantic import ValidationError

from testbed.model.checks import problems
from testbed.model.errors import Problem
from testbed.model.scenario import Scenario
from testbed.model.units import BaseRtt

_LEAVES = {"probability": 0.5, "factor": 0.5, "extra": "1 us"}
"""Right values of keys that are required."""

_PARTS = {
    "name": "none",
    "workload": {"kind": "permutation"},
    "timeline": {"kind": "kill", "target": "controller", "at": "0 s"},
}
"""Right parts in place of wrong ones, of a timeline an entry; other parts are left out."""

_DEPENDENT = {
    "duration": r"timeline\[\d+\]\.(at|for|times|every)|timeline",
    "workload": r"expect\.(victim|operations)",
    "clustermapper": r"expect\.clustermapper.*",
}
"""Places whose problems depend on a part, so that they mean nothing if it is wrong."""

_Location = tuple[int | str, ...]


def problems_of_the_rest(data: dict[str, Any], rtt: BaseRtt) -> list[Problem]:
    """What is wrong between those values of a scenario that are right by themselves.

    Args:
        data: of the scenario, with its topology.
        rtt: the base RTT of its topology.
    """
    for location in _wrong(data, rtt):
        data = _with_right_leaf(data, location)
    parts = {_part(location) for location in _wrong(data, rtt)}
    if ("topology",) in parts:
        return []
    for part in parts:
        data = _with_right_part(data, part)
    if _wrong(data, rtt):
        return []
    scenario = Scenario.model_validate(data, context=rtt)
    return [
        problem
        for problem in problems(scenario)
        if not any(_is_about(problem, *part) for part in parts)
    ]


def _wrong(data: dict[str, Any], rtt: BaseRtt) -> list[_Location]:
    """The locations of what is wrong by itself, as pydantic has them."""
    try:
        Scenario.model_validate(data, context=rtt)
    except ValidationError as error:
        return [detail["loc"] for detail in error.errors()]
    return []


def _with_right_leaf(data: Any, location: _Location) -> Any:
    """Data in which a wrong key of a part has a right value, or is absent."""
    step, *rest = location or (None,)
    if isinstance(data, list) and isinstance(step, int) and step < len(data) and rest:
        return [*data[:step], _with_right_leaf(data[step], tuple(rest)), *data[step + 1 :]]
    if not isinstance(data, dict):
        return data
    if rest and isinstance(data.get(step), dict | list):
        return {**data, step: _with_right_leaf(data[step], tuple(rest))}
    if rest:  # pydantic adds the kind of a part as a step
        return _with_right_leaf(data, tuple(rest))
    others = {key: value for key, value in data.items() if key != step}
    if step in _LEAVES:
        return {**others, step: _LEAVES[str(step)]}
    return data if step in {"at", "for", "kind", "duration"} else others


def _part(location: _Location) -> _Location:
    """The part of a scenario that is replaced as a whole: a key, or an entry of the timeline."""
    return location[:2] if location[0] == "timeline" else location[:1]


def _with_right_part(data: dict[str, Any], part: _Location) -> dict[str, Any]:
    key, *number = part
    if number and isinstance(number[0], int):
        entries = [*data[str(key)]]
        entries[number[0]] = _PARTS[str(key)]
        return {**data, str(key): entries}
    others = {name: value for name, value in data.items() if name != key}
    return {**others, str(key): _PARTS[str(key)]} if key in {"name", "workload"} else others


def _is_about(problem: Problem, key: int | str, number: int | str | None = None) -> bool:
    """Whether a problem is about a part that was replaced, or depends on it."""
    place = str(key) if number is None else f"{key}[{number}]"
    inside = re.escape(place) + r"([.\[].*)?"
    if re.fullmatch(rf"{inside}|{_DEPENDENT.get(str(key), inside)}", problem.where):
        return True
    return f"{place} is over" in problem.expected
