"""The EVs of a run's flows as rows of arrays: which link directions each crosses."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from types import MappingProxyType
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from testbed.model.fabric.addressing import (
    ev_for_path,
    flow_label_of_ev,
    links_of_path,
    path_of_ev,
    paths,
)
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import ActiveFaults, Impairment
from testbed.model.flows import left_for_data_bps
from testbed.model.run_files.content import FlowRecord
from testbed.model.units import NS_PER_S
from testbed.results.analysis.fair_share import Loads, ideal_rates, max_min_rates
from testbed.results.records import EV_EVENTS
from testbed.results.run_data import RunData

HOPS = 4
"""Most link directions that a path crosses."""

_PATHS_OF_A_PAIR = 1 << 12
"""The paths that are looked up once for all queue pairs of two hosts, which follow one another."""

Impaired = Callable[[str], Impairment]
"""Returns the impairment of a direction of a link, or of a host, by its name."""

EvOfFlow = tuple[int, int, bool]
"""An EV: the place of its flow among all flows, its value, whether it is active from the start."""


class Routes:
    """Every EV of every flow, and the directions of links that they cross.

    Attributes:
        directions: the names of these directions, in the order of the fabric.
        capacities_bps: of each direction, in emulated bits/s, less the control packets that a
            host sends into the fabric.
    """

    def __init__(
        self,
        topology: Topology,
        flows: Sequence[FlowRecord],
        evs: Iterable[EvOfFlow],
        control_bps: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Look up the paths.

        Args:
            topology: the fabric.
            flows: all flows of the run.
            evs: their EVs, the active ones of a plane before its backups.
            control_bps: the rate at which a host, by name, sends packets that carry no payload.
        """
        rows = list(evs)
        self._flows: Final = len(flows)
        self._ends: Final = [(flow.src, flow.dst) for flow in flows]
        self._flow: Final = np.array([row[0] for row in rows], dtype=np.intp)
        self._active: Final = np.array([row[2] for row in rows], dtype=bool)
        self._label: Final = np.array([flow_label_of_ev(row[1]) for row in rows], dtype=np.int64)
        hosts = {name: topology.host_named(name) for ends in self._ends for name in ends}
        senders: dict[int, tuple[str, int]] = {}

        @lru_cache(_PATHS_OF_A_PAIR)
        def crossing(src: str, dst: str, ev: int) -> tuple[int, list[int]]:
            """The plane of an EV, and the interfaces that send into the links of its path."""
            ends = hosts[src], hosts[dst]
            path = path_of_ev(topology, *ends, ev)
            links = links_of_path(topology, *ends, path)
            crossed = []
            for i, link in enumerate(links):
                down = i >= len(links) // 2
                sender = link.ports[down].ifindex
                senders.setdefault(sender, (link.directions[down], topology.rate_bps(link)))
                crossed.append(sender)
            return path.plane, crossed

        found = [crossing(*self._ends[flow], ev) for flow, ev, _ in rows]
        plane_of = np.array([plane for plane, _ in found], dtype=np.intp)
        in_order = sorted(senders)
        self.directions: Final = tuple(senders[sender][0] for sender in in_order)
        self.capacities_bps: Final = np.array(
            [senders[sender][1] for sender in in_order], dtype=np.float64
        )
        number_of = {sender: i for i, sender in enumerate(in_order)}
        self._hops: Final = np.full((len(rows), HOPS), len(in_order), dtype=np.intp)
        for row, (_, numbers) in zip(self._hops, found, strict=True):
            row[HOPS - len(numbers) :] = [number_of[sender] for sender in numbers]
        for host in {flow.src for flow in flows}:
            per_port = control_bps.get(host, 0.0) / topology.planes
            for plane in range(topology.planes):
                number = number_of.get(topology.port_of(hosts[host], plane).ifindex)
                if number is not None:
                    self.capacities_bps[number] = left_for_data_bps(
                        self.capacities_bps[number], per_port
                    )
        self._group: Final = self._flow * topology.planes + plane_of
        """The flow and the plane of an EV, in one number."""
        self._groups: Final = self._flows * topology.planes
        self._planes: Final = topology.planes
        self._slots: Final = np.bincount(self._group[self._active], minlength=self._groups)

    def rates_bps(self, impaired: Impaired) -> NDArray[np.float64]:
        """The max-min fair rate of each flow, split as endpoints do, in raw bits/s that arrive.

        Planes take turns, and in each plane its active EVs, whatever is sent: what a lossy EV loses
        is sent again on the next one. An EV through something that delivers
        nothing is not used: a backup of its plane takes its place, or the plane's other EVs carry
        its share; a plane without an EV is left out. EVs that lose a part, or have a slower link,
        are kept, or all of them are avoided where another EV is left: whichever gives the flows
        more together.
        """
        capacities, passed, usable = self._state(impaired)
        kept = self._filled(capacities, passed, usable)
        whole = usable & (passed[:, 0] >= 1) & self._at_full_rate(capacities)
        several = np.bincount(self._flow[whole], minlength=self._flows) > 0
        avoiding = usable & (whole | ~several[self._flow])
        if np.array_equal(avoiding, usable):
            return kept
        avoided = self._filled(capacities, passed, avoiding)
        return avoided if avoided.sum() > kept.sum() else kept

    def most_rates_bps(self, impaired: Impaired) -> NDArray[np.float64]:
        """Upper bounds of the ideal rates: the fair shares of the hosts' ports in service.

        All ports of a host count as one port, and no other link limits the rates.
        """
        capacities, _, usable = self._state(impaired)
        rows = np.flatnonzero(usable)
        ends = {host: i for i, host in enumerate(sorted({h for pair in self._ends for h in pair}))}
        hosts = np.array([[ends[src], len(ends) + ends[dst]] for src, dst in self._ends])
        first = (self._hops[rows] < len(self.directions)).argmax(axis=1)
        out_of, into = self._hops[rows, first], self._hops[rows, -1]
        host_capacity = np.zeros(2 * len(ends))
        for side, links in ((0, out_of), (1, into)):
            pairs = np.unique(np.column_stack([hosts[self._flow[rows], side], links]), axis=0)
            np.add.at(host_capacity, pairs[:, 0], capacities[pairs[:, 1]])
        present = np.unique(self._flow[rows])
        flows = np.repeat(present, 2)
        loads = Loads(flows, hosts[present].ravel(), np.ones(len(flows)))
        return max_min_rates(self._flows, loads, host_capacity)

    def ideal_rates_bps(self, impaired: Impaired) -> NDArray[np.float64]:
        """The max-min fair rate of each flow with the best split over its EVs, backups included.

        In raw bits/s that arrive.
        """
        capacities, passed, usable = self._state(impaired)
        rows = np.flatnonzero(usable)
        loads = self._loads(np.arange(len(rows)), rows, 1.0 / passed[rows])
        return ideal_rates(self._flows, self._flow[rows], loads, capacities)

    def _state(
        self, impaired: Impaired
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Capacities of directions; of each EV what each hop must carry for a bit that arrives.

        The latter are given as the share that arrives of what is sent into each hop.
        """
        count = len(self.directions)
        states = [impaired(name) for name in self.directions]
        open_ = np.array([not (s.cut or s.blackhole) for s in states] + [True])
        rate = np.array([s.rate for s in states])
        delivered = np.array([(1 - s.loss) * (1 - s.corrupt) for s in states] + [1.0])
        share = delivered[self._hops]
        for number, state in enumerate(states):
            if state.path_loss:
                crossing = (self._hops == number) & (self._label == state.path_bits)[:, None]
                share[crossing] *= 1 - state.path_loss
        passed = np.cumprod(share[:, ::-1], axis=1)[:, ::-1]
        alive = np.array(
            [
                not any(impaired(end).frozen or impaired(end).dead for end in ends)
                for ends in self._ends
            ],
            dtype=bool,
        )
        in_service = np.asarray(open_[self._hops].all(axis=1))
        usable = in_service & (passed[:, 0] > 0) & alive[self._flow]
        capacities = self.capacities_bps * rate * open_[:count]
        return capacities, passed, usable

    def _at_full_rate(self, capacities: NDArray[np.float64]) -> NDArray[np.bool_]:
        full = np.append(capacities >= self.capacities_bps, True)
        crossed: NDArray[np.bool_] = np.asarray(full[self._hops].all(axis=1))
        return crossed

    def _filled(
        self,
        capacities: NDArray[np.float64],
        passed: NDArray[np.float64],
        usable: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """The fair rates over these EVs."""
        used = usable & self._active
        missing = self._slots - np.bincount(self._group[used], minlength=self._groups)
        backups = np.flatnonzero(usable & ~self._active)
        for row in backups[np.argsort(self._group[backups], kind="stable")]:
            if missing[self._group[row]] > 0:
                missing[self._group[row]] -= 1
                used[row] = True
        in_group = np.bincount(self._group[used], minlength=self._groups)
        planes = (in_group.reshape(self._flows, self._planes) > 0).sum(axis=1)
        rows = np.flatnonzero(used)
        flow = self._flow[rows]
        part = 1.0 / (planes[flow] * in_group[self._group[rows]])
        # What is lost is sent again on the next EV: the split is of what is sent, not of what
        # arrives, and of that each hop gets what the hops before it passed on.
        arriving = np.bincount(flow, part * passed[rows, 0], self._flows)
        into = passed[rows, :1] / passed[rows]
        loads = self._loads(flow, rows, (part / arriving[flow])[:, None] * into)
        return max_min_rates(self._flows, loads, capacities)

    def _loads(
        self, users: NDArray[np.intp], rows: NDArray[np.intp], shares: NDArray[np.float64]
    ) -> Loads:
        """What EVs put on the directions that they cross; `shares` has a row for each EV."""
        hops = self._hops[rows]
        real = hops < len(self.directions)
        numbers = np.broadcast_to(users[:, None], hops.shape)
        return Loads(numbers[real], hops[real], shares[real])


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
