"""Water-filling and HiGHS's linear programs agree with SciPy's, over random fabrics with faults.

`TESTBED_SOAK=1 pytest tests/results/test_fair_share.py` compares a thousand fabrics.
"""

import os
import random
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.run_files.content import FlowRecord
from testbed.model.transport import Mrc, Roce
from testbed.results.analysis.attainable import Routes
from testbed.results.analysis.fair_share import Loads, ideal_rates, max_min_rates

FABRICS = 1_000 if os.environ.get("TESTBED_SOAK") else 200


def reference(
    flows: int, path_flow: Sequence[int], loads: Loads, capacities: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The definition: raise the least rate, then find who can have more than it.

    Slow and without duals: programs of their own ask which flows can have more. While the sum of
    the rates of those in question can be more than so many times the least, one of them can.
    """
    unit = capacities.max()
    load = np.zeros((len(capacities), len(path_flow)))
    np.add.at(load, (loads.links, loads.flows), loads.shares)
    of_flow = np.zeros((flows, len(path_flow)))
    of_flow[path_flow, np.arange(len(path_flow))] = 1.0
    fixed: dict[int, float] = {}
    unfixed = set(path_flow)
    while unfixed:
        least, _ = _solve(load, of_flow, capacities / unit, fixed, unfixed, None)
        bound = set(unfixed)
        while bound:
            _, rates = _solve(load, of_flow, capacities / unit, fixed, unfixed, (bound, least))
            rising = {flow for flow in bound if rates[flow] > least + 1e-6}
            if not rising:
                break
            bound -= rising
        assert bound
        fixed |= dict.fromkeys(bound, least)
        unfixed -= bound
    exact: NDArray[np.float64] = unit * np.array([fixed.get(flow, 0.0) for flow in range(flows)])
    return exact


def _solve(
    load: NDArray[np.float64],
    of_flow: NDArray[np.float64],
    capacities: NDArray[np.float64],
    fixed: Mapping[int, float],
    unfixed: Collection[int],
    candidates: tuple[Collection[int], float] | None,
) -> tuple[float, NDArray[np.float64]]:
    """The greatest least rate, and the rates of all flows with it.

    With candidates (flows, least rate of all) the greatest sum of the candidates' rates.
    """
    flows, paths = of_flow.shape
    rising = np.array([float(f in unfixed and candidates is None) for f in range(flows)])
    least = candidates[1] * (1 - 1e-9) if candidates else 0.0
    floor = np.array(
        [fixed.get(f, least if f in unfixed else 0.0) * (1 - 1e-9) for f in range(flows)]
    )
    unused = np.zeros((len(capacities), 1))
    matrix = np.block([[load, unused], [-of_flow, rising[:, None]]])
    cost = np.zeros(paths + 1)
    if candidates is None:
        cost[-1] = -1.0
    else:
        cost[:-1] = -of_flow[[*candidates[0]], :].sum(axis=0)
    solved = linprog(cost, A_ub=matrix, b_ub=np.concatenate([capacities, -floor]), method="highs")
    assert solved.status == 0, solved.message
    return -float(solved.fun), of_flow @ solved.x[:-1]


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

    monkeypatch.setattr("testbed.results.analysis.attainable.max_min_rates", fill)
    monkeypatch.setattr("testbed.results.analysis.attainable.ideal_rates", ideal)
    for seed in seeds:
        routes, impaired, _ = random_case(seed)
        at = partial(_impairment, impaired)
        even, best = routes.rates_bps(at), routes.ideal_rates_bps(at)
        assert best.min() >= even.min() * (1 - 1e-6), "the ideal split is never worse for the least"
    assert solved
