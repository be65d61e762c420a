"""Waiting for a time, on a clock that only we move."""

from testbed.emulation.controller.actuators import SPIN_NS, wait_until

MS = 1_000_000


class VirtualClock:
    """Moves by what is slept, a little more, and by a microsecond for every look at it."""

    def __init__(self, oversleep_ns: int = 0) -> None:
        """Begin at a time that is not 0."""
        self.time_ns = 1_000_000_000
        self.slept_ns: list[int] = []
        self._oversleep_ns = oversleep_ns

    def now_ns(self) -> int:
        self.time_ns += 1000
        return self.time_ns

    def sleep(self, seconds: float) -> None:
        """Sleep longer than asked, as real clocks do."""
        self.slept_ns.append(round(seconds * 1e9))
        self.time_ns += round(seconds * 1e9) + self._oversleep_ns


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
