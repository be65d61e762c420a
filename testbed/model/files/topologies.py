"""Topologies from YAML files and htsim's, and the topology of a scenario's file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.model.errors import InputError
from testbed.model.fabric.topology import AUTO, NOMINAL_DILATION, Topology
from testbed.model.file_names import is_there
from testbed.model.files.catalog import find_topology
from testbed.model.files.htsim_topologies import SUFFIX, read_htsim_topology
from testbed.model.files.reading import Document, read_document
from testbed.model.files.validation import validated

BASE = "base"
"""The key of a scenario's topology that names the topology which the other keys change."""


def load_topology(name_or_path: str) -> Topology:
    """Load a topology: one that ships, by name, or a file by path: YAML, or htsim's `.topo`.

    `dilation: auto` depends on a scenario: without one it is the nominal dilation.

    Raises:
        InputError: there is no such topology, or the file is wrong.
    """
    return _topology(_document(find_topology(name_or_path)))


def _document(file: Path) -> Document:
    return read_htsim_topology(file) if file.suffix == SUFFIX else read_document(file)


def _topology(document: Document) -> Topology:
    return validated(Topology, with_dilation(document.data), document)


def is_auto(topology: object) -> bool:
    """Whether the data of a topology say `dilation: auto`."""
    return isinstance(topology, dict) and topology.get("dilation") == AUTO


def with_dilation(topology: object, dilation: float = NOMINAL_DILATION) -> object:
    """The data of a topology with this dilation in place of `auto`."""
    if isinstance(topology, dict) and is_auto(topology):
        return {**topology, "dilation": dilation}
    return topology


def topology_of_scenario(scenario: Document) -> object:
    """The data of a scenario's topology: its mapping, or the content of the file that it names.

    Raises:
        InputError: there is no such file, or it is wrong.
    """
    topology = scenario.data.get("topology")
    if isinstance(topology, str):
        return _named_topology(scenario, "topology", topology)
    if isinstance(topology, dict) and isinstance(topology.get(BASE), str):
        base = _named_topology(scenario, f"topology.{BASE}", topology[BASE])
        return _merged(base, {key: value for key, value in topology.items() if key != BASE})
    if "topology" in scenario.data and not isinstance(topology, dict):
        where, found = scenario.where("topology"), scenario.texts["topology"]
        expected = "a name such as clos-4plane, the path of a file, or a mapping of its keys"
        raise InputError.of(where, found, expected, "testbed list shows which ship")
    return topology


def _named_topology(scenario: Document, key: str, name_or_path: str) -> dict[str, Any]:
    """The data of the topology file that a scenario names at a key; checked by itself first."""
    where = scenario.where(key)
    try:
        file = find_topology(name_or_path, scenario.directory)
    except InputError as error:
        raise InputError([replace(problem, where=where) for problem in error.problems]) from None
    if not is_there(file):
        expected = "a file, relative to the scenario's directory"
        raise InputError.of(where, f"{file}, which does not exist", expected)
    document = _document(file)
    _topology(document)
    return dict(document.data)


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A mapping with some of its values replaced, at any depth."""
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merged(base[key], value) if both else value
    return merged
