"""How long large files of traffic take to be read and checked, and with how much memory."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from testbed.model.files.chakra import messages
from testbed.model.files.scenarios import load_scenario
from testbed.studies.bench.cost import Cost, in_new_process, peak_megabytes
from testbed.studies.bench.measure import Measurement, Setting, at_most

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
