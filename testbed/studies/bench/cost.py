"""How fast the simulator is, and where the time and the memory of a simulated run go.

Speed is packets times links crossed, per minute of one CPU; the transport's cost is included. The
leaf-spine is that with which uet-htsim is often shown: 32 leaves and 32 spines, links of 100
Gbit/s, every host sends 2 MB to another one. Together they need all of the fabric's capacity.

A run is simulated, recorded, analysed and drawn. Each is made in a process of its own, on one CPU,
by the functions that `testbed simulate` calls. Time is CPU time, and memory is the largest resident
size of the process in a stage. The process is a new Python, no fork: it loads Polars, whose threads
a fork of a process that has loaded it would wait for.
"""

import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from testbed import interpreter
from testbed.model.fabric.topology import PAYLOAD_MTU, Topology
from testbed.model.files.chakra import messages
from testbed.model.files.scenarios import load_scenario
from testbed.model.run_files.layout import FIGURES
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc, Roce
from testbed.model.units import NS_PER_S
from testbed.model.workload import AllToAll, WriteBw
from testbed.results.records import collect
from testbed.sim import Simulation, SimulationOutcome, simulate
from testbed.sim.run import COLLECTING
from testbed.studies.bench.measure import Measurement, Setting, at_least, at_most, no_target

SCENARIOS = ("permutation", "link-failure")
MILLION_HOPS = 5.0
"""Per minute."""

WIDTH = 32
"""Leaves, spines, and hosts of a leaf."""

MESSAGE = "2 MB"
SLOWEST = 1.18
"""Of the ideal completion, counted until its sender knows of it, as uet-htsim counts it too."""

SAMPLE_NS = 250


def simulator(setting: Setting) -> list[Measurement]:
    """Simulate scenarios."""
    return [figure for name in SCENARIOS for figure in speeds(load_scenario(name), setting)]


def speeds(scenario: Scenario, setting: Setting) -> list[Measurement]:
    """How fast one scenario is simulated, with its records and without."""
    figures = []
    for recorded in (False, True):
        simulate = partial(_million_hops_per_min, scenario, recorded=recorded)
        samples = setting.repeat(f"simulate {scenario.name}", simulate)
        name = f"{scenario.name} simulated, {'recorded' if recorded else 'not recorded'}"
        figures.append(at_least(name, "million packet-hops/min", samples, MILLION_HOPS))
    return figures


def _million_hops_per_min(scenario: Scenario, *, recorded: bool) -> float:
    with tempfile.TemporaryDirectory() as directory:
        began = time.process_time()
        simulation = Simulation(scenario, Path(directory) if recorded else None)
        outcome = simulation.run()
        simulation.close()
        return _per_minute(outcome, began)


def _per_minute(outcome: SimulationOutcome, began: float) -> float:
    """Million packet-hops a minute of CPU time, which began then."""
    return outcome.packet_hops / (time.process_time() - began) * 60 / 1e6


def one_plane(name: str, leaves: int, hosts_per_leaf: int) -> Topology:
    """A leaf-spine fabric without oversubscription, at full speed; its name has its hosts."""
    return Topology(
        name=f"{name}-{leaves * hosts_per_leaf}",
        planes=1,
        t0_per_plane=leaves,
        t1_per_plane=hosts_per_leaf,
        hosts_per_t0=hosts_per_leaf,
        dilation=1.0,
    )


def permutation(leaves: int, hosts_per_leaf: int, seed: int) -> Scenario:
    """Every host sends one message to another host, each to a different one."""
    topology = one_plane("leaf-spine", leaves, hosts_per_leaf)
    order = [host.name for host in topology.hosts]
    random.Random(seed).shuffle(order)  # noqa: S311 - repeatable
    ring = zip(order, order[1:] + order[:1], strict=True)
    return Scenario(
        name=topology.name,
        topology=topology,
        seed=seed,
        duration="100 us",  # less than the message takes: nobody posts a second one
        workload=WriteBw(pairs=tuple(ring), bidirectional=False, message_size=MESSAGE, depth=1),
        transport=Mrc(congestion="nscc"),
    )


