import json
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from testbed.model.summary.unit import BYTES, COUNT, MS, NUMBER, RATE, RTT, SECONDS, SHARE, US
from testbed.model.units import (
    Duration,
    Rate,
    Size,
    exact_duration,
    parse_duration,
    parse_rate,
    parse_size,
    show_duration,
    show_number,
    show_rate,
    show_share,
    show_size,
    show_wait,
    shown_at_least,
    shown_at_most,
)


class _Quantities(BaseModel):
    rate: Rate
    time: Duration
    size: Size


@pytest.mark.parametrize(
    ("text", "number"),
    [("4.365 us", 4365), ("3 s", 3 * 10**9), ("2min", 120 * 10**9), ("1e3 ns", 1000), ("0 s", 0)],
)
def test_durations_are_nanoseconds(text: str, number: int) -> None:
    assert parse_duration(text) == number


@pytest.mark.parametrize(
    ("text", "number"), [("100 Gbit/s", 10**11), ("2.5Gb/s", 25 * 10**8), ("10 kbit/s", 10**4)]
)
def test_rates_are_bits_per_second(text: str, number: int) -> None:
    assert parse_rate(text) == number


@pytest.mark.parametrize(("text", "number"), [("1 MiB", 2**20), ("1 MB", 10**6), (" 7 B ", 7)])
def test_sizes_are_bytes(text: str, number: int) -> None:
    assert parse_size(text) == number


def test_decimal_fractions_are_exact() -> None:
    # not one of them is a binary floating-point number
    assert parse_duration("0.1234567891 s") == 123456789
    assert parse_rate("9007199254740.993 kbit/s") == 9007199254740993


@pytest.mark.parametrize(
    "wrong",
    [4, 4.0, True, None, [], "4", "s", "", "-1 s", "4 S", "4 Gbit", "nan s", "inf s", "1 s 2 s"],
)
def test_what_is_no_duration_is_told_what_one_is(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"a number with a unit \(ns, us, .*such as '4.365 us'"):
        parse_duration(wrong)


@pytest.mark.parametrize("wrong", ["1e99 s", "9223372036.854775808 s", "9" * 30 + " min"])
def test_quantities_fit_64_bits(wrong: str) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        parse_duration(wrong)


def test_the_longest_duration_that_fits() -> None:
    assert parse_duration("9223372036.854775807 s") == 2**63 - 1


@given(st.text())
def test_any_text_is_parsed_or_refused_with_a_value_error(text: str) -> None:
    for parse in (parse_rate, parse_duration, parse_size):
        try:
            assert 0 <= parse(text) < 2**63
        except ValueError as error:
            assert "such as" in str(error)  # noqa: PT017 - either outcome is right


@given(*(st.integers(0, 2**63 - 1) for _ in range(3)))
def test_what_is_written_to_json_reads_back_exactly(rate: int, time: int, size: int) -> None:
    written = _Quantities(
        rate=f"{rate} bit/s",
        time=f"{time} ns",
        size=f"{size} B",
    )
    assert (written.rate, written.time, written.size) == (rate, time, size)
    assert _Quantities.model_validate(json.loads(written.model_dump_json())) == written


def test_json_uses_the_largest_whole_unit() -> None:
    model = _Quantities.model_validate(
        {"rate": "100e9 bit/s", "time": "0.065 s", "size": "1.5 GiB"}
    )
    assert model.model_dump(mode="json") == {
        "rate": "100 Gbit/s",
        "time": "65 ms",
        "size": "1536 MiB",
    }


def test_a_plain_number_is_refused_in_a_model() -> None:
    with pytest.raises(ValidationError, match="a number with a unit"):
        _Quantities.model_validate({"rate": 100, "time": "1 s", "size": "1 B"})


def test_quantities_are_shown_in_fitting_units() -> None:
    assert show_duration(130_800_000) == "131 ms"
    assert show_duration(0) == "0 ns"
    assert show_rate(37_416_000) == "37.42 Mbit/s"
    assert show_size(1023) == "1023 B"
    assert show_size(2**30) == "1 GiB"


@pytest.mark.parametrize("limit", [0.000123456, 0.5, 1.0, 8320.9, 12345.0, 12349.99, 2_076_712.0])
def test_a_limit_that_is_shown_holds_as_it_is_shown(limit: float) -> None:
    most, least = shown_at_most(limit), shown_at_least(limit)
    assert 0.999 * limit < most <= limit <= least < 1.001 * limit
    assert float(f"{most:.4g}") == most
    assert float(f"{least:.4g}") == least


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (13_414, "13.4 us"),
        (999_600, "1 ms"),
        (999_499, "999 us"),
        (134_140_000, "134 ms"),
        (1_234_567_890_000, "1235 s"),
        (0.25, "0.25 ns"),
        (0, "0 ns"),
    ],
)
def test_times_have_a_fitting_unit_and_three_digits(time_ns: float, text: str) -> None:
    """Never 0.0 ms for what is not zero, never an exponent."""
    assert show_duration(time_ns) == text


@given(st.floats(1e-3, 1e15))
def test_a_shown_number_is_right_to_three_digits(number: float) -> None:
    text = show_number(number)
    assert float(text) == pytest.approx(number, rel=5.01e-3)
    assert float(text) != 0
    assert "e" not in text


def test_exact_times_and_shares_as_people_read_them() -> None:
    assert exact_duration(12_345_000_000) == "12.345 s"
    assert exact_duration(0) == "0 s"
    assert show_share(0.94512) == "94.5%"
    assert show_share(1.0) == "100%"
    assert show_share(0.000123) == "0.0123%"
    assert [show_wait(s) for s in (45, 720, 129_600, 864_000)] == [
        "45 s",
        "12 min",
        "36 h",
        "10 days",
    ]


def test_what_never_happened_is_never_in_every_unit() -> None:
    """In columns whose heading has the unit as well."""
    for unit in (NUMBER, COUNT, SHARE, BYTES, RATE, SECONDS, MS, RTT, US):
        assert unit.show(inf) == unit.number(inf) == "never"
    assert RTT.show(0.0432) == "0.0432 RTT"
    assert MS.show(0.01341) == US.show(13.41) == "13.4 us"


def test_what_is_left_of_sums_of_floats_is_nothing() -> None:
    assert [show_number(number) for number in (1.48e-15, -2e-16, 2e-9)] == ["0", "0", "0.000000002"]
