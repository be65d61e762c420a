"""Whether a run can be trusted: trusted, degraded or invalid, with the reasons in plain words.

Degraded: the figures are usable, with the reason in mind. Invalid: the machine may have caused what
was measured, and not the protocol.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import polars as pl

from testbed.model.fabric.names import link_of
from testbed.model.faults.record import OPENFLOW
from testbed.model.faults.schedule import CONTROLLER
from testbed.model.run_files.content import HealthSample, mean_busy, mean_stolen
from testbed.model.scenario import Job
from testbed.model.summary import FlowSummary, Integrity, State
from testbed.model.summary.unit import SECONDS
from testbed.model.units import NS_PER_S, show_duration, show_number, show_share
from testbed.model.workload import Graphed, Program
from testbed.results.analysis.lateness import (
    Level,
    Reason,
    Reasons,
    costly_watching,
    degraded,
    graded,
    late_loops,
    late_timers,
)
from testbed.results.records import ARRIVALS, LINKS, OPERATIONS, TRANSMISSIONS
from testbed.results.run_data import RunData

CPU_DEGRADED = 0.85
CPU_INVALID = 0.97
"""Busy share of all CPUs over the run: above it queues form in the machine, not in the fabric."""

COST_OUTDATED = 1.3
"""If a packet took this many times the CPU time that was measured on this machine, the measurement
is outdated."""

COST_MIN_SHARE = 0.2
"""Share of the CPUs that the endpoints' packets should take for their cost to be judged: with fewer
packets most of the cost are idle wake-ups, which the measurement under load does not have."""

ONE_CPU_DEGRADED = 0.95
"""Busy share of a single CPU over the run: receive work is pinned, so its links wait for it."""

STOLEN_MENTIONED = 0.005
"""Stolen share of the CPUs' time that is mentioned as the likely cause of other reasons."""

RATE_EXCEEDED_DEGRADED = 0.01
"""A link direction carried more than its rate by this share, over the run: HTB does not pace."""

RATE_MISSED_DEGRADED = 0.03
"""A link direction that was never idle carried less than its rate by this share: the kernel woke up
too late to pace it."""

WAITING_SAMPLES = 8
WAITING_BDP = 0.25
"""A link was never idle if this many samples in a row found a queue of at least this length."""

CORE_DEGRADED = 0.90
"""CPU share of one endpoint process, which can use one core: close to 1 it is the bottleneck."""

DROPS_INVALID = 1e-3
"""Share of the sent packets that the machine lost: above it a run is invalid, above 0 degraded."""

REORDERED_DEGRADED = 2e-3
REORDERED_INVALID = 2e-2
"""Packets overtaken on their own path, as a share of those that arrived. Linux itself reorders a
few in ten thousand where several CPUs receive."""

UNCERTAIN_DEGRADED_RTT = 0.05
"""Length of the interval in which a fault took effect: its times are too short by up to this."""

EARLY_END_RTTS = 2.0
"""A run ended early if nothing arrived in this many RTTs before its planned end without a fault."""

NOTHING_FINISHED = "no operation of the workload was finished"
"""The transport was so slow that no operation was finished."""

NOT_DELIVERED = "payload was still under way when the run stopped waiting for it"
"""Nothing was lost, but a sender's timeout is longer than the run waits."""

FINDINGS = frozenset({NOTHING_FINISHED, NOT_DELIVERED})
"""Reasons that show what a transport does, if the machine itself was never late."""


_STATES: dict[Level, State] = dict(zip(Level, get_args(State), strict=True))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state, and a sentence for each reason that it is not trusted, the worst first."""

    state: State
    reasons: tuple[str, ...]


def judge(
    data: RunData,
    flows: Sequence[FlowSummary],
    integrity: Integrity,
    contradictions: Iterable[Reason] = (),
) -> Verdict:
    """Judge a run by its records, its flows' metrics, its payload, and contradicting metrics."""
    sent = sum(flow.packets_sent for flow in flows)
    during, base_rtt_ns = data.health_during, data.run.base_rtt_ns
    reasons = [
        *(late_loops(during, data.faults, base_rtt_ns) if _has_loops(data) else ()),
        *_busy_cpus(during),
        *_busy_processes(during),
        *costly_watching(during),
        *_outdated_cost(data, during),
        *late_timers(during, base_rtt_ns),
        *_missing_link_model(data),
        *_wrong_rates(data),
        *_machine_drops(data.health, sent),
        *_open_accounts(data, sent),
        *_reordering(data, flows),
        *_failed_faults(data),
        *_uncertain_faults(data),
        *_missing_faults(data),
        *_damaged_payload(integrity),
        *_early_end(data),
        *contradictions,
    ]
    reasons.sort(key=lambda reason: -reason[0])
    level = max((level for level, _ in reasons), default=Level.TRUSTED)
    sentences = [sentence for _, sentence in reasons]
    machine_at_fault = not FINDINGS.issuperset(sentences)
    stolen = _stolen_time(during) if machine_at_fault else ()
    return Verdict(_STATES[level], (*sentences, *stolen))


