"""Quantities as people write them: `100 Gbit/s`, `4.365 us`, `1 MiB`, `0.8 BDP`.

Each `parse_*` function returns a whole number of the base unit that its docstring names, rounded to
the nearest, and raises `RefusedValueError` for anything else. The annotated types at the end use
them in pydantic models.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

from testbed.model.errors import RefusedValueError

NS_PER_S: Final = 1_000_000_000
"""Nanoseconds per second."""

NEVER_NS: Final = 1 << 62
"""A time that no clock reaches."""

_NUMBER = r"[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,2})?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([A-Za-zµ/]*)\s*", re.ASCII)
_LIMIT = 1 << 63
"""All quantities are below it: they are stored in 64 bits."""

_RATES = {
    "bit/s": 1,
    "kbit/s": 10**3,
    "Mbit/s": 10**6,
    "Gbit/s": 10**9,
    "Tbit/s": 10**12,
    "kb/s": 10**3,
    "Mb/s": 10**6,
    "Gb/s": 10**9,
}
_DURATIONS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": NS_PER_S, "min": 60 * NS_PER_S}
_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

_BDP = "BDP"
_MAX_BDP = 1000
_RTT = "RTT"


def _parse(value: object, units: Mapping[str, int], example: str) -> int:
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2] not in units:
        expected = f"a number with a unit ({', '.join(units)}), such as '{example}'"
        raise RefusedValueError(expected, remedy=_remedy(value, units, example.rpartition(" ")[2]))
    number = round(Decimal(match[1]) * units[match[2]])
    if number >= _LIMIT:
        raise RefusedValueError(f"a quantity that fits in 64 bits, such as '{example}'")
    return number


def _remedy(value: object, units: Mapping[str, int], usual: str) -> str:
    """What to write in place of a number without a unit (`usual` is that), or with nearly one."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None:
        return ""
    number, unit = match[1], match[2]
    if unit:
        spellings = {unit.lower(), unit.lower().removesuffix("s"), f"{unit.lower()}/s"}
        likely = [name for name in units if name.lower() in spellings]
        return f"did you mean {number} {likely[0]}?" if likely else ""
    return f"add the unit: {f'{number} s or ' if usual == _RTT else ''}{number} {usual}"


def parse_rate(value: object) -> int:
    """Parse a data rate into bits/s."""
    return _parse(value, _RATES, "100 Gbit/s")


def parse_duration(value: object) -> int:
    """Parse a time into ns."""
    return _parse(value, _DURATIONS, "4.365 us")


@dataclass(frozen=True, slots=True)
class BaseRtt:
    """A fabric's base RTT, in which times of a scenario may be given.

    Attributes:
        real_ns: at full speed, in ns.
        emulated_ns: multiplied by the dilation.
    """

    real_ns: int
    emulated_ns: int


def parse_real_time(value: object, rtt: BaseRtt | None = None) -> int:
    """Parse a real time, such as `5 us`, or `0.4 RTT` where the base RTT is given, into ns."""
    return _parse_time(value, None if rtt is None else rtt.real_ns, "5 us")


def parse_run_time(value: object, rtt: BaseRtt | None = None) -> int:
    """Parse a time of the run, such as `4 s`, or `30 RTT` where the base RTT is given, into ns."""
    return _parse_time(value, None if rtt is None else rtt.emulated_ns, "30 RTT")


def _parse_time(value: object, rtt_ns: int | None, example: str) -> int:
    units = _DURATIONS if rtt_ns is None else {**_DURATIONS, _RTT: rtt_ns}
    return _parse(value, units, "4.365 us" if rtt_ns is None else example)


def is_in_rtts(text: str) -> bool:
    """Whether a time is written in base RTTs."""
    match = _QUANTITY.fullmatch(text)
    return match is not None and match[2] == _RTT


def parse_size(value: object) -> int:
    """Parse a size into bytes."""
    return _parse(value, _SIZES, "1 MiB")


