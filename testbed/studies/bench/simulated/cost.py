"""Where the time and the memory of a simulated run go: simulating, records, analysis, drawing.

Each run is made in a process of its own, on one CPU, by the functions that `testbed simulate`
calls. Time is CPU time, and memory is the largest resident size of the process in a stage. The
process is a new Python, no fork: it loads Polars, whose threads a fork of a process that has loaded
it would wait for.
"""

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from testbed import interpreter
from testbed.model.run_files.layout import FIGURES
from testbed.model.scenario import Scenario
from testbed.sim import Simulation, simulate
from testbed.sim.run import COLLECTING
from testbed.studies.bench.measure import Measurement, Setting, no_target
from testbed.studies.bench.simulated.program_cost import one_cpu, peak_megabytes
from testbed.studies.bench.simulated.simulator import permutation

FABRICS = {8: (2, 4), 128: (8, 16), 1024: (32, 32)}
"""Leaves, and hosts of a leaf, by the number of hosts."""

Measured = TypeVar("Measured")

Cost = tuple[float, float]
"""CPU seconds and the peak of the resident memory in megabytes."""


class Stages:
    """Measures one stage of a process after the other."""

    def __init__(self) -> None:
        """Begin the first stage."""
        self.costs: dict[str, Cost] = {}
        self._began_s = 0.0
        self._begin()

    def _begin(self) -> None:
        # A 5 sets the peak back to the present size (proc_pid_clear_refs(5)).
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self._began_s = time.process_time()

    def end(self, stage: str) -> None:
        """End a stage and begin the next one."""
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
    figures = []
    for what, measure in (("not recorded", unrecorded), ("by stage", recorded)):
        samples = setting.repeat(f"{name}, {what}", partial(in_new_process, measure, scenario))
        for stage in samples[0]:
            seconds, megabytes = zip(*(sample[stage] for sample in samples), strict=True)
            figures.append(no_target(f"{name}: {stage}", "s", seconds))
            figures.append(no_target(f"{name}: {stage}, peak memory", "MB", megabytes))
    return figures


def in_new_process(measure: Callable[[Scenario], Measured], scenario: Scenario) -> Measured:
    """Call a function of a module in a new Python, on one CPU."""
    pinned = partial(os.sched_setaffinity, 0, {one_cpu()})
    with (
        interpreter.safe_children(),
        ProcessPoolExecutor(1, get_context("spawn"), pinned) as process,
    ):
        return process.submit(measure, scenario).result()


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
        # As `results/analyse.py` does it; loading the libraries is part of the stage.
        from testbed.results.analysis.metrics import flow_tables, summarise  # noqa: PLC0415
        from testbed.results.run_data import load_run  # noqa: PLC0415

        data = load_run(directory)
        tables = flow_tables(data)
        summary = summarise(data, tables)
        stages.end("analysing")
        from testbed.results.report.figures import draw_all  # noqa: PLC0415
        from testbed.results.report.run_report import render  # noqa: PLC0415

        render(data, summary, draw_all(data, tables, summary))
        stages.end("drawing")
    return {"starting": starting, **stages.costs}
