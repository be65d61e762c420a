"""The states of a flow's EVs over time, from its EV events."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class Span:
    """A time through which an EV stayed in one state and role; seconds of the run."""

    start: float
    end: float
    state: str
    active: bool
    reason: str


def ev_spans(events: pl.DataFrame, end: float) -> dict[int, tuple[Span, ...]]:
    """Every EV's spans in order of time, the last one to `end`.

    `events` are those of one flow, in order of time; each EV has one from the start of its QP.
    """
    found: dict[int, list[Span]] = {}
    columns = events.select("t", "ev", "new", "active", "reason")
    for t, ev, state, active, reason in columns.iter_rows():
        spans = found.setdefault(ev, [])
        if spans:
            last = spans.pop()
            spans.append(Span(last.start, t, last.state, last.active, last.reason))
        spans.append(Span(t, max(end, t), state, active, reason))
    return {ev: tuple(spans) for ev, spans in found.items()}


def departures(spans: Sequence[Span]) -> list[float]:
    """When an EV left the active set, in seconds."""
    return [
        after.start
        for before, after in itertools.pairwise(spans)
        if before.active and not after.active
    ]


def was_active(spans: Sequence[Span], start: float, end: float) -> bool:
    """Whether an EV was in the active set at any time of [start, end), or until its beginning."""
    return any(s.active and s.start < end and s.end >= start for s in spans)


def returned(spans: Sequence[Span], healed: float) -> float | None:
    """When an EV was first in state GOOD at `healed` or after it, or None.

    At `healed` itself where it had come back while the fault was in force, as between two dark
    times of a flap.
    """
    return next((max(s.start, healed) for s in spans if s.state == "GOOD" and s.end > healed), None)


def first_departures(
    spans: Mapping[int, Sequence[Span]], start: float, end: float
) -> dict[int, float]:
    """When each EV first left the active set in [start, end]; EVs that did not are not in it."""
    found = {}
    for ev, own in spans.items():
        times = [t for t in departures(own) if start <= t <= end]
        if times:
            found[ev] = times[0]
    return found
