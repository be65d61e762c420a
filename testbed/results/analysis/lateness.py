"""How late the machine was: whether event loops and timers kept up with the run.

Used after a run by the verdict, and during a run that may be ended early. So nothing is loaded here
that a process must not load before it forks.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from operator import itemgetter

from testbed.model.faults.record import FaultRecord
from testbed.model.run_files.content import HealthSample, watching_shares
from testbed.model.units import show_duration, show_share

# --------------------------------------------------------------------------------------------------
# The levels of trust in a run, and reasons for them.


class Level(IntEnum):
    """How far a run can be trusted."""

    TRUSTED = 0
    DEGRADED = 1
    INVALID = 2


Reason = tuple[Level, str]
"""A level, and a sentence that says why the run is no better than that."""

Reasons = Iterator[Reason]


def degraded(sentence: str) -> Reason:
    """A reason to take a run's metrics with care."""
    return Level.DEGRADED, sentence


def graded(sentence: str, value: float, degraded_above: float, invalid_above: float) -> Reasons:
    """A reason, if a value is above a limit."""
    if value > degraded_above or value > invalid_above:
        yield Level.INVALID if value > invalid_above else Level.DEGRADED, sentence


LAG_P99_DEGRADED_RTT = 0.05
"""Lag of an event loop (p99 of a second) that shifts times visibly: they are given to 0.1 RTT."""

LAG_SHARE = 0.05
"""Share of the endpoints' seconds that may lag more than that while no fault is being measured. The
metrics of that time are means, and without such a share longer runs would be judged worse."""

MEASURED_RTTS = 10.0
"""A fault is being measured for this long after it took effect, and after it was healed."""

LAG_P99_INVALID_RTT = 0.25
"""The spread of RTTs that loss detection tolerates: beyond it the machine makes losses."""

LAG_MAX_DEGRADED_RTT = 0.25
LAG_MAX_INVALID_RTT = 1.0
"""A loop that slept a whole RTT lets timers of healthy paths expire."""

TIMER_LATE_DEGRADED_RTT = 0.25
"""How late a sleep of an ordinary process may end: what paces and samples runs as late as this."""

FROZEN = "freeze"
"""The kind of fault that stops an endpoint."""

_AT_FAULT = "p99 in a second, while a fault was measured"
_AS_A_RULE = f"p99 in a second, and more in {show_share(LAG_SHARE)} of the seconds"

_Lags = list[tuple[int, HealthSample]]
"""Lags in ns, the longest first, and the samples that have them."""


def late_loops(
    samples: Sequence[HealthSample], faults: Sequence[FaultRecord], base_rtt_ns: int
) -> Reasons:
    """How late event loops ran: at worst, while a fault was measured, and as a rule."""
    samples = _without_frozen(samples, faults)
    lags = _lags_p99(samples)
    if not lags and not any(s.lag_max_ns is not None for s in samples):
        yield degraded("event-loop lag was not recorded: how late endpoints ran is unknown")
        return
    as_a_rule = lags[int(len(lags) * LAG_SHARE) :]
    limits = LAG_P99_DEGRADED_RTT, LAG_P99_INVALID_RTT
    of_seconds = [
        *_late_seconds(samples, faults, base_rtt_ns),
        *_longest_lag(as_a_rule, _AS_A_RULE, base_rtt_ns, *limits),
    ]
    yield from of_seconds[:1]
    yield from _longest_of_all(samples, base_rtt_ns)


def lasting_lateness(
    samples: Sequence[HealthSample], faults: Sequence[FaultRecord], base_rtt_ns: int
) -> Reasons:
    """Reasons so far that hold however the rest of the run goes."""
    loops = _without_frozen(samples, faults)
    yield from _late_seconds(loops, faults, base_rtt_ns)
    yield from _longest_of_all(loops, base_rtt_ns)
    yield from late_timers(samples, base_rtt_ns)


def late_timers(samples: Sequence[HealthSample], base_rtt_ns: int) -> Reasons:
    """How late sleeps of an ordinary process ended."""
    late_ns = max((sample.timer_late_ns or 0 for sample in samples), default=0)
    if late_ns > TIMER_LATE_DEGRADED_RTT * base_rtt_ns:
        yield degraded(
            f"a timer fired {show_duration(late_ns)} late, {show_share(late_ns / base_rtt_ns)} of "
            f"a base RTT; up to {show_share(TIMER_LATE_DEGRADED_RTT)} is allowed"
        )


def _late_seconds(
    samples: Sequence[HealthSample], faults: Sequence[FaultRecord], base_rtt_ns: int
) -> Reasons:
    lags = _lags_p99(samples)
    at_faults = [lag for lag in lags if _measures_a_fault(lag[1], faults, base_rtt_ns)]
    limits = LAG_P99_DEGRADED_RTT, LAG_P99_INVALID_RTT
    yield from _longest_lag(lags, "p99 in a second", base_rtt_ns, limits[1], limits[1])
    yield from _longest_lag(at_faults, _AT_FAULT, base_rtt_ns, *limits)


def _longest_of_all(samples: Sequence[HealthSample], base_rtt_ns: int) -> Reasons:
    lags = [(s.lag_max_ns, s) for s in samples if s.lag_max_ns is not None]
    lags.sort(key=itemgetter(0), reverse=True)
    yield from _longest_lag(lags, "longest", base_rtt_ns, LAG_MAX_DEGRADED_RTT, LAG_MAX_INVALID_RTT)


def _lags_p99(samples: Sequence[HealthSample]) -> _Lags:
    lags = [(s.lag_p99_ns, s) for s in samples if s.lag_p99_ns is not None]
    return sorted(lags, key=itemgetter(0), reverse=True)


def _longest_lag(
    lags: _Lags, statistic: str, base_rtt_ns: int, degraded_above: float, invalid_above: float
) -> Reasons:
    """A reason for the longest lag, if it is above a limit; limits in base RTTs."""
    for lag_ns, sample in lags[:1]:
        rtts = lag_ns / base_rtt_ns
        limit = invalid_above if rtts > invalid_above else degraded_above
        yield from graded(
            f"the event loop of {sample.process} ran {show_duration(lag_ns)} late ({statistic}), "
            f"{show_share(rtts)} of a base RTT; up to {show_share(limit)} is allowed",
            rtts,
            degraded_above,
            invalid_above,
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


def _without_frozen(
    samples: Sequence[HealthSample], faults: Sequence[FaultRecord]
) -> list[HealthSample]:
    """Leave out the samples of endpoints that a fault had stopped."""
    frozen = [
        (set(fault.places), fault.effective_after_ns or 0, fault.healed_ns)
        for fault in faults
        if fault.kind == FROZEN
    ]
    return [
        sample
        for sample in samples
        if not any(
            sample.process in places
            and sample.t_ns >= start
            and (end is None or sample.t_ns - sample.interval_ns <= end)
            for places, start, end in frozen
        )
    ]


# --------------------------------------------------------------------------------------------------
# Whether watching a run with --live took so much CPU time that it may have held up the run.


WATCHING_DEGRADED = 0.03
"""A process that watches a run may use this share of a core. Ours."""


def costly_watching(samples: Sequence[HealthSample]) -> Reasons:
    """A reason for each process that used more than `WATCHING_DEGRADED`."""
    for process, share in watching_shares(samples).items():
        if share > WATCHING_DEGRADED:
            yield degraded(
                f"the {process} of --live took {show_share(share)} of a core; up to "
                f"{show_share(WATCHING_DEGRADED)} does not hold up the run"
            )
