"""What one fault did to one flow.

Times count from when the fault took effect: from the end of the interval in which it did.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from testbed.model.faults.record import FaultRecord
from testbed.model.run_files.run import FlowRecord
from testbed.results.analysis.capacity import AttainableRate
from testbed.results.analysis.delivery import Delivery, Floats, longest_gap
from testbed.results.analysis.ev_states import Span, first_departures, returned, was_active
from testbed.results.run_data import RunData

RECOVERED_SHARE = 0.95
"""Goodput is back at this share of what the surviving capacity allows."""

RECOVERY_PACKETS = 200
"""Goodput is averaged over the time in which the attainable rate carries this many packets."""

RECOVERY_HOLD_RTTS = 1.0
"""Goodput must stay there for this long: a burst is no recovery."""

CAUSED_RTTS = 3.0
"""Goodput falls because of a fault if it does so within this time of the fault's effect, or of a
loss on a concerned EV. A later fall without a loss is the machine's doing."""

RECOVERY_STEPS_PER_RTT = 100

DEFICIT_TAIL_RTTS = 10.0
"""The deficit is integrated until this long after recovery: bytes that waited may arrive faster
than the attainable rate then, which reduces it."""

BASELINE_RTTS = 10.0
"""The flow's own steady goodput is taken over this long before the fault."""


@dataclass(frozen=True, slots=True)
class Window:
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


