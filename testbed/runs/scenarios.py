"""Scenarios and topologies as objects: loaded, or written in Python."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from testbed.model.checks import problems
from testbed.model.errors import InputError, raise_any
from testbed.model.fabric.topology import Topology
from testbed.model.files import scenarios, topologies
from testbed.model.files.reading import Document, no_text
from testbed.model.files.validation import validated
from testbed.model.own_code import OwnCode, recorded_code
from testbed.model.scenario import Scenario

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
