"""The device of programs: CPU time of a packet, bandwidth, latency.

Debian's perftest and this project's write_bw and write_lat measure the same path in turns, as
programs of the NIC processes; so do two processes that drive the Python device themselves, without
rings, requests and other processes' memory.
"""

import json
import resource
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from testbed.device import client
from testbed.device.hosts import devices
from testbed.device.rendezvous import PORT
from testbed.emulation.endpoint.device import open_device
from testbed.emulation.fabric import management
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.ordinary import OrdinaryTraffic
from testbed.emulation.perftest.ends import call, require_success, serve
from testbed.emulation.perftest.parameters import Parameters, Tool
from testbed.emulation.perftest.results import Bandwidth
from testbed.model.errors import RunFailedError
from testbed.model.fabric.addressing import management_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.files.topologies import load_topology
from testbed.model.units import NS_PER_S
from testbed.mrc.verbs import Destination
from testbed.sandbox.namespaces import enter_netns
from testbed.sandbox.processes import spawn
from testbed.sandbox.system_calls import cpu_ns
from testbed.studies.bench.measure import (
    Measurement,
    Setting,
    at_least,
    at_most,
    in_sandbox,
    no_target,
    not_measured,
)
from testbed.studies.bench.programs import figure_of

SIZE: Final = 65_536
WRITES: Final = 300
PINGS: Final = 20
MOST_CPU: Final = 1.3
LATENCY_WITHIN: Final = 0.05
BANDWIDTH_WITHIN: Final = 0.03

_DEPTH: Final = 128
"""WRITEs outstanding: perftest's."""

_CPU: Final = "CPU of both NICs for a packet, C / Python"
_LISTENS_S: Final = 2.0
"""perftest's client does not wait for its server."""

_ENDS_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class _Used:
    """CPU seconds and the figure that was measured meanwhile."""

    nics: float
    programs: float
    figure: float


def device(setting: Setting) -> list[Measurement]:
    """Measure by turns in C, in Python, and without the NIC process."""
    if shutil.which("ib_write_bw") is None:
        wanted = at_most(_CPU, "", [], MOST_CPU)
        return [not_measured(wanted, "no ib_write_bw here: apt install perftest")]
    samples = setting.repeat("a path by perftest and by write_bw", lambda: in_sandbox(_sample))
    of = {name: [sample[name] for sample in samples] for name in samples[0]}
    return [
        at_most(_CPU, "", of["cpu"], MOST_CPU),
        no_target("CPU of both NICs for a packet, C", "us", of["c_us"]),
        no_target("CPU of both programs for a packet, C", "us", of["programs_us"]),
        at_least("bandwidth, C / Python", "", of["bandwidth"], 1 - BANDWIDTH_WITHIN),
        at_most("latency of 2 B, C / Python", "", of["latency"], 1 + LATENCY_WITHIN),
    ]


