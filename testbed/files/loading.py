"""Topologies and scenarios from YAML files, with every error told by file, line and key path."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from testbed.files.documents import (
    REQUEST,
    Document,
    changed,
    key_path,
    parse_document,
    read_document,
)
from testbed.files.matrices import read_matrix
from testbed.model.checks import problems
from testbed.model.errors import InputError, Problem, RefusedValueError
from testbed.model.fabric.names import did_you_mean
from testbed.model.fabric.topology import AUTO, NAME_PATTERN, NOMINAL_DILATION, Topology
from testbed.model.faults.checks import one_fault_problems
from testbed.model.faults.kinds import Fault, Passing
from testbed.model.kinds import Part, kinds_of
from testbed.model.scenario import Scenario
from testbed.results.analysis.expectations import unknown_figures

PROJECT = Path(__file__).resolve().parents[2]
TOPOLOGIES = PROJECT / "topologies"
SCENARIOS = PROJECT / "scenarios"

_SUFFIXES = (".yaml", ".yml")


Dilation = Callable[[Scenario], float]
"""Finds the dilation at which a scenario is run, given the scenario at any."""


def nominal(_: Scenario) -> float:
    """The dilation for `auto` where nothing runs on this machine."""
    return NOMINAL_DILATION


def load_topology(name_or_path: str) -> Topology:
    """Load a topology: one of the project's by name, or a YAML file by path.

    `dilation: auto` needs a scenario to find it for: here it is the nominal one.

    Raises:
        InputError: there is none of that name, or it is wrong.
    """
    document = read_document(find_topology(name_or_path))
    return _topology(document, document.data)


def load_scenario(
    name_or_path: str,
    dilation: Dilation = nominal,
    settings: Mapping[str, Any] = MappingProxyType({}),
    swept: Mapping[str, Any] = MappingProxyType({}),
) -> Scenario:
    """Load a scenario and its topology: one of the project's by name, or a YAML file by path.

    Its `topology` is a name, a path as seen from the scenario's file, or a mapping: of all its
    keys, or of `base`, a name or path, and what is different.

    Args:
        name_or_path: the scenario.
        dilation: asked where it is `auto`.
        settings: values by key path (`transport.evs`) that stand in place of the file's: `--set`.
        swept: the same of one case of a `--sweep`, in place of those.

    Raises:
        InputError: there is none of that name, or it is wrong, or its parts do not fit.
    """
    return scenario_of(read_document(find_scenario(name_or_path)), dilation, settings, swept)


def scenario_of(
    document: Document,
    dilation: Dilation = nominal,
    settings: Mapping[str, Any] = MappingProxyType({}),
    swept: Mapping[str, Any] = MappingProxyType({}),
) -> Scenario:
    """Make a scenario of a document that was read before; otherwise as `load_scenario`.

    Raises:
        InputError: it is wrong, or its parts do not fit.
    """
    for option, values in (("--set", settings), ("--sweep", swept)):
        for path, value in values.items():
            document = _set(document, path, value, option)
    data, found = dict(document.data), list[Problem]()
    try:
        data["topology"] = _topology_of_scenario(document)
    except InputError as error:
        found += error.problems
        data["topology"] = _STAND_IN  # to find what else is wrong
    if _names_matrix(data.get("workload")):
        data["workload"] = {**data["workload"], "matrix": _matrix_of_scenario(document)}
    scenario = _scenario(document, data, found)
    if is_auto(data["topology"]):
        fitting = {**data["topology"], "dilation": dilation(scenario)}
        scenario = _scenario(document, {**data, "topology": fitting}, [])
    return scenario


def _set(document: Document, path: str, value: Any, option: str) -> Document:
    """Change a key; of a topology that is only named, one of its own."""
    name = document.data.get("topology")
    if path.startswith("topology.") and isinstance(name, str):
        document = replace(document, data={**document.data, "topology": {_BASE: name}})
    return changed(document, path, value, option)


def is_auto(topology: object) -> bool:
    """Whether a topology, as its file says it, leaves its dilation open."""
    return isinstance(topology, dict) and topology.get("dilation") == AUTO


def _scenario(document: Document, data: dict[str, Any], found: list[Problem]) -> Scenario:
    """Make a scenario of data, all that is wrong added to the problems found before.

    Raises:
        InputError: there is something wrong.
    """
    try:
        scenario = Scenario.model_validate({**data, "topology": _resolved(data["topology"])})
    except ValidationError as error:
        raise InputError([*found, *_problems(document, Scenario, error)]) from None
    if not found:
        wrong = (*problems(scenario), *unknown_figures(scenario))
        found = [replace(one, where=document.where(one.where)) for one in wrong]
    if found:
        raise InputError(found)
    return scenario


def _names_matrix(workload: object) -> bool:
    """Whether a workload, as its file says it, names the file of a connection matrix."""
    return isinstance(workload, dict) and isinstance(workload.get("matrix"), str)


def _matrix_of_scenario(document: Document) -> list[dict[str, Any]]:
    file = document.directory / document.data["workload"]["matrix"]
    if not file.is_file():
        where, expected = (
            document.where("workload.matrix"),
            "a file, seen from the scenario's directory",
        )
        raise InputError([Problem(where, f"{file}, which does not exist", expected)])
    return read_matrix(_nearby(file))


def _resolved(topology: object) -> object:
    """A topology's data with a dilation in any case."""
    if isinstance(topology, dict) and is_auto(topology):
        return {**topology, "dilation": NOMINAL_DILATION}
    return topology


