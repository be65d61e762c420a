"""The agents on the hosts: sockets that send probes along their paths and receive them.

One process holds the sockets of all hosts, each opened in its host's network namespace. A probe is
an IPv6 packet whose destination address holds the uSIDs of its path. It is in the control class, so
that the fabric's queues never drop it, and no EV has its flow label. It has no UDP checksum (as
RFC 6935 allows), since the destination address changes on the way; it carries a CRC of its own.
"""

import gc
import os
import select
import socket
import struct
import zlib
from collections.abc import Iterator
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from testbed.mapper.clustermapper import Clustermapper, MapperPlan
from testbed.mapper.prober import Probe
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.topology import Topology
from testbed.model.units import NS_PER_S
from testbed.mrc import DscpClasses
from testbed.mrc.constants import HOP_LIMIT
from testbed.mrc.wire.headers import IPV6
from testbed.results import records
from testbed.results.records import Recorder, raw_path
from testbed.sandbox import namespaces
from testbed.sandbox.channel import Channel
from testbed.sandbox.system_calls import until_blocked

if TYPE_CHECKING:
    from testbed.model.fabric.nodes import Node

PORT = 49_573
"""UDP port of the probes, from the dynamic range."""

FLOW_LABEL = 0xF_F000
"""Outside the path bits of every EV, so that `ev_loss` does not strike probes."""

_UDP_NO_CHECK6_RX = 102
_IPV6 = IPV6.struct()
_UDP = struct.Struct("!HHHH")
_BODY = struct.Struct("!4sQI")
_MAGIC = b"MRCp"
_MAX_PROBE = 256


class Agents:
    """The sending and receiving sockets of every host."""

    def __init__(self, topology: Topology) -> None:
        """Open them all; the hosts' namespaces must exist."""
        self._topology = topology
        self._senders: dict[Node, socket.socket] = {}
        self._receivers: list[socket.socket] = []
        self._destinations: dict[str, IPv6Address] = {}
        self._class_and_label = 6 << 28 | DscpClasses().control << 22 | FLOW_LABEL
        self.send_errors = 0
        for host in topology.hosts:
            with namespaces.entered_by_name(host.name):
                self._senders[host] = socket.socket(
                    socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW
                )
                receiver = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
                receiver.setsockopt(socket.IPPROTO_UDP, _UDP_NO_CHECK6_RX, 1)
                receiver.setblocking(False)
                receiver.bind(("::", PORT))
            self._receivers.append(receiver)

    def send(self, probe: Probe) -> None:
        """Send a probe from its host; a port without carrier loses it, as a NIC would."""
        path = probe.path
        destination = self._destinations.get(path.name)
        if destination is None:
            destination = self._destinations[path.name] = path.destination(self._topology)
        source = nic_address(self._topology, path.sender)
        packet = self._packet(source, destination, probe.number)
        try:
            self._senders[path.sender].sendto(packet, (str(destination), 0))
        except OSError:
            self.send_errors += 1

    def _packet(self, source: IPv6Address, destination: IPv6Address, number: int) -> bytes:
        size = _UDP.size + _BODY.size
        addresses = source.packed, destination.packed
        return (
            _IPV6.pack(self._class_and_label, size, socket.IPPROTO_UDP, HOP_LIMIT, *addresses)
            + _UDP.pack(PORT, PORT, size, 0)
            + _BODY.pack(_MAGIC, number, _checksum(number))
        )

    def arrivals(self) -> Iterator[int]:
        """The numbers of the probes that have arrived undamaged at any host."""
        for receiver in self._receivers:
            yield from _received(receiver)

    def close(self) -> None:
        for open_socket in (*self._senders.values(), *self._receivers):
            open_socket.close()


def _received(receiver: socket.socket) -> Iterator[int]:
    for body in until_blocked(partial(receiver.recv, _MAX_PROBE)):
        if len(body) != _BODY.size:
            continue
        magic, number, checksum = _BODY.unpack(body)
        if magic == _MAGIC and checksum == _checksum(number):
            yield number


def _checksum(number: int) -> int:
    return zlib.crc32(number.to_bytes(8, "big"))


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
