"""A run's files, read back and checked: the input of metrics, figures and the report."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain, count, islice
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
from pydantic import ValidationError

from testbed.model.errors import InputError, few
from testbed.model.fabric.addressing import Path as FabricPath
from testbed.model.fabric.addressing import directions_of_path, path_of_ev
from testbed.model.fabric.names import direction_named, node_named
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.faults.record import FAULTS, FaultRecord
from testbed.model.faults.schedule import CONTROLLER
from testbed.model.run_files.content import FlowRecord, HealthSample, RunRecord
from testbed.model.run_files.layout import FIGURES, HEALTH, MANIFEST, RUN
from testbed.model.run_files.manifest import Manifest
from testbed.model.scenario import Scenario
from testbed.model.summary import Scale
from testbed.model.units import NS_PER_S
from testbed.model.workload import Graphed, Program, members
from testbed.results.analysis.delivery import ByFlow
from testbed.results.records import (
    ARRIVALS,
    COMPLETIONS,
    OF_SOME_RUNS,
    TABLES,
    TRANSMISSIONS,
    Table,
    require_threads,
)


@dataclass(frozen=True)
class RunData:
    """Everything that a run recorded; in tables, `t` is in seconds of the run."""

    directory: Path
    scenario: Scenario
    manifest: Manifest
    run: RunRecord
    faults: tuple[FaultRecord, ...]
    health: tuple[HealthSample, ...]
    tables: Mapping[Table, pl.DataFrame]
    _by_flow: dict[Table, ByFlow] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def figures(self) -> Path:
        return self.directory / FIGURES

    @property
    def topology(self) -> Topology:
        return self.scenario.topology

    @cached_property
    def flows(self) -> tuple[FlowRecord, ...]:
        """The flows that carry data, without those that carry only the signals of a barrier.

        A barrier sends one byte in each step, so it has no rate and takes none from other flows.
        """
        signals = self.scenario.planned.signals
        return tuple(flow for flow in self.run.flows if flow.flow not in signals)

    @cached_property
    def _planned(self) -> int:
        """How many flows the scenario names; those of programs have the numbers from there on."""
        return len(self.scenario.planned.flows)

    @cached_property
    def flows_of_jobs(self) -> tuple[frozenset[int] | None, ...]:
        """The numbers of the flows of each job; None where nobody knows whose flows they are.

        Flows of programs are those between the hosts of a job, if no other program has these hosts.
        """
        scenario = self.scenario
        of_each = (members(program.hosts, self.topology) for program in scenario.programs.values())
        running = Counter(chain.from_iterable(of_each))
        of_programs = [flow for flow in self.run.flows if flow.flow >= self._planned]
        numbers, flows_of_jobs = count(), list[frozenset[int] | None]()
        for job, flows in zip(scenario.job_list, scenario.flows_of_jobs, strict=True):
            if not isinstance(job.workload, Program):
                flows_of_jobs.append(frozenset(islice(numbers, len(flows))))
                continue
            hosts = job.hosts(self.topology)
            is_known = all(running[host] == 1 for host in hosts)
            of_job = frozenset(flow.flow for flow in of_programs if flow.src in hosts)
            flows_of_jobs.append(of_job if is_known else None)
        return tuple(flows_of_jobs)

    @cached_property
    def idle(self) -> frozenset[int]:
        """The numbers of the flows that had nothing to send while the workload ran.

        The packet that measures the base RTT before it is a message as well.
        """
        before = dict(
            self.tables[COMPLETIONS]
            .filter(pl.col("t") < 0)
            .group_by("flow")
            .agg(pl.col("bytes").sum())
            .iter_rows()
        )
        return frozenset(
            flow.flow for flow in self.flows if flow.bytes_sent <= before.get(flow.flow, 0)
        )

    @property
    def simulated(self) -> bool:
        return self.manifest.simulated

    @property
    def paced(self) -> bool:
        """Whether the time of the fabric kept step with the clock: it may be late then."""
        return self.manifest.paced

    @property
    def base_rtt_s(self) -> float:
        """Base RTT in emulated seconds."""
        return self.run.base_rtt_ns / NS_PER_S

    @property
    def scale(self) -> Scale:
        """What the run's times are divided by."""
        return Scale(self.base_rtt_s, self.topology.dilation)

    @property
    def health_during(self) -> tuple[HealthSample, ...]:
        """The samples between start and planned end."""
        begin, end = self.run.t0_ns, self.run.t0_ns + self.run.duration_s * NS_PER_S
        return tuple(sample for sample in self.health if begin <= sample.t_ns <= end)

    @cached_property
    def end_s(self) -> float:
        """The end of the measured time in seconds: the planned one, or the last arrival if earlier.

        After the planned end senders stop and the fabric drains, which is no part of the
        experiment. The planned end counts if nothing arrived since the start, and if a sender was
        still waiting, as the run waited for it. It also counts if a fault that never healed began
        before the last arrival, or killed a host: then the time without arrivals is an effect of
        the fault.
        """
        last = self.tables[ARRIVALS]["t"].max()
        waiting = any(flow.unfinished for flow in self.run.flows)
        if waiting or not isinstance(last, float) or last < 0:
            return self.run.duration_s
        for fault in self.faults:
            struck = self.seconds(fault.effective_ns)
            lasting = fault.healed_ns is None and struck is not None
            if lasting and (fault.kind == "kill" or (struck or 0.0) <= last):
                return self.run.duration_s
        return min(self.run.duration_s, last)

    @cached_property
    def lifetimes(self) -> Mapping[int, tuple[float, float]]:
        """From when to when there was a flow, in seconds: see `FlowTables.lasted`.

        A flow of a program lasts from its first packet to its last arrival, one of a job from the
        job's start. Those that last as long as the run are not in it.
        """
        planned = {
            flow: (job.start / NS_PER_S, inf)
            for job, flows in zip(self.scenario.job_list, self.flows_of_jobs, strict=True)
            if job.start and not isinstance(job.workload, Program)
            for flow in flows or ()
        }
        if not self.scenario.programs:
            return planned
        ends = {
            name: dict(self.tables[table].group_by("flow").agg(each).iter_rows())
            for name, table, each in (
                ("first", TRANSMISSIONS, pl.col("t").min()),
                ("last", ARRIVALS, pl.col("t").max()),
            )
        }
        first, last = ends["first"], ends["last"]
        return planned | {
            flow.flow: (begin, max(begin, last.get(flow.flow, begin)))
            for flow in self.flows
            if flow.flow >= self._planned
            if (begin := first.get(flow.flow)) is not None
        }

    @cached_property
    def done(self) -> Mapping[int, float]:
        """When all that a workload with an end gave a flow had arrived, in seconds of the run.

        Those that failed or were still waiting, or whose ends a fault killed, are not in it.
        """
        killed = {place for fault in self.faults if fault.kind == "kill" for place in fault.places}
        numbers = {
            number
            for job, flows in zip(self.scenario.job_list, self.flows_of_jobs, strict=True)
            if isinstance(job.workload, Graphed)
            for number in flows or ()
        }
        if not numbers:
            return {}
        arrived = self.tables[ARRIVALS].group_by("flow").agg(pl.col("t").max())
        last: dict[int, float] = dict(arrived.iter_rows())
        return {
            flow.flow: last[flow.flow]
            for flow in self.flows
            if flow.flow in numbers
            and flow.flow in last
            and not (flow.unfinished or flow.errors)
            and killed.isdisjoint((flow.src, flow.dst))
        }

    @cached_property
    def spells(self) -> Mapping[int, Sequence[tuple[float, float]]]:
        """When flows of `done` had messages under way, in seconds of the run, ascending.

        A flow of such a workload waits for others between its messages. Pauses shorter than a base
        RTT are no pause.
        """
        messages = self.tables[COMPLETIONS].filter(pl.col("flow").is_in([*self.done]))
        paused = pl.col("start_t") > pl.col("last").shift().over("flow") + self.base_rtt_s
        spells = (
            messages.drop_nulls("start_t")
            .sort("flow", "start_t")
            .with_columns(last=pl.col("t").cum_max().over("flow"))
            .with_columns(spell=paused.fill_null(value=False).cum_sum().over("flow"))
            .group_by("flow", "spell", maintain_order=True)
            .agg(pl.col("start_t").min(), pl.col("t").max())
        )
        of_flow = defaultdict[int, list[tuple[float, float]]](list)
        for flow, _, begin, end in spells.iter_rows():
            of_flow[flow].append((begin, end))
        return of_flow

    def seconds(self, time_ns: int | None) -> float | None:
        """A CLOCK_MONOTONIC time as seconds from the start of the run."""
        return None if time_ns is None else (time_ns - self.run.t0_ns) / NS_PER_S

    def table(self, table: Table, flow: int) -> pl.DataFrame:
        """The rows of one flow, in order of time; a table is split by flow once."""
        if table not in self._by_flow:
            self._by_flow[table] = ByFlow(self.tables[table])
        return self._by_flow[table].rows(flow)

    def path_of(self, flow: FlowRecord, ev: int) -> FabricPath:
        return path_of_ev(self.topology, *self._ends(flow), ev)

    def _ends(self, flow: FlowRecord) -> tuple[Node, Node]:
        return self.topology.host_named(flow.src), self.topology.host_named(flow.dst)

    @property
    def fault_times_s(self) -> tuple[tuple[float, float], ...]:
        """When each fault was in force: from its request to its healing or the end, in seconds."""
        end = self.run.duration_s
        return tuple(
            (self.seconds(fault.requested_ns) or 0.0, self.seconds(fault.healed_ns) or end)
            for fault in self.faults
        )

    def crosses(self, flow: FlowRecord, ev: int, places: Collection[str]) -> bool:
        """Whether an EV's data cross one of some directions of links, or reach or leave a host."""
        path = self.path_of(flow, ev)
        crossed = directions_of_path(self.topology, *self._ends(flow), path)
        return not {*crossed, flow.src, flow.dst}.isdisjoint(places)


