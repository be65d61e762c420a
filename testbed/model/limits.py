"""How large a scenario can be: counted before anything is built of it.

A few words of a file can ask for more than any machine holds: all pairs of 262,144 hosts, a fault
every 2 ns. What is counted here is arithmetic; nothing is listed. The numbers are ours: what a
machine of 16 GB can check and analyse. What fits a machine that simulates or emulates is checked
there, before a run (`runs/fitting.py`).
"""

from collections.abc import Iterator

from testbed.model.errors import Problem
from testbed.model.fabric.ev_set import MAX_DEFAULT_EVS, AutoProfile
from testbed.model.fabric.topology import HEADERS, Topology
from testbed.model.faults.kinds import MAX_FAULTS, RAMP_STEPS, Fault, Flap, TemporaryFault
from testbed.model.faults.schedule import most_directions
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.model.units import NS_PER_S, exact_duration

MAX_FLOWS = 300_000
"""Most flows: a permutation of the largest fabric has 262,144."""

MAX_STRUCK = 1_000_000
"""Most directions of links, or hosts, that the faults of a timeline strike, each time counted."""

MAX_STEPS = 1_000_000
"""Most changes of impairments in a timeline."""

MAX_PROBES = 20_000_000
"""Most probes of the Clustermapper."""

LOOKED_AT = 2_000_000
"""Most EVs of all flows whose paths the remarks about a scenario look at, each by itself."""

_PROBED_SHARE = 0.1
"""Most of a link's rate that the Clustermapper may take with a probe of `HEADERS` bytes a round."""


def size_problems(scenario: Scenario) -> Iterator[Problem]:
    """What a scenario has too many of."""
    if scenario.flow_count > MAX_FLOWS:
        yield Problem(
            "jobs" if scenario.jobs else "workload",
            f"{scenario.flow_count:,} flows",
            f"{MAX_FLOWS:,} at most: pairs of hosts that send, times transport.qps",
            "fewer hosts, or fewer queue pairs",
        )
    yield from _timeline_problems(scenario)
    yield from _probe_problems(scenario)


def too_many_evs(scenario: Scenario) -> str:
    """That the paths of a scenario's EVs are too many to look at, in words; empty if not."""
    count = evs_of_all_flows(scenario)
    return f"{count:,} EVs of all flows are too many to look at" if count > LOOKED_AT else ""


def evs_of_all_flows(scenario: Scenario) -> int:
    """How many EVs all flows have together, in one direction, at most."""
    transport, topology = scenario.transport, scenario.topology
    if not isinstance(transport, Mrc):
        return scenario.flow_count * topology.planes
    profile = transport.ev_profile
    if isinstance(profile, AutoProfile):
        paths = topology.planes * topology.t1_per_plane
        evs = min(paths, MAX_DEFAULT_EVS) if transport.evs is None else transport.evs
    else:
        evs = profile.evs if isinstance(profile.evs, int) else len(profile.evs)
    return scenario.flow_count * max(evs, topology.planes)


def _timeline_problems(scenario: Scenario) -> Iterator[Problem]:
    counts = [len(fault.start_times_ns(scenario.duration)) for fault in scenario.timeline]
    if sum(counts) > MAX_FAULTS:
        found = f"{sum(counts)} faults"
        yield Problem("timeline", found, f"at most {MAX_FAULTS}, repetitions included")
        return
    for what, most, of in (
        ("struck directions of links", MAX_STRUCK, _struck),
        ("changes of impairments", MAX_STEPS, _steps),
    ):
        total = sum(
            count * of(scenario.topology, fault)
            for count, fault in zip(counts, scenario.timeline, strict=True)
        )
        if total > most:
            expected = f"{most:,} at most, repetitions included"
            remedy = "fewer repetitions, or targets with fewer links"
            yield Problem("timeline", f"{total:,} {what}", expected, remedy)


def _struck(topology: Topology, fault: Fault) -> int:
    return most_directions(topology, fault.target, fault.choose)


def _steps(_topology: Topology, fault: Fault) -> int:
    if isinstance(fault, Flap):
        return round(2 * (fault.for_ / fault.period + 1) / (1 - fault.jitter))
    return RAMP_STEPS + 1 if isinstance(fault, TemporaryFault) else 1


def _probe_problems(scenario: Scenario) -> Iterator[Problem]:
    mapper, topology = scenario.clustermapper, scenario.topology
    if mapper is None:
        return
    where, found = "clustermapper.period", exact_duration(mapper.period)
    slowest_bps = min(topology.port_rate, topology.t0_t1_rate)
    least_ns = round(HEADERS * 8 * NS_PER_S / slowest_bps / _PROBED_SHARE)
    if mapper.period < least_ns:
        expected = f"{exact_duration(least_ns)} or more: a probe takes a tenth of a link's rate"
        yield Problem(where, found, expected)
        return
    links = topology.link_count
    probes = links * (scenario.duration // mapper.period_ns(topology) + 1)
    if probes > MAX_PROBES:
        found = f"{found}, which makes {probes:,} probes of {links:,} links"
        yield Problem(where, found, f"{MAX_PROBES:,} at most", "a longer period, or a shorter run")
