"""The EVs of a run's flows as rows of arrays: which link directions each crosses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from testbed.model.fabric.addressing import flow_label_of_ev, links_of_path, path_of_ev
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import Impairment
from testbed.model.flows import left_for_data_bps
from testbed.model.run_files.run import FlowRecord
from testbed.results.capacity.fair_share import Loads, ideal_rates, max_min_rates

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
