"""The process that runs the agents of all hosts, and the Clustermapper that hears them."""

import gc
import os
import select
from pathlib import Path
from typing import Any

from testbed.endpoint.clock import now_ns
from testbed.mapper.agents import Agents
from testbed.mapper.clustermapper import Clustermapper, MapperPlan
from testbed.results import records
from testbed.results.records import Recorder, raw_path
from testbed.sandbox.channel import Channel

TICK_NS = 10_000_000
"""The loop wakes at most this often, and then sends all probes that have become due."""


def run_mapper(plan: MapperPlan, raw_directory: Path, channel: Channel) -> int:
    """Probe the fabric until the parent says finish; returns the exit status.

    The parent is told `{"denied": [link directions]}` whenever that changes.
    """
    gc.freeze()
    gc.disable()  # nothing here makes cycles
    agents = Agents(plan.topology)
    channel.send({"ready": True})
    commands = channel.messages()
    with (
        Recorder(raw_path(raw_directory, "mapper", records.PROBES), records.PROBES) as probes,
        Recorder(raw_path(raw_directory, "mapper", records.FINDINGS), records.FINDINGS) as findings,
    ):
        start_ns: int = next(commands)["start_ns"]
        mapper = Clustermapper(plan, start_ns, probes.append, findings.append)
        while not select.select([channel], [], [], _wait_s(mapper))[0]:
            _turn(mapper, agents, channel)
    _expect_finish(next(commands, None))
    channel.send({"finished": {"send_errors": agents.send_errors}})
    agents.close()
    return os.EX_OK


def _wait_s(mapper: Clustermapper) -> float:
    return max(mapper.due_ns - now_ns(), TICK_NS) / 1e9


def _turn(mapper: Clustermapper, agents: Agents, channel: Channel) -> None:
    for number in agents.arrivals():
        mapper.arrived(number)
    if mapper.judge(now_ns()):
        channel.send({"denied": sorted(mapper.denied)})
    for probe in mapper.due(now_ns()):
        agents.send(probe)


def _expect_finish(command: dict[str, Any] | None) -> None:
    if command is None:
        raise ConnectionError("the run that this Clustermapper belongs to has ended")
    if command != {"finish": True}:
        raise ValueError(f"unknown command {command}")
