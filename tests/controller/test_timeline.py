"""The order of actions and the times at which they happen, on a clock that only we move."""

from testbed.controller.timeline import SPIN_NS, Action, Step, play, schedule, wait_until
from tests.controller.test_plan import FABRIC_LINK, NIC_LINK, fault

MS = 1_000_000


class VirtualClock:
    """Moves by what is slept, a little more, and by a microsecond for every look at it."""

    def __init__(self, oversleep_ns: int = 0) -> None:
        """Begin at a time that is not 0."""
        self.time_ns = 1_000_000_000
        self.slept_ns: list[int] = []
        self._oversleep_ns = oversleep_ns

    def now_ns(self) -> int:
        """Read the clock."""
        self.time_ns += 1000
        return self.time_ns

    def sleep(self, seconds: float) -> None:
        """Sleep longer than asked, as real clocks do."""
        self.slept_ns.append(round(seconds * 1e9))
        self.time_ns += round(seconds * 1e9) + self._oversleep_ns


def test_targets_have_schedules_of_their_own() -> None:
    """Each in order of time, whatever the order in the file."""
    faults = [fault(NIC_LINK, "3 s"), fault(FABRIC_LINK, "1 s"), fault(NIC_LINK, "1 s", "500 ms")]
    assert schedule(faults) == {
        NIC_LINK: (
            Action(1000 * MS, Step.INJECT, 2),
            Action(1500 * MS, Step.HEAL, 2),
            Action(3000 * MS, Step.INJECT, 0),
            Action(4000 * MS, Step.HEAL, 0),
        ),
        FABRIC_LINK: (Action(1000 * MS, Step.INJECT, 1), Action(2000 * MS, Step.HEAL, 1)),
    }


def test_what_ends_is_healed_before_what_begins_at_that_time() -> None:
    """Two faults may touch."""
    faults = [fault(NIC_LINK, "2 s"), fault(NIC_LINK, "1 s")]
    steps = [(action.step, action.index) for action in schedule(faults)[NIC_LINK]]
    assert steps == [(Step.INJECT, 1), (Step.HEAL, 1), (Step.INJECT, 0), (Step.HEAL, 0)]


def test_waiting_sleeps_first_and_is_exact_although_sleep_is_not() -> None:
    """A sleep that ends a millisecond late still leaves room."""
    clock = VirtualClock(oversleep_ns=MS)
    deadline = clock.time_ns + 50 * MS
    wait_until(clock, deadline)
    assert deadline <= clock.time_ns < deadline + 3000
    assert sum(clock.slept_ns) >= 50 * MS - SPIN_NS - MS


def test_waiting_for_the_past_returns_at_once() -> None:
    """Without sleeping."""
    clock = VirtualClock()
    wait_until(clock, clock.time_ns - MS)
    assert clock.slept_ns == []


def test_actions_happen_in_order_and_are_told_when_they_were_due() -> None:
    """One that is late because the one before took long is told its own time all the same."""
    clock = VirtualClock()
    t0 = clock.time_ns + 100 * MS
    done: list[tuple[Action, int, int]] = []

    def slow(action: Action, due_ns: int) -> None:
        done.append((action, due_ns, clock.now_ns()))
        clock.time_ns += 30 * MS

    actions = schedule([fault(NIC_LINK, "10 ms", "20 ms")])[NIC_LINK]
    play(actions, t0, clock, slow)
    assert [(action, due - t0) for action, due, _ in done] == [
        (actions[0], 10 * MS),
        (actions[1], 30 * MS),
    ]
    lateness = [at - due for _, due, at in done]
    assert lateness[0] < 10_000
    assert 10 * MS <= lateness[1] < 10 * MS + 10_000
