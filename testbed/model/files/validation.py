"""What pydantic finds wrong with a document, as problems that name file, line and key path."""

import re
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from testbed.model.errors import (
    InputError,
    Problem,
    RefusedValueError,
    did_you_mean,
    raise_any,
    similar_word,
)
from testbed.model.fabric.topology import NAME_PATTERN
from testbed.model.files.reading import Document, blank_remedy, key_path, number_remedy
from testbed.model.part import kinds_of
from testbed.model.scenario import Expect
from testbed.model.summary.scopes import SCOPES
from testbed.model.units import BaseRtt
from testbed.model.workload import VARIABLE_PATTERN

_EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "finite_number": "a number that is not infinite",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "list_type": "a list",
    "missing": "a value, which is required",
    "string_too_long": "{max_length} characters at most",
    "string_too_short": "text that is not empty",
    "string_type": "text",
    "too_long": "a list of {max_length} at most",
    "too_short": "a list of {min_length} or more",
    "tuple_type": "a list",
    "union_tag_not_found": "a value, which is required",
}
"""What is expected instead, by pydantic's type of error, with the limit that the error names."""

_PATTERNS = {
    NAME_PATTERN: "letters, digits, '.', '_' and '-', beginning with a letter or digit",
    VARIABLE_PATTERN: "letters, digits and '_', not beginning with a digit",
}


_Model = TypeVar("_Model", bound=BaseModel)


def validated(
    model: type[_Model],
    data: object,
    document: Document,
    others: Iterable[Problem] = (),
    rtt: BaseRtt | None = None,
) -> _Model:
    """Data as a model.

    Args:
        model: the model.
        data: the data, which are from the document.
        document: for messages.
        others: problems that the error should name beside its own and those of the document.
        rtt: the base RTT, in which times may be given; None if there is none.

    Raises:
        InputError: the data are not valid as this model.
    """
    problems = [*document.problems, *others]
    try:
        validated = model.model_validate(data, context=rtt)
    except ValidationError as error:
        reported = {problem.where for problem in problems}
        further = _problems(document, model, error)
        problems += [problem for problem in further if problem.where not in reported]
        raise InputError(problems) from None
    raise_any(problems)
    return validated


def _problems(
    document: Document, model: type[BaseModel], error: ValidationError
) -> Iterator[Problem]:
    """The problems of a document that is not valid as this model."""
    errors = error.errors()
    locations = [detail["loc"] for detail in errors]
    for detail in errors:
        here = detail["loc"]
        inside = any(len(loc) > len(here) and loc[: len(here)] == here for loc in locations)
        if not (detail["type"] == "too_short" and inside):  # only because its entries are wrong
            yield _problem(document, model, detail)


def _problem(document: Document, model: type[BaseModel], error: ErrorDetails) -> Problem:
    tag = ("kind",) if error["type"].startswith("union_tag") else ()
    location, enclosing, info = _locate(model, (*error["loc"], *tag))
    path = reduce(key_path, location, "")
    last = str(location[-1]) if location else ""
    found, remedy = _found(document, path, error), ""
    if last == "[key]":  # so pydantic names a wrong key of a plain mapping
        path, found = reduce(key_path, location[:-2], ""), f"the key {location[-2]!r}"
    keys = tuple(_fields_by_key(enclosing))
    what = f" ({info.description})" if info is not None and info.description else ""
    context = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            found, expected = f"the unknown key {last}", f"one of {', '.join(keys)}"
            remedy = (
                blank_remedy(last)
                or _elsewhere(enclosing, location)
                or _scope_of(enclosing, last)
                or did_you_mean(last, keys)
            )
        case "model_type" | "model_attributes_type" | "dict_type":
            expected = f"a mapping with the keys {', '.join(keys)}" if keys else "a mapping"
            remedy = _remedy_for_bare_kind(found, info)
        case "enum" | "literal_error":
            expected = str(context["expected"]).replace("'", "")
            remedy = did_you_mean(found, re.split(", | or ", expected))
        case "union_tag_invalid":
            tags = str(context["expected_tags"]).replace("'", "").split(", ")
            expected = " or ".join(filter(None, (", ".join(tags[:-1]), tags[-1])))
            remedy = did_you_mean(found, tags)
        case "value_error":
            return _refusal(document, path, error)
        case "string_pattern_mismatch" if context["pattern"] in _PATTERNS:
            expected = _PATTERNS[context["pattern"]]
        case kind if kind in _EXPECTED:
            expected = _EXPECTED[kind].format(**context) + what
            remedy = _remedy_for_type(kind, error["input"], found, location)
        case _:
            expected = error["msg"]
    return Problem(document.where(path), found, expected, remedy)


