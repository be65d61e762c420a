"""An experiment as data: its fabric, workload, transport and faults."""

import shlex
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field

from testbed.model.expect import Expect
from testbed.model.fabric.topology import MAX_NAME, NAME_PATTERN, Topology
from testbed.model.faults.kinds import Fault
from testbed.model.faults.schedule import ScheduledFault, scheduled_faults
from testbed.model.operator.commands import TimedCommand
from testbed.model.own_code import OwnCode, recorded_code
from testbed.model.part import Part
from testbed.model.transport import Mrc, Transport
from testbed.model.units import RealTime, RunTime, parse_duration
from testbed.model.workload import Connections, Program, Training, Workload

MAX_SEED = (1 << 31) - 1

DRAIN_RTTS = 60
"""Default of `drain`: base RTTs that a run waits after its end for its last WRITEs."""


class Clustermapper(Part):
    """Probes from the hosts over every link, which locate faulty links (MRC paper, section 3)."""

    period: RealTime = Field(
        default=parse_duration("25 us"),
        gt=0,
        description="time in which every link is probed once",
    )
    denylist: bool = Field(
        default=True, strict=True, description="whether endpoints avoid EVs through accused links"
    )

    def period_ns(self, topology: Topology) -> int:
        """The length of a round of probes in emulated ns."""
        return round(self.period * topology.dilation)


class Scenario(Part):
    """One experiment, complete: the fabric is part of it."""

    name: str = Field(
        pattern=NAME_PATTERN,
        max_length=MAX_NAME,
        description="its name, and the name of its results",
    )
    description: str = Field(default="", description="what to expect, shown in lists")
    topology: Topology = Field(description="name or file of a topology, or its keys")
    seed: int = Field(
        default=1, ge=0, le=MAX_SEED, strict=True, description="seed of all random choices"
    )
    duration: RunTime = Field(default=parse_duration("10 s"), gt=0, description="its length")
    drain: RunTime | None = Field(
        default=None,
        gt=0,
        description="longest wait for the last WRITEs at the end; null: 60 base RTTs",
    )
    workload: Workload = Field(description="what the hosts send")
    transport: Transport = Field(default=Mrc(), description="how they send it")
    timeline: tuple[Fault, ...] = Field(default=(), description="the faults, in any order")
    operator: tuple[TimedCommand, ...] = Field(
        default=(), description="what an operator does with EVs and ports (docs/operator.md)"
    )
    expect: Expect = Field(
        default=Expect(), description="bounds of the run's figures, checked after the run"
    )
    clustermapper: Clustermapper | None = Field(
        default=None, description="probes every link; off by default"
    )

    @classmethod
    def recorded(cls, data: Any) -> Self:
        """The scenario of a run's record, which has the source of its own code."""
        if isinstance(data, Mapping) and "transport" in data:
            data = {**data, "transport": recorded_code(data["transport"])}
        return cls.model_validate(data)

    @property
    def own_code(self) -> dict[str, OwnCode]:
        """The classes of the user's own that it executes, by the keys that name them."""
        transport = self.transport
        values = {key: getattr(transport, key) for key in type(transport).model_fields}
        return {
            f"transport.{key}": code for key, code in values.items() if isinstance(code, OwnCode)
        }

    @property
    def executes(self) -> dict[str, str]:
        """The code of others that it executes, by the keys that name it: classes, and a command."""
        code = {key: str(own) for key, own in self.own_code.items()}
        if isinstance(self.workload, Program):
            code["workload.command"] = shlex.join(self.workload.command)
        return code

    @property
    def flows(self) -> tuple[tuple[str, str, int], ...]:
        """Each flow as (source, destination, lane), in order: one for each QP and direction.

        Where programs send, those that may be; the records of a run have those that were.
        """
        lanes = range(self.transport.qps)
        directions = self.workload.directions(self.topology)
        return tuple((src, dst, lane) for src, dst in directions for lane in lanes)

    @property
    def flow_count(self) -> int:
        """The number of flows, at most, without listing them."""
        return self.workload.direction_count(self.topology) * self.transport.qps

    @property
    def signals(self) -> frozenset[tuple[str, str]]:
        """Source and destination of the flows that carry a barrier's signals only, and no data."""
        workload = self.workload
        return workload.signals(self.topology) if isinstance(workload, Training) else frozenset()

    @property
    def scheduled_faults(self) -> tuple[ScheduledFault, ...]:
        """Every fault of the timeline, repetitions included, with its places and times."""
        return scheduled_faults(self.topology, self.timeline, self.duration, self.seed)

    @property
    def longest_bytes(self) -> int:
        """Size of the longest message of any flow, in bytes."""
        return self.workload.longest_bytes(self.topology, self.transport.qps)

    @property
    def remap_delay_ns(self) -> int:
        """How long hosts go on using a port that has failed, in ns as they run."""
        transport = self.transport
        real_ns = transport.remap_delay if isinstance(transport, Mrc) else 0
        return round(real_ns * self.topology.dilation)

    def drain_ns(self, base_rtt_ns: int) -> int:
        """Longest wait for the last WRITEs after the end of the run, in ns."""
        return DRAIN_RTTS * base_rtt_ns if self.drain is None else self.drain

    def longer(self, factor: float) -> Self:
        """The same experiment with its length and all times of its faults and operator multiplied.

        So are the starts and sizes of a connection matrix. What hosts send otherwise, how they
        compute, timers and `drain` stay as they are.
        """
        workload = self.workload
        changes = {
            "workload": workload.longer(factor) if isinstance(workload, Connections) else workload,
            "duration": round(self.duration * factor),
            "timeline": tuple(fault.stretched(factor) for fault in self.timeline),
            "operator": tuple(command.stretched(factor) for command in self.operator),
        }
        return self.model_copy(update=changes)

    def at_dilation(self, dilation: float) -> Self:
        """The same experiment at another dilation: all its times are as many round trips long.

        The limits of the topology are not checked again.
        """
        slower = self.stretched(dilation / self.topology.dilation)
        topology = self.topology.model_copy(update={"dilation": float(dilation)})
        return slower.model_copy(update={"topology": topology})
