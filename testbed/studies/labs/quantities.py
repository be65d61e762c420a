"""Numbers with units as students write them, and how close two of them are."""

import re
from dataclasses import dataclass

from testbed.model.errors import RefusedValueError
from testbed.model.units import show_number

_UNITS: dict[str, tuple[str, float]] = {
    "ns": ("time", 1e-9),
    "us": ("time", 1e-6),
    "µs": ("time", 1e-6),
    "\N{GREEK SMALL LETTER MU}s": ("time", 1e-6),
    "ms": ("time", 1e-3),
    "s": ("time", 1.0),
    "bit/s": ("rate", 1.0),
    "kbit/s": ("rate", 1e3),
    "Mbit/s": ("rate", 1e6),
    "Gbit/s": ("rate", 1e9),
    "Tbit/s": ("rate", 1e12),
    "B": ("size", 1.0),
    "KiB": ("size", 2.0**10),
    "MiB": ("size", 2.0**20),
    "GiB": ("size", 2.0**30),
    "kB": ("size", 1e3),
    "MB": ("size", 1e6),
    "GB": ("size", 1e9),
    "%": ("share", 0.01),
    "RTT": ("RTT", 1.0),
}
"""For each unit the dimension, and how many of the dimension's first unit it is."""

_ORDINALS = {"PSN", "step"}
"""Units of numbers that name a thing, and do not say how many there are: PSN 2204, step 3."""

_SPELLINGS = {
    "rtt": "RTT",
    "rtts": "RTT",
    "percent": "%",
    "sec": "s",
    "second": "s",
    "seconds": "s",
    "msec": "ms",
}
"""Other ways to write a unit, in lower case."""

_LARGEST = 1e15
_FEW_DIGITS, _MOST_DIGITS = 3, 18
_GROUPED = r"\d{1,3}(?:,\d{3})+"
_DIGITS = r"\d[\d_]*"
_NUMBER = re.compile(
    rf"\s*([A-Za-z]*)\s*([+-]?(?:(?:{_GROUPED}|{_DIGITS})(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"\s*([^\s\d.,+-]\S*)?\s*",
    re.ASCII,
)
_DECIMAL_COMMA = re.compile(r"\s*([+-]?\d+),(\d+)\s*(\S*)\s*", re.ASCII)
_TIMES = {"x", "\N{MULTIPLICATION SIGN}"}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a number may be from another: a share of it, or a number in the same unit."""

    number: float
    relative: bool

    def around(self, value: float) -> float:
        """How far, in the unit of this value."""
        return abs(value) * self.number if self.relative else self.number

    def allows(self, answer: float, value: float) -> bool:
        return abs(answer - value) <= self.around(value) * (1 + 1e-9) + 1e-12


def parse_tolerance(value: object) -> Tolerance:
    """Parse `5%` or a number in the unit of the answer.

    Raises:
        RefusedValueError: it is neither.
    """
    if isinstance(value, Tolerance):
        return value
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise RefusedValueError("a share such as 10%, or a number in the unit of the answer")
    return (
        Tolerance(number / 100, relative=True) if text.endswith("%") else Tolerance(number, False)
    )


def factor(unit: str) -> float:
    """How many of its dimension's first unit a unit is; 1 where it counts things."""
    return _UNITS.get(unit, ("", 1.0))[1]


def counts_things(unit: str) -> bool:
    """Whether a unit is a word for what is counted, such as packets."""
    return unit not in _UNITS


def names_a_thing(unit: str) -> bool:
    """Whether a number with this unit names one of several things: greater is not more."""
    return unit in _ORDINALS


def counted(number: int, singular: str) -> str:
    """How many there are: `1 point`, `2 points`."""
    return f"{number:,} {singular}" if number == 1 else f"{number:,} {singular}s"


def parse_number(text: str, unit: str) -> float:
    """A number that a student wrote, in a unit.

    Args:
        text: such as `1.3 RTT`; a unit that counts things may be left out, or stand in front, as in
            `PSN 37`.
        unit: the unit that was asked for.

    Raises:
        RefusedValueError: it is no number, or has no unit or one of another dimension.
    """
    expected = f"a number in {unit}, such as '{example(unit)}'"
    match = _NUMBER.fullmatch(text.replace("\N{MINUS SIGN}", "-"))
    if match is None:
        raise RefusedValueError(expected, remedy=_decimal_point(text))
    before, digits, behind = match[1], match[2], match[3] or ""
    number = float(digits.replace(",", "").replace("_", ""))
    if abs(number) > _LARGEST:
        raise RefusedValueError(expected, remedy="a smaller number")
    given = behind or before
    if before and (behind or not names_a_thing(unit)):
        raise RefusedValueError(expected)
    given = _SPELLINGS.get(given.lower(), given)
    if counts_things(unit):
        if given and not _names(given, unit):
            raise RefusedValueError(expected, remedy=f"count the {unit}")
        if number < 0:
            raise RefusedValueError(expected, remedy="no such number is negative")
        return number
    if not given:
        raise RefusedValueError(expected, remedy=_unit_to_add(digits, number, unit))
    if _UNITS.get(given, ("", 0.0))[0] != _UNITS[unit][0]:
        remedy = ""
        if unit == "RTT" and _UNITS.get(given, ("", 0.0))[0] == "time":
            remedy = "divide by the base RTT, which the run prints"
        raise RefusedValueError(expected, remedy=remedy)
    return number * _UNITS[given][1] / _UNITS[unit][1]


def _unit_to_add(digits: str, number: float, unit: str) -> str:
    """What to write in place of a number without its unit."""
    remedy = f"add the unit: '{digits} {unit}'"
    if unit == "%" and 0 < abs(number) < 1:
        remedy += f", or '{show_number(number * 100)}%' if it is a share of 1"
    return remedy


def _decimal_point(text: str) -> str:
    """What to write in place of `4,5`; empty if a text is not of this form."""
    match = _DECIMAL_COMMA.fullmatch(text)
    point = f"write a decimal point: {match[1]}.{match[2]} {match[3]}" if match else ""
    return point.strip()


def _names(given: str, unit: str) -> bool:
    """Whether a word is a unit of things that are counted, also in the singular."""
    if unit == "times" and given.lower() in _TIMES:
        return True
    forms = (unit, f"{unit}s", unit.removesuffix("s"), unit.removesuffix("es"))
    return given.lower() in map(str.lower, forms)


def show_quantity(number: float, unit: str, digits: int = _FEW_DIGITS) -> str:
    """A number with its unit, to three digits or others: `1.28 RTT`, `12%`, `PSN 2204`."""
    if number == float("inf"):
        return "never"
    if names_a_thing(unit):
        return f"{unit} {number:.0f}"
    shown = f"{number:,.0f}" if float(number).is_integer() else show_number(number, digits)
    return f"{shown}%" if unit == "%" else f"{shown} {unit}".rstrip()


def show_apart(number: float, bound: float, unit: str) -> tuple[str, str]:
    """Two numbers that differ, with as many digits as it takes to see that."""
    for digits in range(_FEW_DIGITS, _MOST_DIGITS):
        shown = show_quantity(number, unit, digits), show_quantity(bound, unit, digits)
        if shown[0] != shown[1]:
            break
    return shown


def example(unit: str) -> str:
    """What a number with this unit looks like."""
    if names_a_thing(unit):
        return "3"
    number = 12 if unit == "%" else 3 if counts_things(unit) else 1.5
    return show_quantity(number, unit)
