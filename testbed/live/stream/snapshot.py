"""The first record of a stream: fabric, flows and EVs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from testbed.drawings import places_of
from testbed.live.stream.records import EvPath, FlowEnds, LinkEnds, NodePlace, Snapshot
from testbed.model.fabric.addressing import (
    address,
    carrier_usids,
    directions_of_path,
    management_address,
    path_of_ev,
)
from testbed.model.fabric.topology import Topology
from testbed.model.flows import Flow, flows_recorded
from testbed.model.run_files.run import FlowRecord
from testbed.model.scenario import Scenario
from testbed.results.records import CONTROL_DILATION

STEP_S = 0.1
"""Time between two `State` records: ten a second."""

LEAST_STEPS = 100
"""A run shorter than ten seconds has so many steps, as where time is not dilated."""


PROMPT = "shell"
"""In place of a scenario's name."""

_PROGRAMS = "Programs at the prompt. A flow begins with the first packet that its program sends."


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a stream has to know of its run.

    Attributes:
        topology: the fabric.
        scenario: what is run; None: programs at the prompt.
        run: name of the run's directory.
        simulated: whether it takes place in virtual time.
        live: whether it goes on while the stream is written.
        base_rtt_s: the base RTT.
        duration_s: planned duration; 0: none.
        slow_flow: the flow whose single packets are in the stream, if any.
        recorded: the flows that a finished run recorded; where programs send, no scenario has them.
    """

    topology: Topology
    scenario: Scenario | None
    run: str
    simulated: bool
    live: bool
    base_rtt_s: float
    duration_s: float
    slow_flow: int | None = None
    recorded: tuple[FlowRecord, ...] = ()

    @property
    def of_programs(self) -> bool:
        """Whether programs send, whose flows begin with their first packets."""
        return self.scenario is None or bool(self.scenario.programs)

    @property
    def slow_motion(self) -> bool:
        """Whether single packets of a flow are in the stream: at a prompt, of the newest flow."""
        if self.of_programs:
            return self.topology.dilation >= CONTROL_DILATION
        return self.slow_flow is not None

    @property
    def management(self) -> str:
        """The first host's address in the management network, which only emulated fabrics have."""
        programs_meet = self.of_programs and not self.simulated
        return str(management_address(self.topology.host(0))) if programs_meet else ""

    @property
    def step_s(self) -> float:
        """Time between two `State` records."""
        return min(STEP_S, self.duration_s / LEAST_STEPS) if self.duration_s else STEP_S


@dataclass(frozen=True, slots=True)
class FirstState:
    """An EV's state at the beginning, as its first row of `ev_events` has it."""

    flow: int
    ev: int
    state: str
    active: bool


def snapshot_of(beginning: Beginning, evs: Iterable[FirstState], t: float) -> Snapshot:
    scenario, topology = beginning.scenario, beginning.topology
    flows = flows_of_beginning(beginning)
    return Snapshot(
        t=t,
        scenario=PROMPT if scenario is None else scenario.name,
        description=_PROGRAMS if scenario is None else " ".join(scenario.description.split()),
        topology=topology.name,
        run=beginning.run,
        simulated=beginning.simulated,
        live=beginning.live,
        duration_s=beginning.duration_s,
        step_s=beginning.step_s,
        base_rtt_s=beginning.base_rtt_s,
        dilation=topology.dilation,
        planes=topology.planes,
        nics_per_node=topology.nics_per_node,
        clustermapper=scenario is not None and scenario.clustermapper is not None,
        judged=scenario is not None,
        slow_motion=beginning.slow_motion,
        management=beginning.management,
        nodes=tuple(_nodes(topology)),
        links=tuple(_links(topology)),
        flows=tuple(flow_ends(flow, beginning) for flow in flows.values()),
        evs=tuple(ev_path(topology, flows, first) for first in evs),
    )


def flows_of_beginning(beginning: Beginning) -> dict[int, Flow]:
    if beginning.scenario is None:
        return {}
    flows = flows_recorded(beginning.scenario, beginning.recorded)
    return {flow.number: flow for flow in flows}


def transport_of(beginning: Beginning) -> str:
    return "mrc" if beginning.scenario is None else beginning.scenario.transport.kind


def _nodes(topology: Topology) -> Iterator[NodePlace]:
    for node, (x, y) in places_of(topology).items():
        place = {"name": node.name, "tier": str(node.tier), "plane": node.plane}
        yield NodePlace(**place, x=round(x, 3), y=round(y, 3))


def _links(topology: Topology) -> Iterator[LinkEnds]:
    for link in topology.links.values():
        yield LinkEnds(
            name=link.name,
            plane=link.plane,
            lower=link.lower.node.name,
            upper=link.upper.node.name,
            rate_bps=topology.rate_bps(link),
        )


def flow_ends(flow: Flow, beginning: Beginning) -> FlowEnds:
    """A flow as the stream has it; nobody knows the job of a program's."""
    jobs = () if beginning.scenario is None else beginning.scenario.planned.jobs
    job = jobs[flow.job].name if jobs and flow.job >= 0 else ""
    transport = transport_of(beginning)
    lane = f" #{flow.lane}" if flow.lane else ""
    name = f"{flow.src.name} → {flow.dst.name}{lane}"
    src, dst = flow.src.name, flow.dst.name
    return FlowEnds(flow=flow.number, name=name, src=src, dst=dst, transport=transport, job=job)


def ev_path(topology: Topology, flows: Mapping[int, Flow], first: FirstState) -> EvPath:
    """An EV of one of these flows as the stream has it, with its path."""
    flow = flows[first.flow]
    path = path_of_ev(topology, flow.src, flow.dst, first.ev)
    usids = carrier_usids(topology, flow.src, flow.dst, path)
    return EvPath(
        flow=first.flow,
        ev=first.ev,
        path=path.name,
        plane=path.plane,
        crosses=directions_of_path(topology, flow.src, flow.dst, path),
        addresses=tuple(str(address(*usids[i:])) for i in range(len(usids))),
        usids=tuple(f"{usid:04x}" for usid in usids),
        state=first.state,
        active=first.active,
    )
