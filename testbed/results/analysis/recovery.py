"""When a flow was back at what the fabric allowed, after a fault."""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from testbed.model.summary.faults import RECOVERED_SHARE
from testbed.results.analysis.delivery import Floats, FlowDelivery
from testbed.results.capacity.attainable import AttainableRate

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
