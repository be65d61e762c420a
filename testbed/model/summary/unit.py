"""Units of metrics, and the forms in which times are given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isinf, nan
from typing import Annotated, Self

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from testbed.model.units import (
    NS_PER_S,
    show_duration,
    show_number,
    show_rate,
    show_share,
    show_size,
)

NEVER = inf
"""The time of what never happened: worse than any number."""

NEVER_IN_JSON = "never"

MaybeNever = Annotated[
    float,
    BeforeValidator(lambda value: NEVER if value == NEVER_IN_JSON else value),
    PlainSerializer(lambda value: NEVER_IN_JSON if value == NEVER else value),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"const": NEVER_IN_JSON}]}),
]
"""A number that may be NEVER, as a field."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a number counts, and how people see it.

    Attributes:
        symbol: its name; empty where there is none.
        form: writes a number of it.
        scaled: whether that includes the unit, as kB or MB, us or ms, whichever fits.
        compared: the unit in comparisons, and how many of `symbol` it is.
    """

    symbol: str
    form: Callable[[float], str] = show_number
    scaled: bool = False
    compared: tuple[str, float] = ("", 1)

    def show(self, number: float) -> str:
        """Write a number with its unit; what never happened as "never"."""
        plain = self.scaled or not self.symbol or isinf(number)
        return self.number(number) if plain else f"{self.number(number)} {self.symbol}"

    def number(self, number: float) -> str:
        """Write a number for a column whose heading has the unit, if it has one."""
        return "never" if isinf(number) else self.form(number)


NUMBER = Unit("")
COUNT = Unit("", lambda count: f"{count:,.0f}")
YES_NO = Unit("", lambda holds: "yes" if holds else "no")
SHARE = Unit("", show_share, compared=("%", 0.01))
BYTES = Unit("B", show_size, scaled=True, compared=("B", 1))
RATE = Unit("bit/s", show_rate, scaled=True, compared=("Mbit/s", 1e6))
SECONDS = Unit("s", lambda s: show_duration(s * NS_PER_S), scaled=True, compared=("s", 1))
MS = Unit("ms", lambda ms: show_duration(ms * 1e6), scaled=True, compared=("ms", 1))
RTT = Unit("RTT", show_number, compared=("RTT", 1))
US = Unit("us", lambda us: show_duration(us * 1e3), scaled=True, compared=("us", 1))


@dataclass(frozen=True, slots=True)
class Scale:
    """What times of a run are divided by: its base RTT in emulated seconds, and its dilation."""

    base_rtt_s: float
    dilation: float


@dataclass(frozen=True, slots=True)
class TimeForm:
    """One way to give a time: the suffix of its key, its unit, and its number from seconds."""

    suffix: str
    unit: Unit
    convert: Callable[[float, Scale], float]


IN_S = TimeForm("s", SECONDS, lambda seconds, _: seconds)
IN_MS = TimeForm("ms", MS, lambda seconds, _: seconds * 1e3)
IN_RTT = TimeForm("rtt", RTT, lambda seconds, scale: seconds / scale.base_rtt_s)
IN_REAL_US = TimeForm("real_us", US, lambda seconds, scale: seconds * 1e6 / scale.dilation)
THREE_FORMS = (IN_MS, IN_RTT, IN_REAL_US)


@dataclass(frozen=True, slots=True)
class Time:
    """A time in the forms of its metric; not a number in the others.

    Attributes:
        s: in emulated seconds.
        ms: in emulated milliseconds.
        rtt: in base RTTs.
        real_us: in microseconds at full speed: emulated time / dilation.
    """

    s: MaybeNever = nan
    ms: MaybeNever = nan
    rtt: MaybeNever = nan
    real_us: MaybeNever = nan

    @classmethod
    def of(
        cls, seconds: float | None, scale: Scale, forms: Sequence[TimeForm] = THREE_FORMS
    ) -> Self | None:
        """Of emulated seconds, in some forms; None if there is no time."""
        if seconds is None:
            return None
        return cls(**{form.suffix: form.convert(seconds, scale) for form in forms})
