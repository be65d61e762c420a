"""The base of all models that are read from files, and of parts that come in several kinds."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.model.units import EMULATED, TimeBase


class Part(BaseModel):
    """A topology, a scenario or a part of one: frozen, without unknown keys."""

    # A command uses few of all models: each builds its validator when it is first used (here, in
    # the summary and in a run's files), which saves a third of the time that a command takes to
    # start.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)

    def stretched(self, factor: float) -> Self:
        """A copy with every `RunTime` multiplied by a factor, in its parts too."""
        changes: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is not None and _clock_of((field.annotation, *field.metadata)) is EMULATED:
                changes[name] = round(value * factor)
            elif isinstance(value, Part):
                changes[name] = value.stretched(factor)
            elif isinstance(value, tuple) and value and isinstance(value[0], Part):
                changes[name] = tuple(part.stretched(factor) for part in value)
        return self.model_copy(update=changes)


def times_in(part: Part) -> Iterator[tuple[str, int, TimeBase]]:
    """Yield each time in a part: its key path from there, its value in ns, its clock."""
    for name, field in type(part).model_fields.items():
        value, key = getattr(part, name), field.alias or name
        clock = _clock_of((field.annotation, *field.metadata))
        if clock is not None and isinstance(value, int):
            yield key, value, clock
        parts = {key: value} if isinstance(value, Part) else {}
        if isinstance(value, tuple):
            parts = {f"{key}[{i}]": entry for i, entry in enumerate(value)}
        for place, inner in parts.items():
            if isinstance(inner, Part):
                for below, time_ns, inner_clock in times_in(inner):
                    yield f"{place}.{below}", time_ns, inner_clock


def _clock_of(hints: Iterable[object]) -> TimeBase | None:
    """The clock of a type of time; None for all other types."""
    for hint in hints:
        clock = hint if isinstance(hint, TimeBase) else _clock_of(get_args(hint))
        if clock is not None:
            return clock
    return None


@dataclass(frozen=True, slots=True)
class ByKind:
    """Marks a field that holds one of several models; the key `kind` tells which.

    Each model has a field `kind` with one literal; without the key it is the first model. In the
    location of a validation error the kind is a step of its own, which is no key of the file.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Have pydantic choose the model by its kind."""
        models = get_args(source) or (source,)
        default = _kind(models[0])

        def kind(value: Any) -> str:
            if isinstance(value, BaseModel):
                return str(getattr(value, "kind", value))
            return str(value.get("kind", default)) if isinstance(value, dict) else str(default)

        choices = {_kind(model): handler(model) for model in models}
        return core_schema.tagged_union_schema(choices, discriminator=kind)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Write `anyOf`, not `oneOf`: without `kind` a mapping may be valid as several models."""
        written = handler(schema)
        choices = written.pop("oneOf", None)
        if choices is None:
            return written
        return choices[0] if len(choices) == 1 else {**written, "anyOf": choices}


def kinds_of(models: tuple[type[BaseModel], ...]) -> dict[str, type[BaseModel]]:
    return {_kind(model): model for model in models if _kind(model)}


def _kind(model: type[BaseModel]) -> str:
    field = model.model_fields.get("kind")
    literals = get_args(field.annotation) if field is not None else ()
    return str(literals[0]) if literals else ""
