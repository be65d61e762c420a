"""The content of files of a run directory that hold JSON; `manifest.json` has a module of its own.

`health.jsonl`: how busy and how late processes and the machine were. `run.json`: the outcome of a
run, beside its tables.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from testbed.model.run_files.layout import HEALTH
from testbed.model.units import NS_PER_S

WATCHER = "watcher"
"""The process that writes the event stream of a run with --live."""

PAGE_SERVER = "page server"
"""The process that serves its page."""


class HealthSample(BaseModel):
    """A line of `health.jsonl`: load and lateness of a process, or the machine, in an interval.

    Attributes:
        t_ns: when the interval ended, on CLOCK_MONOTONIC.
        process: a process's name, or `machine`.
        interval_ns: its length.
        lag_p99_ns: 99th percentile of how late the event loop was.
        lag_max_ns: its maximum.
        cpu_ns: CPU time that the process used.
        cpus: CPUs of the machine.
        busy_share: busy share of all CPUs, 0 to 1, without programs of low priority.
        softirq_share: share that the kernel spent on packets and timers.
        stolen_share: share that the host of this virtual machine gave to others (steal).
        cores: busy share of each CPU.
        timer_late_ns: how late the latest sleep ended.
        resident_bytes: memory of each process of the run.
        drops: packets that the kernel dropped and no fault explains, since the run began.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    t_ns: int
    process: str
    interval_ns: int = Field(default=NS_PER_S, gt=0)
    lag_p99_ns: int | None = None
    lag_max_ns: int | None = None
    cpu_ns: int | None = None
    cpus: int | None = None
    busy_share: float | None = None
    softirq_share: float | None = None
    stolen_share: float | None = None
    cores: dict[str, float] = {}
    timer_late_ns: int | None = None
    resident_bytes: dict[str, int] = {}
    drops: dict[str, int] = {}

    def to_line(self) -> str:
        """The sample as a line: only what was given."""
        return json.dumps(self.model_dump(exclude_unset=True)) + "\n"


def health_of(directory: Path) -> list[HealthSample]:
    """The samples of a run; none of a simulated one."""
    file = directory / HEALTH
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [HealthSample.model_validate_json(line) for line in lines]


def watching_shares(samples: Iterable[HealthSample]) -> dict[str, float]:
    """The share of a core that watcher and page server used; empty if nobody watched."""
    used: dict[str, list[int]] = {}
    for sample in samples:
        if sample.process in {WATCHER, PAGE_SERVER} and sample.cpu_ns is not None:
            sums = used.setdefault(sample.process, [0, 0])
            sums[0] += sample.cpu_ns
            sums[1] += sample.interval_ns
    return {process: cpu_ns / interval_ns for process, (cpu_ns, interval_ns) in used.items()}


def mean_busy(samples: Collection[HealthSample]) -> float | None:
    """Busy share of all CPUs over the time of samples; None where it was not sampled."""
    return _mean((sample.busy_share, sample.interval_ns) for sample in samples)


def mean_stolen(samples: Collection[HealthSample]) -> float | None:
    """The same of the share that the host of a virtual machine gave to others."""
    return _mean((sample.stolen_share, sample.interval_ns) for sample in samples)


def _mean(samples: Iterable[tuple[float | None, int]]) -> float | None:
    shares = [(share, weight) for share, weight in samples if share is not None]
    if not shares:
        return None
    return sum(share * weight for share, weight in shares) / sum(weight for _, weight in shares)


# --------------------------------------------------------------------------------------------------
# A sample of the counters of a link direction: the columns of the table `links`.


class LinkSample(NamedTuple):
    """What one direction of a link has carried so far.

    Attributes:
        packets: packets that arrived at the far port; without the link model, packets sent.
        bytes: their bytes, Ethernet header included.
        dropped: packets lost on the way, by a full queue or a fault; without the link model also
            by the kernel's own receive backlog.
        marked: packets that the sending port marked with ECN.
        trimmed: packets that the sending port trimmed.
        backlog_bytes: bytes queued at the sending port now.
    """

    packets: int
    bytes: int
    dropped: int
    marked: int
    trimmed: int
    backlog_bytes: int


BINS_PER_RTT = 4
"""Bins in a base RTT in which goodput over time is shown."""


