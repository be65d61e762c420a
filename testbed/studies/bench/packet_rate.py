"""How many packets a queue pair carries, compared with a C program on the same path.

The path goes over three switches whose links have neither rate nor link model. Both programs keep
a window of packets under way that nothing drops, so that what is measured is CPU time: of the
kernel for both, and of the transport for the queue pair.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from testbed import fast
from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.endpoint.nic import Carriers
from testbed.emulation.experiment.processes import (
    REPLY_TIMEOUT_S,
    finish,
    receive_from_all,
    start_endpoint,
)
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model import shaping
from testbed.host.plan import plan_endpoints
from testbed.model.errors import MachineError, RunFailedError
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import ETHERNET_HEADER, PAYLOAD_MTU, Topology
from testbed.model.run_files.layout import RAW
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.model.units import NS_PER_S
from testbed.model.workload import WriteBw
from testbed.mrc.constants import DscpClasses
from testbed.sandbox import namespaces
from testbed.sandbox.system_calls import cpu_ns
from testbed.studies.bench.links import detach, two_host_topology
from testbed.studies.bench.measure import (
    Measurement,
    Setting,
    at_least,
    at_most,
    in_sandbox,
    no_target,
)

RATIO = 0.25
"""Of the C program's rate, from the readable source."""

BUILT_RATIO = 0.5
"""The same, where `make fast` has built the core."""

MORE_EVS = 1.1
"""What a packet may cost with many EVs, as a multiple of its cost with few."""

FEW_EVS, MANY_EVS = 16, 256
WINDOW_PACKETS = 600
"""Below what a kernel queues for a CPU (net.core.netdev_max_backlog, 1000)."""

SACK_EVERY = 8
OUTER = 40
"""Bytes of the outer header."""

SECONDS = 1.5
"""Of one measurement; each program is measured twice in a repeat."""

SOURCE = Path(__file__).with_suffix(".c")


class Rate(NamedTuple):
    """What one program reached.

    Attributes:
        packets_per_s: that arrived.
        sender_ns: CPU time of a packet in the sending process, while it sends.
        receiver_ns: CPU time of a packet in the receiving process.
    """

    packets_per_s: float
    sender_ns: float
    receiver_ns: float


def packet_rate(setting: Setting) -> list[Measurement]:
    """Send full packets over a T1 with a queue pair of few EVs, one of many, and with C.

    Raises:
        MachineError: there is no C compiler.
    """
    with tempfile.TemporaryDirectory() as directory:
        program = build(Path(directory))
        rounds = setting.repeat("packet rate", lambda: _measure(program, Path(directory)))
    c, few, many = zip(*rounds, strict=True)
    built = fast.is_built()
    ratio = [qp.packets_per_s / program.packets_per_s for qp, program in zip(few, c, strict=True)]
    cost = [
        (b.sender_ns + b.receiver_ns) / (a.sender_ns + a.receiver_ns)
        for a, b in zip(few, many, strict=True)
    ]
    return [
        *_figures("C, sendmmsg and recvmmsg", c),
        *_figures(f"one QP, {FEW_EVS} EVs, core as {'built' if built else 'Python'}", few),
        at_least("packet rate of one QP, of that of C", "", ratio, BUILT_RATIO if built else RATIO),
        at_most(f"CPU of a packet, {MANY_EVS} EVs to {FEW_EVS}", "", cost, MORE_EVS),
    ]


def _figures(who: str, rates: Sequence[Rate]) -> list[Measurement]:
    measures = (("packets", "/s"), ("CPU of the sender", "ns"), ("CPU of the receiver", "ns"))
    return [
        no_target(f"{who}: {what}", unit, samples)
        for (what, unit), samples in zip(measures, zip(*rates, strict=True), strict=True)
    ]


def build(directory: Path) -> Path:
    """Build the C program in a directory; returns where it is.

    Raises:
        MachineError: there is no C compiler.
    """
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise MachineError(
            "no C compiler for the program to compare with", "install one: apt-get install gcc"
        )
    program = directory / "packet_rate"
    subprocess.run([compiler, "-O2", "-o", program, SOURCE], check=True)  # noqa: S603 - our own source
    return program


