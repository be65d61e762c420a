"""Profiles of EVs and of congestion control: generation, states, what does not fit."""

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from testbed.device.profiles import (
    MAX_PROFILES,
    SRV6_BITS,
    CcSettings,
    EvField,
    EvFormat,
    EvProfileEntries,
    Format,
    ProfileState,
    keep,
    port_of,
    stev,
)
from testbed.mrc.congestion.nscc_incast import CcProfile

INIT, OFFLINE, ONLINE = ProfileState
WHOLE = 0xFFFFFFFF


def profile(mode: Format, *fields: EvField) -> EvProfileEntries:
    """An EV profile of a format with just these fields."""
    widths = tuple(each.width for each in fields)
    made = EvProfileEntries(OFFLINE, format=EvFormat(ONLINE, mode, widths))
    made.set_fields(fields)
    return made


def error_of(call: Callable[[], Any]) -> int | None:
    with pytest.raises(OSError, match=r"\w") as raised:
        call()
    return raised.value.errno


def test_generated_evs_are_the_fields_one_after_the_other() -> None:
    """Each with its bits deposited in the mask, as the interface has it, highest first."""
    made = profile(Format.STEV, EvField(16, 0x8000, 0, 3, 0x11), EvField(16, 0xAB, 5, 5, 0xF00))
    made.generate(1, 2, 100)
    labels = {0x8000, 0x8001, 0x8010, 0x8011}
    assert {stev(ev.value) for ev in made.evs} == {label << 16 | 0x5AB for label in labels}
    assert all(ev.port == port_of(ev.value, Format.STEV, 2) for ev in made.evs)
    assert len(made.evs) == 4  # fewer than were asked for


def test_generated_srv6_evs_begin_with_the_locator() -> None:
    """32 bits of it and uSIDs of 16 of which some bits are fixed."""
    usid = EvField(16, 0x1200, 0, 255, 0xFF)
    made = profile(Format.SRV6, EvField(32, 0x5F000000, 0, 0, 0), usid, usid)
    made.generate(1, 2, 64)
    assert len(set(made.evs)) == 64
    for ev in made.evs:
        assert ev.value[:5] == bytes((0x5F, 0, 0, 0, 0x12))
        assert ev.value[6] == 0x12
        assert not any(ev.value[8:])
        assert ev.port == (0x12 >> 1 & 7) % 2 + 1


def test_a_choice_from_more_combinations_than_can_be_counted_ends() -> None:
    """It is the same each time, and another for another number."""
    fields = [EvField(32, 0, 0, WHOLE, WHOLE)] * (SRV6_BITS // 32)
    made, again, other = (profile(Format.SRV6, *fields) for _ in range(3))
    for each, seed in ((made, 1), (again, 1), (other, 2)):
        each.generate(seed, 4, 256)
    assert len(set(made.evs)) == 256
    assert made.evs == again.evs != other.evs


@pytest.mark.parametrize(
    "wrong",
    [
        EvField(0, 0, 0, 0, 0),
        EvField(4, 16, 0, 0, 0),
        EvField(4, 0, 0, 0, 16),
        EvField(4, 0, 0, 4, 3),
        EvField(4, 0, 2, 1, 3),
    ],
)
def test_fields_that_cannot_be(wrong: EvField) -> None:
    made = EvProfileEntries(OFFLINE, format=EvFormat(ONLINE, Format.STEV, (4, 4)))
    assert error_of(lambda: made.set_fields((wrong,))) == errno.EINVAL
    fits = EvField(4, 0, 0, 1, 1)
    assert error_of(lambda: made.set_fields((fits,) * 3)) == errno.E2BIG
    wide = EvField(5, 0, 0, 1, 1)
    assert error_of(lambda: made.set_fields((wide, EvField(3, 0, 0, 1, 1)))) == errno.E2BIG


def test_fields_that_do_not_fit_the_format_any_more_generate_nothing() -> None:
    """Such as those of a format that has been changed meanwhile."""
    made = profile(Format.STEV, EvField(31, 0, 0, 1, 1), EvField(1, 0, 0, 1, 1))
    made.format = EvFormat(ONLINE, Format.STEV, (1, 31))
    assert error_of(lambda: made.generate(1, 2, 8)) == errno.E2BIG


@pytest.mark.parametrize("state", ProfileState)
@pytest.mark.parametrize("target", [*ProfileState, 3, -1])
def test_only_neighbours_are_steps(state: ProfileState, target: int) -> None:
    """To stay is none; a caller that takes the state for another one is refused."""
    made = EvFormat(state)
    assert error_of(lambda: made.check_step(target, state + 1)) == errno.EINVAL
    if abs(state - target) == 1 and target in (*ProfileState,):
        assert made.check_step(target, state) is ProfileState(target)
    elif target == state:
        assert made.check_step(target, state) is None
    else:
        assert error_of(lambda: made.check_step(target, None)) == errno.EINVAL


def test_only_so_many_profiles_are_kept() -> None:
    known: dict[int, EvFormat] = {}
    for number in range(MAX_PROFILES):
        keep(known, number, EvFormat(OFFLINE))
    assert error_of(lambda: keep(known, 1000, EvFormat(OFFLINE))) == errno.EINVAL
    keep(known, 3, EvFormat(INIT))
    keep(known, 1000, EvFormat(OFFLINE))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_parameters_of_congestion_control_are_numbers(value: float) -> None:
    """A base RTT of 0 is that of the paths."""
    defaults = CcProfile.derive(base_rtt_ns=10_000_000, rate_bps=40e6)
    assert CcSettings(changes={"base_rtt": 0}).applied(defaults) == defaults
    changed = CcSettings(changes={"eta": 7.0}).applied(defaults)
    assert changed == replace(defaults, eta=7.0)
    with pytest.raises(ValueError, match=r"number|negative"):
        CcSettings(changes={"eta": value}).applied(defaults)