def _sample() -> dict[str, float]:
    topology = load_topology("clos-4plane")
    said: list[str] = []
    with Fabric(topology) as fabric:
        OrdinaryTraffic(topology, fabric.namespaces).install()
        management.install(topology, fabric.namespaces)
        with devices(fabric, said.append) as nics:
            if said:
                raise RunFailedError(said[0])
            src, dst = topology.hosts[0], topology.hosts[len(topology.hosts) // 2]
            path = _Path(fabric, src, dst, nics)
            in_c = path.perftest("ib_write_bw", ("-n", str(WRITES), "-s", str(SIZE)))
            alone_s = path.python_device_s()
            own = path.own(Parameters(Tool.BANDWIDTH, (SIZE,), WRITES))
            ping = path.perftest("ib_write_lat", ("-n", str(PINGS)))
            own_ping = path.own(Parameters(Tool.LATENCY, (2,), PINGS))
    packets = WRITES * SIZE / PAYLOAD_MTU
    return {
        "cpu": in_c.nics / alone_s,
        "c_us": in_c.nics / packets * 1e6,
        "programs_us": in_c.programs / packets * 1e6,
        "bandwidth": in_c.figure * (1 << 20) / own,
        "latency": ping.figure * 1e3 / own_ping,
    }


@dataclass(frozen=True, slots=True)
class _Path:
    """The path between two hosts, to be measured by programs in both."""

    fabric: Fabric
    src: Node
    dst: Node
    nics: Mapping[Node, int]

    def perftest(self, program: str, options: Sequence[str]) -> _Used:
        """Measure by a program of perftest."""

        def measure() -> float:
            server = self._start(self.dst, program, options)
            time.sleep(_LISTENS_S)
            peer = str(management_address(self.dst))
            client = self._start(self.src, program, (*options, peer))
            output, _ = client.communicate(timeout=_ENDS_S)
            server.communicate(timeout=_ENDS_S)
            return figure_of(program, output)

        return self._used(measure)

    def _start(self, host: Node, program: str, options: Sequence[str]) -> "subprocess.Popen[str]":
        node = self.fabric.net[host.name]
        variables = [f"{name}={value}" for name, value in node.environment.items()]
        return subprocess.Popen(  # noqa: S603 - the programs of this machine
            [*node.enter_command, "env", *variables, program, "-d", "mrc0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )

    def own(self, parameters: Parameters) -> float:
        """Measure by write_bw or write_lat: bytes/s, or ns."""

        def be_server(_: object) -> None:
            enter_netns(self.dst.name)
            serve(client.open_device(), PORT)

        def be_client(_: object) -> float:
            enter_netns(self.src.name)
            server = str(management_address(self.dst))
            (row,) = call(client.open_device(), server, PORT, parameters)
            return row.average_bytes_per_s if isinstance(row, Bandwidth) else row.typical_ns

        with spawn(be_server, isolated=False) as server:
            figure = spawn(be_client, isolated=False).result(timeout_s=_ENDS_S)
            server.result(timeout_s=_ENDS_S)
        return float(figure)

    def python_device_s(self) -> float:
        """CPU seconds of two processes that send the same by the Python device itself."""
        before = _children_s()
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with spawn(lambda _: _drive(self.dst, ends[0], 0), isolated=False) as receiver:
            sender = spawn(lambda _: _drive(self.src, ends[1], WRITES), isolated=False)
            sender.result(timeout_s=_ENDS_S)
            receiver.result(timeout_s=_ENDS_S)
        for end in ends:
            end.close()
        return _children_s() - before

    def _used(self, measure: Callable[[], float]) -> _Used:
        nics, programs = self._nics_s(), _children_s()
        figure = measure()
        return _Used(self._nics_s() - nics, _children_s() - programs, figure)

    def _nics_s(self) -> float:
        return sum(cpu_ns(self.nics[host]) for host in (self.src, self.dst)) / NS_PER_S


def _drive(host: Node, peer: socket.socket, writes: int) -> None:
    """Drive the device of a host: send so many WRITEs to the peer, or receive until it says so."""
    enter_netns(host.name)
    with open_device() as device:
        context = device.context
        cq, memory = context.create_cq(), context.reg_mr(bytearray(SIZE))
        qp = context.create_qp(cq)
        own = [qp.local.address.hex(), qp.qp_num, qp.local.psn, memory.va, memory.rkey]
        peer.sendall(json.dumps(own).encode())
        address, number, psn, va, rkey = json.loads(peer.recv(SIZE))
        qp.connect(Destination(bytes.fromhex(address), number, psn))
        peer.sendall(b"connected")
        peer.recv(SIZE)
        payload = bytes(SIZE)
        posted = ended = 0

        def step() -> bool:
            nonlocal posted, ended
            entries = cq.poll()
            require_success(entries)
            ended += len(entries)
            while posted < min(writes, ended + _DEPTH):
                posted += 1
                qp.post_write(posted, payload, va, rkey)
            return ended == writes

        if writes:
            device.run(step)
            peer.sendall(b"sent")
        else:
            device.run(lambda: bool(select.select([peer], [], [], 0)[0]), wake=peer.fileno())


def _children_s() -> float:
    """CPU seconds of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
