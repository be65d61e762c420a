"""Whether the parts of a scenario fit together.

`problems` are what makes a scenario impossible, `remarks` what its author may not intend. Both name
places by key path, such as `timeline[0].at`. Nothing here builds the whole fabric, so that the
check of a fabric of the real size is as fast as that of a small one.
"""

from collections import Counter
from collections.abc import Iterator

from testbed.model.errors import Problem, Remark, few
from testbed.model.expect_checks import expectation_problems
from testbed.model.fabric.addressing import paths
from testbed.model.fabric.ev_set import backups_per_plane, ev_count
from testbed.model.faults.checks import fault_problems, fault_remarks
from testbed.model.flows import flows_of
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc, Roce, Tcp
from testbed.model.units import NS_PER_S, show_duration, show_size
from testbed.model.workload import Incast, Permutation, WriteBw
from testbed.model.workload_checks import workload_problems

MIN_MESSAGES = 10
"""Least number of completions of a flow for a useful measurement of the stall."""


# --- what is impossible -----------------------------------------------------------------------


def problems(scenario: Scenario) -> tuple[Problem, ...]:
    """All that makes a scenario impossible."""
    return (
        *workload_problems(scenario.topology, scenario.workload),
        *fault_problems(scenario),
        *_duration_problems(scenario),
        *expectation_problems(scenario),
    )


def _duration_problems(scenario: Scenario) -> Iterator[Problem]:
    rtt_ns = scenario.topology.propagation_rtt_ns
    if scenario.duration < rtt_ns:
        expected = f"a round trip of {scenario.topology.name}, {show_duration(rtt_ns)}, or more"
        remedy = "a longer duration, or a smaller dilation"
        yield Problem("duration", show_duration(scenario.duration), expected, remedy)


# --- what may not be meant --------------------------------------------------------------------


def remarks(scenario: Scenario) -> tuple[Remark, ...]:
    """What the author of a valid scenario may not intend."""
    transport, workload = _transport_remarks(scenario), _workload_remarks(scenario)
    return (*transport, *workload, *fault_remarks(scenario))


def buffer_bytes(scenario: Scenario) -> int:
    """Memory of all messages in bytes: content at each host, slots, and copies for the checks."""
    flows = scenario.flows
    hosts = {host for src, dst, _ in flows for host in (src, dst)}
    return scenario.longest_bytes * (len(flows) * (scenario.workload.depth + 2) + len(hosts))


def _transport_remarks(scenario: Scenario) -> Iterator[Remark]:
    match scenario.transport:
        case Mrc():
            yield from _ev_remarks(scenario, scenario.transport)
        case Roce() | Tcp() as transport if transport.convergence is not None:
            converged = round(transport.convergence * scenario.topology.dilation)
            if converged >= scenario.duration:
                here = f"{show_duration(transport.convergence)} is {show_duration(converged)} here"
                what = f"{here}, longer than the run: routing never converges in it"
                yield Remark("transport.convergence", what)


def _ev_remarks(scenario: Scenario, transport: Mrc) -> Iterator[Remark]:
    topology = scenario.topology
    flows_from = Counter(src for src, _, _ in scenario.flows)
    uneven, sharing, slow = "", [], []
    for flow in flows_of(scenario):
        src, dst = flow.src, flow.dst
        count, path_count = (
            ev_count(topology, src, dst, transport.evs),
            len(paths(topology, src, dst)),
        )
        if transport.evs not in (None, count):
            uneven = f"{count} EVs for {topology.planes} planes, not {transport.evs}"
        if count > path_count:
            sharing.append(f"{src.name} -> {dst.name} ({count} EVs, {path_count} paths)")
        per_plane = count // topology.planes
        backups = backups_per_plane(topology, src, dst, per_plane, transport.spare)
        active = topology.planes * (per_plane - backups)
        rate_bps = topology.planes * topology.port_rate_bps / flows_from[src.name]
        rotation_ns = active * topology.wire_bytes * 8 * NS_PER_S / rate_bps
        if rotation_ns > topology.propagation_rtt_ns:
            slow.append(f"{src.name} -> {dst.name} ({active} EVs in {show_duration(rotation_ns)})")
    if uneven:
        yield Remark("transport.evs", f"each plane gets the same number: {uneven}")
    if sharing:
        what = "each EV detects a failure by itself, so EVs that share a path slow detection"
        yield Remark("transport.evs", f"{what}: {few(sharing)}")
    if slow:
        base_rtt = show_duration(topology.propagation_rtt_ns)
        what = f"a rotation through the active EVs takes longer than a base RTT ({base_rtt})"
        yield Remark("transport.evs", f"{what}, so a dead path is detected later: {few(slow)}")


def _workload_remarks(scenario: Scenario) -> Iterator[Remark]:
    topology, workload = scenario.topology, scenario.workload
    if not isinstance(workload, WriteBw | Permutation | Incast):
        return
    rate_bps = topology.planes * topology.port_rate_bps
    message_ns = workload.message_size * 8 * NS_PER_S / rate_bps
    if message_ns * MIN_MESSAGES > scenario.duration:
        yield Remark(
            "workload.message_size",
            f"{show_size(workload.message_size)} take {show_duration(message_ns)} at full rate: "
            f"fewer than {MIN_MESSAGES} messages complete in {show_duration(scenario.duration)}",
        )
    others_bytes = (workload.depth - 1) * workload.message_size
    bdp_bytes = topology.planes * topology.bdp_bytes
    if others_bytes < bdp_bytes:
        yield Remark(
            "workload.depth",
            f"while one message completes, the others hold {show_size(others_bytes)}, less than "
            f"a host's bandwidth-delay product ({show_size(bdp_bytes)}): the workload limits "
            "goodput, not the fabric",
        )
