"""What `summary.json` holds: the run's figures for programs.

Every time is given three ways where it is measured from a fault: `_ms` emulated milliseconds,
`_rtt` base RTTs, `_real_us` microseconds at full speed (emulated time / dilation). Rates are
emulated bits/s. A metric is null where it does not exist (no EV went through the faulty link) or
where it never happened (the flow did not recover before the run ended); `affected` tells which.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

State = Literal["trusted", "degraded", "invalid"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Integrity(_Model):
    """What became of the payload, in bytes; `bytes_lost` were due and are not in place.

    Of these `bytes_under_way` are of messages that senders had not given up when the run ended.
    `bytes_unaccounted` were sent to endpoints that a fault then killed: nobody checked them.
    """

    bytes_sent: int
    bytes_verified: int
    bytes_lost: int
    bytes_corrupted: int
    bytes_unaccounted: int = 0
    bytes_under_way: int = 0

    @property
    def intact(self) -> bool:
        """Whether nothing was lost or corrupted."""
        return self.bytes_lost == 0 and self.bytes_corrupted == 0


class Latency(_Model):
    """Message latency: first packet handed to the socket -> in place, in order, at the receiver."""

    messages: int
    median_ms: float
    p99_ms: float
    max_ms: float
    median_rtt: float
    p99_rtt: float
    max_rtt: float


class OperationSummary(_Model):
    """The operations of one kind: `allreduce`, `alltoall`, `sendrecv`, training `step`, `transfer`.

    Times are from the first host's beginning to the last host's end. `algbw_bps` is a host's buffer
    over the time, the median; `busbw_bps` that times nccl-tests' factor, null where there is none.
    """

    kind: str
    count: int
    hosts: int
    bytes: int
    median_ms: float
    p99_ms: float
    max_ms: float
    median_rtt: float
    p99_rtt: float
    max_rtt: float
    median_real_us: float
    p99_real_us: float
    max_real_us: float
    algbw_bps: float
    busbw_bps: float | None


class EvSummary(_Model):
    """One EV of a flow. `path` is `p0/t1_2`."""

    ev: int
    plane: int
    path: str
    goodput_bps: float
    packets_sent: int
    packets_lost: int


class FlowSummary(_Model):
    """One flow over the whole run.

    `goodput_bps`: payload placed from the first fault-free, warmed-up instant to the first fault
    (or the end), per second; `attainable_fraction`: that over what the fabric allows.
    `packets_lost` were declared lost, of which `packets_spurious` had arrived after all.
    `packets_lost_elsewhere` were lost for good and no fault explains it.
    """

    flow: int
    src: str
    dst: str
    transport: str
    goodput_bps: float
    goodput_run_bps: float
    attainable_bps: float
    attainable_fraction: float
    packets_sent: int
    packets_lost: int
    packets_retransmitted: int
    packets_spurious: int
    packets_lost_elsewhere: int
    packets_reordered: int
    reorder_depth_max: int
    goodput_by_plane_bps: dict[int, float]
    evs: tuple[EvSummary, ...]
    latency: Latency | None


class FaultMetrics(_Model):
    """What a fault did to one flow, or the worst of what it did to any (see `metrics`)."""

    detection_ms: float | None = None
    detection_rtt: float | None = None
    detection_real_us: float | None = None
    detection_last_ms: float | None = None
    detection_last_rtt: float | None = None
    detection_last_real_us: float | None = None
    exposure_ms: float | None = None
    exposure_rtt: float | None = None
    exposure_real_us: float | None = None
    stall_ms: float | None = None
    stall_rtt: float | None = None
    stall_real_us: float | None = None
    placement_gap_ms: float | None = None
    placement_gap_rtt: float | None = None
    placement_gap_real_us: float | None = None
    recovery_ms: float | None = None
    recovery_rtt: float | None = None
    recovery_real_us: float | None = None
    return_first_ms: float | None = None
    return_first_rtt: float | None = None
    return_first_real_us: float | None = None
    return_last_ms: float | None = None
    return_last_rtt: float | None = None
    return_last_real_us: float | None = None
    return_data_ms: float | None = None
    return_data_rtt: float | None = None
    return_data_real_us: float | None = None
    deficit_rtt: float | None = None
    deficit_baseline_rtt: float | None = None
    surviving_fraction: float | None = None
    packets_exposed: int = 0
    packets_lost: int = 0
    packets_sent: int = 0
    packets_sent_after_detection: int = 0
    packets_lost_after_detection: int = 0
    loss_share: float | None = None
    residual_loss: float | None = None


class FlowFault(FaultMetrics):
    """What a fault did to one flow.

    `affected`: an active EV of it went through the link. `evs_active`: how many did;
    `evs_detected`: how many of those left the active set before healing.
    """

    flow: int
    src: str
    dst: str
    affected: bool
    evs_active: int
    evs_detected: int


class FaultSummary(FaultMetrics):
    """One fault: what was asked, what took effect when, and its worst effect on any flow.

    `places` are the directions of links, or the hosts, that it struck.

    Times `_s` are seconds from the start of the run. The fault took effect at `effective_s` or up
    to `effective_uncertainty_ms` before: measured times may be too short by that much.
    """

    index: int
    kind: str
    target: str
    places: tuple[str, ...]
    actuator: str
    requested_s: float
    effective_s: float | None
    effective_uncertainty_ms: float | None
    heal_requested_s: float | None
    healed_s: float | None
    proof: dict[str, Any]
    flows_affected: int
    flows: tuple[FlowFault, ...]


class LinkSummary(_Model):
    """One direction of a link from the first packet to the last, as the link model counted it.

    `offered` came to the sending port; `packets` arrived at the other, trimmed and corrupted ones
    among them; the rest was dropped: `full`, as the queue was, `lost` at random or on chosen paths,
    `blackholed`, or `cut`. So offered = packets + full + lost + blackholed + cut, but where a cut
    link emptied a kernel queue. `peak_bytes` is the greatest backlog, `mean_bytes` that over the
    time of the run, null where it is not sampled: at NICs, and in simulated runs.
    """

    direction: str
    offered: int
    packets: int
    marked: int
    trimmed: int
    corrupted: int
    full: int
    lost: int
    blackholed: int
    cut: int
    peak_bytes: int
    mean_bytes: float | None

    @property
    def crowded(self) -> tuple[int, int]:
        """How much it was used beyond its rate: for finding the busiest."""
        return self.marked + self.trimmed + self.full, self.peak_bytes

    @property
    def faulty(self) -> bool:
        """Whether packets were lost or corrupted on the wire."""
        return self.lost + self.blackholed + self.cut + self.corrupted > 0


class LocalisedFault(_Model):
    """How the Clustermapper found one fault.

    `named` is what it accused last, `after_s` how long after the fault took effect it first
    accused something right; both null if it never did. `whole`: all the links of the fault.
    `exact`: what stood accused when it healed, or last before that, are just its directions.
    `loss`: the share of packets that each direction of what is `named` lost while the fault was in
    force, by the probes across it that met no other fault; null if there were none.
    """

    fault: int
    kind: str
    target: str
    named: str | None
    after_s: float | None
    whole: bool
    exact: bool
    loss: float | None = None


class Localisation(_Model):
    """What the Clustermapper found, held against the faults that there were.

    An accusation is right if it names links of a fault in force, and no others. `precision` is the
    share of right ones (null if nobody was accused), `recall` the share of the faults of links
    that were named, `exact` of those that were named to the direction, and whole (null if there
    were none). `naming_s`, also in base RTTs and probe rounds: from
    when the fault took effect until it was named, of the fault that took longest (null if one never
    was, or if there were none).
    """

    probes: int
    probes_lost: int
    accusations: int
    accusations_right: int
    accusations_wrong: int
    precision: float | None
    recall: float | None
    exact: float | None
    naming_s: float | None
    naming_rtt: float | None
    naming_rounds: float | None
    faults: tuple[LocalisedFault, ...]


class ProcessMemory(_Model):
    """A process's resident memory: the medians of the run's second and of its last quarter.

    `growth` is the share by which the last is more.
    """

    process: str
    early_bytes: int
    late_bytes: int
    growth: float


_NOTHING = {
    "flows": "there was no flow",
    "victim": "there was no victim",
    "faults": "no flow had an active EV through a fault",
    "operations": "no operation was finished",
    "processes": "the memory of no process was sampled often enough",
    "clustermapper": "no Clustermapper ran",
}
"""Why nothing was measured, by the scope of what is expected."""


class Expectation(_Model):
    """What a scenario expects of a figure, and the worst that it was.

    `scope`: of what, a key of `expect`; `where`: the flow, fault, ... that it was worst at.
    `value` is null where the figure does not exist there, and where there was nothing to look at:
    no flow met a fault, no operation was finished. Then `where` is empty, and it does not hold.
    """

    scope: str
    figure: str
    bound: str
    where: str
    value: float | None
    holds: bool

    @property
    def found(self) -> str:
        """What it was, in words."""
        if not self.where:
            return f"not measured: {_NOTHING[self.scope]}"
        return f"{'none' if self.value is None else f'{self.value:.4g}'} at {self.where}"


class Summary(_Model):
    """One run. `simulated`: in virtual time, on no real machine.

    `qps_in_error`: flows of which a message failed. `fairness`: Jain's index of the flows'
    `attainable_fraction`, from 1 / flows (one has all) to 1 (all alike); null for a single flow.
    """

    scenario: str
    description: str
    run: str
    simulated: bool = False
    seed: int
    dilation: float
    duration_s: float
    verdict: State
    reasons: tuple[str, ...]
    base_rtt_us: float
    base_rtt_real_us: float
    integrity: Integrity
    qps_in_error: int = 0
    fairness: float | None = None
    flows: tuple[FlowSummary, ...]
    faults: tuple[FaultSummary, ...]
    operations: tuple[OperationSummary, ...] = ()
    links: tuple[LinkSummary, ...] = ()
    localisation: Localisation | None = None
    memory: tuple[ProcessMemory, ...] = ()
    expectations: tuple[Expectation, ...] = ()

    @property
    def as_expected(self) -> bool:
        """Whether every expectation holds."""
        return all(one.holds for one in self.expectations)
