"""Metrics: each figure of a run's summary, declared once; how one is distributed over flows.

    class FaultEffect(MetricGroup):
        stall: Annotated[Time | None, Metric(views=View.REPORT)] = None
        \"\"\"The longest gap between two advances of the in-order delivered point.\"\"\"

In `summary.json` a time is one number for each of its forms (`stall_ms`, `stall_rtt`,
`stall_real_us`), any other metric one number of its name. All code that shows, compares, expects or
documents metrics takes them from `MetricGroup.metrics()`, so that a new declaration appears
everywhere.

Values are computed in `testbed/results/analysis`: `MetricGroup.measured` takes each from the
attribute of the same name of an object that knows the run's records.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Flag, auto
from functools import cache
from itertools import pairwise
from math import ceil, isinf
from statistics import median
from types import NoneType
from typing import Any, ClassVar, Self, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.model.summary.unit import (
    COUNT,
    NEVER,
    NEVER_IN_JSON,
    NUMBER,
    RTT,
    THREE_FORMS,
    YES_NO,
    MaybeNever,
    Scale,
    Time,
    TimeForm,
    Unit,
)

Value = int | float | None

Combine = Callable[[Sequence[Value]], Value]
"""Makes one value of the values of several flows."""


def total(values: Sequence[Value]) -> Value:
    """The sum of the values that exist."""
    return sum(value for value in values if value is not None)


def greatest(values: Sequence[Value]) -> Value:
    """The greatest of the values that exist, NEVER above all; None if none does."""
    return max((value for value in values if value is not None), default=None)


def least(values: Sequence[Value]) -> Value:
    """The least of the values that exist; None if none does."""
    return min((value for value in values if value is not None), default=None)


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """A metric's row in comparisons of runs.

    Attributes:
        name: what the row is called; the metric's title if empty.
        of_run: whether a fault has a row of all flows together, too.
    """

    name: str = ""
    of_run: bool = False


@dataclass(frozen=True)
class Metric:
    """What is said of a metric beside its type, as in `Annotated[int, Metric(BYTES)]`.

    Attributes:
        unit: its unit; None: that of its type. Forms of a time have units of their own.
        title: its heading in tables; empty: its name as words.
        views: the tables that show it.
        combine: makes one value of those of several flows or faults: the worst, or a sum.
        compared: its row in comparisons, if it has one.
        never: what is said of flows whose value is NEVER, as in "15 of 64 did not recover".
        forms: those in which it is given if it is a time.
        name: that of its field.
        types: what its value may be.
        group: the group that has it.
    """

    unit: Unit | None = None
    title: str = ""
    views: View = View.NONE
    combine: Combine = greatest
    compared: Comparison | None = None
    never: str = "never did"
    forms: tuple[TimeForm, ...] = THREE_FORMS
    name: str = ""
    types: tuple[Any, ...] = ()
    group: "type[MetricGroup] | None" = None

    def of_field(self, name: str, field: FieldInfo, group: "type[MetricGroup]") -> Self:
        """It with what its field says."""
        types = get_args(field.annotation) or (field.annotation,)
        forms = self.forms if Time in types else ()
        usual = forms[0].unit if forms else {bool: YES_NO, int: COUNT}.get(types[0], NUMBER)
        return replace(
            self,
            unit=self.unit or usual,
            title=self.title or name.replace("_", " "),
            forms=forms,
            name=name,
            types=types,
            group=group,
        )

    @property
    def definition(self) -> str:
        """What it is, in one or two sentences: the string below its field."""
        groups = (
            (base for base in self.group.__mro__ if issubclass(base, MetricGroup))
            if self.group
            else ()
        )
        texts = (_strings_below_fields(group).get(self.name, "") for group in groups)
        return next(filter(None, texts), "")

    @property
    def quantities(self) -> tuple["Quantity", ...]:
        """Its numbers in `summary.json`."""
        if not self.forms:
            return (Quantity(self.name, self.unit or NUMBER, self),)
        return tuple(
            Quantity(f"{self.name}_{form.suffix}", form.unit, self, form.suffix)
            for form in self.forms
        )

    @property
    def compared_quantity(self) -> "Quantity":
        """The number that comparisons show; of a time that in base RTTs, if it has that form."""
        return next((q for q in self.quantities if q.unit is RTT), self.quantities[0])

    def measure(self, source: object, scale: Scale) -> Any:
        """Its value, from an object that computes it; times in emulated seconds."""
        value = getattr(source, self.name)
        return Time.of(value, scale, self.forms) if self.forms else value

    @property
    def schema_of_number(self) -> JsonSchemaValue:
        """The JSON Schema of each of its numbers."""
        number = {bool: "boolean", int: "integer"}.get(self.types[0], "number")
        kinds: list[JsonSchemaValue] = [{"type": number}]
        if NoneType in self.types:
            kinds.append({"type": "null"})
        if self.forms or MaybeNever in self.types:
            kinds.append({"const": NEVER_IN_JSON})
        return {"anyOf": kinds} if kinds[1:] else kinds[0]


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a metric: its key in `summary.json`, its unit, and of a time its form."""

    key: str
    unit: Unit
    metric: Metric
    form: str = ""

    def of(self, group: "MetricGroup") -> Value:
        """The number of a group; None where it does not exist."""
        value = getattr(group, self.metric.name)
        number = getattr(value, self.form) if self.form and value is not None else value
        return cast("Value", number)


