"""The device of programs: CPU time of a packet, bandwidth, latency; the same without root.

Debian's perftest and this project's write_bw and write_lat measure the same path in turns, as
programs of the NIC processes; so do two processes that drive the Python device themselves, without
rings, requests and other processes' memory.

Whether programs see the same without root is asked of perftest, on the emulated fabric and on that
of `testbed device`. Compared are the bandwidth of `ib_write_bw`, over a link that falls silent,
what that does to its flow, and the latency of `ib_write_lat`; then, with eight hosts that all send
and receive, how many packets each form carries a second.
"""

import json
import re
import resource
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from testbed.device import client
from testbed.device.nic import devices
from testbed.device.paced.fitting import measured
from testbed.device.rendezvous import PORT
from testbed.emulation.endpoint.device import open_device
from testbed.emulation.experiment.calibration import calibrate
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.ordinary import OrdinaryTraffic, install_management
from testbed.emulation.perftest.ends import Bandwidth, call, require_success, serve
from testbed.emulation.perftest.parameters import Parameters, Tool
from testbed.model.errors import RunFailedError
from testbed.model.fabric.addressing import management_address
from testbed.model.fabric.nodes import Node
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.faults.kinds import Blackhole
from testbed.model.files.topologies import load_topology
from testbed.model.run_files.layout import PROGRAMS
from testbed.model.scenario import Scenario
from testbed.model.summary.unit import NEVER
from testbed.model.units import NS_PER_S, show_number
from testbed.model.workload import Program
from testbed.mrc.verbs import Destination
from testbed.runs.job import UNDRAWN
from testbed.runs.result import Result
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
from testbed.studies.bench.runs import make_runs

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
        install_management(topology, fabric.namespaces)
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


AGREES = 0.15
LEAST_RTT = 1.0
"""Differences of recovery count against one round trip at least: below, both say "at once"."""

LEAST_RATE = 0.5

_ROW = re.compile(r"^ \d+\s+\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", re.MULTILINE)
"""Of ib_write_bw peak and average, of ib_write_lat the least, the greatest and the typical."""

_COLUMNS = {"ib_write_bw": 1, "ib_write_lat": 2}
_FIGURES = (*_COLUMNS, "detection", "stall", "recovery")

_PAIR = "if [ $RANK = 0 ]; then exec {0}; fi; sleep 2; exec {0} $MASTER_ADDR"
_EIGHT = "if [ $RANK -lt 4 ]; then exec {0}; fi; sleep 2; exec {0} h$((RANK - 4))"
_CLIENTS = ("h4", "h5", "h6", "h7")
"""Those of `_EIGHT`, which name their servers; perftest's client does not wait for its server."""

_NO_PERFTEST = "no ib_write_bw here: apt install perftest"

Compared = tuple[dict[str, float], dict[str, float]]
"""The figures of programs, emulated and without root."""


def programs() -> Iterator[Scenario]:
    """Perftest's bandwidth, over a link that falls silent, and its latency."""
    hole = Blackhole(target="h4--p1_t0_1", at="5 s", **{"for": "3 s"})
    yield _scenario("agreement", "ib_write_bw -d mrc0 -n 800", _PAIR, ("h4", "h0"), hole)
    yield _scenario("agreement", "ib_write_lat -d mrc0 -n 40", _PAIR, ("h4", "h0"))


def _scenario(
    name: str, program: str, line: str, hosts: tuple[str, ...] | None, *faults: Blackhole
) -> Scenario:
    return Scenario(
        name=f"{name}-{program.partition(' ')[0].replace('_', '-')}",
        topology=load_topology("clos-4plane"),
        duration="60 s",
        workload=Program(command=("sh", "-c", line.format(program)), hosts=hosts),
        timeline=faults,
    )


def is_there() -> bool:
    """Whether perftest is installed."""
    return shutil.which("ib_write_bw") is not None


def figures_of(run: Result) -> dict[str, float]:
    """What the program says, and what the fault did to its flow, in round trips."""
    program = next(name for name in _COLUMNS if name.replace("_", "-") in run.summary.scenario)
    figures = {program: _printed(run, "h0", program)}
    for fault in run.summary.faults:
        for flow in fault.flows:
            times = {"detection": flow.detection, "stall": flow.stall, "recovery": flow.recovery}
            figures |= {
                name: float(time.rtt)
                for name, time in times.items()
                if time is not None and time.rtt != NEVER
            }
    return figures


def _printed(run: Result, host: str, program: str) -> float:
    text = (run.directory / PROGRAMS / f"{host}.log").read_text(encoding="utf-8")
    return figure_of(program, text)


def figure_of(program: str, output: str) -> float:
    """What a program of perftest has measured: MB/s on average, or the typical latency in us.

    Raises:
        RunFailedError: it has no result.
    """
    row = _ROW.search(output)
    if row is None:
        raise RunFailedError(f"{program} has no result: {output}")
    return float(row[1 + _COLUMNS[program]])


