"""Placed bytes, the in-order point, reordering, messages and states of EVs, from records of flows.

What is found of all flows at once is found by columns: there may be tens of thousands of flows.
"""

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class ByFlow:
    """The rows of a table by flow, in the table's order; those of one flow copy nothing."""

    def __init__(self, table: pl.DataFrame) -> None:
        """Sort the table, once for all flows."""
        self._rows = table.sort("flow", maintain_order=True).rechunk()
        numbered = self._rows.select("flow").with_row_index("row").group_by("flow")
        places = numbered.agg(pl.first("row"), pl.len())
        self._places = {flow: (first, count) for flow, first, count in places.iter_rows()}

    @cached_property
    def _columns(self) -> list[NDArray[Any]]:
        return [column.to_numpy() for column in self._rows.drop("flow")]

    def rows(self, flow: int) -> pl.DataFrame:
        """The rows of one flow; none if there are none."""
        return self._rows.slice(*self._places.get(flow, (0, 0)))

    def columns(self, flow: int) -> list[NDArray[Any]]:
        """The same as arrays, without the column `flow`."""
        first, count = self._places.get(flow, (0, 0))
        return [column[first : first + count] for column in self._columns]


@dataclass(frozen=True, slots=True)
class FlowDelivery:
    """The arrivals of one flow.

    Attributes:
        times: arrivals that placed new bytes, in seconds, ascending.
        placed: bytes placed up to and with each of them.
        advances: when the in-order delivered point moved, in seconds, ascending.
    """

    times: Floats
    placed: Integers
    advances: Floats

    def bytes_until(self, t: Floats) -> Floats:
        """Payload bytes newly placed up to and at each time."""
        total = np.concatenate(([0], self.placed))
        return total[np.searchsorted(self.times, t, side="right")].astype(np.float64)

    def goodput_bps(self, start: float, end: float) -> float:
        """Payload placed after `start` and up to `end`, in bits/s."""
        if end <= start:
            return 0.0
        # Of two times this takes a tenth of what NumPy's own function takes.
        first, last = bisect_right(self.times, start), bisect_right(self.times, end)
        before, after = (int(self.placed[row - 1]) if row else 0 for row in (first, last))
        return float(after - before) * 8 / (end - start)


def placed_bytes(arrivals: pl.DataFrame) -> pl.DataFrame:
    """The arrivals that placed new bytes, and how many bytes of its flow each came to.

    Columns: `flow`, `t`, `placed`.
    """
    new = arrivals.filter(pl.col("bytes") > 0)
    return new.select("flow", "t", placed=pl.col("bytes").cast(pl.Int64).cum_sum().over("flow"))


def delivered_point(arrivals: pl.DataFrame) -> pl.DataFrame:
    """When each PSN of each flow was delivered in order: `flow`, `seq`, `delivered`, ascending.

    A packet is delivered once it and all packets before it have arrived: at the running maximum of
    the first arrival times in order of PSN. A flow ends before its first PSN that never arrived.
    """
    seq, place = pl.col("seq"), pl.int_range(pl.len())
    first = arrivals.filter(pl.col("bytes") > 0).group_by("flow", "seq").agg(pl.col("t").min())
    return (
        first.sort("flow", "seq")
        .filter((seq - seq.first() == place).over("flow"))
        .select("flow", "seq", delivered=pl.col("t").cum_max().over("flow"))
    )


def advances(point: pl.DataFrame) -> pl.DataFrame:
    """When the delivered point of each flow moved: `flow`, `t`, ascending."""
    return point.select("flow", t="delivered").unique(maintain_order=True)


@dataclass(frozen=True, slots=True)
class InOrder:
    """A flow's packets on their way to being delivered in order, by PSN.

    Attributes:
        sent: when each was first handed to the socket, in seconds, ascending.
        delivered: when it and all before it had arrived; infinite if that never was.
    """

    sent: Floats
    delivered: Floats

    def delays(self, since: float, start: float, end: float, last: float) -> Floats:
        """The times from sending to delivery in order, in seconds, of some packets.

        Args:
            since: packets that were delivered in order before this time are left out.
            start: packets that were sent before this time are left out.
            end: packets that were sent after this time are left out.
            last: the end of the delay of packets that were never delivered in order.
        """
        inside = (self.delivered >= since) & (self.sent >= start) & (self.sent <= end)
        delays: Floats = np.minimum(self.delivered[inside], last) - self.sent[inside]
        return np.maximum(delays, 0.0)


def in_order(transmissions: pl.DataFrame, point: pl.DataFrame) -> pl.DataFrame:
    """Pair the transmissions of flows with their delivered points: `flow`, `sent`, `delivered`."""
    return (
        transmissions.group_by("flow", "seq")
        .agg(sent=pl.col("t").min())
        .join(point, on=["flow", "seq"], how="left")
        .sort("flow", "seq")
        .select("flow", "sent", pl.col("delivered").fill_null(np.inf))
    )


def longest_gap(moments: Floats, start: float, end: float, last: float) -> float:
    """The longest time without an event, in seconds, of the gaps that begin in [start, end].

    Args:
        moments: times of the events, ascending.
        start: begins the first gap.
        end: gaps that begin after it do not count; those before it count in full.
        last: ends the gap after the last event: the end of the run.
    """
    inside = moments[(moments > start) & (moments <= end)]
    after = moments[moments > end]
    close = float(after[0]) if after.size else max(last, end)
    points = np.concatenate(([start], inside, [close]))
    return float(np.diff(points).max())


