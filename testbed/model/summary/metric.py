"""Metrics: each figure of a run's summary, declared once as an attribute of its group.

    class FaultEffect(MetricGroup):
        stall = OptionalTime(views=View.REPORT)
        \"\"\"The longest gap between two advances of the in-order delivered point.\"\"\"

`FaultEffect.stall` is the declaration, `fault.stall` the value. In `summary.json` a time is one
number for each of its forms (`stall_ms`, `stall_rtt`, `stall_real_us`), any other metric one number
of its name. All code that shows, compares, expects or documents metrics takes them from
`MetricGroup.metrics()`, so that a new declaration appears everywhere.

Values are computed in `testbed/results/analysis`: `MetricGroup.measured` takes each from the
attribute of the same name of an object that knows the run's records.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache
from itertools import pairwise
from math import inf
from typing import Annotated, Any, Generic, Self, TypeVar, cast, overload

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.model.summary.combine import Combine, Value, greatest
from testbed.model.summary.unit import (
    COUNT,
    NUMBER,
    RTT,
    THREE_FORMS,
    YES_NO,
    Scale,
    Time,
    TimeForm,
    Unit,
)

T = TypeVar("T")
_NEVER_IN_JSON = "never"


class View(Flag):
    """Tables that show a metric, beside `summary.json`."""

    NONE = 0
    TERMINAL = auto()
    REPORT = auto()
    FLOWS_OF_FAULT = auto()
    """The report's table of what a fault did to each flow."""

    OVER_FLOWS = auto()
    """The tables of how it is distributed over several flows."""

    USUAL = TERMINAL | REPORT
    """The terminal's table and the report's."""


NEVER = inf
"""The time of what never happened: worse than any number. "never" in JSON."""

MaybeNever = Annotated[
    float,
    BeforeValidator(lambda value: NEVER if value == _NEVER_IN_JSON else value),
    PlainSerializer(lambda value: _NEVER_IN_JSON if value == NEVER else value),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"const": _NEVER_IN_JSON}]}),
]
"""A number that may be NEVER, as a field."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A metric's row in comparisons of runs.

    Attributes:
        name: what the row is called; the metric's label if empty.
        combine: makes one number of those of a run's flows.
    """

    name: str = ""
    combine: Combine = greatest


REQUIRED, CLASS_DEFAULT = object(), object()
"""Defaults of a metric: it has none and must be given; it has the default of its class."""