def seen(setting: Setting) -> tuple[list[Measurement], str]:
    """Whether programs see the same on both fabrics: by how much figures differ; a table."""
    rounds = setting.repeat("programs", lambda: _compare(setting)) if is_there() else []
    figures = [*_differences(rounds)]
    if is_there():
        return figures, table(rounds)
    return [not_measured(figure, _NO_PERFTEST) for figure in figures], ""


def _compare(setting: Setting) -> Compared:
    """Run each program on both fabrics; what of it is invalid gives no figures."""
    compared: Compared = {}, {}
    scenarios = list(programs())
    for scenario, emulated in zip(scenarios, make_runs(scenarios, setting), strict=True):
        paced = _paced(scenario, setting)
        if "invalid" not in (emulated.summary.verdict, paced.summary.verdict):
            compared[0].update(figures_of(emulated.run))
            compared[1].update(figures_of(paced))
    return compared


def _paced(scenario: Scenario, setting: Setting) -> Result:
    # It loads Polars, which starts threads: not before `calibrate` has forked a sandbox.
    from testbed.runs.making import make  # noqa: PLC0415

    setting.progress(f"{scenario.name}, on the simulated fabric")
    return make(scenario, "paced", setting.results, how=UNDRAWN)


def _differences(rounds: Sequence[Compared]) -> Iterator[Measurement]:
    """By how much the figures of programs differ; a sample for each round that has them."""
    for name, pairs in _pairs(rounds).items():
        least = 0.0 if name in _COLUMNS else LEAST_RTT
        off = [abs(one - other) / max(one, other, least) for one, other in pairs]
        yield at_most(f"{name} of programs off, without root", "", off, AGREES)


def _pairs(rounds: Sequence[Compared]) -> Mapping[str, list[tuple[float, float]]]:
    """Each figure, emulated and without root, in each round where one of the two has it."""
    return {
        name: [
            (emulated.get(name, 0.0), paced.get(name, 0.0))
            for emulated, paced in rounds
            if name in emulated or name in paced
        ]
        for name in _FIGURES
    }


def table(rounds: Sequence[Compared]) -> str:
    """As a table in Markdown: each figure on both fabrics, and their ratio, over the rounds."""
    rows = [
        "| programs: median (least to most) | emulated | without root | without root / emulated |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, pairs in _pairs(rounds).items():
        emulated, paced = ([pair[i] for pair in pairs] for i in range(2))
        ratios = [there / here for here, there in pairs if here]
        spreads = " | ".join(map(_spread, (emulated, paced, ratios)))
        rows.append(f"| {name}{_UNITS.get(name, ', RTT')} | {spreads} |")
    return "\n".join(rows) + "\n"


_UNITS = {"ib_write_bw": ", MB/s", "ib_write_lat": ", us"}


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    middle, least, most = (show_number(f(values)) for f in (median, min, max))
    return f"{middle} ({least} to {most})"


# --- how much each form carries ------------------------------------------------------------------


def device_rate(setting: Setting) -> list[Measurement]:
    """Packets a second that programs in eight hosts send, each form at the dilation it carries.

    That is what `auto` finds for it, however small.
    """
    share = at_least("packets/s of 8 hosts, without root / emulated", "", [], LEAST_RATE)
    if not is_there():
        return [not_measured(share, _NO_PERFTEST)]
    setting.progress("what this machine carries")
    scenario = _scenario("carried", "ib_write_bw -d mrc0 -b -n 400", _EIGHT, None)
    capacities = calibrate(lambda _what, _done: None), measured()
    here, there = (
        scenario.at_dilation(capacity.fitting_dilation(scenario)) for capacity in capacities
    )
    rounds = setting.repeat("programs in 8 hosts", lambda: _rates(here, there, setting))
    trusted = [rates for rates in rounds if rates is not None]
    if not trusted:
        return [not_measured(share, "no round without an invalid run; see results/*/*/report.html")]
    emulated, paced = zip(*trusted, strict=True)
    return [
        replace(share, samples=tuple(there / here for here, there in trusted)),
        no_target("packets/s of 8 hosts, emulated", "", emulated),
        no_target("packets/s of 8 hosts, without root", "", paced),
    ]


def _rates(here: Scenario, there: Scenario, setting: Setting) -> tuple[float, float] | None:
    """Packets a second, emulated and without root; None if a run is invalid."""
    (emulated,) = make_runs([here], setting)
    runs = emulated.run, _paced(there, setting)
    if any(run.summary.verdict == "invalid" for run in runs):
        return None
    one, other = (
        sum(_printed(run, host, "ib_write_bw") for host in _CLIENTS) * (1 << 20) / PAYLOAD_MTU
        for run in runs
    )
    return one, other
