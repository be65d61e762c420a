"""The figures of this lab that no table shows: from the records of a student's runs."""

from collections import Counter
from collections.abc import Mapping
from math import perm

import polars as pl

from testbed.model.flows import Flow, flows_of
from testbed.model.scenario import Scenario
from testbed.studies.labs.evidence import Evidence

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


def no_collision(lab: Evidence) -> float:
    """How likely it is, in percent, that all flows of the question get different switches."""
    flows, uppers = lab.drawn["flows"], lab.drawn["uppers"]
    return float(100 * perm(uppers, flows) / uppers**flows)


def one_switch(lab: Evidence) -> float:
    """How likely it is that one flow gets one switch, in percent."""
    return float(100 / lab.drawn["uppers"])


def idle_switches(lab: Evidence) -> tuple[str, ...]:
    """The upper switches that carry no flow with RoCE."""
    uppers = {f"t1_{number}" for number in range(UPPER_SWITCHES)}
    return tuple(sorted(uppers - {*busy_switches(lab)}))


def busy_switches(lab: Evidence) -> tuple[str, ...]:
    """Those that carry one or more."""
    return tuple(sorted(path.partition("/")[2] for path in _flows_by_path(lab)))


def colliding(lab: Evidence) -> tuple[str, ...]:
    """The hosts whose flows share an upper switch with others."""
    return tuple(flow.src.name for flow in _colliding(lab))


def receivers_of_colliding(lab: Evidence) -> tuple[str, ...]:
    """The hosts that receive these flows."""
    return tuple(flow.dst.name for flow in _colliding(lab))


def sent_over_switch(lab: Evidence) -> int:
    """How many of h0's packets went over the drawn upper switch by the drawn time."""
    sent = _sent_by_h0(lab)
    return sent.filter(pl.col("path").str.ends_with(f"t1_{lab.drawn['t1']}")).height


def sent_in_all(lab: Evidence) -> int:
    """How many went over all of them."""
    return _sent_by_h0(lab).height


def _sent_by_h0(lab: Evidence) -> pl.DataFrame:
    by = float(str(lab.drawn["by"]).removesuffix(" s"))
    frame = lab.frame(SPRAY, "transmissions")
    return frame.filter((pl.col("flow") == 0) & (pl.col("t") <= by))


def _colliding(lab: Evidence) -> list[Flow]:
    flows, paths, shared = flows_of(lab.data(ROCE).scenario), _paths(lab), _flows_by_path(lab)
    return [flows[number] for number, path in sorted(paths.items()) if shared[path] > 1]


def _flows_by_path(lab: Evidence) -> Counter[str]:
    return Counter(_paths(lab).values())


def _paths(lab: Evidence) -> dict[int, str]:
    """The path of each flow by the flow's number."""
    return dict(lab.frame(ROCE, "transmissions").select("flow", "path").unique().iter_rows())
