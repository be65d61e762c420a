"""What one fault did to one flow.

Times count from when the fault took effect: from the end of the interval in which it did.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite

import numpy as np
import polars as pl
from numpy.typing import NDArray

from testbed.model.faults.record import FaultRecord
from testbed.model.run_files.run import FlowRecord
from testbed.model.summary.faults import RECOVERED_SHARE
from testbed.results.analysis.delivery import Floats, FlowDelivery, InOrder, longest_gap
from testbed.results.analysis.ev_states import Span, first_departures, returned, was_active
from testbed.results.capacity.attainable import AttainableRate
from testbed.results.run_data import RunData

# --------------------------------------------------------------------------------------------------
# When a flow was back at what the fabric allowed, after a fault.


AVERAGED_PACKETS = 200
"""Goodput is averaged over the time in which the attainable rate carries this many packets."""

AVERAGED_RTTS = (1.0, 3.0)
"""The shortest and the longest time of averaging, in base RTTs. In the longest, a flow with a small
share has fewer packets. One packet is added to them, which is the resolution of the measurement."""

LEAST_PACKETS = 4
"""The time of averaging also has at least this many packets: with one packet added, fewer packets
show no fall."""

CAUSED_RTTS = 3.0
"""A fall of goodput counts if it begins within this time, and that of averaging, after the fault's
effect or after a loss of the flow; see also `LASTING_RTTS`."""

LASTING_RTTS = 5.0
"""A fall of goodput counts, whatever its cause, if it lasts as long as this. Short falls without
losses are caused by the machine."""

HOLD_RTTS = 1.0
"""Falls with less time than this between them count as one: a burst is no recovery."""

STEPS_PER_RTT = 100
MOST_STEPS = 200_000
"""Goodput is sampled every 1/100 base RTT; in a long run less often, so that it has at most so many
samples."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a flow's goodput came back.

    Attributes:
        seconds: from the fault's effect until goodput was back for good, that is until the next
            change of the fabric; 0 if it never fell; infinite if it did not come back.
        below_share: share of the time in force in which goodput was below the mark.
    """

    seconds: float
    below_share: float


@dataclass(frozen=True, slots=True)
class FlowGoodput:
    """What a flow was allowed and what it got.

    Attributes:
        attainable: what the fabric allowed it.
        delivery: its arrivals.
        packet_bytes: payload of its largest packet.
        losses: when it declared packets lost, in seconds, ascending.
    """

    attainable: AttainableRate
    delivery: FlowDelivery
    packet_bytes: float
    losses: Floats


def recovery(
    course: FlowGoodput, rtt_s: float, start: float, healed: float, until: float
) -> Recovery:
    """How goodput came back after a fault.

    Goodput, averaged over about an RTT, is *below the mark* while it is less than 95% of what was
    attainable in the same time, or while nothing is attainable. The flow has recovered when it is
    above the mark and stays there until the fault heals. If it never does, it has recovered when it
    is above the mark after healing and stays there until the next fault, or the end. The
    averaging is part of the time, so that it is never too short. If nothing arrives as the fault
    heals, what follows until something does is part of the fault.

    Args:
        course: the flow's.
        rtt_s: the base RTT, in seconds.
        start: when the fault was in force, in seconds of the run.
        healed: when it healed; the end of the run if it did not.
        until: the next fault's effect, or the end of the run.
    """
    # Until half an RTT has passed packets arrive that crossed the link in time.
    step = max(rtt_s / STEPS_PER_RTT, (until - start) / MOST_STEPS)
    times = np.arange(start + rtt_s / 2, until, step)
    falls = _falls(course, rtt_s, start, times)
    below = np.zeros(len(times), dtype=bool)
    for first, last in falls:
        below[first : last + 1] = True
    in_force = times <= _outage_end(course, rtt_s, start, healed)
    share = float(below[in_force].mean()) if in_force.any() else 0.0
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


def _falls(course: FlowGoodput, rtt_s: float, start: float, times: Floats) -> list[tuple[int, int]]:
    """The falls below the mark that count: the first and the last index of each in `times`."""
    if not times.size:
        return []
    width = _averaged_s(course, rtt_s, start)
    below = np.flatnonzero(_below(course, times, width))
    if not below.size:
        return []
    step = times[1] - times[0] if len(times) > 1 else rtt_s
    apart = np.flatnonzero(np.diff(below) * step > HOLD_RTTS * rtt_s)
    firsts = below[np.concatenate(([0], apart + 1))]
    lasts = below[np.concatenate((apart, [below.size - 1]))]
    causes = np.sort(np.append(course.losses, start))
    within = CAUSED_RTTS * rtt_s + width
    counted = []
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        cause = causes[max(int(np.searchsorted(causes, times[first], side="right")) - 1, 0)]
        lasting = times[last] - times[first] >= LASTING_RTTS * rtt_s
        if lasting or times[first] - cause <= within:
            counted.append((first, last))
    return counted


def visible_gaps(
    course: FlowGoodput, rtt_s: float, start: float, healed: float, until: float
) -> list[tuple[float, float]]:
    """Times without goodput that begin in force, too long for a recovery to leave them out.

    Those are longer than the averaging and a fall that counts whatever its cause, and the fabric
    allowed several packets in the time of averaging, or nothing at all.

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
    gaps = []
    for begin, end in zip(begins[long].tolist(), ends[long].tolist(), strict=True):
        rate_bps = course.attainable.mean_bps(begin, end)
        packets = rate_bps * width / 8 / course.packet_bytes
        if not rate_bps or packets >= LEAST_PACKETS / 2:
            gaps.append((begin, end))
    return gaps


