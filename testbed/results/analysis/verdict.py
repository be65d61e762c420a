"""Whether a run can be trusted: trusted, degraded or invalid, with the reasons in plain words.

Degraded: the figures are usable, with the reason in mind. Invalid: what was measured may be the
machine's doing and not the protocol's.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from testbed.model.fabric.names import link_of
from testbed.model.faults.record import OPENFLOW
from testbed.model.faults.targets import CONTROLLER
from testbed.model.run_files.health import HealthSample, mean_busy, mean_stolen
from testbed.model.summary import FlowSummary, Integrity, State
from testbed.model.units import NS_PER_S
from testbed.results.analysis.grades import Found, Level, grade
from testbed.results.analysis.lateness import late_loops, late_timers
from testbed.results.run_data import RunData

CPU_DEGRADED = 0.85
CPU_INVALID = 0.97
"""Busy share of all CPUs over the run: above it queues form in the machine, not in the fabric."""

COST_OUTDATED = 1.3
"""So much more CPU time of endpoints for a packet than was measured of this machine, on busy CPUs:
what was measured no longer holds."""

COST_TELLS = 0.2
"""Share of the CPUs that the packets' ends should have taken: of fewer packets most of the cost is
waking up for nothing, which says nothing about what was measured under load."""

ONE_CPU_DEGRADED = 0.95
"""Busy share of a single CPU over the run: receive work is pinned, so its links wait for it."""

STOLEN_TOLD = 0.005
"""Share of the CPUs' time that is named as the likely cause of whatever else was found."""

RATE_EXCEEDED_DEGRADED = 0.01
"""A link direction carried more than its rate by this share, over the run: HTB does not pace."""

RATE_MISSED_DEGRADED = 0.03
"""A link direction with packets waiting whenever it was looked at carried less than its rate, by
this share: the kernel woke up too late to pace it."""

WAITING_SAMPLES = 8
WAITING_BDP = 0.25
"""So many looks in a row at a queue at least so long are taken for a link that was never idle."""

CORE_DEGRADED = 0.90
"""CPU share of one endpoint process, which can use one core: close to 1 it is the bottleneck."""

DROPS_INVALID = 1e-3
"""Packets that the machine lost, as a share of those sent: any is degraded, so many invalid."""

REORDERED_DEGRADED = 2e-3
REORDERED_INVALID = 2e-2
"""Packets overtaken on their own path, as a share of those that arrived. Linux itself reorders a
few in ten thousand where several CPUs receive."""

UNSURE_DEGRADED_RTT = 0.05
"""When a fault took effect is known no better than this: its times are wrong by up to as much."""

EARLY_END_RTTS = 2.0
"""Nothing arrived in so many RTTs before the planned end, and nothing failed: it ended early."""

NOTHING_FINISHED = "no operation of the workload was finished"
"""A reason that is a finding where a transport is to be shown unusable."""

NOT_DELIVERED = "payload was still under way when the run stopped waiting for it"
"""Another one: nothing was lost for good, but its sender waits for longer than the run."""

FINDINGS = frozenset({NOTHING_FINISHED, NOT_DELIVERED})
"""What a transport may be found to do on a machine that was never late."""


