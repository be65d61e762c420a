"""What is measured of a whole run, its operations, links, processes and its Clustermapper."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from testbed.model.errors import ExitStatus, few
from testbed.model.run_files.content import ProgramRecord
from testbed.model.summary.faults import FaultSummary
from testbed.model.summary.flows import MORE_THAN_SHARE, FlowSummary, Latency, NodeSummary
from testbed.model.summary.metric import Comparison, Metric, MetricGroup, Spread, View, least, total
from testbed.model.summary.unit import (
    BYTES,
    IN_RTT,
    IN_S,
    NEVER,
    NUMBER,
    RATE,
    RTT,
    SECONDS,
    SHARE,
    US,
    MaybeNever,
    Time,
)


class LocalisedFault(MetricGroup):
    """How the Clustermapper found one fault.

    Attributes:
        fault: its index.
        kind: its kind.
        target: its target.
        named: the last suspect accused for it; None if there was none.
    """

    fault: int
    kind: str
    target: str
    named: str | None

    after: Annotated[Time | None, Metric(forms=(IN_S,), views=View.USUAL)] = None
    """From the fault's effect to the first right accusation. Never: there was none."""

    whole: Annotated[bool, Metric(title="all its links", views=View.USUAL)]
    """Whether all links of the fault were accused."""

    exact: Annotated[bool, Metric(title="exactly its directions", views=View.USUAL)]
    """Whether the suspects when it healed, or the last before that, are its directions."""

    loss: Annotated[float | None, Metric(SHARE, title="loss measured", views=View.USUAL)] = None
    """Share of packets that each direction of `named` lost while the fault was in force, by the
    probes across it that met no other fault. Null: there were none."""


class Localisation(MetricGroup):
    """The Clustermapper's accusations, compared with the faults of links.

    An accusation is right if it names links of a fault in force, and no others.
    """

    probes: Annotated[int, Metric()]
    """Probes that were sent."""

    probes_lost: Annotated[int, Metric()]
    """Probes that were lost."""

    accusations: Annotated[int, Metric()]
    """Accusations that were raised."""

    accusations_right: Annotated[int, Metric()]
    """Accusations that were right."""

    accusations_wrong: Annotated[int, Metric(compared=Comparison("Clustermapper: wrong"))]
    """Accusations that were wrong."""

    precision: Annotated[float | None, Metric()] = None
    """Share of accusations that were right. Null: there were none."""

    recall: Annotated[
        float | None, Metric(combine=least, compared=Comparison("Clustermapper: faults named"))
    ] = None
    """Share of faults that were named. Null: there were none."""

    exact: Annotated[float | None, Metric()] = None
    """Share of faults for which exactly their directions were named. Null: there were none."""

    naming: Annotated[
        Time | None, Metric(forms=(IN_S, IN_RTT), compared=Comparison("Clustermapper: until named"))
    ] = None
    """From a fault's effect until it was named, for the fault that took longest. Never: one was not
    named. Null: there were none."""

    naming_rounds: Annotated[MaybeNever | None, Metric()] = None
    """The same in rounds of probes."""

    faults: tuple[LocalisedFault, ...]


State = Literal["trusted", "degraded", "invalid"]

_FULL = 0.995
"""A fabric with at least this share of its rate is called undamaged in words."""


class Integrity(MetricGroup):
    """What became of the payload."""

    bytes_sent: Annotated[int, Metric(BYTES)]
    """Payload that was posted."""

    bytes_verified: Annotated[int, Metric(BYTES)]
    """Payload that is in place and equal to what was sent."""

    bytes_lost: Annotated[int, Metric(BYTES, compared=Comparison("bytes lost"))]
    """Payload that was due and is not in place."""

    bytes_corrupted: Annotated[int, Metric(BYTES, compared=Comparison("bytes corrupted"))]
    """Payload that is in place and differs from what was sent."""

    bytes_unaccounted: Annotated[int, Metric(BYTES)] = 0
    """Payload that nobody checked: its endpoint was killed by a fault, or its queue pair failed as
    the scenario expects."""

    bytes_under_way: Annotated[int, Metric(BYTES)] = 0
    """Those bytes of `bytes_lost` whose senders had not given up when the run ended."""

    @property
    def intact(self) -> bool:
        """Whether nothing was lost or corrupted."""
        return self.bytes_lost == 0 and self.bytes_corrupted == 0

    @property
    def bytes_damaged(self) -> int:
        """Payload that will never be in place as it was sent: lost for good, or corrupted."""
        return self.bytes_lost - self.bytes_under_way + self.bytes_corrupted


