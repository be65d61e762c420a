"""The figures of this lab that no table shows: from the records of a student's runs."""

from collections import Counter
from collections.abc import Mapping

import polars as pl

from testbed.labs.evidence import Evidence
from testbed.model.flows import Flow, flows_of
from testbed.model.scenario import Scenario

ROCE, SPRAY = "roce", "spray"
UPPER_SWITCHES = 4


def fits(scenarios: Mapping[str, Scenario]) -> bool:
    """Whether two flows or more collide, so that there is something to see."""
    scenario = scenarios[ROCE]
    chosen = {
        scenario.transport.choose_evs(
            scenario.topology, flow.src, flow.dst, lane=flow.lane, seed=scenario.seed
        )[0].path.t1
        for flow in flows_of(scenario)
    }
    return len(chosen) < UPPER_SWITCHES


def slowest(lab: Evidence) -> float:
    """The slowest flow's share of its port with RoCE, in percent."""
    return 100 * min(flow.ports_fraction for flow in lab.summary(ROCE).flows)


def slowest_sprayed(lab: Evidence) -> float:
    """The same with spraying."""
    return 100 * min(flow.ports_fraction for flow in lab.summary(SPRAY).flows)


def idle_switches(lab: Evidence) -> int:
    """How many upper switches carry no flow with RoCE."""
    return UPPER_SWITCHES - len(_flows_by_path(lab))


def busy_switches(lab: Evidence) -> int:
    """How many carry one or more."""
    return len(_flows_by_path(lab))


def colliding(lab: Evidence) -> tuple[str, ...]:
    """The hosts whose flows share an upper switch with others."""
    return tuple(flow.src.name for flow in _colliding(lab))


def receivers_of_colliding(lab: Evidence) -> tuple[str, ...]:
    """The hosts that receive these flows."""
    return tuple(flow.dst.name for flow in _colliding(lab))


def share_over_switch(lab: Evidence) -> float:
    """The share of h0's packets over the drawn upper switch, with spraying, in percent."""
    frame = lab.frame(SPRAY, "transmissions").filter(pl.col("flow") == 0)
    over = frame.filter(pl.col("path").str.ends_with(f"t1_{lab.drawn['t1']}"))
    return 100 * over.height / frame.height


def _colliding(lab: Evidence) -> list[Flow]:
    flows, paths, shared = flows_of(lab.data(ROCE).scenario), _paths(lab), _flows_by_path(lab)
    return [flows[number] for number, path in sorted(paths.items()) if shared[path] > 1]


def _flows_by_path(lab: Evidence) -> Counter[str]:
    return Counter(_paths(lab).values())


def _paths(lab: Evidence) -> dict[int, str]:
    """The path of each flow by the flow's number."""
    return dict(lab.frame(ROCE, "transmissions").select("flow", "path").unique().iter_rows())