@dataclass(frozen=True, slots=True)
class Depth:
    """A number of bytes in a queue, given in bytes or in BDPs of its link.

    Attributes:
        number: BDPs or bytes.
        in_bdp: whether `number` is in BDPs.
    """

    number: Decimal
    in_bdp: bool

    def in_bytes(self, bdp_bytes: int) -> int:
        """The depth in bytes on a link with this bandwidth-delay product."""
        return round(self.number * bdp_bytes) if self.in_bdp else int(self.number)

    def __str__(self) -> str:
        if self.in_bdp:
            return f"{self.number.normalize():f} BDP"
        return _exactly(int(self.number), _SIZES)


def parse_depth(value: object) -> Depth:
    """Parse a queue's depth, in BDPs or bytes."""
    if isinstance(value, Depth):
        return value
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is not None and match[2] == _BDP:
        number = Decimal(match[1])
        if not 0 < number <= _MAX_BDP:
            raise RefusedValueError(f"more than 0 and at most {_MAX_BDP} BDP, such as '0.8 BDP'")
        return Depth(number, in_bdp=True)
    return Depth(Decimal(_parse(value, {_BDP: 1, **_SIZES}, "0.8 BDP")), in_bdp=False)


_DIGITS = 4
"""Significant digits of rates, sizes and limits."""

_FEW_DIGITS = 3
"""Significant digits of times and shares."""


_NOTHING = 1e-9


def show_number(number: float, digits: int = _FEW_DIGITS) -> str:
    """A number to three significant digits, without exponent: 0.0432, 13.4, 1234.

    Less than a billionth is what is left of sums of floats: 0.
    """
    if abs(number) < _NOTHING:
        return "0"
    exponent = int(f"{number:.{digits - 1}e}".partition("e")[2])
    decimals = max(digits - 1 - exponent, 0)
    text = f"{number:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def show_share(share: float) -> str:
    """A fraction of one as a percentage, to three significant digits: 94.5%, 0.0123%."""
    return f"{show_number(share * 100)}%"


def _show(number: float, units: Mapping[str, int], *names: str, digits: int = _DIGITS) -> str:
    """A quantity to a few digits, in the largest of some units in which it is at least 1."""
    rounded = abs(float(f"{number:.{digits - 1}e}"))
    unit = max(
        (name for name in names if rounded >= units[name]), key=units.__getitem__, default=names[0]
    )
    return f"{show_number(number / units[unit], digits)} {unit}"


def shown_at_most(limit: float) -> float:
    """A positive limit rounded down to four digits: so it can be shown as 'at most'."""
    return _to_digits(limit, ROUND_FLOOR)


def shown_at_least(limit: float) -> float:
    """A positive limit rounded up to four digits: so it can be shown as 'at least'."""
    return _to_digits(limit, ROUND_CEILING)


def _to_digits(number: float, rounding: str) -> float:
    exact = Decimal(number)
    step = Decimal(1).scaleb(exact.adjusted() + 1 - _DIGITS)
    return float(exact.quantize(step, rounding=rounding))


def show_rate(rate_bps: float) -> str:
    """A data rate in bits/s as text, to four digits."""
    return _show(rate_bps, _RATES, "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s")


def show_duration(time_ns: float) -> str:
    """A time in ns as text, in a fitting unit to three digits: 13.4 us."""
    return _show(time_ns, _DURATIONS, "ns", "us", "ms", "s", digits=_FEW_DIGITS)


def exact_duration(time_ns: int) -> str:
    """A time in ns as text, unrounded: for times that a file gives, and their limits."""
    unit = max(
        (name for name in ("ns", "us", "ms", "s") if abs(time_ns) >= _DURATIONS[name]),
        key=_DURATIONS.__getitem__,
        default="s",
    )
    return f"{(Decimal(time_ns) / _DURATIONS[unit]).normalize():f} {unit}"