def _has_loops(data: RunData) -> bool:
    """Whether event loops carried anything: not in virtual time, nor where no program sent."""
    return (data.paced or not data.simulated) and bool(data.run.flows)


# --- the machine ------------------------------------------------------------------------------


def _busy_cpus(samples: Sequence[HealthSample]) -> Reasons:
    mean = mean_busy(samples) or 0.0
    sentence = (
        f"the CPUs were {show_share(mean)} busy; up to {show_share(CPU_DEGRADED)} leaves headroom"
    )
    yield from graded(sentence, mean, CPU_DEGRADED, CPU_INVALID)
    for name in sorted({name for sample in samples for name in sample.cores}):
        sampled = [(s.cores[name], s.interval_ns) for s in samples if name in s.cores]
        busy_ns = sum(share * interval_ns for share, interval_ns in sampled)
        mean = busy_ns / sum(interval_ns for _, interval_ns in sampled)
        if mean > ONE_CPU_DEGRADED:
            yield degraded(
                f"{name} alone was {show_share(mean)} busy; above "
                f"{show_share(ONE_CPU_DEGRADED)} the links whose packets it receives wait for it"
            )


def _core_shares(samples: Sequence[HealthSample]) -> dict[str, float]:
    """The share of a core that each process used over its samples."""
    used_ns, lasted_ns = Counter[str](), Counter[str]()
    for sample in samples:
        if sample.cpu_ns is not None:
            used_ns[sample.process] += sample.cpu_ns
            lasted_ns[sample.process] += sample.interval_ns
    return {process: used_ns[process] / lasted_ns[process] for process in used_ns}


def _busy_processes(samples: Sequence[HealthSample]) -> Reasons:
    loops = {sample.process for sample in samples if sample.lag_p99_ns is not None}
    for process, share in sorted(_core_shares(samples).items()):
        if process in loops and share > CORE_DEGRADED:
            yield degraded(
                f"{process} used {show_share(share)} of a core; above "
                f"{show_share(CORE_DEGRADED)} it may be the bottleneck instead of the fabric"
            )


def _stolen_time(samples: Sequence[HealthSample]) -> Iterator[str]:
    """A hint that the host of a virtual machine was busy; no reason, as it may do no harm."""
    stolen = mean_stolen(samples)
    if stolen is not None and stolen > STOLEN_MENTIONED:
        yield (
            f"the host of this virtual machine gave {show_share(stolen)} of its CPUs' time to "
            "others (steal), which delays everything: try again when it is less busy, or elsewhere"
        )


def _outdated_cost(data: RunData, samples: Sequence[HealthSample]) -> Reasons:
    """If the CPUs were too busy: whether a packet cost more than when the machine was measured.

    The cost is the CPU time of all endpoints over the data packets sent between start and planned
    end, in ns. The measured cost is `endpoint_ns` of the manifest's capacity.
    """
    capacity = data.manifest.capacity
    sent_t = data.tables[TRANSMISSIONS]["t"]
    packets_per_s = int(sent_t.is_between(0, data.run.duration_s).sum()) / data.run.duration_s
    if capacity is None or not packets_per_s or (mean_busy(samples) or 0.0) <= CPU_DEGRADED:
        return
    shares = _core_shares(samples)
    cost_ns = NS_PER_S / packets_per_s * sum(shares.get(name, 0.0) for name in data.topology.nodes)
    times = cost_ns / capacity.endpoint_ns
    expected_share = packets_per_s * capacity.endpoint_ns / NS_PER_S / capacity.cpus
    if times > COST_OUTDATED and expected_share >= COST_MIN_SHARE:
        yield degraded(
            f"a packet took {show_duration(cost_ns)} of the endpoints' CPU time, "
            f"{show_number(times)} times what was measured on this machine: "
            "testbed doctor --measure measures again"
        )


