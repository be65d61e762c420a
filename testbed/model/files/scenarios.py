"""Scenarios from YAML files."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from testbed.model.checks import problems
from testbed.model.errors import InputError, Problem, raise_any
from testbed.model.fabric.topology import NOMINAL_DILATION, Topology
from testbed.model.files.catalog import find_scenario, relative_to_here
from testbed.model.files.documents import Document, with_value
from testbed.model.files.matrices import ConnectionMatrix, read_matrix
from testbed.model.files.own_code import with_own_code
from testbed.model.files.partial import problems_of_the_rest
from testbed.model.files.reading import read_document
from testbed.model.files.topologies import BASE, is_auto, topology_of_scenario, with_dilation
from testbed.model.files.transports import sweeps_kinds, with_keys_of_its_kind
from testbed.model.files.validation import validated
from testbed.model.own_code import recorded_code
from testbed.model.scenario import Scenario
from testbed.model.units import BaseRtt

Dilation = Callable[[Scenario], float]
"""Finds the dilation for `auto`, given the scenario at the nominal dilation."""

_STAND_IN = Topology(name="none", planes=1, t0_per_plane=1, t1_per_plane=1, hosts_per_t0=1)
"""In place of a topology that is wrong, so that the scenario's other keys are checked as well."""


def nominal(_: Scenario) -> float:
    """The dilation for `auto` where nothing runs on this machine."""
    return NOMINAL_DILATION


def load_scenario(
    name_or_path: str,
    dilation: Dilation = nominal,
    settings: Mapping[str, Any] = MappingProxyType({}),
    swept: Mapping[str, Any] = MappingProxyType({}),
) -> Scenario:
    """Load a scenario and its topology: one that ships, by name, or a YAML file by path.

    Its `topology` is a name, a path relative to the scenario's file, or a mapping: of all keys of
    a topology, or of `base` (a name or path) and the keys that differ from it.

    Args:
        name_or_path: the scenario.
        dilation: called where the topology's dilation is `auto`.
        settings: values by key path (`transport.evs`) that replace those of the file: `--set`.
        swept: the values of one case of a `--sweep`, which replace those of `settings`.

    Raises:
        InputError: there is no such scenario, a value is wrong, or two do not fit together.
    """
    return scenario_of(read_document(find_scenario(name_or_path)), dilation, settings, swept)


def load_recorded(file: Path) -> Scenario:
    """Load a scenario that the testbed wrote for itself, in JSON, as a run's record has it.

    Only such a file may have the source of own code; files that a person names name a class.

    Raises:
        InputError: it is no such file, or a value is wrong.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError.of(str(file), str(error), "a scenario that the testbed wrote") from None
    if not isinstance(data, dict):
        raise InputError.of(str(file), "no mapping", "a scenario that the testbed wrote")
    data["transport"] = recorded_code(data.get("transport", {}))
    return scenario_of(Document(file, data))


def scenario_of(
    document: Document,
    dilation: Dilation = nominal,
    settings: Mapping[str, Any] = MappingProxyType({}),
    swept: Mapping[str, Any] = MappingProxyType({}),
) -> Scenario:
    """Make a scenario of a document that was read before; otherwise as `load_scenario`.

    Raises:
        InputError: a value is wrong, or two do not fit together.
    """
    return _loaded(document, dilation, settings, swept)[0]


def load_with_document(
    name_or_path: str,
    dilation: Dilation = nominal,
    settings: Mapping[str, Any] = MappingProxyType({}),
    swept: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Scenario, Document]:
    """Load a scenario as `load_scenario`, with its document in which the options have set values.

    Raises:
        InputError: there is no such scenario, a value is wrong, or two do not fit together.
    """
    return _loaded(read_document(find_scenario(name_or_path)), dilation, settings, swept)


def _loaded(
    document: Document, dilation: Dilation, settings: Mapping[str, Any], swept: Mapping[str, Any]
) -> tuple[Scenario, Document]:
    original = document
    for option, values in (("--set", settings), ("--sweep", swept)):
        for path, value in values.items():
            document = _with_setting(document, path, value, option)
    document = with_keys_of_its_kind(original, document, swept=sweeps_kinds(swept))
    document = with_own_code(document)
    data, topology_problems = dict(document.data), list[Problem]()
    try:
        data["topology"] = topology_of_scenario(document)
    except InputError as error:
        topology_problems += error.problems
        data["topology"] = _STAND_IN
    if _names_matrix(data.get("workload")):
        matrix = _matrix_of_scenario(document)
        data["workload"] = {**data["workload"], "matrix": matrix.transfers}
        places = {f"workload.matrix[{i}]": place for i, place in enumerate(matrix.places)}
        document = replace(document, origins=document.origins | places)
    scenario = _scenario(document, data, topology_problems)
    if is_auto(data["topology"]):
        data["topology"] = with_dilation(data["topology"], dilation(scenario))
        scenario = _scenario(document, data, [])
    return scenario, document


def _with_setting(document: Document, path: str, value: Any, option: str) -> Document:
    """A document with another value; a topology that is only named becomes a mapping first."""
    name = document.data.get("topology")
    if path.startswith("topology.") and isinstance(name, str):
        document = replace(document, data={**document.data, "topology": {BASE: name}})
    return with_value(document, path, value, option)


def _scenario(
    document: Document, data: dict[str, Any], topology_problems: list[Problem]
) -> Scenario:
    """The scenario of some data.

    Raises:
        InputError: with the problems of its topology, if any, and those of all other keys.
    """
    data = {**data, "topology": with_dilation(data["topology"])}
    rtt = _round_trip(data["topology"])
    try:
        scenario = validated(Scenario, data, document, topology_problems, rtt)
    except InputError as error:
        if not topology_problems:
            further = map(document.located, problems_of_the_rest(data, rtt))
            raise InputError([*error.problems, *further]) from None
        raise
    raise_any(map(document.located, problems(scenario)))
    return scenario


def _round_trip(topology: object) -> BaseRtt:
    """The base RTT of a topology, which is the unit RTT of times; any if it is wrong."""
    try:
        return Topology.model_validate(topology).round_trip
    except ValidationError:
        return _STAND_IN.round_trip


def _names_matrix(workload: object) -> bool:
    """Whether the data of a workload name the file of a connection matrix."""
    return isinstance(workload, dict) and isinstance(workload.get("matrix"), str)


def _matrix_of_scenario(document: Document) -> ConnectionMatrix:
    file = document.directory / document.data["workload"]["matrix"]
    if not file.is_file():
        where = document.where("workload.matrix")
        expected = "a file, relative to the scenario's directory"
        raise InputError.of(where, f"{file}, which does not exist", expected)
    return read_matrix(relative_to_here(file))