class Metric(Generic[T]):
    """The declaration of a metric whose values have type `T`.

    Its name is that of the attribute, its definition the string below it.

    Attributes:
        name: its name.
        unit: its unit; of a time that of its first form.
        title: its heading in tables.
        views: the tables that show it.
        combine: makes a fault's value of those of the flows that it affected: the worst, or a sum.
        compared: its row in comparisons, if it has one.
        default: its value where none is given; `REQUIRED` if there has to be one.
        never: what is said of flows whose value is NEVER, as in "15 of 64 did not recover".
    """

    number = TypeAdapter[Any](float)
    """Type of its numbers."""

    usual_unit = NUMBER
    usual_default: Any = REQUIRED
    may_be_never = False
    """Whether its value may be NEVER."""

    def __init__(
        self,
        unit: Unit | None = None,
        *,
        definition: str = "",
        title: str = "",
        views: View = View.NONE,
        combine: Combine = greatest,
        compared: Comparison | None = None,
        default: Any = CLASS_DEFAULT,
        never: str = "never did",
    ) -> None:
        """Declare a metric; a definition is given only if there is no source to read it from."""
        self.name = ""
        self.unit = unit or self.usual_unit
        self.title = title
        self.views = views
        self.combine = combine
        self.compared = compared
        self.default = self.usual_default if default is CLASS_DEFAULT else default
        self.never = never
        self._definition = definition
        self._owner: type = object

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the attribute's name."""
        self._owner, self.name = owner, name
        self.title = self.title or self.label

    @overload
    def __get__(self, group: None, owner: type) -> Self: ...

    @overload
    def __get__(self, group: "MetricGroup", owner: type) -> T: ...

    def __get__(self, group: "MetricGroup | None", owner: type) -> Self | T:
        """The declaration, of a class; the value, of a group."""
        return self if group is None else self.value(group)

    @property
    def label(self) -> str:
        """Its name as words."""
        return self.name.replace("_", " ")

    @property
    def definition(self) -> str:
        """What it is, in one or two sentences."""
        return self._definition or _attribute_docstrings(self._owner)[self.name]

    def value(self, group: "MetricGroup") -> T:
        """Its value in a group."""
        return cast("T", group.values[self.name])

    @property
    def quantities(self) -> tuple["Quantity", ...]:
        """Its numbers in `summary.json`."""
        return (Quantity(self.name, self.unit, self),)

    @property
    def compared_quantity(self) -> "Quantity":
        """The number that comparisons show; of a time that in base RTTs, if it has that form."""
        return next((q for q in self.quantities if q.unit is RTT), self.quantities[0])

    def numbers(self, source: object, scale: Scale) -> dict[str, Value]:  # noqa: ARG002 - of times
        """Its numbers by key, from an object that computes it."""
        return {self.name: getattr(source, self.name)}


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a metric: its key in `summary.json`, and its unit."""

    key: str
    unit: Unit
    metric: Metric[Any]

    def of(self, group: "MetricGroup") -> Value:
        """The number of a group; None where it does not exist."""
        return group.values[self.key]


@cache
def _attribute_docstrings(owner: type) -> dict[str, str]:
    """The strings below the attributes of a class, on one line each, by the attributes' names."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    docstrings = {}
    for statement, below in pairwise(cast("ast.ClassDef", definition).body):
        match statement, below:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=text)):
                docstrings[name] = " ".join(str(text).split())
    return docstrings


class Count(Metric[int]):
    """A whole number: packets, bytes."""

    number = TypeAdapter[Any](int)
    usual_unit = COUNT


class OptionalCount(Metric[int | None]):
    """A whole number that may not exist."""

    number = TypeAdapter[Any](int | None)
    usual_unit = COUNT
    usual_default = None


class YesNo(Metric[bool]):
    """Whether something holds."""

    number = TypeAdapter[Any](bool)
    usual_unit = YES_NO


class Number(Metric[float]):
    """A number that always exists."""


class OptionalNumber(Metric[float | None]):
    """A number that may not exist."""

    number = TypeAdapter[Any](float | None)
    usual_default = None


class OptionalWait(OptionalNumber):
    """How long until something happens, in another unit than time, such as rounds; may be NEVER."""

    may_be_never = True


class Times(Metric[T]):
    """A time, computed in emulated seconds and given in several forms."""

    def __init__(self, forms: tuple[TimeForm, ...] = THREE_FORMS, **options: Any) -> None:
        """Declare it."""
        super().__init__(forms[0].unit, **options)
        self.forms = forms

    def value(self, group: "MetricGroup") -> T:
        """Its value in a group."""
        numbers = {form.suffix: group.values[f"{self.name}_{form.suffix}"] for form in self.forms}
        exists = None not in numbers.values()
        return cast("T", Time(cast("dict[str, float]", numbers)) if exists else None)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """A number for each form."""
        return tuple(Quantity(f"{self.name}_{form.suffix}", form.unit, self) for form in self.forms)

    def numbers(self, source: object, scale: Scale) -> dict[str, Value]:
        """Its forms by key, from an object that computes it in seconds."""
        seconds: float | None = getattr(source, self.name)
        return {
            f"{self.name}_{form.suffix}": None if seconds is None else form.convert(seconds, scale)
            for form in self.forms
        }


class RequiredTime(Times[Time]):
    """A time that always exists; it may be NEVER."""

    may_be_never = True


class OptionalTime(Times[Time | None]):
    """A time that may not exist, as it was not measured, or be NEVER."""

    number = TypeAdapter[Any](float | None)
    usual_default = None
    may_be_never = True


