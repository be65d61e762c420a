"""What one fault did to one flow.

All times count from when the fault took effect (the end of the interval that is known).
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from testbed.model.faults.record import FaultRecord
from testbed.results.analysis.capacity import AttainableRate
from testbed.results.analysis.delivery import Delivery, Floats, longest_gap
from testbed.results.analysis.ev_states import Span, first_departures, returned, was_active
from testbed.results.json_records import FlowRecord
from testbed.results.run_data import RunData

RECOVERED_SHARE = 0.95
"""Goodput is back at this share of what the surviving capacity allows."""

RECOVERY_PACKETS = 200
"""Goodput is averaged over the time in which the attainable rate carries so many packets."""

RECOVERY_HOLD_RTTS = 1.0
"""... and must stay there for so long, so that one burst does not pass for recovery."""

FELT_RTTS = 3.0
"""Goodput falls because of a fault within so long of its effect, or of a loss on a path through it.
What falls later, where nothing was lost, is a late moment of the machine."""

RECOVERY_STEPS_PER_RTT = 100

DEFICIT_TAIL_RTTS = 10.0
"""The deficit is integrated until this long after recovery, so that a late repayment (bytes that
waited and then arrive faster than the attainable rate) is counted as well."""

BASELINE_RTTS = 10.0
"""The flow's own steady goodput is taken over this long before the fault."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which a fault was in force, in seconds: to its healing or the run's end.

    It may have begun as early as `earliest`; from `start` on it certainly was.
    """

    start: float
    end: float
    earliest: float
    healed: float | None
    run_end: float


@dataclass(frozen=True, slots=True)
class FlowTables:
    """What one flow recorded, prepared once for all faults."""

    flow: FlowRecord
    attainable: AttainableRate
    delivery: Delivery
    spans: dict[int, tuple[Span, ...]]
    transmissions: pl.DataFrame
    losses: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault did to a flow; times in seconds, deficits in base RTTs. See `effect`."""

    evs_active: int
    evs_detected: int
    detection: float | None
    detection_last: float | None
    exposure: float | None
    stall: float
    placement_gap: float
    recovery: float | None
    deficit: float
    deficit_baseline: float | None
    return_first: float | None
    return_last: float | None
    return_data: float | None
    surviving_fraction: float
    packets_exposed: int
    packets_lost: int
    sent: int
    sent_after_detection: int
    lost_after_detection: int


def window(data: RunData, fault: FaultRecord) -> Window | None:
    """When a fault was in force; None if it never took effect within the run."""
    start = data.seconds(fault.effective_ns)
    end = run_end(data)
    if start is None or start >= end:
        return None
    healed = data.seconds(fault.healed_ns)
    earliest = data.seconds(fault.effective_after_ns)
    return Window(
        start=start,
        end=min(end, end if healed is None else healed),
        earliest=start if earliest is None else earliest,
        healed=healed,
        run_end=end,
    )


def run_end(data: RunData) -> float:
    """The end of the measured time in seconds: the planned one, or the last arrival if earlier.

    After the planned end senders stop and the fabric drains, which is no part of the experiment.
    Where something was still under way, the last arrival ends nothing: the rest was waited for.
    """
    last = data.tables["arrivals"]["t"].max()
    waiting = any(flow.bytes_under_way for flow in data.run.flows)
    if waiting or not isinstance(last, float):
        return data.run.duration_s
    return min(data.run.duration_s, last)


