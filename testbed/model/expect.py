"""What a scenario expects of its metrics: bounds that are compared with them after the run."""

import re
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from testbed.model.errors import RefusedValueError
from testbed.model.part import Part
from testbed.model.summary.scopes import SCOPES
from testbed.model.summary.unit import NEVER

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]

_UNIT = Field(default=None, description="in the unit that the metric's name ends with, such as bps")
_EXPECTED = "a number, or a mapping with at_least, at_most or both"


class Bound(Part):
    """The values that a metric may have, both ends included."""

    at_least: Number | None = _UNIT
    at_most: Number | None = _UNIT

    @model_validator(mode="after")
    def _allows_something(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError(_EXPECTED)
        if None not in (self.at_least, self.at_most) and self.at_least > self.at_most:  # type: ignore[operator] # neither is None
            raise ValueError(f"at_least ({self.at_least:g}) up to at_most ({self.at_most:g})")
        return self

    def allows(self, value: float | None) -> bool:
        """Whether a value meets the bound; a value that does not exist, or is NEVER, does not."""
        if value is None or value == NEVER:
            return False
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    def excess(self, value: float) -> float:
        """How far a value is beyond the bound; negative within it; infinite for NEVER."""
        if value == NEVER:
            return value
        below = -float("inf") if self.at_least is None else self.at_least - value
        above = -float("inf") if self.at_most is None else value - self.at_most
        return max(below, above)

    def __str__(self) -> str:
        """In words: `at most 10`."""
        if self.at_least == self.at_most:
            return f"exactly {self.at_least:g}"
        least = () if self.at_least is None else (f"at least {self.at_least:g}",)
        most = () if self.at_most is None else (f"at most {self.at_most:g}",)
        return " and ".join(least + most)


def _exactly(value: Any) -> Any:
    """A plain number is both bounds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"at_least": value, "at_most": value}
    if not isinstance(value, dict | Bound):
        raise RefusedValueError(_EXPECTED, remedy=_as_mapping(str(value)))
    return value


_COMPARISON = re.compile(r"\s*([<>])=?\s*([0-9.]+)\s*")


def _as_mapping(text: str) -> str:
    """How a comparison such as `< 3` is written as a mapping; empty if it is none."""
    match = _COMPARISON.fullmatch(text)
    return f"write {{{'at_most' if match[1] == '<' else 'at_least'}: {match[2]}}}" if match else ""


def _of(scope: str) -> Any:
    return Field(default_factory=dict, description=SCOPES[scope].description)


_NUMBER = {"type": "number"}
_MAPPING = {
    "type": "object",
    "properties": {"at_least": _NUMBER, "at_most": _NUMBER},
    "minProperties": 1,
    "additionalProperties": False,
}
_SCHEMA = WithJsonSchema({"anyOf": [_NUMBER, _MAPPING]})
_Bounds = dict[str, Annotated[Bound, BeforeValidator(_exactly), _SCHEMA]]


_HOW_MANY_FINISH = {"count", "unfinished"}
"""Metrics of `OperationSummary`."""


class Expect(Part):
    """Bounds by the names that metrics have in `summary.json`."""

    run: _Bounds = _of("run")
    messages: _Bounds = _of("messages")
    flows: _Bounds = _of("flows")
    nodes: _Bounds = _of("nodes")
    victim: _Bounds = _of("victim")
    faults: _Bounds = _of("faults")
    run_faults: _Bounds = _of("run_faults")
    operations: _Bounds = _of("operations")
    jobs: _Bounds = _of("jobs")
    processes: _Bounds = _of("processes")
    clustermapper: _Bounds = _of("clustermapper")

    @property
    def says_how_many_finish(self) -> bool:
        return not _HOW_MANY_FINISH.isdisjoint(self.operations)


class JobExpect(Part):
    """Bounds of one job of several, by the same names."""

    job: _Bounds = _of("jobs")
    flows: _Bounds = _of("flows")
    operations: _Bounds = _of("operations")

    @property
    def says_how_many_finish(self) -> bool:
        return not _HOW_MANY_FINISH.isdisjoint(self.operations)