class OperationSummary(MetricGroup):
    """The operations of a run.

    Kinds are `allreduce`, `alltoall`, `sendrecv`, training `step`, `transfer`, and what programs
    report (docs/programs.md). An operation lasts from when the first of its hosts began it until
    the last of them is done. The time of one that
    is `unfinished` is never.
    """

    kind: str
    hosts: Annotated[int, Metric(views=View.USUAL)]
    """Hosts that take part."""

    bytes: Annotated[int, Metric(BYTES, title="size", views=View.USUAL)]
    """Size of a host's buffer as it is sent: the size asked for, rounded up to equal messages. For
    transfers, the median size of all."""

    planned: Annotated[
        int | None, Metric(views=View.USUAL, combine=total, compared=Comparison())
    ] = None
    """Operations in the file: transfers of a connection matrix, sends, receipts and computations of
    a GOAL schedule. Null for collectives and training, which repeat until the run ends."""

    begun: Annotated[int, Metric(views=View.USUAL, combine=total, compared=Comparison())]
    """Operations that a host has begun; transfers of which something was posted."""

    count: Annotated[
        int,
        Metric(title="finished", views=View.USUAL, combine=total, compared=Comparison("finished")),
    ]
    """Finished operations: all of their hosts are done."""

    unfinished: Annotated[int, Metric(combine=total, compared=Comparison())]
    """Operations that should have finished: planned transfers that did not; collectives and steps
    that had already taken longer than any finished one when the run ended. Others that it cut off
    are left out."""

    median: Annotated[Time, Metric(views=View.USUAL, compared=Comparison("completion, median"))]
    """Median completion time."""

    p99: Annotated[Time, Metric(views=View.USUAL, compared=Comparison("completion, p99"))]
    """99th percentile of completion times."""

    max: Annotated[
        Time, Metric(title="longest", views=View.USUAL, compared=Comparison("longest completion"))
    ]
    """Longest completion time."""

    algbw_bps: Annotated[float, Metric(RATE, combine=least)]
    """`bytes` * 8 / completion time, the median."""

    busbw_bps: Annotated[
        float | None,
        Metric(
            RATE,
            title="bus bandwidth",
            views=View.USUAL,
            combine=least,
            compared=Comparison("bus bandwidth"),
        ),
    ] = None
    """`algbw_bps` times 2(n - 1)/n for an all-reduce among n hosts, (n - 1)/n for an all-to-all, 1
    for sendrecv, as nccl-tests defines it: comparable to the rate of a host, or of a node where
    nodes have several NICs. Null for others."""

    @property
    def name(self) -> str:
        """What they are called."""
        return self.kind

    @property
    def finished(self) -> str:
        """How many finished: `1 of 3 finished, 2 had not begun when the run ended`."""
        if self.planned is None:
            return f"{self.count:,} of {self.begun:,} begun finished"
        waiting, running = self.planned - self.begun, self.begun - self.count
        text = f"{self.count:,} of {self.planned:,} finished"
        if running:
            text += f", {running:,} {'was' if running == 1 else 'were'} under way"
        if waiting:
            text += f", {waiting:,} had not begun"
        return f"{text} when the run ended" if running or waiting else text


class JobFault(MetricGroup):
    """What a fault meant to the operations of one kind of a job: their median completion times.

    `operation` is what they are called; `index`, `kind` and `target` are the fault's.
    """

    index: int
    kind: str
    target: str
    operation: str
    before: Annotated[Time | None, Metric(views=View.REPORT)] = None
    """Of those that were over when the fault began. Null, as the others: there were none."""

    during: Annotated[Time | None, Metric(views=View.REPORT)] = None
    """Of those that were under way while it was in force."""

    during_max: Annotated[Time | None, Metric(title="during, longest", views=View.REPORT)] = None
    """The longest of those."""

    after: Annotated[Time | None, Metric(views=View.REPORT)] = None
    """Of those that began when it had healed."""