_STATES: dict[Level, State] = {
    Level.TRUSTED: "trusted",
    Level.DEGRADED: "degraded",
    Level.INVALID: "invalid",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state, and a sentence for each reason that it is not trusted, the worst first."""

    state: State
    reasons: tuple[str, ...]


def judge(data: RunData, flows: Sequence[FlowSummary], integrity: Integrity) -> Verdict:
    """Judge a run."""
    sent = sum(flow.packets_sent for flow in flows)
    during, base_rtt_ns = data.health_during, data.run.base_rtt_ns
    found = [
        *(() if data.simulated else late_loops(during, data.faults, base_rtt_ns)),
        *_cpu(during),
        *_cost(data, during),
        *late_timers(during, base_rtt_ns),
        *_link_model(data),
        *_rates(data),
        *_drops(data.health, sent),
        *_accounts(data, sent),
        *_reordering(data, flows),
        *_faults(data),
        *_course(data, integrity),
    ]
    found.sort(key=lambda one: -one[0])
    level = max((level for level, _ in found), default=Level.TRUSTED)
    reasons = [reason for _, reason in found]
    late = not FINDINGS.issuperset(reasons)
    return Verdict(_STATES[level], (*reasons, *(_stolen(during) if late else ())))


def _cpu(samples: Sequence[HealthSample]) -> Found:
    mean = mean_busy(samples)
    if mean is not None:
        level = grade(mean, CPU_DEGRADED, CPU_INVALID)
        if level:
            yield level, f"the CPUs were {mean:.0%} busy; up to {CPU_DEGRADED:.0%} leaves headroom"
    for name in sorted({name for sample in samples for name in sample.cores}):
        known = [(s.cores[name], s.interval_ns) for s in samples if name in s.cores]
        mean = sum(share * weight for share, weight in known) / sum(weight for _, weight in known)
        if mean > ONE_CPU_DEGRADED:
            yield (
                Level.DEGRADED,
                (
                    f"{name} alone was {mean:.0%} busy; above {ONE_CPU_DEGRADED:.0%} the links "
                    "whose receive work it does wait for it"
                ),
            )
    used: dict[str, list[HealthSample]] = {}
    for sample in samples:
        if sample.cpu_ns is not None:
            used.setdefault(sample.process, []).append(sample)
    for process, own in sorted(used.items()):
        share = sum(s.cpu_ns or 0 for s in own) / sum(s.interval_ns for s in own)
        if own[0].lag_p99_ns is not None and share > CORE_DEGRADED:
            yield (
                Level.DEGRADED,
                (
                    f"{process} used {share:.0%} of a core; above {CORE_DEGRADED:.0%} it may be "
                    "the bottleneck instead of the fabric"
                ),
            )


def _stolen(samples: Sequence[HealthSample]) -> Iterator[str]:
    """What a virtual machine's host took from it; no reason by itself: it may have done no harm."""
    stolen = mean_stolen(samples)
    if stolen is not None and stolen > STOLEN_TOLD:
        yield (
            f"the machine under this virtual one gave {stolen:.1%} of its CPUs' time to others "
            "(steal), which holds up everything: try when it is calm, or on another"
        )


def _cost(data: RunData, samples: Sequence[HealthSample]) -> Found:
    """Where the CPUs were too busy: did a packet cost more than the dilation was chosen for?

    Of the packets sent in the time that the samples are of: not before it, nor while it drained.
    """
    measured = data.manifest.capacity
    mean = mean_busy(samples)
    sent_t = data.tables["transmissions"]["t"]
    packets = int(sent_t.is_between(0, data.run.duration_s).sum())
    if not measured or not packets or mean is None or mean <= CPU_DEGRADED:
        return
    hosts: dict[str, list[HealthSample]] = {}
    for sample in samples:
        if sample.cpu_ns is not None and sample.process in data.topology.nodes:
            hosts.setdefault(sample.process, []).append(sample)
    cores = sum(
        sum(s.cpu_ns or 0 for s in own) / sum(s.interval_ns for s in own) for own in hosts.values()
    )
    packets_per_s = packets / data.run.duration_s
    cost_ns = cores * NS_PER_S / packets_per_s
    share = cost_ns / measured["endpoint_ns"]
    expected = packets_per_s * measured["endpoint_ns"] / NS_PER_S / measured["cpus"]
    if share > COST_OUTDATED and expected >= COST_TELLS:
        yield (
            Level.DEGRADED,
            (
                f"a packet took {cost_ns / 1e3:.0f} us of the endpoints' CPU time, {share:.1f} "
                "times what was measured of this machine: testbed doctor --measure measures again"
            ),
        )


def _link_model(data: RunData) -> Found:
    missing = data.run.link_model_missing
    if missing is not None:
        yield (
            Level.DEGRADED,
            (
                f"no link model ({missing.what}): links had a rate and dropped the tail of a full "
                f"queue; no ECN, no trimming, no priority. Remedy: {missing.remedy}"
            ),
        )


def _rates(data: RunData) -> Found:
    """Look for links that were faster than they should be, or slower with packets waiting.

    In the simulator none can be. There bytes are counted a hop's delay after they have waited, so
    that a link which has just become busy seems slow.
    """
    if data.simulated:
        return
    links = data.tables["links"].sort("t")
    fastest, slowest = (0.0, ""), (1.0, "")
    for (name, direction), samples in links.group_by("link", "direction"):
        link = data.topology.links[str(name)]
        rate_bps = data.topology.rate_bps(link)
        fastest = max(fastest, (_carried_bps(samples) / rate_bps, str(direction)))
        waiting = WAITING_BDP * data.topology.link_bdp_bytes(link)
        for busy in _stretches(samples, waiting, data.struck):
            slowest = min(slowest, (_carried_bps(busy) / rate_bps, str(direction)))
    share, where = fastest
    if share > 1 + RATE_EXCEEDED_DEGRADED:
        yield (
            Level.DEGRADED,
            f"{where} carried {share:.1%} of its rate: the kernel did not pace it",
        )
    share, where = slowest
    if share < 1 - RATE_MISSED_DEGRADED:
        yield (
            Level.DEGRADED,
            f"{where} carried {share:.1%} of its rate while packets were waiting: sent too late",
        )


def _carried_bps(samples: pl.DataFrame) -> float:
    """What a direction carried from the first to the last sample."""
    seconds = samples["t"][-1] - samples["t"][0]
    return float((samples["bytes"][-1] - samples["bytes"][0]) * 8 / seconds) if seconds else 0.0


def _stretches(
    samples: pl.DataFrame, waiting_bytes: float, struck: Sequence[tuple[float, float]]
) -> Iterator[pl.DataFrame]:
    """Samples in a row, while no fault was in force, with so much waiting in each."""
    t, backlog = samples["t"].to_numpy(), samples["backlog_bytes"].to_numpy()
    begun = np.searchsorted(sorted(begin for begin, _ in struck), t, side="right")
    ended = np.searchsorted(sorted(end for _, end in struck), t, side="left")
    marked = samples.with_columns(pl.Series("waits", (backlog >= waiting_bytes) & (begun <= ended)))
    runs = marked.with_columns(run=pl.col("waits").rle_id()).filter("waits")
    for _, run in runs.group_by("run"):
        if run.height >= WAITING_SAMPLES:
            yield run


def _drops(samples: Sequence[HealthSample], packets_sent: int) -> Found:
    counters: Counter[tuple[str, str]] = Counter()
    for sample in samples:
        for name, count in sample.drops.items():
            counters[sample.process, name] = max(counters[sample.process, name], count)
    for (process, name), dropped in sorted(counters.items()):
        if dropped > 0:
            share = dropped / packets_sent if packets_sent else 1.0
            yield (
                Level.INVALID if share > DROPS_INVALID else Level.DEGRADED,
                (
                    f"{name} of {process} dropped {dropped} packets that no fault explains "
                    f"({share:.2%} of those sent)"
                ),
            )


def _accounts(data: RunData, packets_sent: int) -> Found:
    """Whether of each link direction what was sent into it arrived or was dropped for a cause.

    Not of links whose faults leave the count to others: OpenFlow's flows, and the kernel at a port
    that has lost its carrier.
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
        name: abs(account.offered - account.packets - account.dropped)
        for name, account in data.run.links.items()
        if link_of(name) not in uncounted
    }
    missing = sum(gaps.values())
    if missing:
        worst = max(gaps, key=lambda name: gaps[name])
        account, share = data.run.links[worst], missing / max(packets_sent, 1)
        yield (
            Level.INVALID if share > DROPS_INVALID else Level.DEGRADED,
            (
                f"{missing} packets are in no account of a link ({share:.2%} of those sent): of "
                f"{account.offered} sent into {worst} {account.packets} arrived and "
                f"{account.dropped} were dropped for a cause"
            ),
        )


def _reordering(data: RunData, flows: Sequence[FlowSummary]) -> Found:
    arrivals = data.tables["arrivals"].height
    reordered = sum(flow.packets_reordered for flow in flows)
    level = grade(reordered / max(arrivals, 1), REORDERED_DEGRADED, REORDERED_INVALID)
    if level:
        yield (
            level,
            (
                f"{reordered} of {arrivals} packets were overtaken on their own path "
                f"({reordered / arrivals:.2%}): the machine, not the spraying, reordered them"
            ),
        )


def _faults(data: RunData) -> Found:
    for fault in data.faults:
        if fault.effective_ns is None:
            yield (
                Level.INVALID,
                f"fault {fault.index} ({fault.kind} of {fault.target}) never took effect"
                + (f": {fault.error}" if fault.error else ""),
            )
            continue
        if fault.error is not None:
            yield Level.INVALID, f"fault {fault.index} did not go as asked: {fault.error}"
    yield from _unsure(data)
    recorded = {fault.index for fault in data.faults}
    missing = len({fault.index for fault in data.scenario.scheduled_faults} - recorded)
    if missing > 0:
        killed = any(CONTROLLER in fault.places for fault in data.faults)
        yield (
            Level.DEGRADED if killed else Level.INVALID,
            f"{missing} faults of the timeline were not injected"
            + (": the controller had been killed" if killed else ""),
        )


def _unsure(data: RunData) -> Found:
    """Look for faults of which it is not known well when they took effect."""
    shares = {
        fault.index: (fault.effective_ns - fault.effective_after_ns) / data.run.base_rtt_ns
        for fault in data.faults
        # the controller's end is nothing that flows are measured from
        if fault.effective_ns is not None
        and fault.effective_after_ns is not None
        and CONTROLLER not in fault.places
    }
    unsure = [index for index, share in shares.items() if share > UNSURE_DEGRADED_RTT]
    if unsure:
        worst = max(unsure, key=lambda index: shares[index])
        more = f", of {len(unsure) - 1} more to no better than {UNSURE_DEGRADED_RTT:.0%}"
        yield (
            Level.DEGRADED,
            f"when fault {worst} took effect is known to {shares[worst]:.0%} of a base RTT only"
            + (more if len(unsure) > 1 else ""),
        )


def _course(data: RunData, integrity: Integrity) -> Found:
    lost = integrity.bytes_lost - integrity.bytes_under_way
    if lost or integrity.bytes_corrupted:
        yield (
            Level.INVALID,
            (
                f"data did not arrive as sent: {lost} bytes lost, "
                f"{integrity.bytes_corrupted} corrupted"
            ),
        )
    elif integrity.bytes_under_way:
        yield Level.INVALID, NOT_DELIVERED
    last = data.tables["arrivals"]["t"].max()
    if not isinstance(last, float):
        yield Level.INVALID, "no data arrived"
        return
    if not data.scenario.workload.continuous:
        if not data.tables["operations"].height:
            yield Level.INVALID, NOTHING_FINISHED
        return
    early = data.run.duration_s - last
    in_force = any(f.effective_ns is not None and f.healed_ns is None for f in data.faults)
    if early > EARLY_END_RTTS * data.base_rtt_s and not in_force:
        yield (
            Level.INVALID,
            (
                f"the last data arrived {early:.2f} s before the planned end of "
                f"{data.run.duration_s:g} s"
            ),
        )