class MetricGroup(BaseModel):
    """What is measured of one thing, such as a flow or a fault: its metrics, and what names it."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    left_out: ClassVar[frozenset[str]] = frozenset()
    """Parts that `summary.json` does not have where they are empty."""

    @classmethod
    def metrics(cls) -> tuple[Metric, ...]:
        """The declared metrics, in order; those of base classes first."""
        return _metrics_of(cls)

    @classmethod
    def quantities(cls) -> tuple[Quantity, ...]:
        """The numbers of the metrics, in order."""
        return _quantities_of(cls)

    @classmethod
    def measured(cls, source: object, scale: Scale, **fields: Any) -> Self:
        """Make a group of the attributes of `source` that have the metrics' names.

        Args:
            source: computes the metrics; times in emulated seconds.
            scale: by which times are given in other forms.
            fields: those that are no metrics.
        """
        return cls(**fields, **{m.name: m.measure(source, scale) for m in cls.metrics()})

    @classmethod
    def shown_in(cls, view: View) -> tuple[Metric, ...]:
        """The metrics that a kind of table shows."""
        return tuple(metric for metric in cls.metrics() if view in metric.views)

    @property
    def values(self) -> dict[str, Value]:
        """The numbers of the metrics, by their keys in `summary.json`."""
        return {quantity.key: quantity.of(self) for quantity in self.quantities()}

    @model_validator(mode="before")
    @classmethod
    def _join_times(cls, given: Any) -> Any:
        """Make a time of the numbers that `summary.json` has of it."""
        if not isinstance(given, Mapping) or _forms_of(cls).isdisjoint(given):
            return given
        joined = dict(given)
        for quantity in cls.quantities():
            if quantity.form and quantity.key in joined:
                forms = joined.setdefault(quantity.metric.name, {})
                forms[quantity.form] = joined.pop(quantity.key)
        for metric in cls.metrics():
            if metric.forms and isinstance(forms := joined.get(metric.name), dict):
                if {*forms.values()} == {None}:
                    joined[metric.name] = None
                elif len(forms) < len(metric.forms):
                    raise ValueError(f"{metric.name}: a form of this time is missing")
        return joined

    @model_serializer(mode="wrap")
    def _short_values_first(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        names = _names_of(type(self))
        if self.left_out:
            names |= {part for part in self.left_out if not getattr(self, part)}
        written = {key: value for key, value in write(self).items() if key not in names}
        for quantity in self.quantities():
            number = quantity.of(self)
            written[quantity.key] = NEVER_IN_JSON if number == NEVER else number
        return dict(
            sorted(written.items(), key=lambda item: isinstance(item[1], dict | list | tuple))
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The fields' schema and that of the metrics' numbers."""
        written = handler.resolve_ref_schema(handler(schema))
        properties = written.setdefault("properties", {})
        for metric in cls.metrics():
            del properties[metric.name]
        for quantity in cls.quantities():
            unit = f" Unit: {quantity.unit.symbol}." if quantity.unit.symbol else ""
            description = f"{quantity.metric.definition}{unit}"
            properties[quantity.key] = {
                **quantity.metric.schema_of_number,
                "description": description,
            }
        required = [key for key in properties if key not in cls.left_out]
        return {**written, "required": required}


