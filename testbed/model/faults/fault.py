"""What every kind of fault has: targets, a time, a course."""

from collections.abc import Iterator
from random import Random
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from testbed.model.errors import RefusedValueError
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.part import Part
from testbed.model.units import RunTime, exact_duration

MAX_FAULTS = 10_000
"""How many faults one timeline may have, repetitions included."""

NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


def _as_list(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise RefusedValueError("the name of a target, or a list of them (docs/faults.md)")
    return value


Targets = Annotated[
    tuple[str, ...], Field(min_length=1), BeforeValidator(_as_list), WithJsonSchema(NAMES)
]
Probability = Annotated[float, Field(gt=0, le=1, strict=True)]


class AnyFault(Part):
    """What every kind has: targets and a time.

    Attributes:
        full: the impairment of its places at the fault's full degree, where no key decides it.
        strikes_hosts: whether it strikes endpoints rather than links.
        needs_process: whether it strikes the process of an endpoint; a simulated host has none.
        needs_both_directions: whether it strikes both directions of a link or none.
    """

    full: ClassVar[Impairment] = HEALTHY
    strikes_hosts: ClassVar[bool] = False
    needs_process: ClassVar[bool] = False
    needs_both_directions: ClassVar[bool] = False

    kind: str
    target: Annotated[
        Targets, Field(description="what it affects: a name or a list of names (docs/faults.md)")
    ]
    choose: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="strike only this many of the targets, drawn at random each time"
    )
    at: RunTime = Field(description="when it begins, from the start of the run")

    @property
    def heals_at(self) -> int | None:
        """When its first repetition heals, in ns of the run; None if it never heals."""
        return None

    def start_times(self, duration: int) -> range:  # noqa: ARG002 - only some kinds repeat
        """When each repetition begins, in ns of a run that lasts `duration` ns."""
        return range(self.at, self.at + 1)

    def course(self, random: Random) -> Iterator[tuple[int, Impairment]]:  # noqa: ARG002 - no chance
        """Yield (ns since the beginning, impairment from then on) in order of time.

        Healing is not part of the course.
        """
        yield 0, self.full


class TemporaryFault(AnyFault):
    """A fault that heals, and that may repeat."""

    for_: Annotated[RunTime, Field(gt=0)] = Field(alias="for", description="how long it lasts")
    every: Annotated[RunTime, Field(gt=0)] | None = Field(
        default=None, description="repeat it at this interval until the run ends"
    )
    times: Annotated[int, Field(ge=1, le=MAX_FAULTS, strict=True)] | None = Field(
        default=None, description="how often in all, if not until the run ends"
    )

    @model_validator(mode="after")
    def _check_repetition(self) -> Self:
        if self.times is not None and self.every is None:
            raise RefusedValueError("the key every (the interval) beside it", key="times")
        if self.every is not None and self.every <= self.for_:
            raise RefusedValueError(
                f"longer than for ({exact_duration(self.for_)}): it heals before it begins again",
                key="every",
            )
        return self

    @property
    def heals_at(self) -> int:
        """When its first repetition heals, in ns of the run."""
        return self.at + self.for_

    def start_times(self, duration: int) -> range:
        """When each repetition begins, in ns; without `times`, all that heal within the run."""
        if self.every is None:
            return super().start_times(duration)
        fitting = max((duration - self.heals_at) // self.every + 1, 1)
        times = fitting if self.times is None else self.times
        return range(self.at, self.at + times * self.every, self.every)
