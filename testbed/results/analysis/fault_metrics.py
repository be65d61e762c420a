"""What one fault did to one flow.

Times count from when the fault took effect: from the end of the interval in which it did.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np
import polars as pl
from numpy.typing import NDArray

from testbed.model.faults.record import FaultRecord
from testbed.model.run_files.content import FlowRecord
from testbed.model.summary.faults import RECOVERED_SHARE
from testbed.results.analysis.attainable import AttainableRate
from testbed.results.analysis.delivery import (
    Floats,
    FlowDelivery,
    InOrder,
    Span,
    first_departures,
    longest_gap,
    returned,
    was_active,
)
from testbed.results.run_data import RunData

# --------------------------------------------------------------------------------------------------
# When goodput was back, after a fault, at the level at which it settled.


AVERAGED_RTTS = 1.0
"""Goodput is averaged over this many base RTTs, whatever is measured: a window in packets would be
longer for a queue pair among eight than for one alone."""

LEAST_PACKETS = 4
"""The time of averaging has at least this many packets: one packet is added to what arrived, as
that is the resolution, and with fewer packets no fall would show."""

NOTHING = 0.01
"""A level of less than this share of what the fabric allows is none."""

CAUSED_RTTS = 3.0
"""A fall of goodput counts if it begins within this time, and that of averaging, after the fault's
effect or after a loss; see also `LASTING_RTTS`."""

LASTING_RTTS = 5.0
"""A fall of goodput counts, whatever its cause, if it lasts as long as this. Short falls without
losses are caused by the machine. A simulation has none: there `AVERAGED_RTTS` are enough, if
goodput was steady before the fault and no fault healed just before the fall."""

HOLD_RTTS = 1.0
"""Falls with less time than this between them count as one: a burst is no recovery."""

STEPS_PER_RTT = 100
MOST_STEPS = 200_000
"""Goodput is sampled every 1/100 base RTT; in a long run less often, so that it has at most so many
samples."""


@dataclass(frozen=True, slots=True)
class Course:
    """What a flow, a pair of hosts or all flows together were allowed, and what they got.

    Attributes:
        ideal: what the fabric allows with the ideal split.
        attainable: what it allows with an even split.
        delivery: the arrivals.
        packet_bytes: payload of the largest packet.
        losses: when packets were declared lost, in seconds, ascending.
        undamaged: what it allows without faults, while there is something to send; None: always
            the same.
        healings: when faults healed, in seconds, in virtual time; None: a machine may be late.
    """

    ideal: AttainableRate
    attainable: AttainableRate
    delivery: FlowDelivery
    packet_bytes: float
    losses: Floats
    undamaged: AttainableRate | None = None
    healings: tuple[float, ...] | None = None

    @classmethod
    def together(cls, flows: Sequence["FlowTables"]) -> "Course":
        """Of some flows; each counts while it has something to send."""
        if not flows[1:]:
            return flows[0].course
        changes = any(flow.busy[1] < inf or flow.undamaged is not None for flow in flows)
        courses = [flow.course for flow in flows]
        times = np.concatenate([course.delivery.times for course in courses])
        placed = np.concatenate([np.diff(c.delivery.placed, prepend=0) for c in courses])
        order = np.argsort(times, kind="stable")
        return cls(
            AttainableRate.together([flow.ideal.between(*flow.busy) for flow in flows]),
            AttainableRate.together([flow.attainable.between(*flow.busy) for flow in flows]),
            FlowDelivery(times[order], np.cumsum(placed[order]), np.empty(0)),
            max(course.packet_bytes for course in courses),
            np.sort(np.concatenate([course.losses for course in courses])),
            AttainableRate.together(
                [
                    (
                        flow.undamaged or AttainableRate((-inf,), (flow.ideal.undamaged_bps,))
                    ).between(*flow.busy)
                    for flow in flows
                ]
            )
            if changes
            else None,
            courses[0].healings,
        )

    def undamaged_bps(self, start: float, end: float) -> float:
        """What it allows without faults between two times, the mean."""
        if self.undamaged is None:
            return self.ideal.undamaged_bps
        return self.undamaged.mean_bps(start, end)

    def level(
        self, allowed: AttainableRate, rtt_s: float, begin: float, end: float
    ) -> float | None:
        """Goodput over what is allowed, once it has settled: in the second half, for everybody.

        None where nothing was allowed, or where this is shorter than the time of averaging.
        """
        settled = (begin + end) / 2, end
        if end - begin < 2 * AVERAGED_RTTS * rtt_s:
            return None
        return fraction(self.delivery, allowed, *settled)


@dataclass(frozen=True, slots=True)
class Recovery:
    """How goodput came back.

    Attributes:
        seconds: from the fault's effect until goodput was back for good, that is until the next
            change of the fabric; 0 if it never fell; infinite if it did not come back; None if
            there is too little time to see it.
        below_share: share of the time in force in which goodput was below 95% of what the ideal
            split allows.
    """

    seconds: float | None
    below_share: float | None


def recovery(course: Course, rtt_s: float, start: float, healed: float, until: float) -> Recovery:
    """How goodput came back after a fault.

    Goodput, averaged over one RTT, is *below the mark* while it is less than 95% of the level at
    which it settles: in the second half of the time in force, and then of the time until the next
    fault or the end. So it is while nothing is allowed, and where it settles at nothing. Where the
    time is too short to settle, 95% of what is allowed is the mark. It has
    recovered when it is above the mark and stays there until the fault heals. If it never does, it
    has recovered when it is above the mark after healing and stays there until the next fault, or
    the end. The averaging is part of the time, so that it is never too short. If nothing arrives
    as the fault heals, what follows until something does is part of the fault.

    Args:
        course: of what is measured.
        rtt_s: the base RTT, in seconds.
        start: when the fault was in force, in seconds of the run.
        healed: when it healed; the end of the run if it did not.
        until: the next fault's effect, or the end of the run.
    """
    # Until half an RTT has passed packets arrive that crossed the link in time.
    step = max(rtt_s / STEPS_PER_RTT, (until - start) / MOST_STEPS)
    times = np.arange(start + rtt_s / 2, until, step)
    if not times.size:
        return Recovery(None, None)
    healed = min(healed, until)
    in_force = times <= _outage_end(course, rtt_s, start, healed)
    level = course.level(course.ideal, rtt_s, start, healed)
    afterwards = course.level(course.ideal, rtt_s, healed, until)
    marks = np.where(in_force, _mark(level), _mark(afterwards))
    whole = _falls(course, rtt_s, start, times, np.full(len(times), RECOVERED_SHARE))
    share = float(whole[in_force].mean()) if in_force.any() else 0.0
    below = _falls(course, rtt_s, start, times, marks)
    if not below[in_force].any():  # what follows healing is the return to service
        return Recovery(0.0, share)
    for part in (in_force, ~in_force):
        moments = np.flatnonzero(part)
        if not moments.size or below[moments[-1]]:
            continue
        fallen = moments[below[moments]]
        back = times[fallen[-1] + 1] if fallen.size else times[moments[0]]
        return Recovery(float(back - start), share)
    return Recovery(inf, share)


def _mark(level: float | None) -> float:
    """The share of what is allowed below which goodput is not back; infinite if it never is.

    A flow that later takes more than its share, as others leave theirs, has not fallen before.
    """
    if level is None:  # nothing is allowed, or the time is too short to settle
        return RECOVERED_SHARE
    return inf if level < NOTHING else RECOVERED_SHARE * min(level, 1.0)


def _falls(
    course: Course, rtt_s: float, start: float, times: Floats, marks: Floats
) -> NDArray[np.bool_]:
    """Whether each time is in a fall below the mark that counts."""
    counted = np.zeros(len(times), dtype=bool)
    width = _averaged_s(course, rtt_s, start)
    below = np.flatnonzero(_below(course, times, width, marks))
    if not below.size:
        return counted
    step = times[1] - times[0] if len(times) > 1 else rtt_s
    apart = np.flatnonzero(np.diff(below) * step > HOLD_RTTS * rtt_s)
    firsts = below[np.concatenate(([0], apart + 1))]
    lasts = below[np.concatenate((apart, [below.size - 1]))]
    causes = np.sort(np.append(course.losses, start))
    within = CAUSED_RTTS * rtt_s + width
    healings = course.healings or ()
    steady = course.healings is not None and _was_steady(course, rtt_s, start, width)
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        begins, took = times[first], times[last] - times[first]
        cause = causes[max(int(np.searchsorted(causes, begins, side="right")) - 1, 0)]
        # After a healing more is allowed: goodput need not have fallen.
        fallen = steady and not any(0 <= begins - healed <= within for healed in healings)
        lasting = took >= (AVERAGED_RTTS if fallen else LASTING_RTTS) * rtt_s
        counted[first : last + 1] = lasting or begins - cause <= within
    return counted


def _was_steady(course: Course, rtt_s: float, start: float, width: float) -> bool:
    """Whether goodput kept its level before the fault: what falls later falls by the fault."""
    since = max(start - BASELINE_RTTS * rtt_s, CAUSED_RTTS * rtt_s)  # the run's start is over
    times = np.arange(since + width, start, rtt_s / STEPS_PER_RTT)
    if not times.size:
        return False
    mark = _mark(fraction(course.delivery, course.ideal, since, start))
    return not _below(course, times, width, np.full(len(times), mark)).any()


def visible_gaps(
    course: Course, rtt_s: float, start: float, healed: float, until: float
) -> list[tuple[float, float]]:
    """Times without goodput that begin in force, too long for a recovery to leave them out.

    Those are longer than the averaging and a fall that counts whatever its cause, and at its level
    goodput has several packets in the time of averaging, or it settles at nothing.

    Returns:
        begin and end of each, in seconds of the run, the end at `until` at the latest.
    """
    width = _averaged_s(course, rtt_s, start)
    shortest = width + (LASTING_RTTS + 1) * rtt_s
    arrivals = course.delivery.times
    inside = arrivals[(arrivals > start) & (arrivals < until)]
    begins = np.concatenate(([start], inside))
    ends = np.append(inside, until)
    long = (begins <= healed) & (ends - begins > shortest)
    mark = _mark(course.level(course.ideal, rtt_s, start, min(healed, until)))
    gaps = []
    for begin, end in zip(begins[long].tolist(), ends[long].tolist(), strict=True):
        rate_bps = course.ideal.mean_bps(begin, end)
        packets = mark * rate_bps * width / 8 / course.packet_bytes if rate_bps else inf
        if packets >= LEAST_PACKETS / 2:
            gaps.append((begin, end))
    return gaps


def _outage_end(course: Course, rtt_s: float, start: float, healed: float) -> float:
    """When the fault healed, or the first goodput after it if there was none as it healed."""
    arrivals = course.delivery.times
    after = int(np.searchsorted(arrivals, healed, side="right"))
    before = arrivals[after - 1] if after else start
    first = arrivals[after] if after < len(arrivals) else inf
    out = first - max(before, start) > _averaged_s(course, rtt_s, start)
    return float(first) if out else healed


def _averaged_s(course: Course, rtt_s: float, start: float) -> float:
    """The time over which goodput is averaged, in seconds."""
    rate_bps = course.attainable.at(start) or course.attainable.undamaged_bps
    packet_s = course.packet_bytes * 8 / rate_bps if rate_bps else 0.0
    return max(AVERAGED_RTTS * rtt_s, LEAST_PACKETS * packet_s)


def _below(course: Course, times: Floats, width: float, marks: Floats) -> NDArray[np.bool_]:
    delivery, ideal = course.delivery, course.ideal
    bits = 8 * (delivery.bytes_until(times) - delivery.bytes_until(times - width))
    # What is allowed in a part of the window is not what is allowed now.
    out_of_service = ideal.rates(times) <= 0
    allowed = np.where(out_of_service, inf, marks * np.maximum(ideal.bits(times - width, times), 1))
    below: NDArray[np.bool_] = bits + 8 * course.packet_bytes < allowed
    return below


TAIL_RTTS = 10.0
"""What is missing is integrated until this long after healing: bytes that waited may arrive then,
which reduces the deficit."""

BASELINE_RTTS = 10.0
"""The flow's own steady goodput is taken over this long before the fault."""