def effect(
    data: RunData, flow: FlowTables, fault: FaultRecord, during: Window, until: float
) -> Effect:
    """Measure what a fault did to a flow.

    - evs_active: EVs through the link that were active when the fault took effect, even if they
      left the active set at that very moment (a host notices its own port's end at once), or came
      to be while it was in force. A flow with one of them is affected.
    - detection: the first of them leaves the active set; `detection_last`: the last one does (None
      unless all of them did). 0 where that was within the interval in which it took effect.
    - exposure: the last data packet is sent into the faulty link; None if none was.
    - stall: the longest gap in the in-order delivered point; `placement_gap`: the longest time
      without a newly placed byte. Of gaps that begin while the fault is in force.
    - recovery: see `recovery`. 0 where goodput never fell below the mark.
    - deficit: integral of (attainable - goodput) / attainable, in base RTTs, from the fault until
      DEFICIT_TAIL_RTTS after recovery (after healing, where the flow did not recover), but not
      beyond `until`. Attainable is what the whole fabric allows; a flow that runs steadily at 98%
      of it thus gathers 0.02 a RTT without any fault. `deficit_baseline` is the same against the
      flow's own goodput in the BASELINE_RTTS before the fault, which leaves that out; it may come
      out slightly negative.
    - sent: data packets on any EV while the fault was in force. `sent_after_detection`: those from
      the detection on, `lost_after_detection`: those of them lost on an EV through the link.
    - return: from healing until the first and the last EV that the fault took is GOOD again (0 if
      it was back before), and until data is first sent over the link again.

    Args:
        data: the run.
        flow: the flow's tables.
        fault: the fault.
        during: when it was in force.
        until: the next fault's effect or the end of the run, in seconds: what happens after it is
            not this fault's doing.
    """
    start, end = during.start, during.end
    through = {ev: s for ev, s in flow.spans.items() if data.crosses(flow.flow, ev, fault.places)}
    active = [ev for ev, spans in through.items() if was_active(spans, during.earliest, end)]
    left = first_departures(through, during.earliest, end)
    sent_in = flow.transmissions.filter(pl.col("ev").is_in(list(through)))
    exposed = sent_in.filter(pl.col("t").is_between(during.earliest, end))
    losses = flow.losses.filter(pl.col("ev").is_in(list(through)))
    lost = losses.filter(
        pl.col("sent_t").is_between(start - data.base_rtt_s, end) & ~pl.col("spurious")
    )
    sent = flow.transmissions.filter(pl.col("t").is_between(start, end))
    detected = min(left.values(), default=np.inf)
    recovered = recovery(data, flow, losses, during, until)
    back = None if recovered is None else start + recovered
    tail = (during.end if back is None else back) + DEFICIT_TAIL_RTTS * data.base_rtt_s
    last_sent = exposed.filter(pl.col("t") >= start)["t"].max()
    returns = _returns(through, left, sent_in, during)
    return Effect(
        evs_active=len(active),
        evs_detected=len(left),
        detection=max(detected - start, 0.0) if left else None,
        detection_last=(
            max(*left.values(), start) - start if left and len(left) == len(active) else None
        ),
        exposure=last_sent - start if isinstance(last_sent, float) else None,
        stall=longest_gap(flow.delivery.advances, start, end, during.run_end),
        placement_gap=longest_gap(flow.delivery.times, start, end, during.run_end),
        recovery=recovered,
        deficit=_deficit(data, flow.delivery, flow.flow.attainable_bps, start, min(tail, until)),
        deficit_baseline=_baseline_deficit(data, flow, start, min(tail, until)),
        return_first=returns[0],
        return_last=returns[1],
        return_data=returns[2],
        surviving_fraction=flow.attainable.at(start) / flow.flow.attainable_bps,
        packets_exposed=exposed.height,
        packets_lost=lost.height,
        sent=sent.height,
        sent_after_detection=sent.filter(pl.col("t") >= detected).height,
        lost_after_detection=lost.filter(pl.col("sent_t") >= detected).height,
    )