@contextmanager
def naming_damage(directory: Path) -> Iterator[None]:
    """Say which file of a run is damaged, if a block that reads them finds one.

    Raises:
        InputError: a file is not what a run writes.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        where = f"{directory}: {error.title}.{place}"
        raise InputError.of(where, str(first["input"]), first["msg"]) from error
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        expected = f"files of a run ({error})"
        raise InputError.of(str(directory), "a damaged file", expected) from error


def load_run(directory: Path) -> RunData:
    """Read a run directory.

    Raises:
        InputError: a file is missing or is not what a run writes.
    """
    require_threads()
    with naming_damage(directory):
        manifest = Manifest.model_validate_json(_read(directory / MANIFEST))
        scenario = Scenario.recorded(manifest.scenario)
        run = RunRecord.model_validate_json(_read(directory / RUN))
        faults = [FaultRecord.from_line(line) for line in _lines(directory / FAULTS)]
        health = [HealthSample.model_validate_json(line) for line in _lines(directory / HEALTH)]
    places = (place for fault in faults for place in fault.places)
    unknown = [place for place in places if not _is_place(scenario.topology, place)]
    if unknown:
        raise InputError.of(str(directory / FAULTS), unknown[0], "a place of the run's topology")
    return RunData(
        directory=directory,
        scenario=scenario,
        manifest=manifest,
        run=run,
        faults=tuple(sorted(faults, key=lambda fault: fault.requested_ns)),
        health=tuple(health),
        tables=_Tables({table: _frame(directory, table) for table in TABLES}),
    )


def _is_place(topology: Topology, place: str) -> bool:
    """Whether a fault may be there: a direction of a link, a node, or the controller."""
    known = direction_named if ">" in place else node_named
    return place == CONTROLLER or known(topology, place) is not None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError.of(str(path), "", f"a file of a run ({error.strerror})") from error


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [line for line in _read(path).splitlines() if line.strip()]


class _Tables(Mapping[Table, pl.DataFrame]):
    """The tables of a run, each of which is read when it is first asked for.

    The samples of queue pairs, which the analysis does not need, may be most of them.
    """

    def __init__(self, frames: Mapping[Table, "_Frame"]) -> None:
        self._frames = frames

    def __getitem__(self, table: Table) -> pl.DataFrame:
        return self._frames[table]()

    def __iter__(self) -> Iterator[Table]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)


_Frame = Callable[[], pl.DataFrame]


def _frame(directory: Path, table: Table) -> _Frame:
    """What reads a table of a run, in order of time; that it is there is checked now.

    One that most runs do not have, or that an earlier version has with fewer columns, has no rows
    then, as nothing is measured of it.
    """
    path = directory / table.file
    found, expected, remedy = "", "a table of the run", ""

    def read(what: Callable[[BinaryIO], Any]) -> Any:
        try:
            with path.open("rb") as content:  # its name may not be UTF-8, as Polars takes it
                return what(content)
        except (OSError, pl.exceptions.PolarsError):
            raise InputError.of(str(path), "a damaged file", expected) from None

    if path.is_file():
        missing = {*table.frame_schema()} - {*read(pl.read_parquet_schema)}
        if not missing:
            return cache(lambda: read(pl.read_parquet).sort("t", maintain_order=True))
        found = f"no column {few(sorted(missing))}"
        expected, remedy = "a table of this version", "make the run again"
    if table in OF_SOME_RUNS:
        return cache(lambda: pl.DataFrame(schema=table.frame_schema()))
    raise InputError.of(str(path), found, expected, remedy)