def _found(document: Document, path: str, error: ErrorDetails) -> str:
    """What stands there: as written, or of a document that nobody wrote the value."""
    value = error["input"]
    return document.texts.get(path) or (str(value) if isinstance(value, str | int | float) else "")


def _refusal(document: Document, path: str, error: ErrorDetails) -> Problem:
    """The problem of a value that the model itself refuses."""
    refused = error["ctx"]["error"]
    key, expected, remedy = "", str(refused), ""
    if isinstance(refused, RefusedValueError):
        key, expected, remedy = refused.key, refused.expected, refused.remedy
    path = key_path(path, key) if key else path
    of_whole = isinstance(error["input"], dict) and not key
    found = "" if of_whole else _found(document, path, error)
    return Problem(document.where(path), found, expected, remedy)


def _remedy_for_bare_kind(text: str, info: FieldInfo | None) -> str:
    """What to write in place of a kind without a mapping, such as `transport: roce`."""
    kinds = kinds_of(tuple(_models_in(info.annotation))) if info is not None else {}
    kind = similar_word(text, tuple(kinds))
    if kind is None:
        return f"its kind is {', '.join(kinds)}" if kinds else ""
    required = [key for key, field in _fields_by_key(kinds[kind]).items() if field.is_required()]
    also = f", and its {', '.join(required)}" if required else ""
    return f"write {{kind: {kind}}}{also}"


def _remedy_for_type(kind: str, value: object, text: str, location: "_Location") -> str:
    """What to write in place of a value of the wrong type; empty if that is not clear."""
    if kind == "string_type" and isinstance(value, bool | int | float):
        is_host = "workload" in location and type(value) is int
        return f"hosts have names: h{value}" if is_host else f'write it in quotes: "{text}"'
    if kind in {"list_type", "tuple_type"} and isinstance(value, dict):
        return "begin each entry with a dash, or write it in brackets: [{...}]"
    if kind in {"list_type", "tuple_type"} and isinstance(location[-1], str) and " " not in text:
        return f"write it in brackets: [{text}]"
    return number_remedy(text) if kind.startswith(("int", "float")) else ""


def _scope_of(model: type[BaseModel] | None, key: str) -> str:
    """The scope of a metric that stands directly below `expect`."""
    scopes = [name for name, scope in SCOPES.items() if key in scope.quantities]
    return f"did you mean {scopes[0]}.{key}?" if model is Expect and scopes else ""


def _elsewhere(model: type[BaseModel] | None, location: "_Location") -> str:
    """The part of a model that has a key which the model itself does not have."""
    *outer, key = location
    for name, info in _fields_by_key(model).items():
        if any(key in _fields_by_key(part) for part in _models_in(info.annotation)):
            place = (name, 0, key) if get_origin(info.annotation) is tuple else (name, key)
            return f"did you mean {reduce(key_path, (*outer, *place), '')}?"
    return ""


_Location = tuple[str | int, ...]


def _locate(
    model: type[BaseModel], location: _Location
) -> tuple[_Location, type[BaseModel] | None, FieldInfo | None]:
    """Follow pydantic's location of an error through the models.

    Returns the steps that are keys of the file (pydantic adds the `kind` of a part as a step),
    the model that encloses the last key or is its value, and the field of the last key.
    """
    inner: type[BaseModel] | None = model
    info: FieldInfo | None = None
    kinds: dict[str, type[BaseModel]] = {}
    steps: list[str | int] = []
    free_key = False  # the next step is a key of a plain mapping
    for step in location:
        if isinstance(step, str) and step in kinds:
            inner, kinds = kinds[step], {}
            continue
        steps.append(step)
        if isinstance(step, int) or inner is None or free_key:
            free_key = False
            continue
        info = _fields_by_key(inner).get(step)
        if info is None:
            break
        models = tuple(_models_in(info.annotation))
        inner, kinds = next(iter(models), None), kinds_of(models)
        free_key = get_origin(info.annotation) is dict
    return tuple(steps), inner, info


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _fields_by_key(model: type[BaseModel] | None) -> dict[str, FieldInfo]:
    fields = model.model_fields if model is not None else {}
    return {field.alias or name: field for name, field in fields.items()}