def recovery(
    data: RunData, flow: FlowTables, losses: pl.DataFrame, during: Window, until: float
) -> float | None:
    """Seconds until goodput is back at 95% of what the surviving capacity allows.

    Goodput is averaged over the last RECOVERY_PACKETS packets' time, and compared with what the
    links in service allowed in that time. From the first time that it falls below the mark (not
    before half an RTT: until then arrivals are packets that crossed the link in time; and within
    FELT_RTTS of the fault or of a loss), the first time that it is not, and stays so for
    RECOVERY_HOLD_RTTS, is the recovery. So its own averaging, up to RECOVERY_PACKETS packets' time,
    is part of it, and it is never flattered.
    While nothing is in service that could carry the flow, it is below the mark.
    0 if goodput never fell below the mark while the fault was in force: what comes after healing
    is the return to service, not recovery. None if it did not come back by `until`.
    """
    rtt = data.base_rtt_s
    now = np.arange(during.start + rtt / 2, until, rtt / RECOVERY_STEPS_PER_RTT)
    surviving = flow.attainable.at(during.start)
    if surviving <= 0:
        surviving = flow.flow.attainable_bps
    packet_bits = 8 * _packet_bytes(flow)
    width = max(RECOVERY_PACKETS * packet_bits / surviving, rtt)
    good = _share(flow, now - width, now) >= RECOVERED_SHARE
    good &= flow.attainable.bits(now - width, now) > 0
    if not now.size:
        return None
    felt = np.sort(np.append(losses["t"].to_numpy(), during.start))
    below = _felt(np.flatnonzero(~good), now, felt, FELT_RTTS * rtt)
    if not below.size or now[below[0]] > during.end:
        return 0.0
    hold = round(RECOVERY_HOLD_RTTS * RECOVERY_STEPS_PER_RTT)
    # The last point of each time below the mark that is followed by long enough above it.
    ends = np.flatnonzero(np.diff(below, append=len(now) + hold) > hold)
    last = below[ends[0]]
    return float(now[last + 1] - during.start) if last + 1 < len(now) else None


def _felt(below: NDArray[np.intp], now: Floats, felt: Floats, within: float) -> NDArray[np.intp]:
    """Of the points below the mark, the spells that begin so soon after something was felt."""
    first = np.flatnonzero(np.diff(below, prepend=-2) > 1)
    begins = now[below[first]]
    soon = begins - felt[np.searchsorted(felt, begins, side="right") - 1] <= within
    return below[np.repeat(soon, np.diff(first, append=below.size))]


def _share(flow: FlowTables, start: Floats, end: Floats) -> Floats:
    """Placed bytes between two times over what the links in service allowed; 1 for nothing."""
    bits = 8 * (flow.delivery.bytes_until(end) - flow.delivery.bytes_until(start))
    allowed = flow.attainable.bits(start, end)
    return np.divide(bits, allowed, out=np.ones_like(bits), where=allowed > 0)


def _packet_bytes(flow: FlowTables) -> float:
    largest = flow.transmissions["bytes"].max()
    return float(largest) if isinstance(largest, int) and largest > 0 else 1.0


def _deficit(data: RunData, delivery: Delivery, rate_bps: float, start: float, end: float) -> float:
    placed = delivery.bytes_until(np.array([start, end]))
    seconds = (end - start) - float(placed[1] - placed[0]) * 8 / rate_bps
    return seconds / data.base_rtt_s


def _baseline_deficit(data: RunData, flow: FlowTables, start: float, end: float) -> float | None:
    first = flow.delivery.times[0] if flow.delivery.times.size else start
    since = max(start - BASELINE_RTTS * data.base_rtt_s, first)
    own = flow.delivery.goodput_bps(since, start)
    return _deficit(data, flow.delivery, own, start, end) if own > 0 else None


def _returns(
    through: dict[int, tuple[Span, ...]],
    left: dict[int, float],
    sent_in: pl.DataFrame,
    during: Window,
) -> tuple[float | None, float | None, float | None]:
    healed = during.healed
    if healed is None or not left:
        return None, None, None
    times = [t for ev in left if (t := returned(through[ev], healed)) is not None]
    if not times:
        return None, None, None
    data_t = sent_in.filter(pl.col("t") >= min(times))["t"].min()
    return (
        min(times) - healed,
        max(times) - healed if len(times) == len(left) else None,
        data_t - healed if isinstance(data_t, float) else None,
    )
