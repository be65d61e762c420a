"""Where the time and the memory of a simulated run go: simulating, records, analysis, drawing.

Each run is made in a process of its own, on one CPU, by the functions that `testbed simulate`
calls. Time is CPU time, and memory is the largest resident size of the process in a stage. The
process is a new Python, no fork: it loads Polars, whose threads a fork of a process that has loaded
it would wait for.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from testbed import interpreter
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.run_files.layout import FIGURES
from testbed.model.scenario import Scenario
from testbed.model.transport import Roce
from testbed.model.workload import AllToAll
from testbed.results.records import collect
from testbed.sim import Simulation, simulate
from testbed.sim.run import COLLECTING
from testbed.studies.bench.measure import Measurement, Setting, no_target
from testbed.studies.bench.simulator import one_plane, permutation

FABRICS = {8: (2, 4), 128: (8, 16), 1024: (32, 32)}
"""Leaves, and hosts of a leaf, by the number of hosts."""

Given = TypeVar("Given")
Measured = TypeVar("Measured")

Cost = tuple[float, float]
"""CPU seconds and the peak of the resident memory in megabytes."""


class Stages:
    """Measures one stage of a process after the other."""

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}
        self._began_s = 0.0
        self._begin()

    def _begin(self) -> None:
        # A 5 sets the peak back to the present size (proc_pid_clear_refs(5)).
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self._began_s = time.process_time()

    def end(self, stage: str) -> None:
        self.costs[stage] = (time.process_time() - self._began_s, peak_megabytes())
        self._begin()


def simulator_cost(setting: Setting) -> list[Measurement]:
    """Measure runs of three sizes; takes some minutes."""
    return [
        figure
        for hosts, (leaves, hosts_per_leaf) in FABRICS.items()
        for figure in costs(f"{hosts} hosts", permutation(leaves, hosts_per_leaf, 1), setting)
    ]


def costs(name: str, scenario: Scenario, setting: Setting) -> list[Measurement]:
    """The cost of one scenario's runs without records, and with them by stage."""
    figures: list[Measurement] = []
    for what, measure in (("not recorded", unrecorded), ("by stage", recorded)):
        samples = setting.repeat(f"{name}, {what}", partial(in_new_process, measure, scenario))
        figures += _by_stage(name, samples)
    return figures


def _by_stage(name: str, samples: Sequence[Mapping[str, Cost]]) -> Iterator[Measurement]:
    for stage in samples[0]:
        seconds, megabytes = zip(*(sample[stage] for sample in samples), strict=True)
        yield no_target(f"{name}: {stage}", "s", seconds)
        yield no_target(f"{name}: {stage}, peak memory", "MB", megabytes)


ALL_TO_ALLS = {56: (2, 4, 1), 992: (4, 8, 1), 8064: (8, 8, 2), 64512: (8, 8, 16)}
"""Racks, hosts of a rack, and queue pairs of two hosts, by the number of flows."""


def analysis_cost(setting: Setting) -> list[Measurement]:
    """Measure the analysis of all-to-alls of four sizes; the largest is simulated for minutes."""
    figures: list[Measurement] = []
    for flows, sizes in ALL_TO_ALLS.items():
        with tempfile.TemporaryDirectory() as place:
            raw = Path(place, "run")
            in_new_process(partial(_leave_records, raw), all_to_all(*sizes))
            samples = setting.repeat(f"{flows} flows", partial(in_new_process, analysed, raw))
        figures += _by_stage(f"{flows} flows", samples)
    return figures


def all_to_all(racks: int, hosts_per_rack: int, qps: int) -> Scenario:
    """Every queue pair of RoCE sends one packet to its peer, and begins again."""
    topology = one_plane("all-to-all", racks, hosts_per_rack)
    hosts = tuple(host.name for host in topology.hosts)
    size = PAYLOAD_MTU * qps * len(hosts)
    return Scenario(
        name=topology.name,
        topology=topology,
        duration="200 us",
        workload=AllToAll(hosts=hosts, size=f"{size} B"),
        transport=Roce(qps=qps),
    )


def _leave_records(run: Path, scenario: Scenario) -> None:
    """Simulate, and leave the directory of the run as it is before its records are collected."""
    with tempfile.TemporaryDirectory() as place:

        def keep(step: str, _share: float) -> None:
            if step == COLLECTING:
                shutil.copytree(place, run)

        Path(place, FIGURES).mkdir()
        simulate(scenario, Path(place), keep)


