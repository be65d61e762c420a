"""A run's files, read back and checked: the input of metrics, figures and the report."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from testbed.model.addressing import Path as FabricPath
from testbed.model.addressing import directions_of_path, path_of_ev
from testbed.model.errors import InputError, Problem
from testbed.model.faults import CONTROLLER, FAULTS
from testbed.model.impairment import Impairment
from testbed.model.scenario import Scenario
from testbed.model.topology import Topology
from testbed.results.records import TABLES

NS = 1_000_000_000


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


class StepRecord(_Record):
    """One step of a fault's course: from `by_ns` on `state` was wrong, or nothing if empty."""

    by_ns: int
    state: dict[str, Any] = Field(default_factory=dict)

    @property
    def impairment(self) -> Impairment:
        """What was wrong."""
        return Impairment(**self.state)


class FaultRecord(_Record):
    """A line of `faults.jsonl`: one fault as the controller recorded it, CLOCK_MONOTONIC ns.

    It took effect between `effective_after_ns` and `effective_ns`; None where it never did.
    `error` says what did not go as asked.
    """

    index: int
    kind: str
    target: str
    places: tuple[str, ...]
    actuator: str
    asked_ns: int
    effective_after_ns: int | None = None
    effective_ns: int | None = None
    heal_asked_ns: int | None = None
    healed_ns: int | None = None
    steps: tuple[StepRecord, ...] = ()
    proof: dict[str, Any] = Field(default_factory=dict)
    error: str | None = None


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
    interval_ns: int = Field(default=NS, gt=0)
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


@dataclass(frozen=True, slots=True)
class RunData:
    """Everything that a run recorded. Tables are keyed by name, with `t` in seconds from t0."""

    directory: Path
    scenario: Scenario
    manifest: Mapping[str, Any]
    run: RunRecord
    faults: tuple[FaultRecord, ...]
    health: tuple[HealthSample, ...]
    tables: Mapping[str, pl.DataFrame]

    @property
    def topology(self) -> Topology:
        """The fabric of the run."""
        return self.scenario.topology

    @property
    def simulated(self) -> bool:
        """Whether the run took place in virtual time, as its manifest says."""
        return self.manifest.get("simulated") is True

    @property
    def base_rtt_s(self) -> float:
        """Base RTT in emulated seconds."""
        return self.run.base_rtt_ns / NS

    @property
    def health_during(self) -> tuple[HealthSample, ...]:
        """The samples between start and planned end."""
        begin, end = self.run.t0_ns, self.run.t0_ns + self.run.duration_s * NS
        return tuple(sample for sample in self.health if begin <= sample.t_ns <= end)

    def seconds(self, time_ns: int | None) -> float | None:
        """A CLOCK_MONOTONIC time as seconds from the start of the run."""
        return None if time_ns is None else (time_ns - self.run.t0_ns) / NS

    def table(self, name: str, flow: int) -> pl.DataFrame:
        """The rows of one flow, in order of time."""
        return self.tables[name].filter(pl.col("flow") == flow)

    def path_of(self, flow: FlowRecord, ev: int) -> FabricPath:
        """The path that an EV of a flow takes."""
        nodes = self.topology.nodes
        return path_of_ev(self.topology, nodes[flow.src], nodes[flow.dst], ev)

    @property
    def struck(self) -> tuple[tuple[float, float], ...]:
        """When faults were in force: each from asked to healed (or the end), in s of the run."""
        end = self.run.duration_s
        return tuple(
            (self.seconds(fault.asked_ns) or 0.0, self.seconds(fault.healed_ns) or end)
            for fault in self.faults
        )

    def crosses(self, flow: FlowRecord, ev: int, places: Collection[str]) -> bool:
        """Whether an EV of a flow leads its data over one of these directions, or to a host."""
        nodes = self.topology.nodes
        path = self.path_of(flow, ev)
        crossed = directions_of_path(self.topology, nodes[flow.src], nodes[flow.dst], path)
        return not {*crossed, flow.src, flow.dst}.isdisjoint(places)


def load_run(directory: Path) -> RunData:
    """Read a run directory.

    Raises:
        InputError: a file is missing or is not what a run writes.
    """
    manifest = _manifest(directory / "manifest.json")
    try:
        scenario = Scenario.model_validate(manifest.get("scenario"))
        run = RunRecord.model_validate_json(_read(directory / "run.json"))
        faults = [FaultRecord.model_validate_json(x) for x in _lines(directory / FAULTS)]
        health = [HealthSample.model_validate_json(x) for x in _lines(directory / "health.jsonl")]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        problem = Problem(f"{directory}: {error.title}.{place}", str(first["input"]), first["msg"])
        raise InputError([problem]) from error
    known = {d for link in scenario.topology.links.values() for d in link.directions}
    known |= {*scenario.topology.nodes, CONTROLLER}
    unknown = [place for fault in faults for place in fault.places if place not in known]
    if unknown:
        problem = Problem(f"{directory / FAULTS}", unknown[0], "a place of the run's topology")
        raise InputError([problem])
    return RunData(
        directory=directory,
        scenario=scenario,
        manifest=manifest,
        run=run,
        faults=tuple(sorted(faults, key=lambda fault: fault.asked_ns)),
        health=tuple(health),
        tables={table.name: _table(directory, table.name) for table in TABLES},
    )


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(_read(path))
    except json.JSONDecodeError as error:
        raise InputError([Problem(str(path), "", f"JSON ({error})")]) from error
    if not isinstance(manifest, dict):
        raise InputError([Problem(str(path), type(manifest).__name__, "a JSON object")])
    return manifest


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError([Problem(str(path), "", f"a file of a run ({error.strerror})")]) from error


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [line for line in _read(path).splitlines() if line.strip()]


def _table(directory: Path, name: str) -> pl.DataFrame:
    path = directory / f"{name}.parquet"
    if not path.is_file():
        raise InputError([Problem(str(path), "", "a table of the run")])
    return pl.read_parquet(path).sort("t", maintain_order=True)