LIVE_FOR = "10 min"
"""A fault injected by hand heals after so long, if nobody has healed it before."""


class _Request(Part):
    """What a fault injected by hand is checked as."""

    fault: Fault


def load_fault(text: str, topology: Topology) -> Fault:
    """Read a fault that is to strike now: an entry of a timeline without `at`, `for` optional.

    Args:
        text: the entry in JSON.
        topology: whose names it uses.

    Raises:
        InputError: it is wrong.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        remedy = 'such as {"kind": "cut", "target": "p0"}'
        raise InputError([Problem(REQUEST, str(error), "a fault in JSON", remedy)]) from None
    spaced = text.replace("\t", " ")  # YAML takes no tab; JSON has none within its strings
    document = parse_document(None, f'{{"fault": {spaced}\n}}')
    entry = document.data["fault"]
    if isinstance(entry, dict):
        ends_itself = entry.get("kind") == "kill" or "count" in entry
        entry = {"at": "0 s", **({} if ends_itself else {"for": LIVE_FOR}), **entry}
    try:
        fault = _Request.model_validate({"fault": entry}).fault
    except ValidationError as error:
        raise InputError([*_problems(document, _Request, error)]) from None
    found = [*one_fault_problems(topology, fault, "fault")]
    repeats = isinstance(fault, Passing) and fault.every is not None
    if fault.at or repeats:
        where = "fault.at" if fault.at else "fault.every"
        found.append(Problem(where, document.texts[where], "nothing: by hand it strikes now, once"))
    if found:
        raise InputError([replace(one, where=document.where(one.where)) for one in found])
    return fault


def files_in(directory: Path) -> dict[str, Path]:
    """The files of a directory by the names that can be given for them."""
    found = (path for path in directory.glob("*") if path.suffix in _SUFFIXES)
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def is_path(name_or_path: str) -> bool:
    """Whether it is meant as a path."""
    return "/" in name_or_path or name_or_path.endswith(_SUFFIXES)


def find_topology(name_or_path: str) -> Path:
    """The file of a topology.

    Raises:
        InputError: there is none.
    """
    return _nearby(_find(name_or_path, "topology", TOPOLOGIES, Path()))


def find_scenario(name_or_path: str) -> Path:
    """The file of a scenario.

    Raises:
        InputError: there is none.
    """
    return _nearby(_find(name_or_path, "scenario", SCENARIOS, Path()))


def _nearby(file: Path) -> Path:
    """The file as seen from the working directory, if it is below it."""
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file


def _find(name_or_path: str, kind: str, directory: Path, base: Path) -> Path:
    if is_path(name_or_path):
        return base / name_or_path
    names = files_in(directory)
    if name_or_path in names:
        return names[name_or_path]
    remedy = did_you_mean(name_or_path, tuple(names))
    if (base / name_or_path).is_file():
        remedy = f"for the file write ./{name_or_path}"
    elif name_or_path in files_in(TOPOLOGIES).keys() | files_in(SCENARIOS):
        remedy = f"{name_or_path} is a {'topology' if kind == 'scenario' else 'scenario'}"
    expected = f"one of {', '.join(names)}, or the path of a YAML file"
    raise InputError([Problem(kind, name_or_path, expected, remedy)])


def _topology(document: Document, data: dict[str, Any]) -> Topology:
    try:
        return Topology.model_validate(_resolved(data))
    except ValidationError as error:
        raise InputError([*_problems(document, Topology, error)]) from None


def _topology_of_scenario(document: Document) -> object:
    """What a scenario says of its topology, that of a file in the place of its name."""
    said = document.data.get("topology")
    if isinstance(said, str):
        return _topology_data(document, "topology", said)
    if isinstance(said, dict) and isinstance(said.get(_BASE), str):
        base = _topology_data(document, f"topology.{_BASE}", said[_BASE])
        return _changed(base, {key: value for key, value in said.items() if key != _BASE})
    if "topology" in document.data and not isinstance(said, dict):
        where, found = document.where("topology"), document.texts["topology"]
        expected = "a name such as clos-4plane, the path of a YAML file, or a mapping of its keys"
        raise InputError([Problem(where, found, expected, "testbed list shows which ship")])
    return said


def _topology_data(document: Document, where: str, name_or_path: str) -> dict[str, Any]:
    """The right topology that a scenario names there."""
    place = document.where(where)
    try:
        file = _find(name_or_path, "topology", TOPOLOGIES, document.directory)
    except InputError as error:
        raise InputError([replace(one, where=place) for one in error.problems]) from None
    if not file.exists():
        expected = "a file, seen from the scenario's directory"
        raise InputError([Problem(place, f"{file}, which does not exist", expected)])
    named = read_document(_nearby(file))
    _topology(named, named.data)
    return dict(named.data)


def _changed(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A mapping with some of its values, at any depth, in the place of those of another."""
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _changed(base[key], value) if both else value
    return merged


