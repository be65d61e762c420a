"""The EV engine: rotation, states, substitution, probes, brakes."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.mrc import EvChanged, Event, EvEntry, EvProfile, EvState
from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import NEVER
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.message import Message
from testbed.mrc.transmission import Transmission

from .harness import MS, make_profile

RTT_NS = 100 * MS


class Bench:
    """An engine, its events, and a network that answers the probes of living EVs at once.

    Attributes:
        dead: the EVs whose probes are lost.
        left: the EVs that the answers ask to leave.
    """

    def __init__(self, profile: EvProfile) -> None:
        self.profile = profile
        self.events: list[Event] = []
        self.rtt = RttEstimator(RTT_NS)
        self.engine = EvEngine(profile, self.rtt, Random(1), self.events)
        self.now_ns = 0
        self.dead: set[int] = set()
        self.left: set[int] = set()
        self.probed: list[tuple[int, int]] = []

    def live(self, rtts: float) -> None:
        """Let time pass, in steps of a tenth of an RTT."""
        for _ in range(round(rtts * 10)):
            for ev, probe_id in self.engine.due_probes(self.now_ns):
                self.probed.append((self.now_ns, ev))
                if ev not in self.dead:
                    left = ev in self.left
                    self.engine.probe_answered(ev, probe_id, self.now_ns, unwanted=left)
            self.now_ns += RTT_NS // 10

    def picks(self, number: int) -> list[int]:
        picked = [self.engine.pick(self.now_ns) for _ in range(number)]
        return [ev.value for ev in picked if ev is not None]

    def blame(self, ev: int, *, delivers: bool = False) -> bool:
        return self.engine.report_loss(ev, "test", self.now_ns, delivers=delivers)


def started(profile: EvProfile) -> Bench:
    bench = Bench(profile)
    bench.engine.start(0)
    bench.live(2)
    return bench


def test_the_rotation_is_reshuffled_from_time_to_time_and_still_even() -> None:
    """Each round has every EV once; the order changes after so many rounds, in every plane."""
    bench = Bench(make_profile(planes=2, active=6, backups=0, reshuffle_rounds=3))
    picked = [ev.value for ev in (bench.engine.pick(0) for _ in range(6 * 2 * 9)) if ev is not None]
    for plane in (0, 1):
        evs = [ev for ev in picked if ev & 7 == plane]
        rounds = [tuple(evs[at : at + 6]) for at in range(0, len(evs), 6)]
        assert {frozenset(round_) for round_ in rounds} == {frozenset(evs)}
        orders = [rounds[at : at + 3] for at in range(0, 9, 3)]
        assert all(len(set(order)) == 1 for order in orders)
        assert len(set(rounds)) == 3


def test_rotation_interleaves_planes_and_uses_every_active_ev() -> None:
    profile = make_profile(planes=4, active=3, backups=1)
    picks = Bench(profile).picks(24)
    active = {entry.ev for entry in profile.entries if entry.active}
    assert set(picks[:12]) == active
    assert picks[:12] == picks[12:]
    assert all(len({ev & 7 for ev in picks[i : i + 4]}) == 4 for i in range(0, 24, 4))


def test_skip_passes_over_an_ev_once() -> None:
    bench = Bench(make_profile(planes=1, active=3, backups=0))
    first, second, third = bench.picks(3)
    bench.engine.skip(second, "ECN", 0)
    assert bench.picks(5) == [first, third, first, second, third]


def test_one_packet_restores_one_skipped_ev() -> None:
    bench = Bench(make_profile(planes=1, active=3, backups=0))
    evs = bench.picks(3)
    for ev in evs:
        bench.engine.skip(ev, "ECN", 0)
    assert bench.picks(1) == [evs[0]]
    states = bench.engine.states()
    assert [states[ev] for ev in evs] == [EvState.GOOD, EvState.SKIP, EvState.SKIP]


def test_a_verified_backup_of_the_same_plane_takes_over() -> None:
    bench = started(make_profile())
    assert bench.blame(1)
    assert 1 not in bench.engine.active()
    assert 1 | 3 << 3 in bench.engine.active()
    picks = Counter(ev & 7 for ev in bench.picks(48))
    assert set(picks.values()) == {12}


def test_an_unverified_backup_is_probed_before_it_carries_data() -> None:
    bench = Bench(make_profile())
    backup = 1 | 3 << 3
    assert bench.blame(1)
    assert backup not in bench.engine.active()
    assert backup not in bench.picks(48)
    bench.live(0.1)
    assert backup in bench.engine.active()


def test_a_dead_backup_never_carries_data() -> None:
    bench = Bench(make_profile())
    bench.dead = {1, 1 | 3 << 3}
    bench.engine.start(0)
    bench.live(2)
    bench.blame(1)
    bench.live(5)
    assert not bench.dead & set(bench.picks(48))
    assert bench.engine.states()[1 | 3 << 3] is EvState.ASSUMED_BAD


def test_enough_answers_in_a_row_bring_the_owner_back() -> None:
    bench = started(make_profile(probe_successes=3))
    bench.dead = {1}
    bench.blame(1)
    bench.live(6)
    assert bench.engine.states()[1] is EvState.ASSUMED_BAD
    bench.dead = set()
    bench.live(1.4)
    assert bench.engine.states()[1] is EvState.ASSUMED_BAD
    bench.live(3.2)
    assert bench.engine.states()[1] is EvState.GOOD
    assert 1 in bench.engine.active()
    assert 1 | 3 << 3 not in bench.engine.active()
    last_two = [event for event in bench.events if isinstance(event, EvChanged)][-2:]
    assert {(event.ev, event.active) for event in last_two} == {(1, True), (25, False)}


def test_a_condemned_ev_is_probed_about_every_rtt() -> None:
    bench = started(make_profile())
    bench.dead = {1}
    bench.blame(1)
    bench.probed.clear()
    bench.live(15)
    assert 9 <= sum(1 for _, ev in bench.probed if ev == 1) <= 16


def condemn_and_wait(bench: Bench, ev: int) -> float:
    """Condemn a living EV and return how many RTTs it stays away."""
    assert bench.blame(ev)
    since_ns = bench.now_ns
    while bench.engine.states()[ev] is EvState.ASSUMED_BAD:
        bench.live(0.1)
    return (bench.now_ns - since_ns) / RTT_NS


def test_an_ev_that_relapses_needs_twice_as_many_answers_up_to_a_bound() -> None:
    bench = started(make_profile(probe_successes=2, grey_probe_successes=1, max_probe_successes=12))
    waits = [condemn_and_wait(bench, 1) for _ in range(6)]
    assert [round(wait) for wait in waits] == [1, 3, 7, 11, 11, 11]


def test_relapses_are_forgiven_one_by_one() -> None:
    profile = make_profile(
        probe_successes=2, grey_probe_successes=1, max_probe_successes=16, forgiveness=20
    )
    bench = started(profile)
    for _ in range(4):
        condemn_and_wait(bench, 1)
    bench.live(41)
    assert round(condemn_and_wait(bench, 1)) == 3
    bench.live(21)
    assert round(condemn_and_wait(bench, 1)) == 1


def test_a_spurious_loss_is_no_relapse() -> None:
    bench = started(make_profile(probe_successes=2, grey_probe_successes=1))
    condemn_and_wait(bench, 1)
    for _ in range(3):
        bench.blame(1)
        bench.engine.retract_loss(1, bench.now_ns)
    assert round(condemn_and_wait(bench, 1)) == 3


def answers_needed(bench: Bench, ev: int) -> int:
    """Let a condemned EV live and return how many RTTs of answers bring it back."""
    bench.dead.discard(ev)
    since_ns = bench.now_ns
    while bench.engine.states()[ev] is EvState.ASSUMED_BAD:
        bench.live(0.1)
    return round((bench.now_ns - since_ns) / RTT_NS)


def test_a_path_that_died_is_back_after_a_few_answers() -> None:
    bench = started(make_profile())
    bench.dead = {1}
    bench.blame(1)
    bench.live(6)
    assert answers_needed(bench, 1) <= 4


def test_a_grey_path_needs_many_answers_even_if_it_loses_a_probe() -> None:
    bench = started(make_profile(grey_probe_successes=20))
    bench.dead = {1}
    bench.blame(1, delivers=True)
    bench.live(3)
    assert 18 <= answers_needed(bench, 1) <= 21


def test_a_condemned_path_that_answers_its_first_probe_was_never_dead() -> None:
    bench = started(make_profile(grey_probe_successes=20))
    bench.blame(1)
    assert 18 <= answers_needed(bench, 1) <= 21


def test_a_packet_delivered_behind_the_lost_one_tells_it_later_too() -> None:
    bench = started(make_profile(grey_probe_successes=20))
    bench.dead = {1}
    bench.blame(1)
    bench.live(3)
    bench.blame(1, delivers=True)
    assert 18 <= answers_needed(bench, 1) <= 21


def test_where_all_planes_lose_no_path_is_grey() -> None:
    bench = started(make_profile(grey_probe_successes=20))
    bench.blame(0, delivers=True)
    bench.blame(1, delivers=True)
    assert answers_needed(bench, 1) <= 3
    assert bench.engine[0].state is not EvState.ASSUMED_BAD, "nor the first that lost"


def test_what_other_planes_lose_an_rtt_later_is_another_fault() -> None:
    bench = started(make_profile(grey_probe_successes=20))
    bench.blame(0, delivers=True)
    bench.live(1.1)
    bench.blame(1, delivers=True)
    assert 17 <= answers_needed(bench, 0) <= 21


def test_where_there_is_one_plane_paths_are_compared() -> None:
    alone = started(make_profile(planes=1, grey_probe_successes=20))
    first, second, _ = alone.picks(3)
    alone.blame(first, delivers=True)
    alone.live(1.1)
    alone.blame(second, delivers=True)
    assert answers_needed(alone, second) <= 3
    assert answers_needed(alone, first) >= 15


def test_no_path_counts_as_grey_while_nothing_carries_data() -> None:
    bench = started(make_profile(planes=1, active=1, backups=0, grey_probe_successes=20))
    (ev,) = bench.engine.active()
    bench.engine.set_down(frozenset({0}), bench.now_ns)
    bench.engine.set_down(frozenset(), bench.now_ns)
    bench.blame(ev, delivers=True)
    assert answers_needed(bench, ev) <= 3


def test_a_path_does_not_stand_by_as_grey_while_the_last_one_loses() -> None:
    bench = started(make_profile(planes=2, active=1, backups=0, grey_probe_successes=20))
    grey, last = bench.picks(2)
    bench.blame(grey, delivers=True)
    bench.live(5)
    assert not bench.blame(last), "it is the last one"
    assert answers_needed(bench, grey) <= 1, "five have been answered"


def test_losses_elsewhere_are_forgotten() -> None:
    bench = started(make_profile(grey_probe_successes=20, forgiveness=10))
    bench.blame(0, delivers=True)
    bench.live(11)
    bench.blame(1, delivers=True)
    assert 18 <= answers_needed(bench, 1) <= 21


def test_a_bound_below_the_first_number_changes_nothing() -> None:
    bench = started(make_profile(probe_successes=5, grey_probe_successes=1, max_probe_successes=1))
    waits = [round(condemn_and_wait(bench, 1)) for _ in range(3)]
    assert waits == [4, 4, 4]


def test_answers_that_come_too_late_do_not_count() -> None:
    bench = Bench(make_profile(probe_successes=1))
    bench.blame(1)
    (probe,) = [probe for probe in bench.engine.due_probes(0) if probe[0] == 1]
    bench.engine.due_probes(2 * RTT_NS)
    bench.engine.probe_answered(*probe, 2 * RTT_NS)
    assert bench.engine.states()[1] is EvState.ASSUMED_BAD


def test_a_relapse_is_taken_back_once() -> None:
    bench = started(make_profile(probe_successes=2, grey_probe_successes=1))
    condemn_and_wait(bench, 1)
    bench.blame(1)
    bench.engine.retract_loss(1, bench.now_ns)
    for _ in range(2):
        bench.engine.deny(1, bench.now_ns)
        bench.engine.allow(1, bench.now_ns)
        bench.blame(1)
        bench.engine.retract_loss(1, bench.now_ns)
    assert bench.engine[1].recondemnations == 0
    assert round(condemn_and_wait(bench, 1)) == 3


def late_probe(bench: Bench) -> tuple[int, int]:
    """A probe of EV 1 that was given up 1.5 RTT after it went out."""
    bench.blame(1)
    (probe,) = [probe for probe in bench.engine.due_probes(0) if probe[0] == 1]
    bench.engine.due_probes(3 * RTT_NS // 2)
    return probe


def test_an_answer_that_comes_late_is_all_that_tells_the_rtt() -> None:
    bench = Bench(make_profile())
    probe = late_probe(bench)
    bench.engine.probe_answered(*probe, 2 * RTT_NS)
    assert bench.rtt.smoothed_ns == RTT_NS + RTT_NS // 8
    bench.engine.probe_answered(*probe, 3 * RTT_NS)  # a duplicate
    assert bench.rtt.smoothed_ns == RTT_NS + RTT_NS // 8


def test_an_answer_that_comes_late_tells_nothing_where_data_has_told_the_rtt_since() -> None:
    bench = Bench(make_profile())
    probe = late_probe(bench)
    bench.rtt.sample(RTT_NS, RTT_NS)
    bench.engine.probe_answered(*probe, 2 * RTT_NS)
    assert bench.rtt.smoothed_ns == RTT_NS


def test_spurious_losses_restore_the_ev_when_none_is_left() -> None:
    bench = Bench(make_profile())
    bench.blame(1)
    bench.blame(1)
    bench.engine.retract_loss(1, 5)
    assert bench.engine.states()[1] is EvState.ASSUMED_BAD
    bench.engine.retract_loss(1, 6)
    assert bench.engine.states()[1] is EvState.GOOD
    assert 1 in bench.engine.active()


def test_no_more_than_half_is_condemned_within_an_rtt() -> None:
    bench = Bench(make_profile(backups=0))
    for ev in sorted(bench.engine.active()):
        bench.blame(ev)
    assert len(bench.engine.active()) == 6
    bench.now_ns += RTT_NS
    for ev in sorted(bench.engine.active()):
        bench.blame(ev)
    assert len(bench.engine.active()) == 1


@pytest.mark.parametrize("floor", [1, 3])
def test_the_floor_holds(floor: int) -> None:
    bench = Bench(make_profile(backups=0, ev_min_active=floor))
    for _ in range(20):
        for ev in sorted(bench.engine.active()):
            bench.blame(ev)
        bench.now_ns += RTT_NS
    assert len(bench.engine.active()) == floor
    assert len(bench.picks(8)) == 8


def test_without_a_floor_all_may_go_and_probes_bring_them_back() -> None:
    bench = Bench(make_profile(backups=0, ev_min_active=0))
    bench.dead = {entry.ev for entry in bench.profile.entries}
    for _ in range(20):
        for ev in sorted(bench.engine.active()):
            bench.blame(ev)
        bench.live(1)
    assert bench.engine.pick(bench.now_ns) is None
    assert bench.engine.pick_for_probe(bench.now_ns) is not None
    bench.dead = set()
    bench.live(5)
    assert len(bench.engine.active()) == 12


def test_retransmissions_avoid_the_path() -> None:
    entries = tuple(EvEntry(ev, 0, path_key=ev // 2, active=True) for ev in range(4))
    bench = Bench(EvProfile(entries))
    lost = bench.engine[0]
    assert all(
        ev is not None and ev.path_key == 1 for ev in (bench.engine.pick(0, lost) for _ in range(6))
    )
    bench.blame(2)
    bench.blame(3)
    assert {ev.value for ev in (bench.engine.pick(0, lost) for _ in range(6)) if ev} == {1}


def test_a_blind_sprayer_goes_round_whatever_happens() -> None:
    bench = started(make_profile(adaptive=False))
    rotation = set(bench.picks(12))
    lost = bench.engine[min(rotation)]
    bench.engine.skip(lost.value, "ECN", bench.now_ns)
    assert not bench.blame(lost.value)
    again = [bench.engine.pick(bench.now_ns, lost) for _ in range(12)]
    assert {ev.value for ev in again if ev is not None} == rotation
    assert bench.engine.set_down(frozenset({lost.plane}), bench.now_ns) == []
    bench.live(20)
    assert set(bench.picks(12)) == rotation
    assert not bench.probed
    assert not bench.events


def test_a_blind_sprayer_draws_the_order_of_each_round_anew() -> None:
    bench = Bench(make_profile(planes=1, active=8, backups=0, adaptive=False))
    rounds = [tuple(bench.picks(8)) for _ in range(10)]
    assert {frozenset(round_) for round_ in rounds} == {frozenset(rounds[0])}
    assert len(set(rounds)) > 5


def test_a_blind_sprayer_uses_what_is_allowed_again_at_once() -> None:
    bench = started(make_profile(adaptive=False))
    rotation = bench.picks(12)
    bench.engine.deny(rotation[0], bench.now_ns)
    bench.live(2)
    assert rotation[0] not in bench.picks(48)
    bench.engine.allow(rotation[0], bench.now_ns)
    bench.engine.allow(rotation[0], bench.now_ns)
    assert set(bench.picks(12)) == set(rotation)
    assert not bench.probed


def test_a_denied_ev_is_not_even_probed() -> None:
    bench = started(make_profile())
    bench.engine.deny(1, bench.now_ns)
    bench.probed.clear()
    bench.live(10)
    assert 1 not in bench.picks(48)
    assert 1 not in {ev for _, ev in bench.probed}
    bench.engine.allow(1, bench.now_ns)
    assert 1 not in bench.picks(48)
    bench.live(4)
    assert 1 in bench.picks(48)


def test_an_unknown_ev_changes_nothing() -> None:
    bench = Bench(make_profile())
    bench.engine.skip(99, "ECN", 0)
    bench.engine.report_loss(99, "test", 0)
    bench.engine.retract_loss(99, 0)
    assert not bench.events


@pytest.mark.parametrize(
    "broken",
    [
        {"entries": ()},
        {"entries": (EvEntry(1, 0, 0, active=False),)},
        {"entries": (EvEntry(1, 0, 0, active=True),) * 2},
        {"probe_successes": 0},
        {"grey_probe_successes": 0},
        {"probe_interval": 0.0},
        {"max_condemned_share": 0.0},
        {"max_probe_successes": 0},
        {"forgiveness": 0.0},
    ],
)
def test_profiles_that_cannot_work_are_refused(broken: dict[str, object]) -> None:
    good: dict[str, object] = {"entries": (EvEntry(1, 0, 0, active=True),)}
    with pytest.raises(ValueError, match=r"EV|prob|share"):
        EvProfile(**{**good, **broken})  # type: ignore[arg-type]


steps = st.lists(
    st.tuples(
        st.sampled_from(["blame", "skip", "absolve", "deny", "allow", "pick", "live", "ports"]),
        st.integers(0, 63),
    ),
    max_size=80,
)


@given(
    planes=st.integers(1, 4),
    active=st.integers(1, 3),
    backups=st.integers(0, 2),
    floor=st.integers(0, 2),
    dead=st.sets(st.integers(0, 63), max_size=6),
    steps=steps,
)
def test_invariants(
    planes: int,
    active: int,
    backups: int,
    floor: int,
    dead: set[int],
    steps: list[tuple[str, int]],
) -> None:
    """Whatever happens: only GOOD EVs carry data, roles stay within planes, events tell it all."""
    profile = make_profile(planes, active, backups, ev_min_active=floor)
    bench = Bench(profile)
    engine = bench.engine
    evs = [entry.ev for entry in profile.entries]
    bench.dead = {evs[number % len(evs)] for number in dead}
    engine.start(0)
    told = {entry.ev: (EvState.GOOD, entry.active) for entry in profile.entries}
    for step, number in steps:
        take_step(bench, step, evs[number % len(evs)], number)
        states = engine.states()
        in_use = engine.active()
        assert all(sum(1 for ev in in_use if ev & 7 == plane) <= active for plane in range(planes))
        assert all(states[ev] in (EvState.GOOD, EvState.SKIP) for ev in in_use)
        assert all(states[ev] is not EvState.SKIP for ev in evs if ev not in in_use)
        assert all(engine.usable(ev) for ev in in_use)
        if not any(step in ("deny", "ports") for step, _ in steps):
            assert len(in_use) >= min(floor, planes * active)
        for event in bench.events:
            assert isinstance(event, EvChanged)
            assert told[event.ev][0] is event.old
            told[event.ev] = (event.new, event.active)
        bench.events.clear()
        assert told == {ev: (states[ev], ev in in_use) for ev in evs}
        waiting = [ev for ev in evs if states[ev] is EvState.ASSUMED_BAD and engine.usable(ev)]
        assert not waiting or engine.deadline_ns < NEVER


def take_step(bench: Bench, step: str, ev: int, number: int) -> None:
    engine = bench.engine
    if step == "blame":
        bench.blame(ev)
    elif step == "skip":
        engine.skip(ev, "ECN", bench.now_ns)
    elif step == "absolve":
        engine.retract_loss(ev, bench.now_ns)
    elif step == "deny":
        engine.deny(ev, bench.now_ns)
    elif step == "allow":
        engine.allow(ev, bench.now_ns)
    elif step == "ports":
        down = frozenset(plane for plane in range(4) if number >> plane & 1)
        engine.set_down(down, bench.now_ns)
    elif step == "live":
        bench.live(0.1 * (number % 20))
    else:
        check_pick(engine, bench.now_ns)


def check_pick(engine: EvEngine, now_ns: int) -> None:
    before = engine.states()
    ev = engine.pick(now_ns)
    after = engine.states()
    if ev is None:
        assert not engine.active()
    else:
        assert after[ev.value] is EvState.GOOD
        assert ev.value in engine.active()
    restored = [ev for ev, state in before.items() if state is EvState.SKIP is not after[ev]]
    assert len(restored) <= 1


def test_a_dead_ev_that_stayed_for_want_of_a_substitute_leaves_when_there_is_one() -> None:
    """Else data would wait for its next loss, after ever longer timeouts."""
    bench = Bench(make_profile(planes=1, active=1, backups=1))
    (only,) = bench.engine.active()
    (backup,) = (entry.ev for entry in bench.profile.entries if not entry.active)
    bench.dead.add(only)
    assert not bench.blame(only), "no other EV can carry data"
    bench.engine.start(bench.now_ns)
    bench.live(1)
    assert bench.engine.active() == {backup}
    assert bench.engine.states()[only] is EvState.ASSUMED_BAD


def test_an_ev_that_has_delivered_since_it_was_spared_stays() -> None:
    bench = Bench(make_profile(planes=1, active=1, backups=1))
    (only,) = bench.engine.active()
    assert not bench.blame(only)
    message = Message(0, 1, memoryview(b"x"), 0, 0)
    arrived = Transmission(1, message, 0, 1, bench.engine[only], 0, 0, None)
    bench.engine.report_arrivals([arrived], None, None, None, bench.now_ns)
    bench.engine.start(bench.now_ns)
    bench.live(1)
    assert bench.engine.active() == {only}
