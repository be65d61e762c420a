"""EV profiles and modes: which EVs there are, and what a fabric reads in them."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.model.fabric.addressing import (
    EvMode,
    Path,
    core_ev,
    ev_for_path,
    source_ports,
    structured_path,
)
from testbed.model.fabric.ev_set import EvField, ExplicitProfile, GeneratedProfile
from testbed.model.fabric.topology import Topology
from testbed.model.transport import Mrc


def test_the_masked_bits_are_replaced_in_their_order() -> None:
    """The example of the OCP MRC API with a mask in two parts; 0xab becomes 0xa_b."""
    field = EvField(width=16, initial=0x1020, min=1, max=0xFF, mask=0x0F0F)
    assert field.count == 255
    assert field.value(0xAB - 1) == 0x1A2B
    assert field.value(0) == 0x1021


def test_fields_are_packed_from_the_first_bit_on() -> None:
    """The most significant one; the bits behind the fields are 0."""
    profile = GeneratedProfile(
        evs=2, fields=(EvField(width=8, initial=0xA5, mask=0), EvField(width=4, max=1, mask=0xF))
    )
    assert sorted(profile.values(seed=3)) == [0xA500_0000, 0xA510_0000]


@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.integers(0, 255), st.integers(0, 255)),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 5),
)
def test_generated_evs_differ_and_keep_their_fixed_bits(
    shapes: list[tuple[int, int, int]], seed: int
) -> None:
    fields = []
    for width, initial, mask in shapes:
        most = (1 << width) - 1
        fields.append(EvField(width=width, initial=initial & most, mask=mask & most))
    possible = 1
    for field in fields:
        possible *= field.count
    profile = GeneratedProfile(evs=min(possible, 50), fields=tuple(fields))
    values = profile.values(seed)
    assert values == profile.values(seed)
    assert len(set(values)) == profile.evs
    for ev in values:
        at = 32
        for field in fields:
            at -= field.width
            read = ev >> at & (1 << field.width) - 1
            assert read & ~field.mask == field.initial & ~field.mask
        assert ev & (1 << at) - 1 == 0


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({"evs": 9, "fields": [{"width": 3, "mask": 7}]}, "at most 8, which these fields generate"),
        ({"evs": 3, "fields": [{"width": 8, "max": 1, "mask": 255}]}, "at most 2"),
        ({"evs": 1, "fields": [{"width": 3, "mask": 8}]}, "mask: at most 0x7, which 3 bits hold"),
        ({"evs": 1, "fields": [{"width": 3, "initial": 9, "mask": 1}]}, "initial: at most 0x7"),
        ({"evs": 1, "fields": [{"width": 3, "max": 2, "mask": 1}]}, "max: at most 1"),
        ({"evs": 1, "fields": [{"width": 3, "min": 2, "max": 1, "mask": 7}]}, "min: at most max"),
        ({"evs": 1, "fields": [{"width": 31, "mask": 0}] * 2}, "32 bits together at most, not 62"),
    ],
)
def test_a_profile_that_cannot_generate_what_is_asked_for_is_refused(
    profile: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        GeneratedProfile.model_validate(profile)


def test_an_ev_twice_is_refused() -> None:
    with pytest.raises(ValidationError, match="0x00000007 is listed twice"):
        ExplicitProfile(evs=(7, 8, 7))


def test_a_queue_pair_has_the_evs_of_its_profile_and_backups_in_each_plane() -> None:
    """Two planes of three, on the paths that the EVs select; T0-local hosts share their planes."""
    topology = Topology(name="t", planes=3, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=2)
    values = tuple(
        ev_for_path(Path(plane, t1), entropy)
        for entropy, plane, t1 in product(range(2), (0, 2), range(2))
    )
    transport = Mrc(ev_profile=ExplicitProfile(evs=values), backups=0.25)
    near, beside, far, _ = topology.hosts
    evs = transport.choose_evs(topology, near, far, lane=0, seed=1)
    assert tuple(ev.value for ev in evs) == values
    assert {ev.path for ev in evs} == {Path(plane, t1) for plane in (0, 2) for t1 in (0, 1)}
    backups = [ev for ev in evs if not ev.active]
    assert [(ev.path.plane, ev.value & 0xFFFF) for ev in backups] == [(0, 1), (2, 1)]
    local = transport.choose_evs(topology, near, beside, lane=0, seed=1)
    assert {ev.path for ev in local} == {Path(0, None), Path(2, None)}


def test_a_number_of_evs_beside_a_profile_that_lists_them_is_refused() -> None:
    with pytest.raises(ValidationError, match="evs: no number of EVs together"):
        Mrc(ev_profile=ExplicitProfile(evs=(1,)), evs=4)


def test_the_source_ports_of_structured_paths_are_apart() -> None:
    seen: set[int] = set()
    for plane, uplink in product(range(8), range(0, 512, 37)):
        ports = set(source_ports(Path(plane, uplink)))
        assert not seen & ports
        seen |= ports
        for port in ports:
            assert structured_path(port << 16 | 0x1234) == Path(plane, uplink)


def test_a_structured_ev_has_the_source_port_first() -> None:
    """The core has the flow label first, whatever the mode."""
    assert core_ev(EvMode.STRUCTURED, 0x1234_ABCD) == 0xABCD_1234
    assert core_ev(EvMode.ECMP, 0x1234_ABCD) == 0x1234_ABCD
