"""Water-filling and HiGHS's linear programs agree with SciPy's, over random fabrics with faults."""

import random
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array, hstack, vstack

from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.run_files.run import FlowRecord
from testbed.model.transport import Mrc, Roce
from testbed.results.capacity.fair_share import Loads, max_min_rates
from testbed.results.capacity.ideal import ideal_rates
from testbed.results.capacity.routes import Routes

FABRICS = 1_000


def reference(
    flows: int, path_flow: Sequence[int], loads: Loads, capacities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The definition, flow by flow: raise the least rate, then find who can have more than it.

    Slow and without duals: whether a flow can have more is asked by a program of its own.
    """
    unit = capacities.max()
    paths, links = len(path_flow), len(capacities)
    load = coo_array((loads.shares, (loads.links, loads.flows)), shape=(links, paths))
    of_flow = coo_array((np.ones(paths), (path_flow, np.arange(paths))), shape=(flows, paths))
    fixed: dict[int, float] = {}
    unfixed = set(path_flow)
    while unfixed:
        least = _solve(load, of_flow, capacities / unit, fixed, unfixed, None)
        bound = {
            flow
            for flow in unfixed
            if _solve(load, of_flow, capacities / unit, fixed, unfixed, (flow, least))
            <= least + 1e-6
        }
        assert bound
        fixed |= dict.fromkeys(bound, least)
        unfixed -= bound
    rates: NDArray[np.float64] = unit * np.array([fixed.get(flow, 0.0) for flow in range(flows)])
    return rates


def _solve(
    load: coo_array,
    of_flow: coo_array,
    capacities: NDArray[np.float64],
    fixed: Mapping[int, float],
    unfixed: Collection[int],
    candidate: tuple[int, float] | None,
) -> float:
    """The greatest least rate; with a candidate (flow, least rate of all) that flow's greatest."""
    flows, paths = of_flow.shape
    rising = np.array(
        [1.0 if flow in unfixed and candidate is None else 0.0 for flow in range(flows)]
    )
    least = candidate[1] * (1 - 1e-9) if candidate else 0.0
    floor = np.array(
        [fixed.get(f, least if f in unfixed else 0.0) * (1 - 1e-9) for f in range(flows)]
    )
    matrix = vstack(
        [
            hstack([load, coo_array((len(capacities), 1))]),
            hstack([-of_flow, coo_array(rising[:, None])]),
        ]
    )
    cost = np.zeros(paths + 1)
    if candidate is None:
        cost[-1] = -1.0
    else:
        cost[:-1] = -of_flow.tocsr()[[candidate[0]], :].toarray()[0]
    solved = linprog(cost, A_ub=matrix, b_ub=np.concatenate([capacities, -floor]), method="highs")
    assert solved.status == 0, solved.message
    return -float(solved.fun)


def random_case(seed: int) -> tuple[Routes, dict[str, Impairment], int]:
    """A fabric of up to 32 hosts, flows between some of them, and what is wrong with its links."""
    rng = random.Random(seed)
    topology = Topology.model_validate(
        {
            "name": "random",
            "planes": rng.choice([1, 2, 3, 4, 8]),
            "t0_per_plane": rng.randint(1, 4),
            "t1_per_plane": rng.randint(1, 4),
            "hosts_per_t0": rng.randint(2, 4),
            "fabric_rate": rng.choice([None, "50 Gbit/s", "200 Gbit/s"]),
        }
    )
    hosts = [node.name for node in topology.hosts]
    pairs = [tuple(rng.sample(hosts, 2)) for _ in range(rng.randint(1, 8))]
    flows = [FlowRecord(i, src, dst, "mrc", 1.0) for i, (src, dst) in enumerate(pairs)]
    transports: list[Mrc | Roce] = [Mrc(), Mrc(backups=0.5), Mrc(evs=8), Roce()]
    transport = rng.choice(transports)
    nodes = topology.nodes
    evs = [
        (i, ev.value, ev.active)
        for i, (src, dst) in enumerate(pairs)
        for ev in transport.choose_evs(topology, nodes[src], nodes[dst], lane=0, seed=seed)
    ]
    directions = [d for link in topology.links.values() for d in link.directions]
    faults = [
        Impairment(cut=True),
        Impairment(blackhole=True),
        Impairment(loss=0.2),
        Impairment(rate=0.3),
        Impairment(corrupt=0.01, rate=0.5),
    ]
    impaired = {
        direction: rng.choice(faults)
        for direction in rng.sample(directions, rng.randint(0, len(directions) // 3))
    }
    return Routes(topology, flows, evs), impaired, len(flows)


def _impairment(impaired: Mapping[str, Impairment], place: str) -> Impairment:
    return impaired.get(place, HEALTHY)


@pytest.mark.simulated
@pytest.mark.parametrize("seeds", [range(i, i + 50) for i in range(0, FABRICS, 50)], ids=str)
def test_water_filling_and_the_linear_programs_agree(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved = []

    def fill(flows: int, loads: Loads, capacities: NDArray[np.float64]) -> NDArray[np.float64]:
        rates = max_min_rates(flows, loads, capacities)
        present = sorted({int(flow) for flow in loads.flows})
        as_paths = Loads(np.searchsorted(present, loads.flows), loads.links, loads.shares)
        if present:
            exact = reference(flows, present, as_paths, capacities)
            np.testing.assert_allclose(rates, exact, rtol=1e-5, atol=1e-6 * capacities.max())
        solved.append(rates)
        return rates

    def ideal(
        flows: int,
        path_flow: NDArray[np.intp],
        loads: Loads,
        capacities: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        rates = ideal_rates(flows, path_flow, loads, capacities)
        if len(path_flow):
            exact = reference(flows, path_flow.tolist(), loads, capacities)
            np.testing.assert_allclose(rates, exact, rtol=1e-5, atol=1e-6 * capacities.max())
        return rates

    monkeypatch.setattr("testbed.results.capacity.routes.max_min_rates", fill)
    monkeypatch.setattr("testbed.results.capacity.routes.ideal_rates", ideal)
    for seed in seeds:
        routes, impaired, _ = random_case(seed)
        at = partial(_impairment, impaired)
        even, best = routes.rates_bps(at), routes.ideal_rates_bps(at)
        assert best.min() >= even.min() * (1 - 1e-6), "the ideal split is never worse for the least"
    assert solved
