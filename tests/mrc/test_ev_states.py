"""The table of EV states: the engine consults it for every event, and can make each transition."""

from functools import partial
from random import Random

import pytest

from testbed.mrc import EvChanged, Event, EvEntry, EvProfile, EvState
from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.entropy import (
    TRANSITIONS,
    EvAction,
    EvEvent,
    ImpossibleTransitionError,
    transition,
)
from testbed.mrc.ev.engine import EvEngine

from .harness import MS

RTT_NS = 100 * MS
ADMINISTRATIVE = {EvEvent.DENIED, EvEvent.ALLOWED, EvEvent.ALLOWED_UNPROBED}


def run_at_random(*, adaptive: bool, steps: int = 40_000) -> list[EvChanged]:
    """Call the engine's methods at random, and return what it reports."""
    rng, events, now_ns = Random(1), list[Event](), 0
    entries = tuple(EvEntry(2 * i + plane, plane, i, i < 3) for i in range(5) for plane in (0, 1))
    profile = EvProfile(entries, adaptive=adaptive, grey_probe_successes=3)
    engine = EvEngine(profile, RttEstimator(RTT_NS), rng, events)
    engine.start(0)
    for _ in range(steps):
        now_ns += rng.randrange(RTT_NS // 8)
        ev = rng.choice(entries).ev
        for probed, probe_id in engine.due_probes(now_ns):
            if rng.random() < 0.9:
                engine.probe_answered(probed, probe_id, now_ns)
        calls = (
            partial(engine.pick, now_ns),
            partial(engine.skip, ev, "ECN", now_ns),
            partial(engine.report_loss, ev, "late", now_ns, delivers=rng.random() < 0.5),
            partial(engine.retract_loss, ev, now_ns),
            partial(engine.deny, ev, now_ns),
            partial(engine.allow, ev, now_ns),
            partial(engine.set_down, frozenset({0}), now_ns),
            partial(engine.set_down, frozenset(), now_ns),
        )
        rng.choices(calls, weights=(20, 20, 2, 1, 0.3, 5, 0.2, 5))[0]()
    return [event for event in events if isinstance(event, EvChanged)]


def test_only_transitions_of_the_table_are_made() -> None:
    """The engine refuses any other event; what it reports has a row in the table too."""
    rows = {(state, event.value, new) for (state, event), (new, _) in TRANSITIONS.items()}
    other_reasons = {
        "ECN": EvEvent.CONGESTION_SEEN.value,
        "late": EvEvent.PACKET_LOST.value,
        "late, condemnation withheld": EvEvent.LOSS_TOLERATED.value,
    }
    changes = run_at_random(adaptive=True)
    made = {
        (change.old, other_reasons.get(change.reason, change.reason), change.new)
        for change in changes
    }
    assert made <= rows
    assert {(old, new) for old, _, new in made} == {
        (state, new)
        for (state, event), (new, action) in TRANSITIONS.items()
        if event is not EvEvent.ALLOWED_UNPROBED and (state, EvAction.STAY) != (new, action)
    }


BLIND = {
    (EvState.GOOD, EvEvent.DENIED),
    (EvState.DENIED, EvEvent.ALLOWED_UNPROBED),
    (EvState.GOOD, EvEvent.SUBSTITUTE_NEEDED),
    (EvState.GOOD, EvEvent.OWNER_RETURNED),
}
"""What happens in blind spraying."""


@pytest.mark.parametrize(("state", "event"), TRANSITIONS)
def test_each_entry_of_the_table_is_reached(
    state: EvState, event: EvEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the entry, the same calls end in an impossible transition."""
    monkeypatch.delitem(TRANSITIONS, (state, event))
    with pytest.raises(ImpossibleTransitionError, match=f"{event.name} of an EV in {state}"):
        run_at_random(adaptive=event is not EvEvent.ALLOWED_UNPROBED)


def test_a_blind_sprayer_makes_only_administrative_transitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for entry in set(TRANSITIONS) - BLIND:
        monkeypatch.delitem(TRANSITIONS, entry)
    assert run_at_random(adaptive=False)


def test_only_good_and_skipped_evs_are_in_the_rotation() -> None:
    """What leads to another state leaves the rotation; what joins it is good."""
    for (state, _), (new, action) in TRANSITIONS.items():
        if action in (EvAction.JOIN, EvAction.RETURN):
            assert new is EvState.GOOD
        if state in (EvState.GOOD, EvState.SKIP) and new is EvState.DENIED:
            assert action is EvAction.LEAVE


def test_each_state_can_be_denied_and_left_again() -> None:
    deniable = {state for state, event in TRANSITIONS if event is EvEvent.DENIED}
    assert deniable == set(EvState) - {EvState.DENIED}
    assert {event for state, event in TRANSITIONS if state is EvState.DENIED} <= ADMINISTRATIVE


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (EvState.SKIP, EvEvent.PROBE_ANSWERED),
        (EvState.ASSUMED_BAD, EvEvent.PASSED_BY_ROTATION),
        (EvState.DENIED, EvEvent.PACKET_LOST),
        (EvState.GOOD, EvEvent.ALLOWED),
    ],
)
def test_an_impossible_pair_raises(state: EvState, event: EvEvent) -> None:
    with pytest.raises(ImpossibleTransitionError, match=f"{event.name} of an EV in {state}"):
        transition(state, event)
