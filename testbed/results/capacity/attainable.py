"""What the fabric allows each flow over time, while faults begin and heal and routes change."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import polars as pl
from numpy.typing import NDArray

from testbed.model.fabric.addressing import ev_for_path, paths
from testbed.model.faults.impairment import ActiveFaults, Impairment
from testbed.model.run_files.run import FlowRecord
from testbed.model.units import NS_PER_S
from testbed.results.capacity.routes import EvOfFlow, Routes
from testbed.results.records import EV_EVENTS
from testbed.results.run_data import RunData

CONVERGED = "routing converged"
"""The reason of EV events that move a single path."""


@dataclass(frozen=True, slots=True)
class AttainableRate:
    """A payload rate as a step function of time: what the fabric allows a flow.

    Attributes:
        starts: when each step begins, in seconds of the run, ascending; the first is -inf.
        rates_bps: the rate from then on, in emulated bits/s.
        beside_all_bps: the rate before any fault, beside most flows; None: the first.
    """

    starts: tuple[float, ...]
    rates_bps: tuple[float, ...]
    beside_all_bps: float | None = None

    def at(self, t: float) -> float:
        return self.rates_bps[max(bisect_right(self.starts, t) - 1, 0)]

    def rates(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rate at each of many times, in bits/s."""
        step = np.searchsorted(self.starts, times, side="right") - 1
        return np.asarray(self.rates_bps)[np.maximum(step, 0)]

    @property
    def undamaged_bps(self) -> float:
        """The rate before any fault, in bits/s."""
        return self.rates_bps[0] if self.beside_all_bps is None else self.beside_all_bps

    def mean_bps(self, start: float, end: float) -> float:
        """The mean rate between two times, in bits/s."""
        if end <= start:
            return self.at(start)
        if not self.starts[1:]:  # most flows' rates never change
            return (self.rates_bps[0] * end - self.rates_bps[0] * start) / (end - start)
        (bits,) = self.bits(np.array([start]), np.array([end]))
        return float(bits) / (end - start)

    def bits(self, start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
        """The payload bits that it allows between two times, elementwise."""
        return self._bits_until(end) - self._bits_until(start)

    def between(self, begin: float, end: float) -> "AttainableRate":
        """The same rate in a time, and nothing before and after it."""
        starts = [-np.inf, *(t for t in (begin, *self.starts) if begin <= t < end and t > -np.inf)]
        rates = [self.at(t) if t >= begin else 0.0 for t in starts]
        if end < np.inf:
            starts, rates = [*starts, end], [*rates, 0.0]
        return AttainableRate(tuple(starts), tuple(rates), self.undamaged_bps)

    @classmethod
    def together(cls, rates: Sequence["AttainableRate"]) -> "AttainableRate":
        """What several flows are allowed together."""
        starts = np.unique(np.concatenate([rate.starts for rate in rates]))
        sums = np.sum([rate.rates(starts) for rate in rates], axis=0)
        undamaged = sum(rate.undamaged_bps for rate in rates)
        return cls(tuple(starts.tolist()), tuple(sums.tolist()), undamaged)

    def _bits_until(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """Since the first change of the rate, or since 0 if there is none; negative before."""
        rates, changes = np.array(self.rates_bps), np.array(self.starts[1:] or (0.0,))
        step = np.searchsorted(self.starts[1:], t, side="right")
        at_changes = np.concatenate([[0.0], np.cumsum(rates[1:-1] * np.diff(changes))])
        last = np.maximum(step - 1, 0)
        bits: NDArray[np.float64] = at_changes[last] + rates[step] * (t - changes[last])
        return bits


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the fabric allows a flow.

    Attributes:
        attainable: its max-min fair share with an even split, at which MRC aims: over the planes
            and in each over its active EVs alike; of a single path, that path.
        ideal: its share where all flows split over all paths so that the smallest gets the most.
        undamaged: the latter without faults, beside the flows that there are at each time; None:
            always the same.
    """

    attainable: AttainableRate
    ideal: AttainableRate
    undamaged: AttainableRate | None = None


def attainable_rates(data: RunData) -> dict[int, Allowed]:
    """What the fabric allows every flow of a run over time, by flow number.

    Flows that have nothing to send take no share from others. Theirs is what they would have if all
    had something to send. Nor do flows of programs that send one after another, those of jobs that
    have not begun, or, from the next fault on, those that are done.
    """
    busy = [flow for flow in data.flows if flow.flow not in data.idle]
    rates = _rates_of(data, data.flows) if data.idle else {}
    moments = _moments(data)
    if not data.scenario.programs and moments:
        return rates | _rates_of_jobs(data, busy, moments)
    for together in _overlapping(busy, data.lifetimes):
        rates |= _rates_of(data, together)
    return rates


def _moments(data: RunData) -> Sequence[float]:
    """When flows begin, in seconds, and the faults before which some were done; ascending."""
    begins = {begin for begin, _ in data.lifetimes.values()}
    effects = (data.seconds(fault.effective_ns) for fault in data.faults)
    done, last = sorted(data.done.values()), 0
    for effect in sorted(t for t in effects if t is not None):
        if (count := bisect_right(done, effect)) > last:
            begins.add(effect)
            last = count
    return sorted(begins)


def _rates_of_jobs(
    data: RunData, flows: Sequence[FlowRecord], moments: Sequence[float]
) -> dict[int, Allowed]:
    """What the fabric allows flows that begin, or are done, one after another."""
    begins = {flow.flow: data.lifetimes.get(flow.flow, (-np.inf, np.inf))[0] for flow in flows}
    courses: dict[int, list[tuple[float, Allowed]]] = defaultdict(list)
    beside: dict[int, list[int]] = defaultdict(list)
    for moment in sorted({*begins.values(), *moments}):
        present = [
            flow for flow in flows if begins[flow.flow] <= moment < data.done.get(flow.flow, np.inf)
        ]
        for number, allowed in _rates_of(data, present).items() if present else ():
            courses[number].append((moment, allowed))
            beside[number].append(len(present))
    return {
        number: Allowed(
            _joined([(begin, allowed.attainable) for begin, allowed in course], beside[number]),
            _joined([(begin, allowed.ideal) for begin, allowed in course], beside[number]),
            AttainableRate(
                (-np.inf, *(begin for begin, _ in course[1:])),
                tuple(allowed.ideal.undamaged_bps for _, allowed in course),
            ),
        )
        for number, course in courses.items()
    }


def _joined(
    course: Sequence[tuple[float, AttainableRate]], beside: Sequence[int]
) -> AttainableRate:
    """One rate of several, each of which counts from its time until that of the next.

    Args:
        course: the time and the rate of each.
        beside: how many flows there are with each; its rate before any fault is that with most.
    """
    starts, rates_bps = list[float](), list[float]()
    ends = [begin for begin, _ in course[1:]]
    for i, ((begin, rate), end) in enumerate(zip(course, [*ends, np.inf], strict=True)):
        first = begin if i else -np.inf
        starts.append(first)
        rates_bps.append(rate.at(first))
        for t, bps in zip(rate.starts, rate.rates_bps, strict=True):
            if first < t < end:
                starts.append(t)
                rates_bps.append(bps)
    beside_all = course[max(range(len(course)), key=beside.__getitem__)][1].undamaged_bps
    return AttainableRate(tuple(starts), tuple(rates_bps), beside_all)


def _overlapping(
    flows: Sequence[FlowRecord], lifetimes: Mapping[int, tuple[float, float]]
) -> Iterator[Sequence[FlowRecord]]:
    """Flows in groups: those whose lifetimes overlap, directly or by way of others."""
    always = (-np.inf, np.inf)
    group, until = list[FlowRecord](), -np.inf
    for flow in sorted(flows, key=lambda each: lifetimes.get(each.flow, always)):
        begin, end = lifetimes.get(flow.flow, always)
        if group and begin > until:
            yield group
            group = []
        group.append(flow)
        until = max(until, end)
    if group:
        yield group


def _rates_of(data: RunData, flows: Sequence[FlowRecord]) -> dict[int, Allowed]:
    """What the fabric allows these flows, if they are the only ones."""
    events = data.tables[EV_EVENTS]
    place_of = {flow.flow: i for i, flow in enumerate(flows)}
    begins = events.filter(pl.col("old") == "")
    evs = {
        (place_of[flow], ev): active
        for flow, ev, active in begins.select("flow", "ev", "active").iter_rows()
        if flow in place_of
    }
    moves = events.filter(pl.col("reason") == CONVERGED).select("t", "flow", "ev", "active")
    changes: list[tuple[float, Callable[[], None]]] = []
    in_force = ActiveFaults()
    for fault in data.faults:
        for step in fault.steps:
            put = partial(in_force.put, fault.index, fault.places, step.impairment)
            changes.append(((step.by_ns - data.run.t0_ns) / NS_PER_S, put))
    for t, flow, ev, active in moves.iter_rows():
        if flow in place_of:
            changes.append((t, partial(evs.__setitem__, (place_of[flow], ev), active)))
    changes.sort(key=lambda change: change[0])

    rates = _Rates(data, flows, in_force, evs, single_path=moves.height > 0)
    starts, steps = [-np.inf], [rates.now()]
    for t, simultaneous in groupby(changes, key=lambda change: change[0]):
        for _, change in simultaneous:
            change()
        starts.append(t)
        steps.append(rates.now())
    return {
        flow.flow: Allowed(
            *(
                AttainableRate(tuple(starts), tuple(float(step[kind][i]) for step in steps))
                for kind in (0, 1)
            )
        )
        for i, flow in enumerate(flows)
    }


_Now = tuple[NDArray[np.float64], NDArray[np.float64]]
"""What the fabric allows at a moment: attainable and ideal payload rate of each flow."""

_State = tuple[frozenset[tuple[str, Impairment]], frozenset[tuple[tuple[int, int], bool]] | None]
"""What decides it: what is wrong where, and the EVs of single paths."""


class _Rates:
    """The rates that the fabric allows at the moment, over the EVs that flows have now."""

    def __init__(
        self,
        data: RunData,
        flows: Sequence[FlowRecord],
        in_force: ActiveFaults,
        evs: Mapping[tuple[int, int], bool],
        *,
        single_path: bool,
    ) -> None:
        self._topology, self._flows = data.topology, flows
        self._in_force, self._evs, self._single_path = in_force, evs, single_path
        self._payload_share = data.scenario.transport.payload_share
        seconds = data.run.duration_s
        self._control_bps = {
            host: counts.control_bytes * 8 / seconds for host, counts in data.run.hosts.items()
        }
        host = data.topology.host_named
        self._everywhere = self._routes(
            (i, ev_for_path(path), True)
            for i, flow in enumerate(self._flows)
            for path in paths(data.topology, host(flow.src), host(flow.dst))
        )
        self._own = self._routes_of_endpoints()
        self._known: dict[_State, _Now] = {}

    def _routes(self, evs: Iterable[EvOfFlow]) -> Routes:
        return Routes(self._topology, self._flows, evs, self._control_bps)

    def _routes_of_endpoints(self) -> Routes:
        # An EV that a flow with a single path has left is no backup.
        usable = (item for item in self._evs.items() if item[1] or not self._single_path)
        return self._routes((i, ev, active) for (i, ev), active in usable)

    def now(self) -> _Now:
        """Attainable and ideal payload rate of each flow, in emulated bits/s.

        A state of the fabric that comes again, such as that of a flapping link, is looked up.
        """
        moved = frozenset(self._evs.items()) if self._single_path else None
        state = self._in_force.impairments, moved
        if state not in self._known:
            self._known[state] = self._computed()
        return self._known[state]

    def _computed(self) -> _Now:
        if self._single_path:
            self._own = self._routes_of_endpoints()
        impaired = self._in_force.impairment_at
        even = self._own.rates_bps(impaired)
        most = self._everywhere.most_rates_bps(impaired)
        best = even if np.allclose(even, most) else self._everywhere.ideal_rates_bps(impaired)
        return even * self._payload_share, best * self._payload_share
