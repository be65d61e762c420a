"""What is measured of a whole run, its operations, links, processes and its Clustermapper."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from testbed.model.summary.faults import FaultSummary
from testbed.model.summary.flows import FlowSummary
from testbed.model.summary.metric import (
    BYTES,
    FINE_PERCENT,
    IN_RTT,
    IN_S,
    NUMBER,
    RATE,
    SECONDS,
    US,
    Comparison,
    Count,
    MetricGroup,
    Number,
    OptionalNumber,
    OptionalTime,
    RequiredTime,
    View,
)

State = Literal["trusted", "degraded", "invalid"]

_SHOWN = View.REPORT | View.TERMINAL


class Integrity(MetricGroup):
    """What became of the payload."""

    bytes_sent = Count("Payload that was posted.", BYTES)
    bytes_verified = Count("Payload that is in place and equal to what was sent.", BYTES)
    bytes_lost = Count(
        "Payload that was due and is not in place.", BYTES, compared=Comparison("bytes lost")
    )
    bytes_corrupted = Count(
        "Payload that is in place and differs from what was sent.",
        BYTES,
        compared=Comparison("bytes corrupted"),
    )
    bytes_unaccounted = Count(
        "Payload sent to endpoints that a fault then killed: nobody checked it.",
        BYTES,
        default=(0,),
    )
    bytes_under_way = Count(
        "Those bytes of `bytes_lost` whose senders had not given up when the run ended.",
        BYTES,
        default=(0,),
    )

    @property
    def intact(self) -> bool:
        """Whether nothing was lost or corrupted."""
        return self.bytes_lost == 0 and self.bytes_corrupted == 0


class OperationSummary(MetricGroup):
    """The operations of one kind that all of their hosts finished.

    Kinds are `allreduce`, `alltoall`, `sendrecv`, training `step`, `transfer`. An operation lasts
    from when the first of its hosts began it until the last of them is done.
    """

    kind: str
    hosts = Count("Hosts that take part.", views=_SHOWN)
    bytes = Count("A host's buffer; of transfers the median.", BYTES, title="size", views=_SHOWN)
    count = Count("Finished operations.", views=_SHOWN)
    median = RequiredTime("Median completion time.", views=_SHOWN)
    p99 = RequiredTime("99th percentile of completion times.", views=_SHOWN)
    max = RequiredTime("Longest completion time.", title="longest", views=_SHOWN)
    algbw_bps = Number("`bytes` * 8 / completion time, the median.", RATE)
    busbw_bps = OptionalNumber(
        "`algbw_bps` times 2(n - 1)/n for an all-reduce among n hosts, (n - 1)/n for an "
        "all-to-all, 1 for sendrecv, as nccl-tests defines it. Null for others.",
        RATE,
        title="bus bandwidth",
        views=_SHOWN,
    )


class LinkSummary(MetricGroup):
    """One direction of a link, from the first packet to the last, as the link model counted it.

    offered = packets + full + lost + blackholed + cut, except where a cut emptied a queue of the
    kernel.
    """

    direction: str
    offered = Count("Packets that came to the sending port.", views=View.REPORT)
    packets = Count(
        "Packets that arrived at the other port, trimmed and corrupted ones among them.",
        title="arrived",
        views=View.REPORT,
    )
    marked = Count("Packets that were marked here.", views=View.REPORT)
    trimmed = Count("Packets that were trimmed here; they travel on.", views=View.REPORT)
    corrupted = Count("Packets that were corrupted here; they travel on.", views=View.REPORT)
    full = Count("Packets dropped by a full queue.", title="dropped, full", views=View.REPORT)
    lost = Count("Packets dropped at random or on chosen paths, by a fault.", views=View.REPORT)
    blackholed = Count("Packets dropped by a blackhole.", views=View.REPORT)
    cut = Count("Packets dropped by a cut.")
    peak_bytes = Count(
        "Greatest backlog of both queues of the port together.",
        BYTES,
        title="greatest backlog",
        views=View.REPORT,
    )
    mean_bytes = OptionalNumber(
        "Mean backlog of a switch's port over the run. Null at NICs and in simulated runs, where "
        "it is not sampled.",
        BYTES,
        title="mean backlog",
        views=View.REPORT,
    )

    @property
    def congestion(self) -> tuple[int, int]:
        """Packets that met a filled queue, and the greatest backlog: sorts directions by load."""
        return self.marked + self.trimmed + self.full, self.peak_bytes

    @property
    def faulty(self) -> bool:
        """Whether packets were lost or corrupted on the wire."""
        return self.lost + self.blackholed + self.cut + self.corrupted > 0


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LocalisedFault(_Record):
    """How the Clustermapper found one fault.

    Attributes:
        fault: its index.
        kind: its kind.
        target: its target.
        named: the last suspect accused for it; None if there was none.
        after_s: from the fault's effect to the first right accusation, in seconds.
        whole: whether all links of the fault were accused.
        exact: whether the suspects when it healed, or the last before that, are its directions.
        loss: share of packets that each direction of `named` lost while the fault was in force, by
            the probes across it that met no other fault; None if there were none.
    """

    fault: int
    kind: str
    target: str
    named: str | None
    after_s: float | None
    whole: bool
    exact: bool
    loss: float | None = None


class Localisation(MetricGroup):
    """The Clustermapper's accusations, compared with the faults of links.

    An accusation is right if it names links of a fault in force, and no others.
    """

    probes = Count("Probes that were sent.")
    probes_lost = Count("Probes that were lost.")
    accusations = Count("Accusations that were raised.")
    accusations_right = Count("Accusations that were right.")
    accusations_wrong = Count("Accusations that were wrong.")
    precision = OptionalNumber("Share of accusations that were right. Null: there were none.")
    recall = OptionalNumber("Share of faults that were named. Null: there were none.")
    exact = OptionalNumber(
        "Share of faults of which all directions, and no others, were named. Null: there were none."
    )
    naming = OptionalTime(
        "From a fault's effect until it was named, of the fault that took longest. Null: one was "
        "never named, or there were none.",
        (IN_S, IN_RTT),
    )
    naming_rounds = OptionalNumber("The same in rounds of probes.")
    faults: tuple[LocalisedFault, ...]


class ProcessMemory(MetricGroup):
    """Resident memory of a process; while the first quarter of the run lasts, buffers fill."""

    process: str
    early_bytes = Count(
        "Median over the run's second quarter.", BYTES, title="second quarter", views=View.REPORT
    )
    late_bytes = Count(
        "Median over the run's last quarter.", BYTES, title="last quarter", views=View.REPORT
    )
    growth = Number(
        "The share by which the last quarter's is more.", FINE_PERCENT, views=View.REPORT
    )


class Expectation(_Record):
    """A bound that a scenario sets on a metric, and the worst value that was measured.

    Attributes:
        scope: what the metric is of: a key of `expect`.
        figure: the metric's key in `summary.json`.
        bound: the bound in words.
        where: the flow, fault, ... with the worst value; empty if nothing was measured.
        value: the worst value; None if it does not exist there, or if nothing was measured.
        holds: whether all values meet the bound; not where nothing was measured.
    """

    scope: str
    figure: str
    bound: str
    where: str
    value: float | None
    holds: bool


class Summary(MetricGroup):
    """One run: the content of `summary.json`. `simulated`: in virtual time, on no real machine."""

    scenario: str
    description: str
    run: str
    simulated: bool = False
    seed: int
    dilation: float
    verdict: State
    reasons: tuple[str, ...]
    qps_in_error = Count("Flows of which a message failed.", default=(0,))
    fairness = OptionalNumber(
        "Jain's index of the flows' `attainable_fraction`, (Σx)² / (n Σx²): 1 if all have the "
        "same, 1/n if one has everything. Null for a single flow.",
        NUMBER,
    )
    duration_s = Number("Planned duration of the workload.", SECONDS)
    base_rtt_us = Number(
        "From handing a full data packet to the socket until its SACK has been processed, on the "
        "idle fabric, in emulated time.",
        US,
    )
    base_rtt_real_us = Number(
        "`base_rtt_us` / dilation.",
        US,
        compared=Comparison("base RTT, real-equivalent"),
    )
    integrity: Integrity
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
        return all(expectation.holds for expectation in self.expectations)
