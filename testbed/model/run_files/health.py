"""The content of `health.jsonl`: how busy and how late processes and the machine were."""

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

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
