"""The device of a host of the emulated fabric: the verbs over sockets.

It works while its process is in `poll` or `run`. Programs use it by the NIC process
(`device/nic.py`).
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from testbed.emulation.endpoint.base_device import BaseDevice
from testbed.emulation.endpoint.clock import HealthLog, now_ns
from testbed.emulation.endpoint.event_loop import EventLoop, PortMonitor
from testbed.emulation.endpoint.nic import Nic, PlainEvs, PlainNic
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import Topology
from testbed.model.transport import Mrc
from testbed.model.units import NS_PER_S
from testbed.mrc import NEVER
from testbed.mrc.wire.kinds import DEFAULT_OPTIONS
from testbed.sandbox.namespaces import RECORDS_FILE, TOPOLOGY_FILE
from testbed.sandbox.system_calls import NICENESS

DEVICE_ROUNDS_PER_RTT = 256
"""Rounds of a device per base RTT, at most: often enough to measure latency."""

LATE_RTTS = 0.02
"""An arrival is late if the program sees it this many base RTTs after it was due. Ours."""


class Device(BaseDevice):
    """One host's NIC. Late are packets seen more than `LATE_RTTS` base RTTs after they were due."""

    def __init__(
        self,
        topology: Topology,
        host: Node,
        records: Path | None = None,
        *,
        plain: PlainEvs | None = None,
        transport: Mrc | None = None,
        seed: int | None = None,
        health: HealthLog | None = None,
    ) -> None:
        """Open it; the process must be in the host's network namespace.

        Args:
            topology: the fabric.
            host: whose NIC it is.
            records: the directory in which it records, if somebody watches the fabric.
            plain: its EVs, if its packets have no outer header; if None, they have.
            transport: how its EVs are chosen and judged; if None, as by default.
            seed: chooses EVs where there are more paths than EVs; if None, a random one.
            health: takes how late it is, if a run is judged by that.
        """
        self.arrived = self.late = 0
        self._health = health
        self._late_ns = round(topology.propagation_rtt_ns * LATE_RTTS)
        round_ns = topology.propagation_rtt_ns // DEVICE_ROUNDS_PER_RTT
        self._nic: Nic = (
            Nic(topology, host, round_ns)
            if plain is None
            else PlainNic(topology, host, round_ns, plain)
        )
        super().__init__(
            topology,
            host,
            self._nic.send,
            now_ns,
            records,
            entries=None if plain is None else plain.entries,
            wire=DEFAULT_OPTIONS if plain is None else plain.wire,
            transport=transport,
            seed=seed,
        )
        self._loop = EventLoop(self._nic, PortMonitor.of(topology, host), self.driven)

    def close(self) -> None:
        self._loop.close()
        super().close()

    @property
    def send_errors(self) -> int:
        """Packets that the kernel refused so far."""
        return self._nic.sockets.send_errors

    def poll(self) -> None:
        """Do what is due and return at once: take in arrivals, send what there is room for.

        A port that has lost its carrier since the last call is no longer used, one that has it
        again is used again; the peers are told.
        """
        self._poll(now_ns(), 0)

    def _poll(self, now: int, behind_ns: int) -> None:
        """The same at a time that is so much later than the loop meant to wake."""
        health = self._health
        if health is not None:
            health.lag(behind_ns)
            if now >= health.due_ns:
                health.write(now, {"raw_socket": self._nic.sockets.overflowed})
        for late_ns in self._loop.receive(now):
            self.arrived += 1
            self.late += late_ns > self._late_ns
            if health is not None:
                health.lag(min(late_ns, behind_ns))
        self._loop.check_ports(now)
        self._loop.send(now)

    def run(
        self, until: Callable[[], bool], *, timeout_s: float | None = None, wake: int | None = None
    ) -> bool:
        """Work until `until` returns true, or for `timeout_s`; returns its last answer.

        Args:
            until: called after every round, some hundred times a second; it may post.
            timeout_s: seconds; no limit if None.
            wake: a descriptor that ends the sleep between two rounds as soon as it is readable.
        """
        end_ns = NEVER if timeout_s is None else now_ns() + round(timeout_s * NS_PER_S)
        watched = () if wake is None else (wake,)
        wake_ns = now_ns()
        while True:
            now = now_ns()
            self._poll(now, max(now - wake_ns, 0))
            if until():
                return True
            now = now_ns()
            if now >= end_ns:
                return False
            self._loop.send(now)
            wake_ns, _ = self._loop.sleep(now, watched, end_ns)


def open_device() -> Device:
    """Open the NIC of the host that this process is in."""
    topology = Topology.model_validate_json(TOPOLOGY_FILE.read_text(encoding="utf-8"))
    names = {name.partition("-")[0] for _, name in socket.if_nameindex()}
    (host,) = (host for host in topology.hosts if host.name in names)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    return Device(topology, host, _watched_records())


def _watched_records() -> Path | None:
    with suppress(FileNotFoundError):
        return Path(RECORDS_FILE.read_text(encoding="utf-8"))
    return None
