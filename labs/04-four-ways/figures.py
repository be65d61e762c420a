"""The figures of this lab that no table shows: from the records of a student's runs."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from testbed.model.fabric.addressing import directions_of_path
from testbed.model.files.topologies import load_topology
from testbed.model.flows import flows_of
from testbed.model.scenario import Scenario
from testbed.model.transport import Roce
from testbed.studies.labs.evidence import Evidence

GREY = "grey"


def fits(scenarios: Mapping[str, Scenario]) -> bool:
    """Whether a flow of the run one-way sends data in the direction that breaks."""
    scenario = scenarios["one-way"]
    broken = scenario.timeline[0].target[0]
    return any(
        broken in directions_of_path(scenario.topology, flow.src, flow.dst, ev.path)
        for flow in flows_of(scenario)
        for ev in scenario.transport.choose_evs(
            scenario.topology, flow.src, flow.dst, lane=flow.lane, seed=scenario.seed
        )
        if ev.active
    )


def roce_link(drawn: Mapping[str, Any]) -> str:
    """The first link between switches on the path that ECMP gives the RoCE flow."""
    topology = load_topology("clos-1plane-roce")
    src, dst = topology.host(0), topology.host(4)
    (ev,) = Roce(kind="roce").choose_evs(topology, src, dst, lane=0, seed=drawn["seed"])
    return topology.fabric_link(0, 0, ev.path.t1 or 0).name


def out_at_once(lab: Evidence) -> tuple[str, ...]:
    """The paths that left the rotation when the port went down."""
    return tuple(sorted(set(_leaving(lab, "loud")["path"])))


def passed_grey(lab: Evidence) -> int:
    """How many packets arrived over the grey link until its EV left the rotation."""
    left_at, path = _left_grey(lab)
    arrivals = lab.frame(GREY, "arrivals").filter(pl.col("path") == path)
    return arrivals.filter(pl.col("t").is_between(_fault_s(lab, GREY), left_at)).height


def arrived_before(lab: Evidence) -> int:
    """How many packets arrived on this path before it turned grey."""
    _, path = _left_grey(lab)
    arrivals = lab.frame(GREY, "arrivals").filter(pl.col("path") == path)
    return arrivals.filter(pl.col("t") < _fault_s(lab, GREY)).height


def states_silent(lab: Evidence) -> tuple[str, ...]:
    """The states of the EV over the silent link, in order."""
    events = lab.frame("silent", "ev_events").sort("t", maintain_order=True)
    ev = _leaving(lab, "silent")["ev"].to_list()[0]
    states = ["GOOD"]
    for state in events.filter((pl.col("ev") == ev) & (pl.col("t") > 0))["new"]:
        if state != states[-1]:
            states.append(state)
    return tuple(states)


def lossy_flow(lab: Evidence) -> str:
    """Which flow lost packets to the one-way fault: a, b, or c for both."""
    flows = {*lab.frame("one-way", "losses")["flow"]}
    return {(0,): "a", (1,): "b"}.get(tuple(sorted(flows)), "c")


def _left_grey(lab: Evidence) -> tuple[float, str]:
    """When the first EV of the grey run left, and its path."""
    row = _leaving(lab, GREY).row(0, named=True)
    return row["t"], row["path"]


def _leaving(lab: Evidence, run: str) -> pl.DataFrame:
    """The EVs that left the rotation after the fault."""
    events = lab.frame(run, "ev_events").sort("t", maintain_order=True)
    return events.filter(
        (pl.col("t") >= _fault_s(lab, run)) & ~pl.col("active") & (pl.col("new") == "ASSUMED_BAD")
    )


def _fault_s(lab: Evidence, run: str) -> float:
    data = lab.data(run)
    return data.seconds(data.faults[0].effective_ns) or 0.0
