"""EV profiles: which EVs a queue pair uses (`mrc_ctl.h`, OCP MRC API).

The controller lists the EVs (explicit), or gives the fields that they are made of (generated), or
leaves the choice to the NIC (auto). A generated EV is made of fields, the most significant first.
Each field has its initial value, in which the bits of its mask are replaced by those of a number
from `min` to `max`, in order.
"""

import random
from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from testbed.model.errors import RefusedValueError
from testbed.model.part import ByKind, Part

EV_BITS = 32
MOST_EVS = 65536

Ev = Annotated[int, Field(ge=0, lt=1 << EV_BITS, strict=True)]


class EvField(Part):
    """A field of a generated EV."""

    width: int = Field(ge=1, le=EV_BITS, strict=True, description="its bits")
    initial: Ev = Field(default=0, description="its value where the mask has no bit")
    min: Ev = Field(default=0, description="least number that replaces the masked bits")
    max: Ev | None = Field(
        default=None, description="greatest number that replaces them; null: all that fit"
    )
    mask: Ev = Field(description="the bits that are generated; 0: the field is fixed")

    @model_validator(mode="after")
    def _check(self) -> Self:
        most = (1 << self.width) - 1
        for key, value in (("initial", self.initial), ("mask", self.mask)):
            if value > most:
                expected = f"at most {most:#x}, which {self.width} bits hold"
                raise RefusedValueError(expected, key=key)
        fitting = (1 << self.mask.bit_count()) - 1
        if self.largest > fitting:
            expected = f"at most {fitting}, which the {self.mask.bit_count()} bits of mask hold"
            raise RefusedValueError(expected, key="max", remedy="a mask with more bits")
        if self.min > self.largest:
            raise RefusedValueError(f"at most max, which is {self.largest}", key="min")
        return self

    @property
    def largest(self) -> int:
        """The greatest number that replaces the masked bits."""
        return (1 << self.mask.bit_count()) - 1 if self.max is None else self.max

    @property
    def count(self) -> int:
        """How many values the field can have."""
        return self.largest - self.min + 1

    def value(self, number: int) -> int:
        """The value of the field for a number, counted from 0, which stands for `min`."""
        value, rest = self.initial & ~self.mask, self.min + number
        for bit in range(self.width):
            if self.mask >> bit & 1:
                value |= (rest & 1) << bit
                rest >>= 1
        return value


class AutoProfile(Part):
    """The NIC chooses: equally many EVs in each plane, on random paths."""

    kind: Literal["auto"] = "auto"


class ExplicitProfile(Part):
    """The EVs are listed."""

    kind: Literal["explicit"] = "explicit"
    evs: tuple[Ev, ...] = Field(min_length=1, max_length=MOST_EVS, description="the EVs")

    @model_validator(mode="after")
    def _check(self) -> Self:
        twice = [ev for ev, count in Counter(self.evs).items() if count > 1]
        if twice:
            raise RefusedValueError(f"each EV once; {twice[0]:#010x} is listed twice", key="evs")
        return self

    def values(self, seed: int) -> tuple[int, ...]:
        """The EVs, as listed."""
        del seed
        return self.evs


class GeneratedProfile(Part):
    """The EVs are made of fields."""

    kind: Literal["generated"] = "generated"
    evs: Annotated[int, Field(ge=1, le=MOST_EVS, strict=True)] = Field(
        description="number of EVs, chosen at random among those that the fields can have"
    )
    fields: tuple[EvField, ...] = Field(
        min_length=1,
        max_length=EV_BITS,
        description="the fields, from the most significant bit on; the bits behind them are 0",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        width = sum(field.width for field in self.fields)
        if width > EV_BITS:
            expected = f"fields of {EV_BITS} bits together at most, not {width}"
            raise RefusedValueError(expected, key="fields")
        possible = prod(field.count for field in self.fields)
        if self.evs > possible:
            raise RefusedValueError(
                f"at most {possible}, which these fields generate",
                key="evs",
                remedy="fewer EVs, a mask with more bits, or a wider range from min to max",
            )
        return self

    def values(self, seed: int) -> tuple[int, ...]:
        """The EVs, all different; the same seed repeats them."""
        chooser = random.Random(f"ev profile {seed}")  # noqa: S311 - repeatable
        counts = [field.count for field in self.fields]
        numbers = chooser.sample(range(prod(counts)), self.evs)
        return tuple(_assembled(self.fields, number) for number in numbers)


def _assembled(fields: Sequence[EvField], number: int) -> int:
    """The EV with this number among those that the fields can have."""
    ev, used = 0, 0
    for field in fields:
        number, digit = divmod(number, field.count)
        used += field.width
        ev |= field.value(digit) << EV_BITS - used
    return ev


ListedProfile = Annotated[ExplicitProfile | GeneratedProfile, ByKind()]
"""A profile that says which EVs there are."""

EvProfileKind = Annotated[AutoProfile | ExplicitProfile | GeneratedProfile, ByKind()]
"""Any profile."""


class EvProfileFile(Part):
    """A file with a profile."""

    ev_profile: ListedProfile = Field(description="the EVs")
