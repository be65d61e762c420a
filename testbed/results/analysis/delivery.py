"""Placed bytes, the in-order delivered point and reordering, from a flow's arrivals."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DeliveredPoint = tuple[Integers, Floats]
"""PSNs, ascending, and when each was delivered in order, in seconds."""


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
        before, after = self.bytes_until(np.array([start, end]))
        return float(after - before) * 8 / (end - start)


def delivery(arrivals: pl.DataFrame, point: DeliveredPoint) -> FlowDelivery:
    """Read a flow's arrivals, in order of time; `point` is their delivered point."""
    placed = arrivals["bytes"].to_numpy()
    new = placed > 0
    return FlowDelivery(
        times=arrivals["t"].to_numpy()[new],
        placed=np.cumsum(placed[new], dtype=np.int64),
        advances=np.unique(point[1]),
    )


def delivered_point(arrivals: pl.DataFrame) -> DeliveredPoint:
    """When each PSN was delivered in order.

    A packet is delivered once it and all packets before it have arrived: at the running maximum of
    the first arrival times in order of PSN. The result ends before the first PSN that never
    arrived.
    """
    new = arrivals["bytes"].to_numpy() > 0
    seqs, times = _earliest(arrivals["seq"].to_numpy()[new], arrivals["t"].to_numpy()[new])
    gaps = np.flatnonzero(np.diff(seqs) != 1)
    end = int(gaps[0]) + 1 if gaps.size else len(seqs)
    return seqs[:end], np.maximum.accumulate(times[:end])


def _earliest(seqs: Integers, times: Floats) -> tuple[Integers, Floats]:
    """Each PSN once, ascending, and the earliest of its times."""
    order = np.lexsort((times, seqs))
    seqs, times = seqs[order], times[order]
    first = np.diff(seqs, prepend=seqs[:1] - 1) != 0
    return seqs[first], times[first]


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


def in_order(transmissions: pl.DataFrame, point: DeliveredPoint) -> InOrder:
    """Pair a flow's transmissions with its delivered point."""
    sent, sent_s = _earliest(transmissions["seq"].to_numpy(), transmissions["t"].to_numpy())
    seqs, times = point
    delivered = np.full(len(sent), np.inf)
    _, rows, places = np.intersect1d(sent, seqs, assume_unique=True, return_indices=True)
    delivered[rows] = times[places]
    return InOrder(sent_s, delivered)


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


@dataclass(frozen=True, slots=True)
class Reordering:
    """Packets that arrived after a later one of the same EV and class.

    Attributes:
        packets: first transmissions that arrived.
        reordered: how many of them were overtaken on their own path.
        depth_max: most PSNs by which one was late, over all paths (spraying included).
    """

    packets: int
    reordered: int
    depth_max: int


def reordering(arrivals: pl.DataFrame) -> Reordering:
    """Count reordering within paths, without retransmissions: these may overtake."""
    first = ~arrivals["retransmitted"].to_numpy()
    seqs, evs = arrivals["seq"].to_numpy()[first], arrivals["ev"].to_numpy()[first]
    if not seqs.size:
        return Reordering(packets=0, reordered=0, depth_max=0)
    by_ev = np.argsort(evs, kind="stable")
    group = np.cumsum(np.diff(evs[by_ev], prepend=evs[by_ev[0]]) != 0)
    # The PSNs of each EV are put above those of the EV before: one running maximum serves all.
    on_path = seqs[by_ev] + group * (np.ptp(seqs) + 1)
    return Reordering(
        packets=len(seqs),
        reordered=int((on_path < np.maximum.accumulate(on_path)).sum()),
        depth_max=int((np.maximum.accumulate(seqs) - seqs).max()),
    )


def message_latencies(completions: pl.DataFrame, transmissions: pl.DataFrame) -> Floats:
    """Each completed message's latency in seconds, in order of completion.

    From its first packet being handed to the socket until it is in place, in order. The packet that
    a queue pair sends before the run begins is no message of it.
    """
    begun, done = message_times(completions, transmissions)
    of_run = begun[: len(done)] >= 0
    return (done - begun[: len(done)])[of_run]


def message_times(completions: pl.DataFrame, transmissions: pl.DataFrame) -> tuple[Floats, Floats]:
    """When messages were begun and when they were in place, in seconds, in order of completion.

    A message begins when its first packet is handed to the socket. Messages follow one another in
    PSN order, so the sizes of those before tell where a message begins. If messages were begun and
    not completed, the first array has one more element: the time at which the first of them began.
    """
    sent = transmissions.group_by("seq").agg(pl.col("t").min(), pl.col("bytes").max()).sort("seq")
    done = completions.sort("message")
    if not sent.height:
        return np.empty(0), np.empty(0)
    begins = np.concatenate(([0], sent["bytes"].cast(pl.Int64).cum_sum().to_numpy()[:-1]))
    offsets = np.concatenate(([0], np.cumsum(done["bytes"].to_numpy(), dtype=np.int64)))
    recorded = offsets < begins[-1] + 1  # the last rows of a killed sender are lost
    first_packet = np.searchsorted(begins, offsets[recorded], side="right") - 1
    begun = sent["t"].to_numpy()[first_packet].astype(np.float64)
    return begun, done["t"].to_numpy()[: min(len(begun), done.height)].astype(np.float64)


def by_flow(table: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """A table's rows by their flow, in the table's order."""
    parts = table.partition_by("flow", as_dict=True, maintain_order=True)
    return {flow: rows for (flow,), rows in parts.items()}


def with_starts(completions: pl.DataFrame, transmissions: pl.DataFrame) -> pl.DataFrame:
    """Completions of all flows with when each message began: `start_t`, after `t`.

    Null if the sender's record of it is lost: it was killed.
    """
    parts = []
    sent = by_flow(transmissions)
    for flow, done in by_flow(completions.sort("flow", "message")).items():
        begun, _ = message_times(done, sent.get(flow, transmissions.clear()))
        starts = [*begun[: done.height].tolist(), *[None] * (done.height - len(begun))]
        parts.append(done.with_columns(start_t=pl.Series(starts, dtype=pl.Float64)))
    empty = completions.clear().with_columns(start_t=pl.lit(None, dtype=pl.Float64))
    with_start = pl.concat([empty, *parts]).sort("t", maintain_order=True)
    return with_start.select("t", "start_t", pl.exclude("t", "start_t"))


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