@dataclass(frozen=True, slots=True)
class TimeInForce:
    """The time in which a fault was in force, in seconds of the run.

    Attributes:
        start: when it was in force for certain.
        end: its healing, or the run's end.
        earliest: when it may have begun.
        healed: its healing, if it was healed.
        run_end: the end of the measured time.
    """

    start: float
    end: float
    earliest: float
    healed: float | None
    run_end: float

    def until(self, end: float) -> "TimeInForce":
        """The same for a flow that has nothing more to send from `end` on."""
        healed = self.healed if self.healed is not None and self.healed < end else None
        last = min(self.run_end, end)
        return replace(self, end=min(self.end, last), healed=healed, run_end=last)


_SHORT_RTTS = 2
"""A flow of a program that is no longer than this, in base RTTs, counts from its first packet."""


@dataclass(frozen=True)
class FlowTables:
    """The records of one flow.

    Attributes:
        flow: the flow.
        attainable: its attainable rate over time.
        ideal: the same with the best split over all paths.
        undamaged: the latter without faults, where that changes.
        delivery: its arrivals.
        in_order: its packets until they are delivered in order.
        spans: for each EV its states over time.
        transmissions: its rows of that table.
        losses: its rows of that table.
        lasted: from when to when there was such a flow; a program's begins and ends at any time.
        done: when all that its file asks for had arrived, in seconds; infinite if it has no end.
        healings: when faults healed, in seconds, in virtual time; None: a machine may be late.
        spells: when it had messages under way, in seconds, of a flow that pauses between them.
    """

    flow: FlowRecord
    attainable: AttainableRate
    ideal: AttainableRate
    delivery: FlowDelivery
    in_order: InOrder
    spans: dict[int, tuple[Span, ...]]
    transmissions: pl.DataFrame
    losses: pl.DataFrame
    lasted: tuple[float, float] = (-inf, inf)
    done: float = inf
    undamaged: AttainableRate | None = None
    healings: tuple[float, ...] | None = None
    spells: Sequence[tuple[float, float]] = ()

    @property
    def busy(self) -> tuple[float, float]:
        """From when to when it had something to send, in seconds."""
        begin, end = self.lasted
        return begin, min(end, self.done)

    def busy_at(self, t: float) -> tuple[float, float] | None:
        """The time around a moment in which it had something to send; None: it had nothing."""
        spells = self.spells or (self.busy,)
        return next((spell for spell in spells if spell[0] <= t < spell[1]), None)

    @cached_property
    def course(self) -> Course:
        """What it was allowed, and what it got."""
        largest = self.transmissions["bytes"].max()
        packet_bytes = float(largest) if isinstance(largest, int) and largest > 0 else 1.0
        losses = self.losses["t"].sort().to_numpy()
        rates = self.ideal, self.attainable
        return Course(*rates, self.delivery, packet_bytes, losses, self.undamaged, self.healings)

    def measured(self, base_rtt_s: float, end_s: float) -> tuple[float, float]:
        """The times between which the whole of it is measured, in seconds: see `FlowSummary`."""
        begin, end = self.lasted
        if end < inf:
            is_short = end - begin <= _SHORT_RTTS * base_rtt_s
            return (begin, begin + base_rtt_s) if is_short else (begin + base_rtt_s, end)
        begin = max(begin, 0.0)
        last = float(self.delivery.times[-1]) if self.delivery.times.size else 0.0
        return (begin if begin < last <= begin + base_rtt_s else begin + base_rtt_s), end_s


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Payload missing between two times, divided by the undamaged rate: in seconds.

    Attributes:
        capacity_lost_s: what the fabric no longer offered: undamaged less what the ideal split
            allows.
        deficit_s: what the transport did not use of what was left: that less goodput.
        deficit_even_s: what an even split would allow less goodput.
        undamaged_bps: the undamaged rate, of payload, the mean, in bits/s.
    """

    capacity_lost_s: float
    deficit_s: float
    deficit_even_s: float
    undamaged_bps: float

    @property
    def capacity_lost_bytes(self) -> int:
        return round(self.capacity_lost_s * self.undamaged_bps / 8)

    @property
    def deficit_bytes(self) -> int:
        return round(self.deficit_s * self.undamaged_bps / 8)


def shortfall(of: Course, start: float, end: float, share: float = 1.0) -> Shortfall:
    """What is missing; the deficits are against `share` of what was allowed."""
    undamaged_bps = of.undamaged_bps(start, end)
    if not undamaged_bps:
        return Shortfall(0.0, 0.0, 0.0, 0.0)
    seconds = end - start
    ideal, even, placed = (
        rate_bps * seconds / undamaged_bps
        for rate_bps in (
            of.ideal.mean_bps(start, end),
            of.attainable.mean_bps(start, end),
            of.delivery.goodput_bps(start, end),
        )
    )
    return Shortfall(seconds - ideal, ideal * share - placed, even * share - placed, undamaged_bps)


def fraction(
    delivery: FlowDelivery, allowed: AttainableRate, start: float, end: float
) -> float | None:
    """Goodput over what was allowed between two times; None where nothing was."""
    rate_bps = allowed.mean_bps(start, end)
    return delivery.goodput_bps(start, end) / rate_bps if rate_bps else None


def time_in_force(data: RunData, fault: FaultRecord) -> TimeInForce | None:
    """When a fault was in force; None if it never took effect within the run."""
    start = data.seconds(fault.effective_ns)
    end = data.end_s
    if start is None or start >= end:
        return None
    healed = data.seconds(fault.healed_ns)
    earliest = data.seconds(fault.effective_after_ns)
    return TimeInForce(
        start=start,
        end=min(end, end if healed is None else healed),
        earliest=start if earliest is None else earliest,
        healed=healed,
        run_end=end,
    )


class GoodputMetrics:
    """Computes what a fault did to the goodput of a flow, of two hosts, or of all flows together.

    Times are in seconds.

    Attributes:
        course: of what is measured.
        during: when the fault was in force.
        until: the next fault's effect or the end of the run, in seconds: what happens after it is
            not attributed to this fault.
    """

    def __init__(self, course: Course, rtt_s: float, during: TimeInForce, until: float) -> None:
        """Compare what came with what was allowed; `rtt_s` is the base RTT."""
        self.course, self._rtt_s, self.during, self.until = course, rtt_s, during, until
        start, end = during.start, during.end
        ideal, even, came = course.ideal, course.attainable, course.delivery
        self.placement_gap = longest_gap(came.times, start, end, during.run_end)
        self.goodput_bps = came.goodput_bps(start, end)
        self.ideal_bps, self.attainable_bps = ideal.mean_bps(start, end), even.mean_bps(start, end)
        self.ideal_fraction = fraction(came, ideal, start, end)
        self.attainable_fraction = fraction(came, even, start, end)
        self.level, self.level_even = (
            course.level(rate, rtt_s, start, min(end, until)) for rate in (ideal, even)
        )
        self.level_healed, self.level_healed_even = (
            None if during.healed is None else course.level(rate, rtt_s, end, until)
            for rate in (ideal, even)
        )
        undamaged_bps = course.undamaged_bps(start, start)
        self.surviving_fraction = ideal.at(start) / undamaged_bps if undamaged_bps else None
        self.counted = start, min(end + TAIL_RTTS * rtt_s, until)
        """The time over which capacity lost and deficit are summed, in seconds of the run."""
        missing = shortfall(course, *self.counted)
        self.capacity_lost, self.deficit = missing.capacity_lost_s, missing.deficit_s
        self.deficit_even = missing.deficit_even_s
        self.capacity_lost_bytes = missing.capacity_lost_bytes
        self.deficit_bytes = missing.deficit_bytes

    @cached_property
    def _recovery(self) -> Recovery:
        during = self.during
        return recovery(self.course, self._rtt_s, during.start, during.end, self.until)

    @property
    def recovery(self) -> float | None:
        """Until goodput was back for good (see `recovery`)."""
        return self._recovery.seconds

    @property
    def below_share(self) -> float | None:
        """The share of the time in force in which goodput was low (see `recovery`)."""
        return self._recovery.below_share

    @property
    def visible_gaps(self) -> list[tuple[float, float]]:
        """Times without goodput that a recovery is not shorter than, in seconds of the run."""
        during = self.during
        return visible_gaps(self.course, self._rtt_s, during.start, during.end, self.until)

    @property
    def deficit_baseline(self) -> float | None:
        """Payload that is missing against the own goodput before the fault, as time.

        A flow that runs steadily at 98% of what the fabric allows gathers a deficit of 0.02 a RTT
        without any fault; this leaves that out, and may come out slightly negative.
        """
        delivery, start = self.course.delivery, self.during.start
        of_run = delivery.times[delivery.times >= 0]  # not what measured the base RTT before it
        first = float(of_run[0]) if of_run.size else start
        since = max(start - BASELINE_RTTS * self._rtt_s, first)
        share = fraction(delivery, self.course.ideal, since, start) if since < start else None
        return shortfall(self.course, *self.counted, share).deficit_s / share if share else None


class FaultMetrics(GoodputMetrics):
    """Computes what a fault did to a flow: each metric of `FlowFault`, times in seconds."""

    def __init__(
        self, data: RunData, flow: FlowTables, fault: FaultRecord, during: TimeInForce, until: float
    ) -> None:
        """Select the records on the EVs that the fault concerns, and count them."""
        super().__init__(flow.course, data.base_rtt_s, during, until)
        self.data, self.flow, self.fault = data, flow, fault
        rtt_s, start, end = data.base_rtt_s, during.start, during.end
        self._spans = {
            ev: spans
            for ev, spans in flow.spans.items()
            if data.crosses(flow.flow, ev, fault.places)
        }
        self._departures = first_departures(self._spans, during.earliest, end)
        concerned = pl.col("ev").is_in(list(self._spans))
        self._sent_into = flow.transmissions.filter(concerned)
        self._losses = flow.losses.filter(concerned)
        self._exposed = self._sent_into.filter(pl.col("t").is_between(during.earliest, end))
        self._detected = detected = min(self._departures.values(), default=np.inf)
        lost = self._losses.filter(
            pl.col("sent_t").is_between(start - rtt_s, end) & ~pl.col("spurious")
        )
        # What is lost of it is a part of what is sent: a share is never above 1.
        sent = flow.transmissions.filter(pl.col("t").is_between(start - rtt_s, end))
        in_use = {
            ev for ev, spans in self._spans.items() if was_active(spans, during.earliest, end)
        }
        lossy = in_use.intersection(lost["ev"].unique())

        self.evs_active = len(in_use)
        self.evs_detected = len(self._departures)
        self.evs_lossy, self.evs_noticed = len(lossy), len(lossy & self._departures.keys())
        self.ev_detections = [max(self._departures.get(ev, inf) - start, 0.0) for ev in lossy]
        """Until each EV that lost packets left, in seconds; infinite if it did not."""
        self.affected = self.evs_active > 0
        self.stall = longest_gap(flow.delivery.advances, start, end, during.run_end)
        delays = flow.in_order.delays(start, -inf, end, during.run_end)
        self.in_order_delay = float(delays.max()) if delays.size else None
        self.packets_exposed = self._exposed.height
        self.packets_lost = lost.height
        self.packets_sent = sent.height
        self.packets_sent_after_detection = sent.filter(pl.col("t") >= detected).height
        self.packets_lost_after_detection = lost.filter(pl.col("sent_t") >= detected).height

    # --- EVs ----------------------------------------------------------------------------------

    @property
    def detection(self) -> float | None:
        """Until the first EV left; infinite if packets were lost and none did."""
        if self._departures:
            return max(self._detected - self.during.start, 0.0)
        return inf if self.packets_lost else None

    @property
    def detection_last(self) -> float | None:
        """Until the last EV left, if all did."""
        if self.evs_detected != self.evs_active or not self._departures:
            return inf if self.packets_lost else None
        return max(*self._departures.values(), self.during.start) - self.during.start

    @cached_property
    def _returns(self) -> list[float]:
        """When the EVs that had left were GOOD again, in seconds of the run."""
        healed = self.during.healed
        if healed is None:
            return []
        times = (returned(self._spans[ev], healed) for ev in self._departures)
        return [t for t in times if t is not None]

    @property
    def _awaited(self) -> bool:
        """Whether there is a return to measure: the fault healed, and had taken EVs out."""
        return self.during.healed is not None and bool(self._departures)

    def _since_healing(self, t: float) -> float:
        return t - (self.during.healed or 0.0)

    @property
    def return_first(self) -> float | None:
        """From healing until the first EV was back."""
        if not self._awaited:
            return None
        return self._since_healing(min(self._returns)) if self._returns else inf

    @property
    def return_last(self) -> float | None:
        """From healing until the last EV was back, if all came back."""
        if not self._awaited:
            return None
        if len(self._returns) != self.evs_detected:
            return inf
        return self._since_healing(max(self._returns))

    @property
    def return_data(self) -> float | None:
        """From healing until data was sent on an EV that was back."""
        if not self._awaited:
            return None
        back = min(self._returns, default=inf)
        t = self._sent_into.filter(pl.col("t") >= back)["t"].min()
        return self._since_healing(t) if isinstance(t, float) else inf

    @property
    def exposure(self) -> float | None:
        """Until the last data packet was sent into the fault."""
        last = self._exposed.filter(pl.col("t") >= self.during.start)["t"].max()
        return last - self.during.start if isinstance(last, float) else None