def reordering(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Count reordering, without retransmissions: these may overtake.

    Columns: `flow`; `reordered`, how many packets were overtaken on their own path; `depth_max`,
    the most PSNs by which one was late, over all paths (spraying included).
    """
    seq, newest = pl.col("seq"), pl.col("seq").cum_max()
    return (
        arrivals.filter(~pl.col("retransmitted"))
        .select("flow", overtaken=seq < newest.over("flow", "ev"), late=newest.over("flow") - seq)
        .group_by("flow")
        .agg(reordered=pl.col("overtaken").sum(), depth_max=pl.col("late").max())
    )


def with_starts(completions: pl.DataFrame, transmissions: pl.DataFrame) -> pl.DataFrame:
    """Completions of all flows with when each message began: `start_t`, after `t`.

    A message begins when its first packet is handed to the socket. Messages follow one another in
    PSN order, so the sizes of those before tell where a message begins. Null if the sender's record
    of it is lost: it was killed.
    """
    offset = (pl.col("bytes").cast(pl.Int64).cum_sum() - pl.col("bytes")).over("flow")
    sent = (
        transmissions.group_by("flow", "seq")
        .agg(pl.col("t").min(), pl.col("bytes").max())
        .sort("flow", "seq")
        .select("flow", start_t="t", offset=offset)
        .with_columns(last=pl.col("offset").last().over("flow"))
    )
    begun = (
        completions.sort("flow", "message")
        .with_columns(offset=offset)
        .join_asof(sent, on="offset", by="flow", check_sortedness=False)  # sorted in each flow
        .with_columns(pl.when(pl.col("offset") <= pl.col("last")).then("start_t").alias("start_t"))
    )
    return begun.sort("t", maintain_order=True).select("t", "start_t", *completions.columns[1:])


def message_times(completions: pl.DataFrame, transmissions: pl.DataFrame) -> tuple[Floats, Floats]:
    """When messages of a flow began and were in place, in seconds, in order of completion.

    If messages were begun and not completed, the first array has one more element: the time at
    which the first of them began.
    """
    done = completions.select("t", "flow", "message", "bytes").sort("message")
    next_one = {"t": pl.lit(np.inf), "message": pl.lit(1 << 62), "bytes": pl.lit(0)}
    following = transmissions.head(1).select("flow", **next_one).select(done.columns)
    times = with_starts(pl.concat([done, following.cast(done.schema)]), transmissions)
    begun = times.drop_nulls("start_t")
    return begun["start_t"].to_numpy(), begun["t"].head(done.height).to_numpy()


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merge spans of time into ascending ones that do not overlap; empty ones are left out."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if merged and start <= merged[-1][1]:
            first, last = merged.pop()
            merged.append((first, max(last, end)))
        else:
            merged.append((start, end))
    return merged


def overdue_s(begun: Floats, done: Floats, usual_s: float, start: float, end: float) -> float:
    """How long, between two times, a message was under way for longer than usual, in seconds.

    Args:
        begun: when messages were begun (see `message_times`).
        done: when they were in place; one that never was is overdue until the end.
        usual_s: how long a message may take.
        start: from when on.
        end: until when.
    """
    late_from = np.clip(begun + usual_s, start, end)
    until = np.clip(np.append(done, np.full(len(begun) - len(done), np.inf)), start, end)
    return sum(b - a for a, b in union(zip(late_from, until, strict=True)))


@dataclass(frozen=True, slots=True)
class Span:
    """A time for which an EV stayed in one state and role, in seconds of the run."""

    start: float
    end: float
    state: str
    active: bool
    reason: str


SpansOfEvs = dict[int, tuple[Span, ...]]
"""The spans of each EV of a flow."""


def ev_spans(events: pl.DataFrame, end: float) -> dict[int, SpansOfEvs]:
    """By flow, every EV's spans in order of time, the last one to `end`.

    `events` are in order of time; each EV has one from the start of its QP.
    """
    spans = defaultdict[int, dict[int, list[Span]]](lambda: defaultdict(list))
    columns = events.select("flow", "ev", "t", "new", "active", "reason")
    for flow, ev, t, state, active, reason in columns.iter_rows():
        of_ev = spans[flow][ev]
        if of_ev:
            of_ev[-1] = replace(of_ev[-1], end=t)
        of_ev.append(Span(t, max(end, t), state, active, reason))
    return {
        flow: {ev: tuple(of_ev) for ev, of_ev in of_flow.items()} for flow, of_flow in spans.items()
    }


def was_active(spans: Sequence[Span], start: float, end: float) -> bool:
    """Whether an EV was in the active set at any time of [start, end), or until `start`."""
    return any(s.active and s.start < end and s.end >= start for s in spans)


def returned(spans: Sequence[Span], healed: float) -> float | None:
    """When an EV was first in state GOOD from `healed` on; None if it was not any more.

    That is `healed` itself if the EV came back while the fault was in force, as between two outages
    of a flap.
    """
    return next((max(s.start, healed) for s in spans if s.state == "GOOD" and s.end > healed), None)


def first_departures(
    spans: Mapping[int, Sequence[Span]], start: float, end: float
) -> dict[int, float]:
    """When each EV first left the active set in [start, end]; EVs that did not are not in it."""
    first: dict[int, float] = {}
    for ev, spans_of_ev in spans.items():
        for before, after in itertools.pairwise(spans_of_ev):
            if before.active and not after.active and start <= after.start <= end:
                first.setdefault(ev, after.start)
    return first