def _outage_end(course: FlowGoodput, rtt_s: float, start: float, healed: float) -> float:
    """When the fault healed, or the first goodput after it if there was none as it healed."""
    arrivals = course.delivery.times
    after = int(np.searchsorted(arrivals, healed, side="right"))
    before = arrivals[after - 1] if after else start
    first = arrivals[after] if after < len(arrivals) else inf
    out = first - max(before, start) > _averaged_s(course, rtt_s, start)
    return float(first) if out else healed


def _averaged_s(course: FlowGoodput, rtt_s: float, start: float) -> float:
    """The time over which goodput is averaged, in seconds."""
    rate_bps = course.attainable.at(start) or course.attainable.undamaged_bps
    least, most = (rtts * rtt_s for rtts in AVERAGED_RTTS)
    packet_s = course.packet_bytes * 8 / rate_bps if rate_bps else most / LEAST_PACKETS
    return max(min(max(AVERAGED_PACKETS * packet_s, least), most), LEAST_PACKETS * packet_s)


def _below(course: FlowGoodput, times: Floats, width: float) -> NDArray[np.bool_]:
    """Whether goodput was below the mark at each time."""
    delivery = course.delivery
    bits = 8 * (delivery.bytes_until(times) - delivery.bytes_until(times - width))
    allowed = course.attainable.bits(times - width, times)
    packet_bits = 8 * course.packet_bytes
    below: NDArray[np.bool_] = bits + packet_bits < RECOVERED_SHARE * allowed
    # What is attainable in a part of the window is not what is attainable now.
    steps = np.searchsorted(course.attainable.starts, times, side="right") - 1
    out_of_service = np.array(course.attainable.rates_bps)[steps] <= 0
    return below | out_of_service


DEFICIT_TAIL_RTTS = 10.0
"""The deficit is integrated until this long after recovery: bytes that waited may arrive faster
than the attainable rate then, which reduces it."""

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

    def within(self, begin: float, end: float) -> "TimeInForce | None":
        """The same for a flow that lasts from `begin` to `end`; None if the fault met it not.

        A flow that begins while the fault is in force does not show what the fault does to it.
        """
        if not begin <= self.start < end:
            return None
        healed = self.healed if self.healed is not None and self.healed < end else None
        last = min(self.run_end, end)
        return replace(self, end=min(self.end, last), healed=healed, run_end=last)


_SHORT_RTTS = 2
"""A flow of a program that is no longer than this, in base RTTs, counts from its first packet."""


@dataclass(frozen=True, slots=True)
class FlowTables:
    """The records of one flow.

    Attributes:
        flow: the flow.
        attainable: its attainable rate over time.
        ideal: the same with the best split over all paths.
        delivery: its arrivals.
        in_order: its packets until they are delivered in order.
        spans: for each EV its states over time.
        transmissions: its rows of that table.
        losses: its rows of that table.
        lasted: from when to when there was such a flow; a program's begins and ends at any time.
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
        capacity_lost_s: what the fabric no longer offered: undamaged less attainable.
        deficit_s: what the transport did not use of what was left: attainable less goodput.
        undamaged_bps: the undamaged rate, of payload, in bits/s.
    """

    capacity_lost_s: float
    deficit_s: float
    undamaged_bps: float

    @property
    def capacity_lost_bytes(self) -> int:
        """The capacity lost in bytes of payload."""
        return round(self.capacity_lost_s * self.undamaged_bps / 8)

    @property
    def deficit_bytes(self) -> int:
        """The deficit in bytes of payload."""
        return round(self.deficit_s * self.undamaged_bps / 8)