class MetricGroup(BaseModel):
    """What is measured of one thing, such as a flow or a fault: its metrics, and what names it.

    Fields that are no metrics are declared as pydantic's. Keys that are neither are refused.
    """

    model_config = ConfigDict(frozen=True, extra="allow", ignored_types=(Metric,))

    @classmethod
    def metrics(cls) -> tuple[Metric[Any], ...]:
        """The declared metrics, in order; those of base classes first."""
        return metrics_of(cls)

    @classmethod
    def quantities(cls) -> tuple[Quantity, ...]:
        """The numbers of the metrics, in order."""
        return quantities_of(cls)

    @classmethod
    def measured(cls, source: object, scale: Scale, **fields: Any) -> Self:
        """Make a group of the attributes of `source` that have the metrics' names.

        Args:
            source: computes the metrics; times in emulated seconds.
            scale: by which times are given in other forms.
            fields: those that are no metrics.
        """
        numbers: dict[str, Value] = {}
        for metric in cls.metrics():
            numbers |= metric.numbers(source, scale)
        return cls(**fields, **numbers)

    @classmethod
    def shown_in(cls, view: View) -> tuple[Metric[Any], ...]:
        """The metrics that a kind of table shows."""
        return tuple(metric for metric in cls.metrics() if view in metric.views)

    @property
    def values(self) -> Mapping[str, Value]:
        """The numbers of the metrics, by their keys in `summary.json`."""
        return self.__pydantic_extra__ or {}

    @model_validator(mode="before")
    @classmethod
    def _check_numbers(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        numbers: dict[str, Value] = {}
        wrong: list[str] = []
        for quantity in cls.quantities():
            number = given.get(quantity.key, quantity.metric.default)
            if number == _NEVER_IN_JSON and quantity.metric.may_be_never:
                number = NEVER
            try:
                numbers[quantity.key] = quantity.metric.number.validate_python(number, strict=True)
            except ValidationError:
                wrong.append(quantity.key)
        wrong += given.keys() - numbers.keys() - cls.model_fields.keys()
        if wrong:
            raise ValueError(f"missing, unknown, or of another type: {', '.join(wrong)}")
        return {**given, **numbers}

    @model_serializer(mode="wrap")
    def _short_values_first(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        never = {key: _NEVER_IN_JSON for key, value in self.values.items() if value == NEVER}
        written = {**write(self), **never}  # as JSON pydantic writes infinity as null
        return dict(
            sorted(written.items(), key=lambda item: isinstance(item[1], dict | list | tuple))
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The fields' schema and that of the metrics."""
        written = handler.resolve_ref_schema(handler(schema))
        properties = written.setdefault("properties", {})
        for quantity in cls.quantities():
            unit = f" Unit: {quantity.unit.symbol}." if quantity.unit.symbol else ""
            description = f"{quantity.metric.definition}{unit}"
            schema_of_number = quantity.metric.number.json_schema()
            if quantity.metric.may_be_never:
                others = schema_of_number.get("anyOf", [schema_of_number])
                schema_of_number = {"anyOf": [*others, {"const": _NEVER_IN_JSON}]}
            properties[quantity.key] = {**schema_of_number, "description": description}
        return {**written, "additionalProperties": False, "required": list(properties)}


@cache
def metrics_of(group: type[MetricGroup]) -> tuple[Metric[Any], ...]:
    """The metrics that a group declares, found once: a run may have a million groups."""
    return tuple(
        attribute
        for base in reversed(group.__mro__)
        if issubclass(base, MetricGroup)  # pydantic's own classes have a hundred attributes
        for attribute in vars(base).values()
        if isinstance(attribute, Metric)
    )


@cache
def quantities_of(group: type[MetricGroup]) -> tuple[Quantity, ...]:
    """The numbers of these metrics."""
    return tuple(quantity for metric in metrics_of(group) for quantity in metric.quantities)
