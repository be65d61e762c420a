"""How long large files of traffic take to be read and checked, and with how much memory."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.model.files.scenarios import load_scenario
from testbed.studies.bench.cost import Cost, in_new_process, peak_megabytes
from testbed.studies.bench.measure import Measurement, Setting, at_most

RANKS = 100
OPERATIONS = 10_000
"""Of each rank of the schedule."""

TRANSFERS = 100_000
"""Of the matrix; each second one begins when the one before is done."""

MOST_S, MOST_MB = 30.0, 1000.0
"""Targets, of CPU time and of memory."""

_SCENARIO = """\
name: reading
topology: {{name: leaf-spine, planes: 1, t0_per_plane: 10, t1_per_plane: 10, hosts_per_t0: 10}}
workload: {{{workload}}}
"""


def reading(setting: Setting) -> list[Measurement]:
    """Read a schedule and a matrix."""
    figures = []
    forms = (
        ("a GOAL schedule of 1,000,000 operations", "kind: goal, file: x.goal", goal()),
        ("a matrix of 100,000 transfers", "kind: connections, matrix: x.cm", matrix()),
    )
    for what, workload, lines in forms:
        with TemporaryDirectory() as directory:
            file = Path(directory) / "x.yaml"
            file.write_text(_SCENARIO.format(workload=workload), encoding="utf-8")
            with (file.parent / workload.rpartition(" ")[2]).open("w", encoding="ascii") as stream:
                stream.writelines(lines)
            samples = setting.repeat(what, partial(in_new_process, read, file))
        seconds, megabytes = zip(*samples, strict=True)
        figures.append(at_most(f"{what}: read and checked", "s", seconds, MOST_S))
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


def matrix(transfers: int = TRANSFERS) -> Iterator[str]:
    """Transfers among 100 hosts, in pairs: the first triggers the second."""
    pairs = transfers // 2
    yield f"Nodes {RANKS}\nConnections {transfers}\nTriggers {pairs}\n"
    for i in range(1, pairs + 1):
        source, to = i % RANKS, (i + 1 + i // RANKS % (RANKS - 1)) % RANKS
        yield f"{source}->{to} id {i} start {i} size 2000000 send_done_trigger {i}\n"
        yield f"{to}->{source} trigger {i} size 1000\ntrigger id {i} oneshot\n"
