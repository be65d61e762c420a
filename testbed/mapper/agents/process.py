"""The process that runs the agents of all hosts and the Clustermapper."""

import gc
import os
import select
from pathlib import Path
from time import monotonic_ns
from typing import Any

from testbed.mapper.agents.sockets import Agents
from testbed.mapper.clustermapper import Clustermapper, MapperPlan
from testbed.model.units import NS_PER_S
from testbed.results import records
from testbed.results.records import Recorder, raw_path
from testbed.sandbox.channel import Channel

TICK_NS = 10_000_000
"""The loop wakes at most this often, and then sends all probes that have become due."""


def run_mapper(plan: MapperPlan, raw_directory: Path, channel: Channel) -> int:
    """Probe the fabric until the parent sends `finish`; returns the exit status.

    Sends `{"denied": [link directions]}` to the parent whenever the accused directions change.
    """
    gc.freeze()
    gc.disable()  # nothing here makes reference cycles
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
            if _work(mapper, agents, channel):
                probes.flush()  # for those who watch the run
                findings.flush()
    _expect_finish(next(commands, None))
    channel.send({"finished": {"send_errors": agents.send_errors}})
    agents.close()
    return os.EX_OK


def _wait_s(mapper: Clustermapper) -> float:
    return max(mapper.prober.due_ns - monotonic_ns(), TICK_NS) / NS_PER_S


def _work(mapper: Clustermapper, agents: Agents, channel: Channel) -> bool:
    """Take in arrivals, judge, send what is due; returns whether a round has been judged."""
    for number in agents.arrivals():
        mapper.prober.arrived(number)
    now_ns = monotonic_ns()
    is_judged = mapper.judges_at(now_ns)
    if mapper.judge(now_ns):
        channel.send({"denied": sorted(mapper.denied_directions)})
    for probe in mapper.prober.take_due(monotonic_ns()):
        agents.send(probe)
    return is_judged


def _expect_finish(command: dict[str, Any] | None) -> None:
    if command is None:
        raise ConnectionError("the run that this Clustermapper belongs to has ended")
    if command != {"finish": True}:
        raise ValueError(f"unknown command {command}")