class JobSummary(MetricGroup):
    """One of several jobs, from its start to the end of the run.

    `kind` is that of its workload. `alone` is the run of this job alone, beside which
    `interference` is measured, relative to the run directory; empty: there is none, and
    `interference_unknown` says why.
    """

    job: str
    kind: str
    start_s: float
    alone: str = ""
    interference_unknown: str = ""
    hosts: Annotated[int, Metric(views=View.USUAL)]
    """Hosts that take part."""

    goodput_bps: Annotated[
        float | None,
        Metric(
            RATE, title="goodput", views=View.USUAL, combine=least, compared=Comparison("goodput")
        ),
    ] = None
    """Newly placed payload of all its flows per second, from its start to the end of the run. Null:
    programs of several jobs are on its hosts, and nobody knows whose flows they are."""

    time: Annotated[Time | None, Metric(views=View.USUAL, compared=Comparison("time"))] = None
    """What the job takes: the median of its operations; of a file's traffic, from its start
    until all of it is done; of programs, from its start until all have ended with status 0.
    Never: it did not come to that. Null for WRITEs back to back, and for programs that are
    endless."""

    slowdown: Annotated[
        float | None, Metric(title="slowdown by faults", views=View.USUAL, compared=Comparison())
    ] = None
    """The longest of its operations while a fault is in force, over the median of those before it:
    the worst of all faults and kinds. Null: there were none to compare."""

    interference: Annotated[
        MaybeNever | None,
        Metric(NUMBER, title="interference factor", views=View.USUAL, compared=Comparison()),
    ] = None
    """How many times as long it takes beside the other jobs as alone: `time` over its `time` in a
    run without the others; for WRITEs back to back, the time for as many bytes: goodput alone over
    `goodput_bps`. 1: they do not slow it down. Null: it was not run alone, or has no time."""

    faults: tuple[JobFault, ...] = ()

    @property
    def name(self) -> str:
        """The job's."""
        return self.job


class LinkSummary(MetricGroup):
    """One direction of a link, from the first packet to the last, as the link model counted it.

    offered = packets + full + lost + blackholed + cut, except where a cut emptied a queue of the
    kernel.
    """

    direction: str
    offered: Annotated[int, Metric(views=View.REPORT)]
    """Packets that came to the sending port."""

    packets: Annotated[int, Metric(title="arrived", views=View.REPORT)]
    """Packets that arrived at the other port, trimmed and corrupted ones among them."""

    marked: Annotated[int, Metric(views=View.REPORT)]
    """Packets that were marked here."""

    trimmed: Annotated[int, Metric(views=View.REPORT)]
    """Packets that were trimmed here; they are forwarded."""

    corrupted: Annotated[int, Metric(views=View.REPORT)]
    """Packets that were corrupted here; they are forwarded."""

    full: Annotated[int, Metric(title="dropped, full", views=View.REPORT)]
    """Packets dropped by a full queue."""

    lost: Annotated[int, Metric(views=View.REPORT)]
    """Packets dropped at random or on chosen paths, by a fault."""

    blackholed: Annotated[int, Metric(views=View.REPORT)]
    """Packets dropped by a blackhole."""

    cut: Annotated[int, Metric()]
    """Packets dropped by a cut."""

    peak_bytes: Annotated[int, Metric(BYTES, title="greatest backlog", views=View.REPORT)]
    """Greatest backlog of both queues of the port together."""

    mean_bytes: Annotated[float | None, Metric(BYTES, title="mean backlog", views=View.REPORT)] = (
        None
    )
    """Mean backlog of a switch's port over the run. Null at NICs and in simulated runs, where it is
    not sampled."""

    @property
    def congestion(self) -> tuple[int, int]:
        """Packets that met a filled queue, and the greatest backlog: sorts directions by load."""
        return self.marked + self.trimmed + self.full, self.peak_bytes

    @property
    def faulty(self) -> bool:
        """Whether packets were lost or corrupted on the wire."""
        return self.lost + self.blackholed + self.cut + self.corrupted > 0