def ideal_ns(scenario: Scenario) -> float:
    """How long the message takes alone: its packets at line rate, and one packet's way."""
    topology = scenario.topology
    packets = -(-scenario.longest_bytes // PAYLOAD_MTU)
    packet_ns = topology.wire_bytes * 8 * NS_PER_S / (topology.planes * topology.port_rate_bps)
    return packets * packet_ns + topology.one_way_ns(3) + 3 * packet_ns


def completions(scenario: Scenario) -> tuple[list[float], float]:
    """Run a scenario; return completion times over the ideal one, ascending, and the speed.

    The speed is in million packet-hops a CPU minute.

    A flow is complete when its sender has the acknowledgement of the last packet.
    """
    simulation = Simulation(scenario)
    waiting = [
        sender for host in simulation.hosts.values() for sender in host.traffic.senders.values()
    ]
    done_ns: list[int] = []

    def look(now_ns: int, _: object) -> None:
        late = [sender for sender in waiting if sender.counts.bytes_completed <= PAYLOAD_MTU]
        done_ns.extend([now_ns] * (len(waiting) - len(late)))
        waiting[:] = late
        if waiting:
            simulation.engine.at(now_ns + SAMPLE_NS, look)

    simulation.engine.at(0, look)
    began = time.process_time()
    outcome = simulation.run()
    speed = _per_minute(outcome, began)
    if waiting:
        raise RuntimeError(f"{len(waiting)} flows did not complete")
    ideal = ideal_ns(scenario)
    taken = [(at_ns - outcome.t0_ns) / ideal for at_ns in done_ns]
    return taken, speed


def leaf_spine(setting: Setting) -> list[Measurement]:
    """Simulate it; takes a minute or two for each repeat."""
    seeds = count(1)
    taken, speed = zip(
        *setting.repeat(
            f"leaf-spine of {WIDTH * WIDTH} hosts",
            lambda: completions(permutation(WIDTH, WIDTH, next(seeds))),
        ),
        strict=True,
    )
    slowest = [times[-1] for times in taken]
    median = [times[len(times) // 2] for times in taken]
    name = f"leaf-spine of {WIDTH * WIDTH}, 2 MB permutation"
    return [
        at_most(f"{name}: slowest flow / ideal", "", slowest, SLOWEST),
        at_most(f"{name}: median flow / ideal", "", median, SLOWEST),
        at_least(f"{name}: simulated", "million packet-hops/min", speed, MILLION_HOPS),
    ]


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


RANKS = 100
OPERATIONS = 10_000
"""Of each rank of the schedule, and nodes of each rank's trace."""

TRANSFERS = 100_000
"""Of the matrix; each second one begins when the one before is done."""

_COMPUTE, _SEND, _RECEIVE = 4, 5, 6
"""Types of nodes of a trace."""

MOST_S, MOST_OF_TRACES_S, MOST_MB = 30.0, 60.0, 1000.0
"""Targets, of CPU time and of memory; a node of a trace is a message of protobuf."""

_SCENARIO = """\
name: reading
topology: {{name: leaf-spine, planes: 1, t0_per_plane: 10, t1_per_plane: 10, hosts_per_t0: 10}}
workload: {{{workload}}}
"""


def reading(setting: Setting) -> list[Measurement]:
    """Read a schedule, a matrix, and the traces of all ranks.

    Raises:
        MachineError: protobuf is not installed.
    """
    figures = []
    forms: Sequence[tuple[str, str, Mapping[str, Iterable[bytes]], float]] = (
        (
            "a GOAL schedule of 1,000,000 operations",
            "kind: goal, file: x.goal",
            {"x.goal": (line.encode() for line in goal())},
            MOST_S,
        ),
        (
            "a matrix of 100,000 transfers",
            "kind: connections, matrix: x.cm",
            {"x.cm": (line.encode() for line in matrix())},
            MOST_S,
        ),
        (
            "Chakra traces of 1,000,000 nodes",
            "kind: chakra, file: x",
            {f"x.{rank}.et": trace(rank) for rank in range(RANKS)},
            MOST_OF_TRACES_S,
        ),
    )
    for what, workload, files, most_s in forms:
        with TemporaryDirectory() as directory:
            file = Path(directory) / "x.yaml"
            file.write_text(_SCENARIO.format(workload=workload), encoding="utf-8")
            for name, parts in files.items():
                with (file.parent / name).open("wb") as stream:
                    stream.writelines(parts)
            samples = setting.repeat(what, partial(in_new_process, read, file))
        seconds, megabytes = zip(*samples, strict=True)
        figures.append(at_most(f"{what}: read and checked", "s", seconds, most_s))
        figures.append(at_most(f"{what}: peak memory", "MB", megabytes, MOST_MB))
    return figures


def read(file: Path) -> Cost:
    """The cost of reading a scenario in this process, which was started for it."""
    began_s = time.process_time()
    load_scenario(str(file))
    return time.process_time() - began_s, peak_megabytes()


def goal(ranks: int = RANKS, operations: int = OPERATIONS) -> Iterator[str]:
    """A schedule in which each rank receives, sends and computes, in turn."""
    yield f"num_ranks {ranks}\n"
    for rank in range(ranks):
        yield f"rank {rank} {{\n"
        for i in range(0, operations, 4):
            yield f"r{i}: recv {1000 + i}b from {(rank - 1) % ranks} tag {i}\n"
            yield f"s{i}: send {1000 + i}b to {(rank + 1) % ranks} tag {i}\n"
            yield f"a{i}: calc {i}\nb{i}: calc 5 cpu 1\n"
            yield f"a{i} requires s{i}\nb{i} irequires a{i}\n"
            yield f"s{i} requires s{i - 4}\n" if i else ""
        yield "}\n"


def trace(rank: int, ranks: int = RANKS, nodes: int = OPERATIONS) -> Iterator[bytes]:
    """A Chakra trace in which a rank sends, receives and computes, each when the last is done."""
    metadata, node_class = messages()
    yield _record(metadata(version="0.0.4"))
    for i in range(nodes):
        kind = (_SEND, _RECEIVE, _COMPUTE)[i % 3] if i < nodes // 3 * 3 else _COMPUTE
        node = node_class(id=i, type=kind, data_deps=[i - 1] if i else [], duration_micros=5)
        if kind != _COMPUTE:
            end, peer = ("comm_dst", rank + 1) if kind == _SEND else ("comm_src", rank - 1)
            values = {end: peer % ranks, "comm_size": 1000, "comm_tag": i // 3}
            for name, value in values.items():
                node.attr.add(name=name, v9=value)
        yield _record(node)


def _record(message: Any) -> bytes:
    """A message after its length, in two bytes."""
    data: bytes = message.SerializeToString()
    return bytes([len(data) & 127 | 128, len(data) >> 7]) + data


def matrix(transfers: int = TRANSFERS) -> Iterator[str]:
    """Transfers among 100 hosts, in pairs: the first triggers the second."""
    pairs = transfers // 2
    yield f"Nodes {RANKS}\nConnections {transfers}\nTriggers {pairs}\n"
    for i in range(1, pairs + 1):
        source, to = i % RANKS, (i + 1 + i // RANKS % (RANKS - 1)) % RANKS
        yield f"{source}->{to} id {i} start {i} size 2000000 send_done_trigger {i}\n"
        yield f"{to}->{source} trigger {i} size 1000\ntrigger id {i} oneshot\n"