def analysed(run: Path) -> dict[str, Cost]:
    """What collecting raw records, analysing and drawing cost, in a copy of a run's directory."""
    starting = time.process_time(), peak_megabytes()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(shutil.copytree(run, Path(place, "run")))
        stages = Stages()
        collect(directory)
        stages.end("collecting records")
        _analyse(directory, stages)
    return {"starting": starting, **stages.costs}


def in_new_process(measure: Callable[[Given], Measured], given: Given) -> Measured:
    """Call a function of a module in a new Python, on one CPU."""
    pinned = partial(os.sched_setaffinity, 0, {one_cpu()})
    with (
        interpreter.safe_children(),
        ProcessPoolExecutor(1, get_context("spawn"), pinned) as process,
    ):
        return process.submit(measure, given).result()


def unrecorded(scenario: Scenario) -> dict[str, Cost]:
    """What the simulation alone costs, without the start of its process."""
    stages = Stages()
    Simulation(scenario).run()
    stages.end("simulating without records")
    return stages.costs


def recorded(scenario: Scenario) -> dict[str, Cost]:
    """What a whole run costs, by stage; the first is the start of Python and its libraries."""
    starting = time.process_time(), peak_megabytes()
    stages = Stages()

    def note(step: str, _share: float) -> None:
        if step == COLLECTING:
            stages.end("simulating with records")

    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        (directory / FIGURES).mkdir()
        simulate(scenario, directory, note)
        stages.end("collecting records")
        _analyse(directory, stages)
    return {"starting": starting, **stages.costs}


def _analyse(directory: Path, stages: Stages) -> None:
    """As `results/analyse.py` does it; loading the libraries is part of each stage."""
    from testbed.results.analysis.metrics import flow_tables, summarise  # noqa: PLC0415
    from testbed.results.run_data import load_run  # noqa: PLC0415

    data = load_run(directory)
    tables = flow_tables(data)
    summary = summarise(data, tables)
    summary.model_dump_json(indent=2)
    stages.end("analysing")
    from testbed.results.report.figures import draw_all  # noqa: PLC0415
    from testbed.results.report.run_report import render  # noqa: PLC0415

    render(data, summary, draw_all(data, tables, summary, svg=False))
    stages.end("drawing")


MEGABYTE = 10**6
_LOOK_S = 0.005
"""How often the peak is looked at: a program that has ended has no status any more."""

_PEAK = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProgramCost:
    """What a program came to.

    Attributes:
        status: its exit status; negative where a signal ended it.
        output: what it printed.
        seconds: its CPU time from its start, with that of its children.
        wall_s: how long it took.
        megabytes: the peak of its resident memory.
    """

    status: int
    output: str
    seconds: float
    wall_s: float
    megabytes: float


def one_cpu() -> int:
    """The CPU on which programs are measured: the last that this process may use."""
    return max(os.sched_getaffinity(0))


def peak_megabytes(process: int | str = "self") -> float:
    """The largest resident size of a process; 0 if it has ended.

    That of `getrusage` is another: it counts from the memory of whoever started the process.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    except ProcessLookupError:
        return 0.0
    found = _PEAK.search(status)
    return 0.0 if found is None else int(found[1]) * 1024 / MEGABYTE


def cost_of(command: Sequence[str | Path], place: Path) -> ProgramCost:
    """Run a program in a directory of the caller's own and return what it cost."""
    with (place / "output").open("w+", encoding="utf-8") as output:
        began = time.monotonic()
        process = interpreter.start(
            [*map(str, command)], cwd=place, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            os.sched_setaffinity(process.pid, {one_cpu()})
            megabytes, ended = peak_megabytes(process.pid), 0
            while not ended:
                time.sleep(_LOOK_S)
                megabytes = max(megabytes, peak_megabytes(process.pid))
                ended, status, used = os.wait4(process.pid, os.WNOHANG)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        wall_s = time.monotonic() - began
        output.seek(0)
        return ProgramCost(
            status=process.returncode,
            output=output.read(),
            seconds=used.ru_utime + used.ru_stime,
            wall_s=wall_s,
            megabytes=megabytes,
        )
