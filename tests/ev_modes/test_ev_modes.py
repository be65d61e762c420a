"""Real packets without an outer header: the EV of each selects its path, and a dead one is left."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from testbed.emulation.ev_modes import PathRow, Setting, TrialOutcome, default_profile, run
from testbed.model.errors import InputError
from testbed.model.fabric import addressing
from testbed.model.fabric.addressing import EvMode, core_ev
from testbed.model.fabric.ev_set import ExplicitProfile
from tests.pcapng import read_capture

PLANES, T1S = 2, 2
IPV6 = struct.Struct("!IHBB16s16s")
ETHERNET, UDP, BTH = 14, 17, 8
WRITES = range(0xC6, 0xCC)


def setting(mode: EvMode) -> Setting:
    return Setting(mode, PLANES, T1S, default_profile(mode, PLANES, T1S), seed=1)


def evs_on_the_wire(capture: Path, sender: str) -> set[int]:
    """The EVs of the WRITEs that a port sent, by the bytes of the frames."""
    evs = set()
    for interface, _, frame in read_capture(capture.read_bytes()).frames:
        word, _, following, *_ = IPV6.unpack_from(frame, ETHERNET)
        udp = ETHERNET + IPV6.size
        if interface.startswith(sender) and following == UDP and frame[udp + BTH] in WRITES:
            (port,) = struct.unpack_from("!H", frame, udp)
            evs.add((word & 0xFFFF) << 16 | port)
    return evs


@pytest.mark.root
@pytest.mark.kernel
@pytest.mark.alone
@pytest.mark.parametrize("mode", [EvMode.ECMP, EvMode.STRUCTURED])
def test_the_ev_selects_the_path_and_a_dead_path_is_left(mode: EvMode, tmp_path: Path) -> None:
    """By the counters, by the capture, and by what the sender does."""
    outcome = run(setting(mode), tmp_path)
    assert outcome.wrong == ()  # each counter is the sum of what its EVs sent, in both directions
    assert outcome.messages > 10
    taken = {row.path for row in outcome.evs}
    assert taken == {f"p{plane}/t1_{t1}" for plane in range(PLANES) for t1 in range(T1S)}
    assert all(row.sent > 0 for row in outcome.evs)
    for plane in range(PLANES):
        for t1 in range(T1S):
            expected = {
                core_ev(mode, row.ev) for row in outcome.evs if row.path == f"p{plane}/t1_{t1}"
            }
            capture = tmp_path / f"p{plane}_t0_0--p{plane}_t1_{t1}.pcapng"
            assert evs_on_the_wire(capture, f"p{plane}_t0_0") == expected
    dead = outcome.dead
    assert dead.swallowed > 0
    assert all(row.condemnations > 0 for row in outcome.evs if row.path == dead.path)


def test_structured_evs_without_a_path_are_refused() -> None:
    """Before anything is built; an ECMP fabric takes any EV."""
    uplink_2 = ExplicitProfile(evs=(0x0000_0000, 0x2000_0000, 0x0020_0000))
    wrong = replace(setting(EvMode.STRUCTURED), profile=uplink_2)
    with pytest.raises(InputError, match="0x00200000: plane 0, uplink 2"):
        wrong.check()
    replace(wrong, mode=EvMode.ECMP).check()


def test_a_plane_without_evs_is_refused() -> None:
    one_plane = ExplicitProfile(evs=(0x0000_0000, 0x0010_0000))
    with pytest.raises(InputError, match="EVs in each of the 2 planes"):
        replace(setting(EvMode.STRUCTURED), profile=one_plane).check()


def test_a_path_that_does_not_exist_cannot_die() -> None:
    wrong = replace(setting(EvMode.ECMP), dead=addressing.Path(0, T1S))
    with pytest.raises(InputError, match="--dead"):
        wrong.check()


def test_what_is_wrong_is_named() -> None:
    """A packet on another path than its EV's, a dead path that is not left."""
    never = {"left": None, "returned": None}
    outcome = TypeAdapter(TrialOutcome).validate_python(
        {
            "mode": "ecmp",
            "hashes_label": True,
            "evs": (),
            "paths": ({"sender": "h0", "path": "p0/t1_1", "sent": 5, "counted": 6},),
            "dead": {"path": "p0/t1_0", "evs": 1, "swallowed": 9, "others_left": 0, **never},
            "messages": 3,
            "message_bytes": 1,
            "send_errors": 2,
            "base_rtt_s": 0.1,
        }
    )
    assert outcome.paths == (PathRow("h0", "p0/t1_1", 5, 6),)
    count, left, returned, refused = outcome.wrong
    assert "5 packets had EVs of p0/t1_1, the fabric counted 6" in count
    assert "still used" in left
    assert "not used again" in returned
    assert "refused 2 packets" in refused


def test_more_uplinks_than_there_are_routing_tables_are_refused() -> None:
    """A T0 that reads structured EVs has a table for each; one that hashes them needs none."""
    many = 129
    profile = default_profile(EvMode.STRUCTURED, 1, many)
    wrong = Setting(EvMode.STRUCTURED, 1, many, profile, seed=1)
    with pytest.raises(InputError, match="--t1s: found 129, expected at most 128 T1s in a plane"):
        wrong.check()
    replace(wrong, t1s=128, profile=default_profile(EvMode.STRUCTURED, 1, 128)).check()
    replace(wrong, mode=EvMode.ECMP).check()