def bin_width_s(base_rtt_ns: int) -> float:
    return base_rtt_ns / BINS_PER_RTT / NS_PER_S


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """What became of one flow: the payload of one requester, from `src` to `dst`.

    An end that a fault has killed reports nothing. A killed sender counts as having sent what
    arrived. The payload in the memory of a killed receiver is unaccounted, and not lost.

    Attributes:
        flow: its number.
        src: the sending host.
        dst: the receiving host.
        transport: its kind.
        ports_bps: payload rate that the fabric allows without faults, in emulated bits/s:
            its share of the hosts' ports times payload over wire size, less its share of what
            its source sent to control the transport where no room was left for that. Never
            negative; 0 only for a flow that only signals.
        lane: its number among the flows of the two hosts.
        bytes_sent: payload that was posted.
        bytes_completed: payload of the messages that the sender knows to be complete.
        bytes_verified: payload in place and equal to what was sent.
        bytes_lost: payload that was due and is not in place.
        bytes_under_way: the part of them in messages neither complete nor given up at the end.
        bytes_corrupted: payload in place that differs from what was sent.
        bytes_unaccounted: payload that nobody checked.
        packets_sent: data packets, retransmissions included.
        packets_lost: transmissions declared lost that had not arrived.
        packets_retransmitted: data packets sent again.
        errors: how messages failed, if any did.
    """

    flow: int
    src: str
    dst: str
    transport: str
    ports_bps: Annotated[float, Field(ge=0)]
    lane: int = 0
    bytes_sent: int = 0
    bytes_completed: int = 0
    bytes_verified: int = 0
    bytes_lost: int = 0
    bytes_under_way: int = 0
    bytes_corrupted: int = 0
    bytes_unaccounted: int = 0
    packets_sent: int = 0
    packets_lost: int = 0
    packets_retransmitted: int = 0
    errors: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`h0 → h4`."""
        return f"{self.src} → {self.dst}"

    @property
    def unfinished(self) -> bool:
        """Whether its sender was still waiting at the end: for payload, or for an acknowledgement.

        Nobody waits for a message that failed.
        """
        unacknowledged = self.bytes_completed < self.bytes_sent and not self.errors
        return self.bytes_under_way > 0 or unacknowledged


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """What one direction of a link has done so far, in packets unless the name says bytes.

    Attributes:
        offered: came to the sending port.
        packets: arrived at the receiving port, trimmed and corrupted ones among them.
        marked: got an ECN mark here.
        trimmed: lost their payload here.
        full: dropped, the queue being full.
        full_priority: the same in the priority queue.
        lost: dropped by random loss; in the simulator also by loss on chosen paths.
        blackholed: swallowed by a blackhole.
        corrupted: arrived with a bit flipped.
        peak_bytes: greatest backlog of both queues.
        offered_bytes: bytes of the offered packets, Ethernet header included.
        bytes: bytes of the packets that arrived, Ethernet header included.
        trimmed_off_bytes: payload bytes that were cut off trimmed packets.
        path_lost: dropped by loss on chosen paths, by the link model.
        cut: dropped, there being no carrier; only the simulator counts them.
        paused: times that the next switch paused its sender; only in the simulator.
        queued: wait at the port now; only in the simulator.
        on_wire: have left the queue and not arrived yet; only in the simulator.
    """

    offered: int
    packets: int
    marked: int
    trimmed: int
    full: int
    full_priority: int
    lost: int
    blackholed: int
    corrupted: int
    peak_bytes: int
    offered_bytes: int = 0
    bytes: int = 0
    trimmed_off_bytes: int = 0
    path_lost: int = 0
    cut: int = 0
    paused: int = 0
    queued: int = 0
    on_wire: int = 0

    @property
    def dropped(self) -> int:
        """All that will not arrive, for a cause that is counted."""
        full, lost = self.full + self.full_priority, self.lost + self.path_lost
        return full + lost + self.blackholed + self.cut


class MissingPart(BaseModel):
    """What a machine lacks, and the remedy."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    what: str
    remedy: str


class HostRecord(BaseModel):
    """What a host counts beside its flows.

    Attributes:
        control_bytes: bytes of its control packets on the wire while the workload ran.
        begun: transfers with an end that it has begun to send, by what they are called.
        refused: packets that it did not accept, by reason.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    control_bytes: int = 0
    begun: dict[str, int] = {}
    refused: dict[str, int] = {}


class ProgramRecord(BaseModel):
    """The program that a scenario runs in a host.

    Attributes:
        host: the host.
        rank: its number, as the program knows it.
        status: its exit status, or minus the signal that killed it; None if it was stopped, or
            could not be started.
        error: why it could not be started.
        stopped: whether the run ended it: it was still running, or another had failed.
        failed: whether it failed: it could not be started, ended with a status other than 0, or
            should have ended before the run did.
        ended_s: when it ended, in seconds of the run.
        output: the file of what it printed, in the run directory.
        output_dropped: bytes of its output beyond those that are kept.
        reports_refused: lines that it wrote as reports of operations, and that are none.
        report_refused: the first of them, or its beginning.
        job: the name of its job, of several.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    host: str
    rank: int
    status: int | None
    error: str = ""
    stopped: bool = False
    failed: bool = False
    ended_s: float | None = None
    output: str = ""
    output_dropped: int = 0
    reports_refused: int = 0
    report_refused: str = ""
    job: str = ""

    @property
    def place(self) -> str:
        """Where it ran: its host, after its job if there are several."""
        return f"{self.job}/{self.host}" if self.job else self.host

    @property
    def ending(self) -> str:
        if self.error:
            return f"could not be started: {self.error}"
        if self.stopped:
            return "still ran when the run ended" if self.failed else "was ended with the run"
        if self.status is None:
            return "was not started"
        return f"killed by signal {-self.status}" if self.status < 0 else f"exit {self.status}"