_BASE = "base"
"""In a scenario's topology: which one it is, but for the other keys."""

_STAND_IN = Topology(name="none", planes=1, t0_per_plane=1, t1_per_plane=1, hosts_per_t0=1)


# --- from pydantic's errors to problems ---------------------------------------------------------


_TYPES = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "finite_number": "a number that is not infinite",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "missing": "a value, which is required",
    "string_type": "text",
    "tuple_type": "a list",
    "union_tag_not_found": "a value, which is required",
}
_BOUNDS = {
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "too_long": "a list of {max_length} at most",
    "too_short": "a list of {min_length} or more",
}


def _problems(
    document: Document, model: type[BaseModel], error: ValidationError
) -> Iterator[Problem]:
    """Say pydantic's errors in words that need no knowledge of it."""
    errors = error.errors()
    locations = [one["loc"] for one in errors]
    for one in errors:
        here = one["loc"]
        inside = any(len(loc) > len(here) and loc[: len(here)] == here for loc in locations)
        if not (one["type"] == "too_short" and inside):  # only because its entries are wrong
            yield _problem(document, model, one)


def _problem(document: Document, model: type[BaseModel], error: ErrorDetails) -> Problem:
    tag = ("kind",) if error["type"].startswith("union_tag") else ()
    location, enclosing, info = _place(model, (*error["loc"], *tag))
    path = reduce(key_path, location, "")
    last = str(location[-1]) if location else ""
    found, remedy = document.texts.get(path, ""), ""
    keys = tuple(_keys(enclosing))
    what = f" ({info.description})" if info is not None and info.description else ""
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            found, expected = f"the unknown key {last}", f"one of {', '.join(keys)}"
            remedy = did_you_mean(last, keys)
        case "model_type" | "model_attributes_type" | "dict_type":
            expected = f"a mapping with the keys {', '.join(keys)}"
            remedy = _as_kind(document.texts.get(path, ""), info)
        case "enum" | "literal_error":
            expected = str(context["expected"]).replace("'", "")
            remedy = did_you_mean(found, re.split(", | or ", expected))
        case "union_tag_invalid":
            known = str(context["expected_tags"]).replace("'", "").split(", ")
            expected = " or ".join(filter(None, (", ".join(known[:-1]), known[-1])))
            remedy = did_you_mean(found, known)
        case "value_error":
            refused = context["error"]
            found, expected = "" if isinstance(error["input"], dict) else found, str(refused)
            if isinstance(refused, RefusedValueError):
                remedy = refused.remedy
                path = key_path(path, refused.key) if refused.key else path
                found = document.texts.get(path, "")
        case "string_pattern_mismatch" if context["pattern"] == NAME_PATTERN:
            expected = "letters, digits, '.', '_' and '-', beginning with a letter or digit"
        case kind if kind in _TYPES:
            expected = _TYPES[kind] + what
            remedy = _as_type(kind, error["input"], found)
        case kind if kind in _BOUNDS:
            expected = _BOUNDS[kind].format(**context) + what
        case _:
            expected = error["msg"]
    return Problem(document.where(path), found, expected, remedy)