def show_wait(seconds: float) -> str:
    """A time that somebody waits for, roughly: 45 s, 12 min, 36 h, 9 days."""
    unit, length_s = max(
        (entry for entry in _WAITS.items() if seconds >= _ENOUGH * entry[1]),
        key=itemgetter(1),
        default=("s", 1),
    )
    return f"{seconds / length_s:.0f} {unit}"


_WAITS = {"s": 1, "min": 60, "h": 3600, "days": 86_400}
_ENOUGH = 2
"""How many of a unit a wait has to be to be given in it."""


def show_size(size: float) -> str:
    """A size in bytes as text, to four digits."""
    return _show(size, _SIZES, "B", "KiB", "MiB", "GiB")


def _exactly(number: int, units: Mapping[str, int]) -> str:
    """A quantity as text, unrounded, in the largest unit of which it is a whole number."""
    unit = max((name for name in units if number % units[name] == 0), key=units.__getitem__)
    return f"{number // units[unit]} {unit}" if number else f"0 {next(iter(units))}"


def _quantity(parse: Callable[[object], int], units: Mapping[str, int]) -> object:
    """The type of an int field with its parser, its text in JSON and its JSON Schema."""
    pattern = rf"^\s*{_NUMBER}\s*({'|'.join(units)})\s*$"
    schema = WithJsonSchema({"type": "string", "pattern": pattern})
    write = PlainSerializer(lambda number: _exactly(number, units), return_type=str)
    return Annotated[int, BeforeValidator(parse), write, schema]


SIZE_PATTERN = rf"^\s*{_NUMBER}\s*({'|'.join(_SIZES)})\s*$"
"""How a size with a unit is written."""

_DEPTH_PATTERN = rf"^\s*{_NUMBER}\s*({'|'.join((_BDP, *_SIZES))})\s*$"


@dataclass(frozen=True, slots=True)
class TimeBase:
    """Marks a time of a scenario with the clock that it is in.

    Attributes:
        name: `emulated`, as it passes during the run, or `real`, as at full speed.
        meaning: the same for people who write a scenario.
    """

    name: str
    meaning: str


EMULATED = TimeBase("emulated", "emulated time, or base RTTs: 30 RTT")
REAL = TimeBase("real", "real time, which the dilation multiplies, or base RTTs: 0.4 RTT")


def _time_on(clock: TimeBase, parse: Callable[[object, BaseRtt | None], int]) -> object:
    """The type of a time of a scenario; the context of the validation is the base RTT, if known."""

    def read(value: object, info: ValidationInfo) -> int:
        return parse(value, info.context if isinstance(info.context, BaseRtt) else None)

    pattern = rf"^\s*{_NUMBER}\s*({'|'.join((*_DURATIONS, _RTT))})\s*$"
    schema = WithJsonSchema({"type": "string", "pattern": pattern, CLOCK: clock.meaning})
    write = PlainSerializer(lambda number: _exactly(number, _DURATIONS), return_type=str)
    return Annotated[int, BeforeValidator(read), write, schema, clock]


CLOCK = "clock"
"""In the JSON Schema of a time: what its clock is, which the generated schema adds to its text."""


if TYPE_CHECKING:
    Rate = int
    Duration = int
    RealTime = int
    RunTime = int
    Size = int
    QueueDepth = Depth
else:
    QueueDepth = Annotated[
        Depth,
        BeforeValidator(parse_depth),
        PlainSerializer(str, return_type=str),
        WithJsonSchema({"type": "string", "pattern": _DEPTH_PATTERN}),
    ]
    Rate = _quantity(parse_rate, _RATES)
    Duration = _quantity(parse_duration, _DURATIONS)
    RealTime = _time_on(REAL, parse_real_time)
    RunTime = _time_on(EMULATED, parse_run_time)
    Size = _quantity(parse_size, _SIZES)