class OpenOperation(BaseModel):
    """An operation that a program has begun and not ended.

    Attributes:
        host: where.
        kind: its name.
        number: its step.
        start_s: when it began, in seconds of the run.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    host: str
    kind: str
    number: int
    start_s: float


class RunRecord(BaseModel):
    """`run.json`.

    Attributes:
        t0_ns: start of the workload on CLOCK_MONOTONIC, in ns; virtual time in the simulator.
        duration_s: planned duration of the workload.
        base_rtt_ns: the base RTT.
        bin_s: width of the bins in which goodput over time is shown.
        flows: all flows, in order.
        hosts: what each host reports beside its flows.
        programs: what became of the scenario's programs, by their ranks.
        open_operations: what programs had begun when they ended.
        packet_hops: packets times the link directions that they crossed; of a simulated run.
        links: counters of each direction; empty without link model.
        link_model_missing: why there was no link model.
        captures: for each captured link, how many frames the capture lost.
        datapath: Open vSwitch's, if it ran.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    t0_ns: int
    duration_s: float = Field(gt=0)
    base_rtt_ns: int = Field(gt=0)
    bin_s: float = Field(default=0.05, gt=0)
    flows: tuple[FlowRecord, ...]
    hosts: dict[str, HostRecord] = {}
    programs: tuple[ProgramRecord, ...] = ()
    open_operations: tuple[OpenOperation, ...] = ()
    packet_hops: int | None = None
    links: dict[str, LinkCounts] = {}
    link_model_missing: MissingPart | None = None
    captures: dict[str, dict[str, int]] = {}
    datapath: str | None = None

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json", exclude_unset=True), indent=1)


FLOWS = "flows.jsonl"
"""The name of the file; it is locked while a line is added."""


def lines_of(file: Path) -> list[str]:
    """The whole lines of one of these files; none if nobody has written it.

    Who was killed as it added a line has left a part of it.
    """
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return text[: text.rfind("\n") + 1].splitlines()


class RunStart(BaseModel):
    """`raw/start.json` of an emulated run.

    Attributes:
        t0_ns: start of the workload on CLOCK_MONOTONIC, in ns.
        base_rtt_ns: the base RTT.
        planned: where programs send beside other workloads, source and destination of those flows,
            by number: the flows of programs are numbered from there on.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    t0_ns: int
    base_rtt_ns: int
    planned: tuple[tuple[str, str], ...] = ()


class OpenedFlow(BaseModel):
    """A line of `raw/flows.jsonl`: a program has sent its first data packet on a queue pair.

    Attributes:
        flow: its number, counted on from `RunStart.planned`.
        src: the host that sends.
        dst: the host that receives.
        lane: how many flows between the two began before.
        qpn: the number of the sending queue pair.
        psn: its first PSN, which tells apart the queue pairs of that number.
        program: a file beside this one, which its program locks as long as it has the device open.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    flow: int
    src: str
    dst: str
    lane: int
    qpn: int
    psn: int
    program: str


OUTCOMES = "outcomes.jsonl"
"""The name of the file with what became of the flows; it is locked while a line is added."""


class SentFlow(BaseModel):
    """What the device that sent a flow knows of it, at its end.

    Attributes:
        flow: its number.
        bytes_sent: payload, each byte counted once.
        bytes_unaccounted: the part of it that nobody waits for: its queue pair failed, or its
            program closed it or ended.
        packets_sent: data packets, retransmissions included.
        packets_lost: transmissions that were lost.
        packets_retransmitted: data packets sent again.
        errors: how it failed, if it did.
    """

    flow: int
    bytes_sent: int = 0
    bytes_unaccounted: int = 0
    packets_sent: int = 0
    packets_lost: int = 0
    packets_retransmitted: int = 0
    errors: tuple[str, ...] = ()


class ReceivedFlow(BaseModel):
    """What the device that received a flow knows of it.

    Attributes:
        flow: its number.
        bytes_placed: payload in memory, each packet checked by its iCRC.
    """

    flow: int
    bytes_placed: int = 0


class DeviceOutcome(BaseModel):
    """A line of `raw/outcomes.jsonl`: a device was closed.

    Attributes:
        host: whose device.
        control_bytes: bytes of its control packets on the wire.
        refused: packets that it did not accept, by reason.
        sent: the flows that it sent.
        received: those that it received.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    host: str
    control_bytes: int = 0
    refused: dict[str, int] = Field(default_factory=dict)
    sent: tuple[SentFlow, ...] = ()
    received: tuple[ReceivedFlow, ...] = ()