@dataclass(frozen=True, slots=True)
class FlowTables:
    """What one flow recorded.

    Attributes:
        flow: the flow.
        attainable: its attainable rate over time.
        delivery: its arrivals.
        spans: for each EV its states over time.
        transmissions: its rows of that table.
        losses: its rows of that table.
    """

    flow: FlowRecord
    attainable: AttainableRate
    delivery: Delivery
    spans: dict[int, tuple[Span, ...]]
    transmissions: pl.DataFrame
    losses: pl.DataFrame


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
    The last arrival does not count if payload was still under way: the run waited for it.
    """
    last = data.tables["arrivals"]["t"].max()
    waiting = any(flow.bytes_under_way for flow in data.run.flows)
    if waiting or not isinstance(last, float):
        return data.run.duration_s
    return min(data.run.duration_s, last)


class FaultMetrics:
    """Computes what a fault did to a flow: each metric of `FlowFault`, times in seconds.

    Attributes:
        data: the run.
        flow: the flow's tables.
        during: when the fault was in force.
        until: the next fault's effect or the end of the run, in seconds: what happens after it is
            not this fault's doing.
    """

    def __init__(
        self, data: RunData, flow: FlowTables, fault: FaultRecord, during: Window, until: float
    ) -> None:
        """Select the records on the EVs that the fault concerns, and count them."""
        self.data, self.flow, self.during, self.until = data, flow, during, until
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
        sent = flow.transmissions.filter(pl.col("t").is_between(start, end))

        self.evs_active = sum(
            was_active(spans, during.earliest, end) for spans in self._spans.values()
        )
        self.evs_detected = len(self._departures)
        self.affected = self.evs_active > 0
        self.stall = longest_gap(flow.delivery.advances, start, end, during.run_end)
        self.placement_gap = longest_gap(flow.delivery.times, start, end, during.run_end)
        self.surviving_fraction = flow.attainable.at(start) / flow.flow.attainable_bps
        self.packets_exposed = self._exposed.height
        self.packets_lost = lost.height
        self.packets_sent = sent.height
        self.packets_sent_after_detection = sent.filter(pl.col("t") >= detected).height
        self.packets_lost_after_detection = lost.filter(pl.col("sent_t") >= detected).height

    # --- EVs ----------------------------------------------------------------------------------

    @property
    def detection(self) -> float | None:
        """Until the first EV left."""
        return max(self._detected - self.during.start, 0.0) if self._departures else None

    @property
    def detection_last(self) -> float | None:
        """Until the last EV left, if all did."""
        if not self._departures or self.evs_detected != self.evs_active:
            return None
        return max(*self._departures.values(), self.during.start) - self.during.start

    @cached_property
    def _returns(self) -> list[float]:
        """When the EVs that had left were GOOD again, in seconds of the run."""
        healed = self.during.healed
        if healed is None:
            return []
        times = (returned(self._spans[ev], healed) for ev in self._departures)
        return [t for t in times if t is not None]

    def _since_healing(self, t: float) -> float:
        return t - (self.during.healed or 0.0)

    @property
    def return_first(self) -> float | None:
        """From healing until the first EV was back."""
        return self._since_healing(min(self._returns)) if self._returns else None

    @property
    def return_last(self) -> float | None:
        """From healing until the last EV was back, if all came back."""
        if not self._returns or len(self._returns) != self.evs_detected:
            return None
        return self._since_healing(max(self._returns))

    @property
    def return_data(self) -> float | None:
        """From healing until data was sent on an EV that was back."""
        if not self._returns:
            return None
        t = self._sent_into.filter(pl.col("t") >= min(self._returns))["t"].min()
        return self._since_healing(t) if isinstance(t, float) else None

    # --- delivery -----------------------------------------------------------------------------

    @cached_property
    def recovery(self) -> float | None:
        """Until goodput was back (see `recovery`)."""
        return recovery(self.data, self.flow, self._losses, self.during, self.until)

    @property
    def deficit(self) -> float:
        """Payload that is missing against what the whole fabric allows, as time."""
        return self._deficit(self.flow.flow.attainable_bps)

    @property
    def deficit_baseline(self) -> float | None:
        """Payload that is missing against the flow's own goodput before the fault, as time.

        A flow that runs steadily at 98% of what the fabric allows gathers a deficit of 0.02 a RTT
        without any fault; this leaves that out, and may come out slightly negative.
        """
        delivery, start = self.flow.delivery, self.during.start
        first = delivery.times[0] if delivery.times.size else start
        since = max(start - BASELINE_RTTS * self.data.base_rtt_s, first)
        goodput_bps = delivery.goodput_bps(since, start)
        return self._deficit(goodput_bps) if goodput_bps > 0 else None

    def _deficit(self, rate_bps: float) -> float:
        """Seconds that the missing payload takes at a rate."""
        start = self.during.start
        back = self.during.end if self.recovery is None else start + self.recovery
        end = min(back + DEFICIT_TAIL_RTTS * self.data.base_rtt_s, self.until)
        placed = self.flow.delivery.bytes_until(np.array([start, end]))
        return (end - start) - float(placed[1] - placed[0]) * 8 / rate_bps

    @property
    def exposure(self) -> float | None:
        """Until the last data packet was sent into the fault."""
        last = self._exposed.filter(pl.col("t") >= self.during.start)["t"].max()
        return last - self.during.start if isinstance(last, float) else None


def recovery(
    data: RunData, flow: FlowTables, losses: pl.DataFrame, during: Window, until: float
) -> float | None:
    """Seconds until goodput is back at 95% of what the surviving capacity allows.

    Goodput is averaged over the time of the last RECOVERY_PACKETS packets, and compared with what
    the links in service allowed in that time. The dip begins when it first falls below
    RECOVERED_SHARE of that: not before half an RTT, as until then packets arrive that crossed the
    link in time; and within CAUSED_RTTS of the fault or of a loss. Recovery is the first time after
    that from which it stays above for RECOVERY_HOLD_RTTS. The averaging is part of it, so it is
    never too short. While no link is in service that could carry the flow, it is below.

    0 if goodput never fell below while the fault was in force: what follows healing is the return
    to service. None if it did not come back by `until`.
    """
    rtt = data.base_rtt_s
    times = np.arange(during.start + rtt / 2, until, rtt / RECOVERY_STEPS_PER_RTT)
    surviving = flow.attainable.at(during.start)
    if surviving <= 0:
        surviving = flow.flow.attainable_bps
    packet_bits = 8 * _packet_bytes(flow)
    width = max(RECOVERY_PACKETS * packet_bits / surviving, rtt)
    good = _share(flow, times - width, times) >= RECOVERED_SHARE
    good &= flow.attainable.bits(times - width, times) > 0
    if not times.size:
        return None
    causes = np.sort(np.append(losses["t"].to_numpy(), during.start))
    below = _caused(np.flatnonzero(~good), times, causes, CAUSED_RTTS * rtt)
    if not below.size or times[below[0]] > during.end:
        return 0.0
    hold = round(RECOVERY_HOLD_RTTS * RECOVERY_STEPS_PER_RTT)
    # The last point of each time below the mark that is followed by long enough above it.
    ends = np.flatnonzero(np.diff(below, append=len(times) + hold) > hold)
    last = below[ends[0]]
    return float(times[last + 1] - during.start) if last + 1 < len(times) else None


def _caused(
    below: NDArray[np.intp], times: Floats, causes: Floats, within: float
) -> NDArray[np.intp]:
    """The dips that begin soon after a cause.

    Args:
        below: indices into `times` at which goodput is below the mark, ascending; adjacent ones
            are one dip.
        times: in seconds.
        causes: when the fault struck and packets were lost, in seconds, ascending.
        within: how long after a cause a dip may begin, in seconds.
    """
    first = np.flatnonzero(np.diff(below, prepend=-2) > 1)
    begins = times[below[first]]
    soon = begins - causes[np.searchsorted(causes, begins, side="right") - 1] <= within
    return below[np.repeat(soon, np.diff(first, append=below.size))]


def _share(flow: FlowTables, start: Floats, end: Floats) -> Floats:
    """Placed bytes between two times over what the links in service allowed; 1 for nothing."""
    bits = 8 * (flow.delivery.bytes_until(end) - flow.delivery.bytes_until(start))
    allowed = flow.attainable.bits(start, end)
    return np.divide(bits, allowed, out=np.ones_like(bits), where=allowed > 0)


def _packet_bytes(flow: FlowTables) -> float:
    largest = flow.transmissions["bytes"].max()
    return float(largest) if isinstance(largest, int) and largest > 0 else 1.0
