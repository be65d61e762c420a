"""The states of a flow's EVs over time, from its EV events."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl


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