def shortfall(flow: FlowTables, start: float, end: float, share: float = 1.0) -> Shortfall:
    """The shortfall of a flow; the deficit is against `share` of what was attainable."""
    undamaged_bps = flow.attainable.undamaged_bps
    allowed = flow.attainable.mean_bps(start, end) * (end - start)
    placed = flow.delivery.goodput_bps(start, end) * (end - start)
    if not undamaged_bps:
        return Shortfall(0.0, 0.0, 0.0)
    return Shortfall(
        capacity_lost_s=(end - start) - allowed / undamaged_bps,
        deficit_s=(allowed * share - placed) / undamaged_bps,
        undamaged_bps=undamaged_bps,
    )


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


class FaultMetrics:
    """Computes what a fault did to a flow: each metric of `FlowFault`, times in seconds.

    Attributes:
        data: the run.
        flow: the flow's tables.
        fault: the fault.
        during: when the fault was in force.
        until: the next fault's effect or the end of the run, in seconds: what happens after it is
            not attributed to this fault.
    """

    def __init__(
        self, data: RunData, flow: FlowTables, fault: FaultRecord, during: TimeInForce, until: float
    ) -> None:
        """Select the records on the EVs that the fault concerns, and count them."""
        self.data, self.flow, self.fault = data, flow, fault
        self.during, self.until = during, until
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
        self.placement_gap = longest_gap(flow.delivery.times, start, end, during.run_end)
        delays = flow.in_order.delays(start, -inf, end, during.run_end)
        self.in_order_delay = float(delays.max()) if delays.size else None
        attainable = flow.attainable
        self.goodput_bps = flow.delivery.goodput_bps(start, end)
        self.attainable_bps = attainable.mean_bps(start, end)
        self.attainable_fraction = fraction(flow.delivery, attainable, start, end)
        self.surviving_fraction = attainable.at(start) / attainable.undamaged_bps
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

    # --- delivery -----------------------------------------------------------------------------

    @cached_property
    def _course(self) -> FlowGoodput:
        flow = self.flow
        losses = flow.losses["t"].sort().to_numpy()
        return FlowGoodput(flow.attainable, flow.delivery, _packet_bytes(flow), losses)

    @cached_property
    def _recovery(self) -> Recovery:
        during, rtt_s = self.during, self.data.base_rtt_s
        return recovery(self._course, rtt_s, during.start, during.end, self.until)

    @property
    def visible_gaps(self) -> list[tuple[float, float]]:
        """Times without goodput that a recovery is not shorter than, in seconds of the run."""
        during, rtt_s = self.during, self.data.base_rtt_s
        return visible_gaps(self._course, rtt_s, during.start, during.end, self.until)

    @property
    def recovery(self) -> float:
        """Until goodput was back for good (see `recovery`)."""
        return self._recovery.seconds

    @property
    def below_share(self) -> float:
        """The share of the time in force in which goodput was below the mark (see `recovery`)."""
        return self._recovery.below_share

    @cached_property
    def counted(self) -> tuple[float, float]:
        """The time over which capacity lost and deficit are summed, in seconds of the run."""
        start = self.during.start
        back = start + self.recovery if isfinite(self.recovery) else self.during.end
        return start, min(back + DEFICIT_TAIL_RTTS * self.data.base_rtt_s, self.until)

    @cached_property
    def _shortfall(self) -> Shortfall:
        return shortfall(self.flow, *self.counted)

    @property
    def capacity_lost(self) -> float:
        """What the fabric no longer offered, as time at the undamaged rate."""
        return self._shortfall.capacity_lost_s

    @property
    def deficit(self) -> float:
        """What the transport did not use of what was left, as time at the undamaged rate."""
        return self._shortfall.deficit_s

    @property
    def capacity_lost_bytes(self) -> int:
        """The same in bytes of payload."""
        return self._shortfall.capacity_lost_bytes

    @property
    def deficit_bytes(self) -> int:
        """The same in bytes of payload."""
        return self._shortfall.deficit_bytes

    @property
    def deficit_baseline(self) -> float | None:
        """Payload that is missing against the flow's own goodput before the fault, as time.

        A flow that runs steadily at 98% of what the fabric allows gathers a deficit of 0.02 a RTT
        without any fault; this leaves that out, and may come out slightly negative.
        """
        delivery, start = self.flow.delivery, self.during.start
        first = delivery.times[0] if delivery.times.size else start
        since = max(start - BASELINE_RTTS * self.data.base_rtt_s, first)
        share = delivery.goodput_bps(since, start) / (
            self.flow.attainable.mean_bps(since, start) or inf
        )
        return shortfall(self.flow, *self.counted, share).deficit_s / share if share > 0 else None

    @property
    def exposure(self) -> float | None:
        """Until the last data packet was sent into the fault."""
        last = self._exposed.filter(pl.col("t") >= self.during.start)["t"].max()
        return last - self.during.start if isinstance(last, float) else None


def _packet_bytes(flow: FlowTables) -> float:
    largest = flow.transmissions["bytes"].max()
    return float(largest) if isinstance(largest, int) and largest > 0 else 1.0
