"""Numbers as students write them."""

import pytest

from testbed.model.errors import RefusedValueError
from testbed.studies.labs.quantities import (
    Tolerance,
    parse_number,
    parse_tolerance,
    show_apart,
    show_quantity,
)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1.3 RTT", "RTT", 1.3),
        ("1.3rtt", "RTT", 1.3),
        ("2 s", "ms", 2000),
        ("12%", "%", 12),
        ("0.4 Gbit/s", "Mbit/s", 400),
        ("19", "packets", 19),
        ("19 packets", "packets", 19),
        ("1,024", "PSN", 1024),
        ("1.5e2 ms", "s", 0.15),
        ("PSN 37", "PSN", 37),
        ("1 path", "paths", 1),
        ("2 PSNs", "PSN", 2),
        ("1 switch", "switches", 1),
        ("2x", "times", 2),
        ("1.5 \N{MICRO SIGN}s", "us", 1.5),
        ("1.5 \N{GREEK SMALL LETTER MU}s", "us", 1.5),
        (".5 RTT", "RTT", 0.5),
        ("-2 RTT", "RTT", -2),
        ("\N{MINUS SIGN}2 RTT", "RTT", -2),
        ("12 percent", "%", 12),
    ],
)
def test_numbers_are_converted(text: str, unit: str, value: float) -> None:
    assert parse_number(text, unit) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "unit", "remedy"),
    [
        ("1.3", "RTT", "add the unit: '1.3 RTT'"),
        ("0.094", "%", "add the unit: '0.094 %', or '9.4%' if it is a share of 1"),
        ("150 ms", "RTT", "divide by the base RTT"),
        ("many", "packets", ""),
        ("3 ms", "packets", "count the packets"),
        ("3 packets", "RTT", ""),
        ("", "RTT", ""),
        ("4,5", "paths", "write a decimal point: 4.5"),
        ("1,5 RTT", "RTT", "write a decimal point: 1.5 RTT"),
        ("4-8", "paths", ""),
        ("4x4", "paths", "count the paths"),
        ("0x10", "paths", "count the paths"),
        ("4 links", "paths", "count the paths"),
        ("3 s", "packets", "count the packets"),
        ("5 p", "packets", "count the packets"),
        ("about 4", "paths", ""),
        ("1e400", "paths", "a smaller number"),
        ("-4", "paths", "no such number is negative"),
    ],
)
def test_what_is_no_such_number_is_refused(text: str, unit: str, remedy: str) -> None:
    with pytest.raises(RefusedValueError) as refused:
        parse_number(text, unit)
    assert unit in refused.value.expected
    assert remedy in refused.value.remedy


def test_tolerances() -> None:
    assert parse_tolerance("10%") == Tolerance(0.1, relative=True)
    assert parse_tolerance(0.5).allows(1.5, 1.0)
    assert not parse_tolerance("10%").allows(1.2, 1.0)
    for wrong in ("-1", "much", True, "inf"):
        with pytest.raises(RefusedValueError):
            parse_tolerance(wrong)


def test_numbers_are_shown_with_their_unit() -> None:
    assert show_quantity(1.2345, "RTT") == "1.23 RTT"
    assert show_quantity(12, "%") == "12%"
    assert show_quantity(2329, "PSN") == "PSN 2329"
    assert show_quantity(float("inf"), "RTT") == "never"


def test_a_number_beside_its_bound_has_the_digits_that_tell_them_apart() -> None:
    assert show_apart(0.3004, 0.3, "RTT") == ("0.3004 RTT", "0.3 RTT")
    assert show_apart(0.294, 0.3, "RTT") == ("0.294 RTT", "0.3 RTT")
    assert show_apart(89.9996, 90, "%") == ("89.9996%", "90%")
    assert show_apart(float("inf"), 0.3, "RTT") == ("never", "0.3 RTT")
