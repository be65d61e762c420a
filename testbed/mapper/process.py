"""The process that runs the agents of all hosts, and the Clustermapper that hears them."""

import gc
import json
import os
import select
import socket
from pathlib import Path

from testbed.endpoint.clock import now_ns
from testbed.host.plan import MAX_MESSAGE
from testbed.mapper.agents import Agents
from testbed.mapper.clustermapper import Clustermapper, MapperPlan
from testbed.results import records
from testbed.results.records import Recorder, raw_path

TICK_NS = 10_000_000
"""The loop wakes at most this often, and then sends all probes that have become due."""


def run_mapper(plan: MapperPlan, raw_directory: Path, control: socket.socket) -> int:
    """Probe the fabric until the parent says finish; returns the exit status.

    The parent is told `{"denied": [link directions]}` whenever that changes.
    """
    gc.freeze()
    gc.disable()  # nothing here makes cycles
    agents = Agents(plan.topology)
    control.send(b'{"ready": true}')
    with (
        Recorder(raw_path(raw_directory, "mapper", records.PROBES), records.PROBES) as probes,
        Recorder(raw_path(raw_directory, "mapper", records.FINDINGS), records.FINDINGS) as findings,
    ):
        start_ns: int = json.loads(control.recv(MAX_MESSAGE))["start_ns"]
        mapper = Clustermapper(plan, start_ns, probes.append, findings.append)
        while not select.select([control], [], [], _wait_s(mapper))[0]:
            _turn(mapper, agents, control)
    _obey(control)
    control.send(json.dumps({"finished": {"send_errors": agents.send_errors}}).encode())
    agents.close()
    return os.EX_OK


def _wait_s(mapper: Clustermapper) -> float:
    return max(mapper.due_ns - now_ns(), TICK_NS) / 1e9


def _turn(mapper: Clustermapper, agents: Agents, control: socket.socket) -> None:
    for number in agents.arrivals():
        mapper.arrived(number)
    if mapper.judge(now_ns()):
        control.send(json.dumps({"denied": sorted(mapper.denied)}).encode())
    for probe in mapper.due(now_ns()):
        agents.send(probe)


def _obey(control: socket.socket) -> None:
    data = control.recv(MAX_MESSAGE)
    if not data:
        raise ConnectionError("the run that this Clustermapper belongs to has ended")
    if json.loads(data) != {"finish": True}:
        raise ValueError(f"unknown command {data!r}")