@cache
def _metrics_of(group: type[MetricGroup]) -> tuple[Metric, ...]:
    """Found once: a run may have a million groups."""
    return tuple(
        metric.of_field(name, field, group)
        for name, field in group.model_fields.items()
        for metric in field.metadata
        if isinstance(metric, Metric)
    )


@cache
def _quantities_of(group: type[MetricGroup]) -> tuple[Quantity, ...]:
    return tuple(quantity for metric in _metrics_of(group) for quantity in metric.quantities)


@cache
def _names_of(group: type[MetricGroup]) -> frozenset[str]:
    return frozenset(metric.name for metric in _metrics_of(group))


@cache
def _forms_of(group: type[MetricGroup]) -> frozenset[str]:
    """The keys of the forms of its times in `summary.json`."""
    return frozenset(quantity.key for quantity in _quantities_of(group) if quantity.form)


@cache
def _strings_below_fields(group: type[MetricGroup]) -> dict[str, str]:
    """The strings below the fields of a class, on one line each, by the fields' names.

    Read when they are wanted: with `use_attribute_docstrings` pydantic reads them at each import,
    which costs every command a tenth of a second.
    """
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(group))).body
    strings = {}
    for field, below in pairwise(cast("ast.ClassDef", definition).body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                strings[name] = " ".join(str(text).split())
    return strings


P99 = 0.99


class Spread(BaseModel):
    """How one number is distributed over flows, or pairs of hosts.

    Attributes:
        count: how many of them have a value.
        never: how many of these values are NEVER.
        median: the median; NEVER is more than any number.
        p99: 99% are no worse.
        worst: the worst.
        worst_of: the one with the worst, as `h0 -> h4`.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    count: int
    never: int
    median: MaybeNever
    p99: MaybeNever
    worst: MaybeNever
    worst_of: str

    @classmethod
    def of(cls, numbers: Sequence[tuple[float, str]], *, least_is_worst: bool) -> Self:
        """Of one number or more, each with the name of what it is of."""
        ordered = sorted(numbers, reverse=least_is_worst, key=lambda item: item[0])
        values = [number for number, _ in ordered]
        worst, name = ordered[-1]
        return cls(
            count=len(values),
            never=sum(map(isinf, values)),
            median=median(values),
            p99=values[ceil(P99 * len(values)) - 1],
            worst=worst,
            worst_of=name,
        )


Spreads = Mapping[str, Spread]
"""By the number's key in `summary.json`."""


def spreads(groups: Sequence[tuple[str, MetricGroup]]) -> dict[str, Spread]:
    """How the metrics that are shown so are distributed over several flows, or pairs of hosts.

    Args:
        groups: the metrics of each, with its name.
    """
    if not groups[1:]:
        return {}
    spread_of = {}
    for metric in type(groups[0][1]).shown_in(View.OVER_FLOWS):
        for quantity in metric.quantities:
            numbers = [
                (float(number), name)
                for name, group in groups
                if (number := quantity.of(group)) is not None
            ]
            if numbers:
                spread_of[quantity.key] = Spread.of(numbers, least_is_worst=metric.combine is least)
    return spread_of


FEW = 2
"""Up to this number each is shown: a distribution would tell nothing more."""


def worth_showing(found: Spreads) -> bool:
    """Whether people see how metrics are distributed: there are more than a few flows or pairs."""
    return any(spread.count > FEW for spread in found.values())


def shown_spreads(
    group: type[MetricGroup], found: Spreads
) -> Iterator[tuple[Metric, list[str], str]]:
    """For each metric: median, p99 and worst with their unit; of which, or how many never."""
    for metric in group.shown_in(View.OVER_FLOWS):
        quantity = metric.compared_quantity
        spread = found.get(quantity.key)
        if spread is None:
            continue
        numbers = [quantity.unit.show(n) for n in (spread.median, spread.p99, spread.worst)]
        remark = spread.worst_of
        if spread.never:
            remark = f"{spread.never} of {spread.count} {metric.never}"
        yield metric, numbers, remark
