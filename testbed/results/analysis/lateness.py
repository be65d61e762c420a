"""How late the machine was: whether event loops and timers kept up with the run.

Told of a finished run (verdict.py), and of one that goes on (experiment/doubt.py): so nothing is
loaded here that a process must not have that forks others.
"""

from collections.abc import Sequence
from operator import itemgetter

from testbed.model.faults.record import FaultRecord
from testbed.model.run_files.health import HealthSample
from testbed.results.analysis.grades import Found, Level, grade

LAG_P99_DEGRADED_RTT = 0.05
"""An event loop so late (p99 of a second) shifts times by as much; they are given to 0.1 RTT."""

LAG_SHARE = 0.05
"""Of the endpoints' seconds so many may be later than that where no fault is being measured: there
figures are means over the run. Otherwise a run would be worse by being longer."""

MEASURED_RTTS = 10.0
"""For so long after it took effect, and after it was healed, a fault is being measured."""

LAG_P99_INVALID_RTT = 0.25
"""The spread of RTTs that loss detection tolerates: beyond it the machine makes losses."""

LAG_MAX_DEGRADED_RTT = 0.25
LAG_MAX_INVALID_RTT = 1.0
"""A loop that slept a whole RTT lets timers of healthy paths expire."""

TIMER_LATE_DEGRADED_RTT = 0.25
"""Latest end of a sleep of an ordinary process: what paces and samples runs as late as this."""

FROZEN = "freeze"
"""The kind of fault that stops an endpoint."""

_AT_FAULT = "p99 in a second, while a fault was measured"
_AS_A_RULE = f"p99 in a second, and more in {LAG_SHARE:.0%} of the seconds"


def late_loops(
    samples: Sequence[HealthSample], faults: Sequence[FaultRecord], base_rtt_ns: int
) -> Found:
    """How late event loops ran: at worst, while a fault was measured, and as a rule."""
    samples = _not_frozen(samples, faults)
    late = _by_p99(samples)
    if not late and not any(s.lag_max_ns is not None for s in samples):
        yield Level.DEGRADED, "event-loop lag was not recorded: how late endpoints ran is unknown"
        return
    as_a_rule = late[int(len(late) * LAG_SHARE) :]
    degraded, invalid = LAG_P99_DEGRADED_RTT, LAG_P99_INVALID_RTT
    of_seconds = [
        *_in_a_second(samples, faults, base_rtt_ns),
        *_late(as_a_rule[:1], _AS_A_RULE, base_rtt_ns, degraded, invalid),
    ]
    yield from of_seconds[:1]
    yield from _longest(samples, base_rtt_ns)


def late_for_good(
    samples: Sequence[HealthSample], faults: Sequence[FaultRecord], base_rtt_ns: int
) -> Found:
    """What is wrong with a run so far, however the rest of it goes."""
    loops = _not_frozen(samples, faults)
    yield from _in_a_second(loops, faults, base_rtt_ns)
    yield from _longest(loops, base_rtt_ns)
    yield from late_timers(samples, base_rtt_ns)


def late_timers(samples: Sequence[HealthSample], base_rtt_ns: int) -> Found:
    """How late sleeps of an ordinary process ended."""
    late = max((s.timer_late_ns or 0 for s in samples), default=0)
    if late > TIMER_LATE_DEGRADED_RTT * base_rtt_ns:
        yield (
            Level.DEGRADED,
            (
                f"a timer fired {late / 1e6:.1f} ms late, {late / base_rtt_ns:.0%} of a base RTT; "
                f"up to {TIMER_LATE_DEGRADED_RTT:.0%} is allowed"
            ),
        )


def _in_a_second(
    samples: Sequence[HealthSample], faults: Sequence[FaultRecord], base_rtt_ns: int
) -> Found:
    late = _by_p99(samples)
    degraded, invalid = LAG_P99_DEGRADED_RTT, LAG_P99_INVALID_RTT
    at_faults = [one for one in late if _measures_a_fault(one[1], faults, base_rtt_ns)]
    yield from _late(late[:1], "p99 in a second", base_rtt_ns, invalid, invalid)
    yield from _late(at_faults[:1], _AT_FAULT, base_rtt_ns, degraded, invalid)


def _longest(samples: Sequence[HealthSample], base_rtt_ns: int) -> Found:
    longest = [(s.lag_max_ns, s) for s in samples if s.lag_max_ns is not None]
    longest.sort(key=itemgetter(0), reverse=True)
    limits = LAG_MAX_DEGRADED_RTT, LAG_MAX_INVALID_RTT
    yield from _late(longest[:1], "longest", base_rtt_ns, *limits)


def _by_p99(samples: Sequence[HealthSample]) -> list[tuple[int, HealthSample]]:
    late = [(s.lag_p99_ns, s) for s in samples if s.lag_p99_ns is not None]
    late.sort(key=itemgetter(0), reverse=True)
    return late


def _late(
    worst: Sequence[tuple[int, HealthSample]],
    what: str,
    base_rtt_ns: int,
    degraded: float,
    invalid: float,
) -> Found:
    """What to say of samples that were so many ns late."""
    for lag_ns, sample in worst:
        share = lag_ns / base_rtt_ns
        level = grade(share, degraded, invalid)
        limit = invalid if level is Level.INVALID else degraded
        if level:
            yield (
                level,
                (
                    f"the event loop of {sample.process} ran {lag_ns / 1e6:.1f} ms late ({what}), "
                    f"{share:.0%} of a base RTT; up to {limit:.0%} is allowed"
                ),
            )


def _measures_a_fault(
    sample: HealthSample, faults: Sequence[FaultRecord], base_rtt_ns: int
) -> bool:
    """Whether a fault had just struck, or was just healed, in the second of a sample."""
    begin, end = sample.t_ns - sample.interval_ns, sample.t_ns
    after = MEASURED_RTTS * base_rtt_ns
    return any(
        at is not None and begin <= at + after and at <= end
        for fault in faults
        for at in (fault.effective_ns, fault.healed_ns)
    )


def _not_frozen(
    samples: Sequence[HealthSample], faults: Sequence[FaultRecord]
) -> list[HealthSample]:
    """The samples but those of endpoints that a fault had stopped: they were late on purpose."""
    frozen = [
        (set(fault.places), fault.effective_after_ns or 0, fault.healed_ns)
        for fault in faults
        if fault.kind == FROZEN
    ]
    return [
        s
        for s in samples
        if not any(
            s.process in places
            and s.t_ns >= start
            and (end is None or s.t_ns - s.interval_ns <= end)
            for places, start, end in frozen
        )
    ]