def _scenario(topology: Topology, evs: int) -> Scenario:
    src, dst = topology.hosts
    return Scenario(
        name=f"packet-rate-{evs}",
        topology=topology,
        workload=WriteBw(pairs=((src.name, dst.name),), bidirectional=False),
        transport=Mrc(evs=evs, window=WINDOW_PACKETS / topology.bdp_packets),
    )


def _measure(program: Path, directory: Path) -> list[Rate]:
    """Measure each program, then each again in the reverse order; the mean of both.

    So what drifts meanwhile weighs on all of them alike.
    """
    # The ports are never full.
    topology = two_host_topology(20e9, port_rate="10 Tbit/s", dilation=500)
    programs = (
        partial(_measure_c, program, topology),
        partial(_measure_qp, _scenario(topology, FEW_EVS), directory),
        partial(_measure_qp, _scenario(topology, MANY_EVS), directory),
    )

    def measure() -> list[tuple[Rate, Rate]]:
        with Fabric(topology) as fabric:
            fabric.verify()
            if fabric.link_model is not None:
                detach(fabric, shaping.detach_model)
            detach(fabric, shaping.detach)
            there = [measure() for measure in programs]
            back = [measure() for measure in reversed(programs)]
        return list(zip(there, reversed(back), strict=True))

    return [Rate(*map(fmean, zip(*both, strict=True))) for both in in_sandbox(measure)]


def _measure_c(program: Path, topology: Topology) -> Rate:
    src, dst = topology.hosts
    acknowledgement = _packet(topology, dst, src, bytes(100))
    packet = _packet(topology, src, dst, bytes(topology.wire_bytes - ETHERNET_HEADER - OUTER))
    with (
        _started(dst, [program, "receive", SACK_EVERY], acknowledgement) as receiver,
        _started(src, [program, "send", SECONDS, WINDOW_PACKETS, SACK_EVERY], packet) as sender,
    ):
        assert sender.stdout is not None  # a pipe, as requested  # noqa: S101
        output = sender.stdout.read().split()
        sender_ns = cpu_ns(sender.pid)  # it has closed its output, and waits to be reaped
        receiver_ns = cpu_ns(receiver.pid)
        receiver.kill()
    if not output:
        raise RunFailedError("the C program ended early: see the messages above")
    packets, seconds = map(float, output)
    return Rate(packets / seconds, sender_ns / packets, receiver_ns / packets)


def _packet(topology: Topology, src: Node, dst: Node, inner: bytes) -> bytes:
    peer = nic_address(topology, dst).packed
    carrier = Carriers(topology, src).to(peer, 0, DscpClasses().trimmable)
    return carrier.outer_header(len(inner)) + inner


@contextmanager
def _started(host: Node, command: list[object], packet: bytes) -> Iterator[subprocess.Popen[bytes]]:
    with namespaces.entered_by_name(host.name):
        process = subprocess.Popen(  # noqa: S603 - what we have built
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    with process:
        assert process.stdin is not None  # noqa: S101 - a pipe, as asked for
        process.stdin.write(packet)
        process.stdin.close()
        yield process


def _measure_qp(scenario: Scenario, parent: Path) -> Rate:
    directory = Path(tempfile.mkdtemp(dir=parent))
    raw = directory / RAW
    raw.mkdir()
    endpoints = {
        host.name: start_endpoint(plan, directory / f"{host.name}.log")
        for host, plan in plan_endpoints(scenario, raw).items()
    }
    receive_from_all(endpoints, "ready", REPLY_TIMEOUT_S)
    begun_ns = {host: cpu_ns(endpoint.pid) for host, endpoint in endpoints.items()}
    begin = now_ns()
    for endpoint in endpoints.values():
        endpoint.send({"start_ns": begin})
        endpoint.send({"stop_ns": begin + round(SECONDS * NS_PER_S)})
    receive_from_all(endpoints, "drained", SECONDS + REPLY_TIMEOUT_S)
    seconds = (now_ns() - begin) / NS_PER_S
    used_ns = {host: cpu_ns(endpoint.pid) - begun_ns[host] for host, endpoint in endpoints.items()}
    reports = finish(endpoints, REPLY_TIMEOUT_S)
    src, dst = (host.name for host in scenario.topology.hosts)
    packets = reports[dst]["received"][0]["bytes_verified"] / PAYLOAD_MTU
    return Rate(packets / seconds, used_ns[src] / packets, used_ns[dst] / packets)
