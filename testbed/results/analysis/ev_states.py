"""The states of a flow's EVs over time, from its EV events."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class Span:
    """A time for which an EV stayed in one state and role, in seconds of the run."""

    start: float
    end: float
    state: str
    active: bool
    reason: str


def ev_spans(events: pl.DataFrame, end: float) -> dict[int, tuple[Span, ...]]:
    """Every EV's spans in order of time, the last one to `end`.

    `events` are those of one flow, in order of time; each EV has one from the start of its QP.
    """
    spans_by_ev: dict[int, list[Span]] = {}
    columns = events.select("t", "ev", "new", "active", "reason")
    for t, ev, state, active, reason in columns.iter_rows():
        spans = spans_by_ev.setdefault(ev, [])
        if spans:
            last = spans.pop()
            spans.append(Span(last.start, t, last.state, last.active, last.reason))
        spans.append(Span(t, max(end, t), state, active, reason))
    return {ev: tuple(spans) for ev, spans in spans_by_ev.items()}


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