def _machine_drops(samples: Sequence[HealthSample], packets_sent: int) -> Reasons:
    """Packets that the kernel dropped beside the fabric's queues; the counters are cumulative."""
    counters: Counter[tuple[str, str]] = Counter()
    for sample in samples:
        for name, count in sample.drops.items():
            counters[sample.process, name] = max(counters[sample.process, name], count)
    for (process, name), dropped in sorted(counters.items()):
        share = dropped / packets_sent if packets_sent else float(dropped > 0)
        packets = f"{dropped} packets that no fault explains ({show_share(share)} of those sent)"
        yield from graded(f"{name} of {process} dropped {packets}", share, 0, DROPS_INVALID)


# --- links ------------------------------------------------------------------------------------


def _missing_link_model(data: RunData) -> Reasons:
    missing = data.run.link_model_missing
    if missing is not None:
        yield degraded(
            f"no link model ({missing.what}): links had a rate and dropped the tail of a full "
            f"queue; no ECN, no trimming, no priority. Remedy: {missing.remedy}"
        )


def _wrong_rates(data: RunData) -> Reasons:
    """Links that were faster than their rate, or slower although packets were waiting.

    Simulated links keep their rate. Their bytes are counted a hop's delay after they have waited,
    so that a link which has just become busy seems slow.
    """
    if data.simulated:
        return
    links = data.tables[LINKS].sort("t")
    fastest, slowest = (0.0, ""), (1.0, "")
    for (name, direction), samples in links.group_by("link", "direction"):
        link = data.topology.links[str(name)]
        rate_bps = data.topology.rate_bps(link)
        fastest = max(fastest, (_carried_bps(samples) / rate_bps, str(direction)))
        waiting = WAITING_BDP * data.topology.link_bdp_bytes(link)
        for busy in _busy_stretches(samples, waiting, data.fault_times_s):
            slowest = min(slowest, (_carried_bps(busy) / rate_bps, str(direction)))
    share, direction = fastest
    if share > 1 + RATE_EXCEEDED_DEGRADED:
        yield degraded(
            f"{direction} carried {show_share(share)} of its rate: the kernel did not pace it"
        )
    share, direction = slowest
    if share < 1 - RATE_MISSED_DEGRADED:
        yield degraded(
            f"{direction} carried {show_share(share)} of its rate while packets were waiting: "
            "sent too late"
        )


def _carried_bps(samples: pl.DataFrame) -> float:
    """What a direction carried from the first to the last sample."""
    seconds = samples["t"][-1] - samples["t"][0]
    return float((samples["bytes"][-1] - samples["bytes"][0]) * 8 / seconds) if seconds else 0.0


def _busy_stretches(
    samples: pl.DataFrame, waiting_bytes: float, fault_times_s: Sequence[tuple[float, float]]
) -> Iterator[pl.DataFrame]:
    """Consecutive samples of a direction whose backlog was never short, with no fault in force.

    Args:
        samples: the direction's rows of `links`, in order of time.
        waiting_bytes: the least backlog.
        fault_times_s: when each fault began and ended, in seconds of the run.
    """
    t, backlog = samples["t"].to_numpy(), samples["backlog_bytes"].to_numpy()
    begun = np.searchsorted(sorted(begin for begin, _ in fault_times_s), t, side="right")
    ended = np.searchsorted(sorted(end for _, end in fault_times_s), t, side="left")
    marked = samples.with_columns(pl.Series("waits", (backlog >= waiting_bytes) & (begun <= ended)))
    stretches = marked.with_columns(stretch=pl.col("waits").rle_id()).filter("waits")
    for _, stretch in stretches.group_by("stretch"):
        if stretch.height >= WAITING_SAMPLES:
            yield stretch


def _open_accounts(data: RunData, packets_sent: int) -> Reasons:
    """Link directions whose packets neither arrived nor were dropped for a known cause.

    Not judged are links on which others drop uncounted: Open vSwitch's flows, and the kernel at a
    port without carrier.
    """
    if data.simulated:
        return
    uncounted = {
        link_of(place)
        for fault in data.faults
        if fault.actuator == OPENFLOW or any(step.impairment.cut for step in fault.steps)
        for place in fault.places
    }
    gaps = {
        name: abs(counts.offered - counts.packets - counts.dropped)
        for name, counts in data.run.links.items()
        if link_of(name) not in uncounted
    }
    missing = sum(gaps.values())
    if missing:
        worst = max(gaps, key=lambda name: gaps[name])
        counts, share = data.run.links[worst], missing / max(packets_sent, 1)
        yield from graded(
            f"{missing} packets are unaccounted for ({show_share(share)} of those sent): "
            f"of {counts.offered} sent into {worst}, {counts.packets} arrived and "
            f"{counts.dropped} were dropped for a known cause",
            share,
            0,
            DROPS_INVALID,
        )