class _Record(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")


class ProcessMemory(MetricGroup):
    """Resident memory of a process; while the first quarter of the run lasts, buffers fill."""

    process: str
    early_bytes: Annotated[int, Metric(BYTES, title="second quarter", views=View.REPORT)]
    """Median over the run's second quarter."""

    late_bytes: Annotated[int, Metric(BYTES, title="last quarter", views=View.REPORT)]
    """Median over the run's last quarter."""

    growth: Annotated[
        float, Metric(SHARE, views=View.REPORT, compared=Comparison("growth of memory"))
    ]
    """`late_bytes` / `early_bytes` - 1."""


class Expectation(_Record):
    """A bound that a scenario sets on a metric, and the worst value that was measured.

    Attributes:
        scope: what the metric is of: a key of `expect`.
        figure: the metric's key in `summary.json`.
        bound: the bound in words.
        where: the flow, fault, ... with the worst value; empty if nothing was measured.
        value: the worst value; NEVER is worse than any number; None if it does not exist there, or
            if nothing was measured.
        holds: whether all values meet the bound; false if nothing was measured.
        job: the job that sets the bound for itself; empty: the scenario does.
    """

    scope: str
    figure: str
    bound: str
    where: str
    value: MaybeNever | None
    holds: bool
    job: str = ""

    @property
    def whose(self) -> str:
        """The scope, after the name of the job if it is of one: `left, operations`."""
        return f"{self.job}, {self.scope}" if self.job else self.scope

    @model_serializer(mode="wrap")
    def _job_if_any(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in write(self).items() if key != "job" or value}


def _in_words(fractions: Sequence[tuple[float, str]], when: str) -> str:
    """Which of these flows, each with its fraction of the ideal split, took more than that."""
    taking = [(fraction, name) for fraction, name in fractions if fraction > 1 + MORE_THAN_SHARE]
    if not taking:
        return ""
    most, name = max(taking)
    text = f"{name} takes more than its share{when} ({SHARE.show(most)})"
    if len(taking) > 1:
        text = f"{len(taking)} of {len(fractions)} flows take more than their share{when}, {text}"
    return f"{text}: others do not use theirs"


class Summary(MetricGroup):
    """One run: the content of `summary.json`. `simulated`: in virtual time, on no real machine."""

    left_out = frozenset({"jobs", "nodes"})

    scenario: str
    description: str
    run: str
    simulated: bool = False
    seed: int
    dilation: float
    verdict: State
    reasons: tuple[str, ...]
    qps_in_error: Annotated[int, Metric()] = 0
    """Flows with a failed message."""

    goodput_bps: Annotated[
        float, Metric(RATE, title="goodput of all flows", compared=Comparison())
    ] = 0.0
    """Newly placed payload of all flows per second, over the whole run."""

    ideal_fraction: Annotated[
        float | None, Metric(SHARE, title="all flows, of ideal split", compared=Comparison())
    ] = None
    """`goodput_bps` over what the ideal split allows all flows together. Null: nothing was allowed,
    or no flow had something to send."""

    attainable_fraction: Annotated[
        float | None, Metric(SHARE, title="all flows, of even split", compared=Comparison())
    ] = None
    """`goodput_bps` over what an even split allows all flows together."""

    fairness: Annotated[float | None, Metric()] = None
    """Jain's index of the flows' `ideal_fraction`, (Σx)² / (n Σx²): 1 if all have the same,
    1/n if one has everything. Null for a single flow. Flows that had nothing to send are left
    out."""

    duration_s: Annotated[float, Metric(SECONDS)]
    """Planned duration of the workload."""

    base_rtt_us: Annotated[float, Metric(US)]
    """From handing a full data packet to the socket until its SACK has been processed, on the idle
    fabric, in emulated time."""

    base_rtt_real_us: Annotated[float, Metric(US, compared=Comparison("base RTT, at full speed"))]
    """`base_rtt_us` / dilation."""

    integrity: Integrity
    messages: Latency | None = None
    over_flows: dict[str, Spread] = Field(default_factory=dict)
    flows: tuple[FlowSummary, ...]
    nodes: tuple[NodeSummary, ...] = ()
    faults: tuple[FaultSummary, ...]
    operations: tuple[OperationSummary, ...] = ()
    jobs: tuple[JobSummary, ...] = ()
    links: tuple[LinkSummary, ...] = ()
    programs: tuple[ProgramRecord, ...] = ()
    localisation: Localisation | None = None
    memory: tuple[ProcessMemory, ...] = ()
    expectations: tuple[Expectation, ...] = ()

    @property
    def interference_unknown(self) -> tuple[str, ...]:
        """Why the interference factor of jobs is not known, a line for each reason."""
        reasons: dict[str, list[str]] = {}
        for job in self.jobs:
            if job.interference_unknown:
                reasons.setdefault(job.interference_unknown, []).append(job.job)
        return tuple(
            f"interference factor of {few(names)} not known: {why}"
            for why, names in reasons.items()
        )

    @property
    def more_than_share(self) -> str:
        """Which flows take more than their fair share, in words; empty if none does."""
        busy = [flow for flow in self.flows if not flow.idle]
        whole = [(flow.reached, flow.name) for flow in busy]
        in_force = [(flow.ideal_in_force_fraction or 0.0, flow.name) for flow in busy]
        text = _in_words(whole, "")
        if not text and min(in_force, default=(1.0, ""))[0] < 1 - MORE_THAN_SHARE:
            text = _in_words(in_force, " during faults")
        return text

    def remarks_on(self, fault: FaultSummary) -> list[str]:
        """What helps to read the metrics of a fault, in words."""
        remarks = []
        left = fault.surviving_fraction
        if left is not None and left < _FULL:
            what = f"the links in service allow {SHARE.show(left)} of the rate while it is in force"
            remarks.append(f"{what}; recovery is to 95% of the level at which goodput settles")
        if fault.recovery is not None and fault.recovery.ms == 0:
            remarks.append("recovery 0: goodput never fell below 95% of its level")
        run = fault.run
        if run and run.level and run.level_even and run.level < run.level_even * _FULL:
            less = SHARE.show(run.level / run.level_even)
            remarks.append(f"an even split, at which MRC aims, has {less} of the ideal split")
        if (fault.ideal_fraction or 0.0) > 1 + MORE_THAN_SHARE:
            remarks.append(
                "more than the ideal split allows: packets that were in flight when it began "
                "arrived, too"
            )
        remarks += self.remarks_on_never(fault)
        if fault.return_last is not None and fault.return_last.rtt != NEVER:
            after = RTT.show(fault.return_last.rtt)
            remarks.append(f"all its EVs were in use again {after} after healing")
        single = [flow for flow in fault.flows if flow.affected and self._has_one_ev(flow.flow)]
        if single:
            count = f"{len(single)} of {fault.flows_affected} flows"
            remarks.append(f"{count} have a single path: the last EV is kept, whatever it loses")
        return remarks

    def remarks_on_never(self, fault: FaultSummary) -> list[str]:
        """Why something did not happen after a fault, in words, as far as that is known."""
        returned = fault.return_last
        if returned is not None and returned.rtt == NEVER and fault.healed_s is not None:
            return ["not all of its EVs were in use again before the run ended"]
        return []

    def _has_one_ev(self, number: int) -> bool:
        return any(flow.flow == number and len(flow.evs) == 1 for flow in self.flows)

    @property
    def advice(self) -> str:
        """What helps if the machine was too slow for the run; empty if it is trusted."""
        if self.simulated or self.verdict == "trusted":
            return ""
        return (
            "where the machine was late or busy it helps to end other programs, use fewer flows, "
            f"or slow the fabric down: --set topology.dilation={2 * self.dilation:g} "
            "(docs/trust.md)"
        )

    @property
    def failed_programs(self) -> tuple[ProgramRecord, ...]:
        """The programs that failed."""
        return tuple(program for program in self.programs if program.failed)

    @property
    def as_expected(self) -> bool:
        """Whether every expectation holds."""
        return all(expectation.holds for expectation in self.expectations)

    def usable(self, *, require_trusted: bool) -> bool:
        """Whether its metrics may be judged: it is trusted, or degraded where that is enough."""
        return self.verdict == "trusted" or (self.verdict == "degraded" and not require_trusted)

    def exit_status(self, *, require_trusted: bool) -> ExitStatus:
        """What the run means: lost data or a program that fails fail it, whatever else it shows.

        Expectations count only in a run that can be trusted.

        Args:
            require_trusted: whether a degraded run counts as one that cannot be trusted.
        """
        if not self.integrity.intact or self.failed_programs:
            return ExitStatus.FAILED
        if not self.usable(require_trusted=require_trusted):
            return ExitStatus.UNTRUSTED
        return ExitStatus.AS_EXPECTED if self.as_expected else ExitStatus.FAILED
