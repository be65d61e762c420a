"""Parts of a scenario that come in kinds, told apart by their key `kind`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.model.units import OfTheRun


class Part(BaseModel):
    """A part of a scenario: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def stretched(self, factor: float) -> Self:
        """The same with all times of the run so many times as long, in its parts too."""
        changes = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is not None and _is_of_the_run((field.annotation, *field.metadata)):
                changes[name] = round(value * factor)
            elif isinstance(value, Part):
                changes[name] = value.stretched(factor)
            elif isinstance(value, tuple) and value and isinstance(value[0], Part):
                changes[name] = tuple(one.stretched(factor) for one in value)
        return self.model_copy(update=changes)


def _is_of_the_run(hints: Iterable[object]) -> bool:
    """Whether a mark says so, at any depth of a type."""
    return any(isinstance(one, OfTheRun) or _is_of_the_run(get_args(one)) for one in hints)


@dataclass(frozen=True, slots=True)
class ByKind:
    """Marks a field that holds one of several models: `kind` says which, the first if it is absent.

    Each model has a field `kind` with one literal. An error inside is located with the
    kind as a step of its own, which is no key of the file (`kinds_of` tells which those are).
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic choose by the tag."""
        models = get_args(source) or (source,)
        default = _kind(models[0])

        def kind(value: Any) -> str:
            if isinstance(value, BaseModel):
                return str(getattr(value, "kind", value))
            return str(value.get("kind", default)) if isinstance(value, dict) else str(default)

        choices = {_kind(one): handler(one) for one in models}
        return core_schema.tagged_union_schema(choices, discriminator=kind)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Any of them: without `kind` a mapping may be right as several."""
        written = handler(schema)
        choices = written.pop("oneOf", None)
        if choices is None:
            return written
        return choices[0] if len(choices) == 1 else {**written, "anyOf": choices}


def kinds_of(models: tuple[type[BaseModel], ...]) -> dict[str, type[BaseModel]]:
    """The models that a field may hold by their kind; those without are left out."""
    return {_kind(one): one for one in models if _kind(one)}


def _kind(model: type[BaseModel]) -> str:
    field = model.model_fields.get("kind")
    literals = get_args(field.annotation) if field is not None else ()
    return str(literals[0]) if literals else ""
