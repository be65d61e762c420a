"""Whether the parts of a scenario fit together.

`problems` are what makes a scenario impossible, `remarks` what its author may not intend. Both name
places by key path, such as `timeline[0].at`. Nothing here builds the whole fabric, so that the
check of a fabric of the real size is as fast as that of a small one.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import NoReturn, get_args

from testbed.model.errors import InputError, Problem, Remark, did_you_mean, few
from testbed.model.fabric.addressing import path_count
from testbed.model.fabric.ev_set import AutoProfile, backups_per_plane, ev_count
from testbed.model.fabric.topology import Topology
from testbed.model.faults.checks import fault_problems, fault_remarks
from testbed.model.flows import SIMULATED_HOPS_PER_S, packet_hops
from testbed.model.limits import size_problems, too_many_evs
from testbed.model.operator.checks import operator_problems
from testbed.model.own_code import OwnCode
from testbed.model.scenario import Job, Scenario
from testbed.model.summary.scopes import JOB_SCOPES, SCOPES
from testbed.model.transport import Mrc, Roce, Tcp
from testbed.model.units import (
    NS_PER_S,
    exact_duration,
    show_duration,
    show_share,
    show_size,
    show_wait,
)
from testbed.model.workload import (
    PIECE,
    BackToBack,
    Chakra,
    Collective,
    Connections,
    Graphed,
    Incast,
    Program,
    Training,
)

MIN_MESSAGES = 10
"""Least number of completions of a flow for a useful measurement of the stall."""

LOSS_RTTS = 2.25
"""Round trips from sending a packet that is lost until its retransmission is acknowledged: one to
learn of the loss, a reorder window, one for the retransmission (`mrc/recovery/loss.py`)."""

MANY_RTTS = 100_000
"""From this length of a run on, in round trips, a remark says how long the run takes."""


def require_no_code(scenario: Scenario, name: str = "", *, but: Collection[str] = ()) -> None:
    """Check that a scenario which nobody has let execute code executes none.

    Args:
        scenario: the scenario.
        name: what messages call it; none: only its keys.
        but: keys whose code may be executed, with all below them: those that an option sets.

    Raises:
        InputError: it names a class of somebody's own, or a command.
    """
    for key, code in scenario.executes.items():
        if not any(key == given or key.startswith((f"{given}.", f"{given}[")) for given in but):
            refuse_code(f"{name}: {key}" if name else key, code)


def refuse_code(where: str, code: str, what: str = "scenario") -> NoReturn:
    """Refuse code that nobody has let run.

    Args:
        where: what names it.
        code: its files, or a command.
        what: what names it there, a scenario or a study.
    """
    remedy = "read it; if it may run as you, add --allow-code"
    raise InputError.of(where, code, f"a {what} without code", remedy)


# --- what is impossible -----------------------------------------------------------------------


def problems(scenario: Scenario) -> tuple[Problem, ...]:
    """All that makes a scenario impossible; if it is too large, only that."""
    return (*size_problems(scenario),) or (
        *_job_problems(scenario.jobs, scenario.duration),
        *(
            problem
            for i, job in enumerate(scenario.job_list)
            for problem in job.problems(scenario.topology, f"jobs[{i}]" if scenario.jobs else "")
        ),
        *fault_problems(scenario),
        *_duration_problems(scenario),
        *expectation_problems(scenario),
        *operator_problems(scenario),
        *_program_problems(scenario),
    )


_OF_PROGRAMS = (
    "kind",
    "evs",
    "backups",
    "ev_profile",
    "spray",
    "probe_successes",
    "grey_probe_successes",
    "dialect.judgement",
)
"""The keys of `transport` that apply to the queue pairs of programs."""


def _program_problems(scenario: Scenario) -> Iterator[Problem]:
    """What does not go together with programs, whose queue pairs nobody knows beforehand."""
    if not scenario.programs:
        return
    transport = scenario.transport
    if not isinstance(transport, Mrc):
        yield Problem("transport.kind", transport.kind, "mrc: the device of programs has no other")
        return
    expected = f"one of {', '.join(_OF_PROGRAMS)}: a program sets the rest itself"
    usual = _keys_of(Mrc())
    for key, value in _keys_of(transport).items():
        if key not in _OF_PROGRAMS and value != usual[key]:
            yield Problem(f"transport.{key}", str(value), expected, "leave it out")
    if isinstance(transport.spray, OwnCode):
        yield Problem("transport.spray", str(transport.spray), "adaptive or blind for programs")
    if scenario.operator:
        remedy = "testbed ev and testbed port, by hand while it runs"
        yield Problem("operator", "commands for flows", "none: programs open flows", remedy)
    for i, fault in enumerate(scenario.timeline):
        if fault.kind == "busy":
            yield Problem(f"timeline[{i}].kind", fault.kind, "another fault where programs run")


def _keys_of(transport: Mrc) -> dict[str, object]:
    keys = {key: value for key, value in transport if key != "dialect"}
    return keys | {f"dialect.{key}": value for key, value in transport.dialect}


def _duration_problems(scenario: Scenario) -> Iterator[Problem]:
    rtt_ns = scenario.topology.propagation_rtt_ns
    if scenario.duration < rtt_ns:
        expected = f"a round trip of {scenario.topology.name}, {exact_duration(rtt_ns)}, or more"
        remedy = "a longer duration, or a smaller dilation"
        yield Problem("duration", exact_duration(scenario.duration), expected, remedy)


# --- what may not be meant --------------------------------------------------------------------


def remarks(scenario: Scenario) -> tuple[Remark, ...]:
    """What the author of a valid scenario may not intend."""
    return (
        *_transport_remarks(scenario),
        *_workload_remarks(scenario),
        *_unfinished_remarks(scenario),
        *_duration_remarks(scenario),
        *fault_remarks(scenario),
    )


def buffer_bytes(scenario: Scenario) -> int:
    """Memory of all messages in bytes: content at each host, slots, and copies for the checks."""
    flows = scenario.flows
    hosts = {host for src, dst, _ in flows for host in (src, dst)}
    return scenario.longest_bytes * (len(flows) * (scenario.depth + 2) + len(hosts))


def _transport_remarks(scenario: Scenario) -> Iterator[Remark]:
    match scenario.transport:
        case Mrc():
            yield from _ev_remarks(scenario, scenario.transport)
        case Roce() as transport:
            yield from _plane_remarks(scenario.topology, transport)
            yield from _convergence_remarks(scenario, transport.convergence)
        case Tcp() as transport:
            yield from _convergence_remarks(scenario, transport.convergence)


def _plane_remarks(topology: Topology, transport: Roce) -> Iterator[Remark]:
    planes, qps = topology.planes, transport.qps
    if planes == 1:
        return
    most = show_share(min(qps / planes, 1))
    yield Remark(
        "transport.kind",
        f"each of RoCE's QPs stays in one of {planes} planes: {qps} between two hosts reach "
        f"{most} of the hosts' rate at most. RoCE is used on one plane of the same rate, such as "
        "clos-1plane",
    )


def _convergence_remarks(scenario: Scenario, convergence_ns: int | None) -> Iterator[Remark]:
    if convergence_ns is None:
        return
    converged_ns = round(convergence_ns * scenario.topology.dilation)
    if converged_ns >= scenario.duration:
        here = f"{show_duration(convergence_ns)} is {show_duration(converged_ns)} here"
        what = f"{here}, longer than the run: routing never converges in it"
        yield Remark("transport.convergence", what)


def _ev_remarks(scenario: Scenario, transport: Mrc) -> Iterator[Remark]:
    topology = scenario.topology
    flows = scenario.flows
    flows_from = Counter(src for src, _, _ in flows)
    is_generated = isinstance(transport.ev_profile, AutoProfile)
    uneven, sharing, slow = "", [], []
    if not is_generated and (many := too_many_evs(scenario)):
        yield Remark("transport.ev_profile", f"{many}: whether some share a path is not said")
        return
    known: dict[int, tuple[int, int, int]] = {}
    wire_ns = topology.wire_bytes * 8 * NS_PER_S / (topology.planes * topology.port_rate_bps)
    shown, base_rtt_ns = cache(show_duration), topology.propagation_rtt_ns
    rack = cache(topology.rack_named)
    for src, dst, lane in flows:
        alike = rack(src) == rack(dst) if is_generated else len(known)
        if alike not in known:
            known[alike] = _evs_and_paths(scenario, transport, src, dst, lane)
        count, active, path_total = known[alike]
        if transport.evs not in (None, count):
            uneven = f"{count} EVs for {topology.planes} planes, not {transport.evs}"
        if count > path_total:
            sharing.append(f"{src} -> {dst} ({count} EVs, {path_total} paths)")
        rotation_ns = active * wire_ns * flows_from[src]
        if rotation_ns > base_rtt_ns:
            slow.append(f"{src} -> {dst} ({active} EVs in {shown(rotation_ns)})")
    if uneven:
        yield Remark("transport.evs", f"each plane gets the same number: {uneven}")
    if sharing:
        what = "each EV detects a failure by itself, so EVs that share a path slow detection"
        yield Remark("transport.evs", f"{what}: {few(sharing)}")
    if slow:
        base_rtt = show_duration(topology.propagation_rtt_ns)
        what = f"a rotation through the active EVs takes longer than a base RTT ({base_rtt})"
        yield Remark("transport.evs", f"{what}, so a dead path is detected later: {few(slow)}")


def _evs_and_paths(
    scenario: Scenario, transport: Mrc, src_name: str, dst_name: str, lane: int
) -> tuple[int, int, int]:
    """The number of a flow's EVs, of those that are active, and of the paths that they share.

    Of generated ones, all three are those of any other two hosts in one rack, or in two.
    """
    topology = scenario.topology
    src, dst = topology.host_named(src_name), topology.host_named(dst_name)
    if not isinstance(transport.ev_profile, AutoProfile):
        evs = transport.choose_evs(topology, src, dst, lane=lane, seed=scenario.seed)
        return len(evs), sum(ev.active for ev in evs), len({ev.path for ev in evs})
    count = ev_count(topology, src, dst, transport.evs)
    per_plane = count // topology.planes
    backups = backups_per_plane(topology, src, dst, per_plane, transport.backup_share)
    active = topology.planes * (per_plane - backups)
    return count, active, path_count(topology, src, dst)


def _workload_remarks(scenario: Scenario) -> Iterator[Remark]:
    for where, workload in scenario.workloads.items():
        if isinstance(workload, BackToBack):
            yield from _back_to_back_remarks(scenario, workload, where)
        if isinstance(workload, Graphed) and (passed := workload.graph.passed().total()):
            what = "messages within a node use no fabric, and take no time"
            yield Remark(where, f"{what}: {passed:,} of them")
        computed = workload.graph.computed if isinstance(workload, Chakra) else []
        if computed and not any(computed):
            what = f"all {len(computed):,} computations take no time: the traces have no"
            yield Remark(f"{where}.file", f"{what} duration_micros (num_ops is not read)")


def _back_to_back_remarks(scenario: Scenario, workload: BackToBack, where: str) -> Iterator[Remark]:
    topology = scenario.topology
    rate_bps = topology.planes * topology.port_rate_bps
    message_ns = workload.message_size * 8 * NS_PER_S / rate_bps
    if message_ns * MIN_MESSAGES > scenario.duration:
        yield Remark(
            f"{where}.message_size",
            f"{show_size(workload.message_size)} take {show_duration(message_ns)} at full rate: "
            f"fewer than {MIN_MESSAGES} messages complete in {show_duration(scenario.duration)}",
        )
    others_bytes = (workload.depth - 1) * workload.message_size
    bdp_bytes = topology.planes * topology.bdp_bytes
    if others_bytes < bdp_bytes:
        yield Remark(
            f"{where}.depth",
            f"while one message completes, the others outstanding have {show_size(others_bytes)}, "
            f"less than a host's bandwidth-delay product ({show_size(bdp_bytes)}): the workload "
            "limits goodput, not the fabric",
        )
    elif isinstance(scenario.transport, Mrc):
        needed_bytes = LOSS_RTTS * bdp_bytes / scenario.transport.qps
        if others_bytes < needed_bytes:
            yield Remark(
                f"{where}.depth",
                "a lost packet delays its message by a round trip, and all messages after it. "
                f"Meanwhile the other outstanding messages have {show_size(others_bytes)}, less "
                f"than is sent in {LOSS_RTTS:g} round trips ({show_size(needed_bytes)}). So each "
                "loss stops the sender for a while, whatever the fabric and the transport do",
            )


def _unfinished_remarks(scenario: Scenario) -> Iterator[Remark]:
    """Operations that the run is too short for, unless the scenario says how many finish."""
    for job, where in zip(scenario.job_list, scenario.workloads, strict=True):
        if scenario.expect.says_how_many_finish or job.expect.says_how_many_finish:
            continue
        if isinstance(job.workload, Graphed):
            found = [*_unfinished_operations(scenario, job.workload, job.start, where)]
            if isinstance(job.workload, Connections):
                found = [*_unfinished_transfers(scenario, job.workload, job.start, where)] or found
            yield from found
        elif isinstance(job.workload, Collective):
            yield from _unfinished_rounds(scenario, job.workload, job.start, where)


def _unfinished_transfers(
    scenario: Scenario, workload: Connections, begin_ns: int, where: str
) -> Iterator[Remark]:
    topology, duration = scenario.topology, scenario.duration
    bytes_per_ns = topology.planes * topology.port_rate_bps / 8 / NS_PER_S
    starts = [(begin_ns + each.start_ns(topology), each) for each in workload.matrix]
    late = [(start_ns, each) for start_ns, each in starts if start_ns >= duration]
    most_posted = workload.depth * PIECE * scenario.transport.qps  # at the end; they still arrive
    long = [
        (start_ns, each)
        for start_ns, each in starts
        if start_ns < duration and (each.size - most_posted) / bytes_per_ns > duration - start_ns
    ]
    count = len(starts)
    if late:
        start_ns, first = min(late, key=lambda item: item[0])
        yield Remark(
            f"{where}.matrix",
            f"{len(late)} of {count} transfers begin when the run is over and are never sent, "
            f"the first {first.src} to {first.dst} at {show_duration(first.start)} (real), "
            f"which is {show_duration(start_ns)} here; the run ends at "
            f"{show_duration(duration)}",
        )
    if long:
        start_ns, first = long[0]
        yield Remark(
            f"{where}.matrix",
            f"{len(long)} of {count} transfers cannot end before the run does, even at full "
            f"rate, the first {first.src} to {first.dst}: {show_size(first.size)} take "
            f"{show_duration(first.size / bytes_per_ns)} from {show_duration(start_ns)} on; "
            f"the run ends at {show_duration(duration)}",
        )


def _unfinished_operations(
    scenario: Scenario, workload: Graphed, begin_ns: int, where: str
) -> Iterator[Remark]:
    """The host that has most to do one after another, where that is more than the run is long."""
    topology, left_ns = scenario.topology, scenario.duration - begin_ns
    bytes_per_ns = topology.planes * topology.port_rate_bps / 8 / NS_PER_S
    most_posted = workload.depth * PIECE * scenario.transport.qps  # to each peer, as above
    peers = Counter(src for src, _ in workload.pairs)
    sent, computed = workload.graph.busy()
    sends_ns = {
        host: (size - most_posted * peers[host]) / bytes_per_ns for host, size in sent.items()
    }
    computes_ns = {
        host: amount * workload.unit_ns * topology.dilation for host, amount in computed.items()
    }
    file = "matrix" if isinstance(workload, Connections) else "file"
    for what, of_hosts in (("sends", sends_ns), ("computes", computes_ns)):
        took_ns, host = max(((ns, host) for host, ns in of_hosts.items()), default=(0.0, ""))
        if took_ns > left_ns:
            yield Remark(
                f"{where}.{file}",
                f"not all can finish: what {host} {what} takes {show_duration(took_ns)} or more, "
                f"longer than the run ({show_duration(left_ns)})",
            )


def _unfinished_rounds(
    scenario: Scenario, workload: Collective, begin_ns: int, where: str
) -> Iterator[Remark]:
    topology, left_ns = scenario.topology, scenario.duration - begin_ns
    bytes_per_ns = topology.planes * topology.port_rate_bps / 8 / NS_PER_S
    shortest_ns = workload.outgoing_bytes(topology, scenario.transport.qps) / bytes_per_ns
    shortest_ns += workload.compute if isinstance(workload, Training) else 0
    if shortest_ns > left_ns:
        yield Remark(
            where,
            f"one {workload.operation} takes {show_duration(shortest_ns)} or more, longer than "
            f"the run ({show_duration(left_ns)}): none can finish",
        )


def _duration_remarks(scenario: Scenario) -> Iterator[Remark]:
    rtts = scenario.duration / scenario.topology.propagation_rtt_ns
    if rtts < MANY_RTTS:
        return
    emulated = show_wait(scenario.duration / NS_PER_S)
    simulated = show_wait(packet_hops(scenario) / SIMULATED_HOPS_PER_S)
    yield Remark(
        "duration",
        f"{exact_duration(scenario.duration)} are {rtts:,.0f} round trips: an emulated run takes "
        f"{emulated}, a simulated one up to about {simulated}. A time in seconds lasts as long at "
        "every dilation; a time in RTT, such as 80 RTT, has as many round trips at every dilation",
    )


def _job_problems(jobs: tuple[Job, ...], duration_ns: int) -> Iterator[Problem]:
    """Jobs of one name, and those that begin when the run is over."""
    first: dict[str, int] = {}
    for i, job in enumerate(jobs):
        if job.name in first:
            expected = f"each name once (the first is jobs[{first[job.name]}])"
            yield Problem(f"jobs[{i}].name", f"{job.name} a second time", expected)
        first.setdefault(job.name, i)
        if job.start >= duration_ns:
            expected = f"a time before the run ends at {exact_duration(duration_ns)}"
            yield Problem(f"jobs[{i}].start", exact_duration(job.start), expected)


_WITH_OPERATIONS = (*get_args(Collective), Graphed, Program)

_HAVE_OPERATIONS = "collectives, training, and workloads of files have operations"

_NONE = "no such key"
_SHOWN = 12
"""Metrics that a message about an unknown one names."""


def expectation_problems(scenario: Scenario) -> Iterator[Problem]:
    """Bounds for metrics that no summary has, or not the summary of such a run."""
    expect = scenario.expect
    if expect.clustermapper and scenario.clustermapper is None:
        found = "metrics of the Clustermapper, which does not run"
        yield Problem("expect.clustermapper", found, _NONE, "clustermapper: {} starts it")
    if expect.victim and victim_of(scenario) is None:
        found = "metrics of a victim, which the workload does not have"
        remedy = "an incast has one: workload: {kind: incast, victim: [h4, h1], ...}"
        yield Problem("expect.victim", found, _NONE, remedy)
    kinds = [workload.kind for workload in scenario.workloads.values()]
    has_any = any(isinstance(each, _WITH_OPERATIONS) for each in scenario.workloads.values())
    if expect.operations and not has_any:
        found = f"metrics of operations, which the workload {few(kinds)} does not have"
        yield Problem("expect.operations", found, _NONE, _HAVE_OPERATIONS)
    if expect.jobs and not scenario.jobs:
        found = "metrics of jobs, where there is a single workload"
        yield Problem("expect.jobs", found, _NONE, "make it one of jobs")
    if expect.nodes and scenario.topology.nics_per_node == 1:
        found = "metrics of nodes, each of which has one NIC"
        yield Problem("expect.nodes", found, _NONE, "topology.nics_per_node, or expect.flows")
    for key in SCOPES:
        yield from _unknown_metrics(f"expect.{key}", key, getattr(expect, key))
    for i, job in enumerate(scenario.jobs):
        where = f"jobs[{i}].expect"
        if job.expect.operations and not isinstance(job.workload, _WITH_OPERATIONS):
            found = f"metrics of operations, which the workload {job.workload.kind} does not have"
            yield Problem(f"{where}.operations", found, _NONE, _HAVE_OPERATIONS)
        for key, scope in JOB_SCOPES.items():
            yield from _unknown_metrics(f"{where}.{key}", scope, getattr(job.expect, key))


def _unknown_metrics(where: str, scope: str, bounds: Iterable[str]) -> Iterator[Problem]:
    problems = (unknown_metric(f"{where}.{name}", scope, name) for name in bounds)
    yield from filter(None, problems)


def unknown_metric(where: str, scope: str, name: str) -> Problem | None:
    """What is wrong with the name of a metric at a place; None if the scope has the metric."""
    names = list(SCOPES[scope].quantities)
    if name in names:
        return None
    expected, remedy = _existing(name, names)
    elsewhere = _in_other_scope(scope, name)
    return Problem(where, f"the unknown metric {name}", expected, elsewhere or remedy)


def _in_other_scope(key: str, name: str) -> str:
    """Where a metric stands that has these words, in any order; empty if nowhere else."""
    words = sorted(name.split("_"))
    for other, scope in SCOPES.items():
        for metric in scope.quantities:
            if other != key and sorted(metric.split("_")) == words:
                return f"did you mean {other}.{metric}?"
    return ""


def _existing(name: str, names: Sequence[str]) -> tuple[str, str]:
    """What is expected in place of an unknown metric, and the metrics that may be meant."""
    forms = [existing for existing in names if existing.startswith(f"{name}_")]
    remedy = f"did you mean {' or '.join(forms)}?" if forms else did_you_mean(name, names)
    shown = names[:_SHOWN]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"one of {', '.join(shown)}{more} (docs/metrics.md)", remedy


def victim_of(scenario: Scenario) -> tuple[str, str] | None:
    """Source and destination of the flow beside an incast; None if there is none."""
    victims = (each.victim for each in scenario.workloads.values() if isinstance(each, Incast))
    return next(filter(None, victims), None)