def _as_kind(found: str, info: FieldInfo | None) -> str:
    """What to write in place of a bare kind, such as `transport: roce`."""
    kinds = kinds_of(tuple(_models_in(info.annotation))) if info is not None else {}
    meant = did_you_mean(found, tuple(kinds)).removeprefix("did you mean ").removesuffix("?")
    if not meant:
        return f"its kind is {', '.join(kinds)}" if kinds else ""
    needs = list(_required(kinds[meant]))
    also = f", and its {', '.join(needs)}" if needs else ""
    return f"write {{kind: {meant}}}{also}"


def _required(model: type[BaseModel]) -> Iterator[str]:
    fields = model.model_fields.items()
    yield from (field.alias or name for name, field in fields if field.is_required())


def _as_type(kind: str, value: object, found: str) -> str:
    """What to write in place of a value of another type, where one can guess."""
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f'write it in quotes: "{found}"'
    if kind in {"list_type", "tuple_type"} and isinstance(value, dict):
        return "begin each entry with a dash, or write it in brackets: [{...}]"
    if kind.startswith("float") and found.endswith("%"):
        return "write a percentage as a share, such as 0.2 for 20%"
    return ""


_Location = tuple[str | int, ...]


def _place(
    model: type[BaseModel], location: _Location
) -> tuple[_Location, type[BaseModel] | None, FieldInfo | None]:
    """Follow pydantic's location.

    Returns the steps that are keys of the file (where a part may be of several kinds, its kind is
    a step too), the model that the last one stands in or is, and the last named field.
    """
    inner: type[BaseModel] | None = model
    info: FieldInfo | None = None
    kinds: dict[str, type[BaseModel]] = {}
    steps: list[str | int] = []
    free_key = False  # the next step is a key that no model knows
    for step in location:
        if isinstance(step, str) and step in kinds:
            inner, kinds = kinds[step], {}
            continue
        steps.append(step)
        if isinstance(step, int) or inner is None or free_key:
            free_key = False
            continue
        fields = {field.alias or name: field for name, field in inner.model_fields.items()}
        if step not in fields:
            return tuple(steps), inner, None
        info = fields[step]
        models = tuple(_models_in(info.annotation))
        inner, kinds = next(iter(models), None), kinds_of(models)
        free_key = get_origin(info.annotation) is dict
    return tuple(steps), inner, info


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _keys(model: type[BaseModel] | None) -> Iterator[str]:
    if model is not None:
        yield from (field.alias or name for name, field in model.model_fields.items())