def _reordering(data: RunData, flows: Sequence[FlowSummary]) -> Reasons:
    arrivals = data.tables[ARRIVALS].height
    reordered = sum(flow.packets_reordered for flow in flows)
    share = reordered / max(arrivals, 1)
    yield from graded(
        f"{reordered} of {arrivals} packets were overtaken on their own path "
        f"({show_share(share)}): the machine, not the spraying, reordered them",
        share,
        REORDERED_DEGRADED,
        REORDERED_INVALID,
    )


# --- faults -----------------------------------------------------------------------------------


def _failed_faults(data: RunData) -> Reasons:
    for fault in data.faults:
        if fault.effective_ns is None:
            why = f": {fault.error}" if fault.error else ""
            name = f"fault {fault.index} ({fault.kind} of {fault.target})"
            yield Level.INVALID, f"{name} never took effect{why}"
        elif fault.error is not None:
            yield Level.INVALID, f"fault {fault.index} did not go as requested: {fault.error}"


def _uncertain_faults(data: RunData) -> Reasons:
    """Faults that took effect in a long interval; a controller's end affects no flow's times."""
    intervals = {
        fault.index: (fault.uncertainty_ns or 0) / data.run.base_rtt_ns
        for fault in data.faults
        if CONTROLLER not in fault.places
    }
    uncertain = {i: rtts for i, rtts in intervals.items() if rtts > UNCERTAIN_DEGRADED_RTT}
    if uncertain:
        worst, rtts = max(uncertain.items(), key=lambda item: item[1])
        sentence = (
            f"when fault {worst} took effect is known to {show_share(rtts)} of a base RTT only"
        )
        if others := len(uncertain) - 1:
            sentence += f", of {others} more to no better than {show_share(UNCERTAIN_DEGRADED_RTT)}"
        yield degraded(sentence)


def _missing_faults(data: RunData) -> Reasons:
    planned = {fault.index for fault in data.scenario.scheduled_faults}
    missing = len(planned - {fault.index for fault in data.faults})
    if missing:
        sentence = f"{missing} faults of the timeline were not injected"
        if any(CONTROLLER in fault.places for fault in data.faults):
            yield degraded(f"{sentence}: the controller had been killed")
        else:
            yield Level.INVALID, sentence


# --- the workload -----------------------------------------------------------------------------


def _damaged_payload(integrity: Integrity) -> Reasons:
    lost = integrity.bytes_lost - integrity.bytes_under_way
    if lost or integrity.bytes_corrupted:
        damage = f"{lost} bytes lost, {integrity.bytes_corrupted} corrupted"
        yield Level.INVALID, f"data did not arrive as sent: {damage}"
    elif integrity.bytes_under_way:
        yield Level.INVALID, NOT_DELIVERED


def _early_end(data: RunData) -> Reasons:
    """Whether the workload ended long before its planned end without a fault in force.

    Programs send when they like, or not at all. Transfers without end are no operations: if there
    are no others, the workload is as one of WRITEs back to back.
    """
    arrivals = data.tables[ARRIVALS]
    for job, flows in zip(data.scenario.job_list, data.flows_of_jobs, strict=True):
        if isinstance(job.workload, Program):
            continue
        of_job = arrivals
        if data.scenario.jobs:
            of_job = arrivals.filter(pl.col("flow").is_in([*(flows or ())]))
        for level, sentence in _early_end_of(data, job, of_job):
            yield level, f"job {job.name}: {sentence}" if job.name else sentence


def _early_end_of(data: RunData, job: Job, arrivals: pl.DataFrame) -> Reasons:
    workload = job.workload
    has_operations = workload.operation is not None
    if isinstance(workload, Graphed):
        has_operations = bool(workload.planned)
    last = arrivals["t"].max()
    if not isinstance(last, float):
        yield Level.INVALID, "no data arrived"
    elif has_operations:
        names = workload.planned if isinstance(workload, Graphed) else [str(workload.operation)]
        kinds = [job.label(name) for name in names]
        if not data.tables[OPERATIONS]["kind"].is_in(kinds).any():
            yield Level.INVALID, NOTHING_FINISHED
    else:
        early_s, duration_s = data.run.duration_s - last, data.run.duration_s
        in_force = any(f.effective_ns is not None and f.healed_ns is None for f in data.faults)
        if early_s > EARLY_END_RTTS * data.base_rtt_s and not in_force:
            ended = f"{SECONDS.show(early_s)} before the planned end of {SECONDS.show(duration_s)}"
            yield Level.INVALID, f"the last data arrived {ended}"
