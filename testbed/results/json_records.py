"""What a run's JSON files hold, line by line, as it is checked when it is read.

Without its tables: no more is loaded than a process that forks others may load.
"""

from collections.abc import Collection, Iterable

from pydantic import BaseModel, ConfigDict, Field

from testbed.model.units import NS_PER_S


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class FlowRecord(_Record):
    """One direction src -> dst with one requester, as `run.json` describes it.

    `attainable_bps` is the payload rate that the fabric allows the flow without faults, in
    emulated bits/s: raw rate times payload over wire size, less its own SACKs.
    """

    flow: int
    src: str
    dst: str
    transport: str
    attainable_bps: float = Field(gt=0)
    bytes_sent: int = 0
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


class LinkRecord(_Record):
    """What a link direction did, in packets, as `run.json` describes it; what it lacks is 0."""

    offered: int
    packets: int
    marked: int
    trimmed: int
    full: int
    full_priority: int
    lost: int
    path_lost: int = 0
    blackholed: int
    cut: int = 0
    corrupted: int
    paused: int = 0
    peak_bytes: int

    @property
    def dropped(self) -> int:
        """All that did not arrive, for a cause."""
        full, lost = self.full + self.full_priority, self.lost + self.path_lost
        return full + lost + self.blackholed + self.cut


class Missing(_Record):
    """What the machine of a run lacked, and what to do about it."""

    what: str
    remedy: str


class RunRecord(_Record):
    """`run.json`: when the run began on CLOCK_MONOTONIC, how long it was to last, its flows.

    `links` has every direction by its name; none where there was no link model, and
    `link_model_missing` says why there was not.
    """

    t0_ns: int
    duration_s: float = Field(gt=0)
    base_rtt_ns: int = Field(gt=0)
    bin_s: float = Field(default=0.05, gt=0)
    flows: tuple[FlowRecord, ...]
    links: dict[str, LinkRecord] = Field(default_factory=dict)
    link_model_missing: Missing | None = None


class HealthSample(_Record):
    """A line of `health.jsonl`: how a process, or the machine, did since its last sample.

    `drops` are those that no fault explains, counted from the beginning of the run on.
    `busy_share` is of all `cpus`, 0 to 1; `softirq_share` is what of it the kernel spent on packets
    and timers, and `stolen_share` what the machine under a virtual one gave to others; `cores` is
    the busy share of each. `timer_late_ns` is how late the worst sleep ended; `resident_bytes` the
    memory that each process of the run had.
    """

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
    cores: dict[str, float] = Field(default_factory=dict)
    timer_late_ns: int | None = None
    resident_bytes: dict[str, int] = Field(default_factory=dict)
    drops: dict[str, int] = Field(default_factory=dict)


def mean_busy(samples: Collection[HealthSample]) -> float | None:
    """Busy share of all CPUs over the time of samples; None where it was not sampled."""
    return _mean((s.busy_share, s.interval_ns) for s in samples)


def mean_stolen(samples: Collection[HealthSample]) -> float | None:
    """The same of the share that the machine under a virtual one gave to others."""
    return _mean((s.stolen_share, s.interval_ns) for s in samples)


def _mean(sampled: Iterable[tuple[float | None, int]]) -> float | None:
    shares = [(share, weight) for share, weight in sampled if share is not None]
    if not shares:
        return None
    return sum(share * weight for share, weight in shares) / sum(weight for _, weight in shares)
