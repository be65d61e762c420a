"""CPU time of computing what a fabric of 64 hosts allows each flow, at each change of it."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random

import numpy as np
from numpy.typing import NDArray

from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.model.run_files.run import FlowRecord
from testbed.model.transport import Mrc
from testbed.results.capacity.routes import Impaired, Routes
from testbed.studies.bench.measure import Measurement, Setting, at_most, no_target

FABRIC = Topology(name="clos-64host", planes=4, t0_per_plane=8, t1_per_plane=8, hosts_per_t0=8)

MOST_MS = 50.0

CHANGES = 20
"""States of the fabric that are timed in a repeat: in each a few more directions are ill."""

FAULTS = (
    Impairment(cut=True),
    Impairment(blackhole=True),
    Impairment(loss=0.01),
    Impairment(rate=0.5),
)


def attainable(setting: Setting) -> list[Measurement]:
    """Time a change of the fabric, for a flow from every host to one of another rack."""
    even, ideal = zip(*setting.repeat("attainable", change_ms), strict=True)
    return [
        at_most("attainable, 64 hosts, a change", "ms", even, MOST_MS),
        no_target("... with the ideal split", "ms", ideal),
    ]


def change_ms() -> tuple[float, float]:
    """CPU time of a change, in ms, the mean: with the endpoints' split, and with the ideal one."""
    chance = Random(1)  # noqa: S311 - the same faults in each repeat
    routes = _routes()
    ill: dict[str, Impairment] = {}
    states = []
    for _ in range(CHANGES):
        ill |= {place: chance.choice(FAULTS) for place in chance.sample(routes.directions, 3)}
        states.append(partial(_impairment, dict(ill)))
    even, ideal = (
        _mean_ms(rates_bps, states) for rates_bps in (routes.rates_bps, routes.ideal_rates_bps)
    )
    return even, ideal


def _routes() -> Routes:
    hosts, nodes = len(FABRIC.hosts), FABRIC.nodes
    flows = [
        FlowRecord(i, f"h{i}", f"h{(i + FABRIC.hosts_per_t0) % hosts}", "mrc", 1.0)
        for i in range(hosts)
    ]
    evs = [
        (flow.flow, ev.value, ev.active)
        for flow in flows
        for ev in Mrc().choose_evs(FABRIC, nodes[flow.src], nodes[flow.dst], lane=0, seed=1)
    ]
    return Routes(FABRIC, flows, evs)


def _impairment(ill: Mapping[str, Impairment], place: str) -> Impairment:
    return ill.get(place, HEALTHY)


def _mean_ms(
    rates_bps: Callable[[Impaired], NDArray[np.float64]], states: Sequence[Impaired]
) -> float:
    began = time.process_time_ns()
    for state in states:
        rates_bps(state)
    return (time.process_time_ns() - began) / len(states) / 1e6
