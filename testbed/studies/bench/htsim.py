"""The simulator beside uet-htsim: the same permutation on the same fabric, one after the other.

htsim is a program of its own: the user names a checkout, in which it is built if it is not. Both
get the same fabric (leaf-spine, links of 100 Gbit/s) and the same matrix (every host sends 2 MB to
another one), and congestion control by NSCC. htsim is run as its README does, without logs, with
its own way of spraying. A flow ends when its sender has the last acknowledgement.

All run on the same CPU. Times are CPU times, from the start of each program: on a core of its own a
program takes as long, and other work on the machine changes them little.

`htsim-validate` takes uet-htsim's own cases, its `validate*.txt`, where the sender has control. A
case is a connection matrix, parameters and a bound of the slowest flow. Both get the matrix and the
same leaf-spine fabric, as htsim's `.topo`: the case's own, or, as htsim's default has three tiers,
one of as many hosts with links of 100 Gbit/s and no oversubscription. The fabric's queues mark and
trim where htsim's do. Not carried over: htsim's ways of spraying (`-load_balancing_algo`), for
which MRC has its own, the first window (`-cwnd`), and how often is acknowledged
(`-sack_threshold`). Links that `-failed` slows down keep their thresholds here.
"""

import math
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pydantic import ValidationError

from testbed import exports, interpreter
from testbed.limits import usable_cpus
from testbed.model.errors import InputError, MachineError, RunFailedError
from testbed.model.fabric.topology import (
    PAYLOAD_MTU,
    Ecn,
    LastHopQueue,
    PropagationDelay,
    Queue,
    Queues,
    Topology,
)
from testbed.model.faults.kinds import Degrade
from testbed.model.files.matrices import read_matrix
from testbed.model.files.reading import text_lines
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.model.units import NS_PER_S
from testbed.model.workload import Connections
from testbed.sim import Simulation
from testbed.studies.bench.cost import (
    SAMPLE_NS,
    ProgramCost,
    completions,
    cost_of,
    ideal_ns,
    in_new_process,
    peak_megabytes,
    permutation,
)
from testbed.studies.bench.measure import Measurement, Setting, at_most, no_target

PROGRAM = "htsim_uec"
FABRICS = {128: (8, 16), 1024: (32, 32)}
"""Leaves, and hosts of a leaf, by the number of hosts."""

NS_PER_US = 1000

ALONE, WHOLE, MEMORY_MB = 2.0, 4.0, 1000.0
"""Targets: CPU time in that of htsim, of the simulation without records and of the whole command;
megabytes of the whole command."""

_PROJECT = "datacenter/CMakeLists.txt"
"""A file by which htsim's sources are known; they are in the directory above its own."""

_BY_HAND = "build it as its README says, then give the command again"
_SHOWN_LINES = 10
"""Of the output of a build that failed."""

FINISHED = re.compile(r"^Flow .* finished at ([\d.]+) ", re.MULTILINE)
"""A line that htsim prints for each flow: its end in us."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one simulation came to: completions of its flows in us, ascending; CPU time, memory."""

    completions_us: Sequence[float]
    seconds: float
    megabytes: float


def htsim(setting: Setting) -> list[Measurement]:
    """Run both on each fabric; with 1,024 hosts a minute or two for each repeat.

    Raises:
        InputError: there is no htsim where the user said.
        MachineError: it is there, and cannot be built.
    """
    program = find(setting.htsim)
    setting.progress(f"htsim: {program}")
    figures: list[Measurement] = []
    for hosts, (leaves, per_leaf) in FABRICS.items():
        seeds = count(1)

        def measure() -> tuple[Sample, Sample, ProgramCost]:
            scenario = permutation(leaves, per_leaf, next(seeds))  # noqa: B023 - called below
            return run(program, scenario), in_new_process(simulated, scenario), command(scenario)

        samples = setting.repeat(f"{hosts} hosts", measure)
        figures += compare(f"{hosts} hosts", samples)
    return figures


def compare(name: str, samples: Sequence[tuple[Sample, Sample, ProgramCost]]) -> list[Measurement]:
    """The figures of one fabric, from its repeats: htsim's, ours, and our whole command's."""
    figures = []
    theirs, ours, commands = zip(*samples, strict=True)
    for whose, each in (("htsim", theirs), ("testbed", ours)):
        flows = [sample.completions_us for sample in each]
        figures += [
            no_target(f"{name}, {whose}: median flow", "us", [us[len(us) // 2] for us in flows]),
            no_target(f"{name}, {whose}: p99", "us", [us[len(us) * 99 // 100] for us in flows]),
            no_target(f"{name}, {whose}: slowest flow", "us", [us[-1] for us in flows]),
            no_target(f"{name}, {whose}: time", "s", [sample.seconds for sample in each]),
            no_target(f"{name}, {whose}: peak memory", "MB", [sample.megabytes for sample in each]),
        ]
    alone = [mine.seconds / other.seconds for other, mine, _ in samples]
    whole = [whole.seconds / other.seconds for other, _, whole in samples]
    memory = [whole.megabytes for whole in commands]
    wall_s = [whole.wall_s for whole in commands]
    return [
        *figures,
        no_target(f"{name}, testbed simulate: time", "s", [whole.seconds for whole in commands]),
        no_target(f"{name}, testbed simulate: wall time", "s", wall_s),
        at_most(f"{name}: time without records, in htsim's", "", alone, ALONE),
        at_most(f"{name}: time with records and report, in htsim's", "", whole, WHOLE),
        at_most(f"{name}: peak memory with records and report", "MB", memory, MEMORY_MB),
    ]


def find(checkout: Path | None) -> Path:
    """The program in a checkout, where it is built first if it is not.

    Raises:
        InputError: no checkout was named, or it is none of uet-htsim.
        MachineError: it cannot be built; the message says why.
    """
    if checkout is None:
        raise InputError.of("--htsim", "", f"a checkout of uet-htsim, which has {PROGRAM}")
    program = _built(checkout)
    if program is None:
        _build(checkout)
        program = _built(checkout)
    if program is None:
        raise MachineError(f"{checkout} was built, and there is no {PROGRAM} in it", _BY_HAND)
    return program


def _built(checkout: Path) -> Path | None:
    return next(
        (
            path
            for path in checkout.resolve().rglob(PROGRAM)
            if path.is_file() and os.access(path, os.X_OK)
        ),
        None,
    )


def _build(checkout: Path) -> None:
    """Build htsim as its README says."""
    project = next((file for file in sorted(checkout.rglob(_PROJECT)) if file.is_file()), None)
    if project is None:
        expected = (
            f"a checkout of uet-htsim (it has {_PROJECT}), or one in which {PROGRAM} is built"
        )
        raise InputError.of("--htsim", str(checkout), expected)
    if shutil.which("cmake") is None:
        remedy = "apt-get install cmake g++"
        raise MachineError(f"there is no cmake to build {checkout} with", remedy)
    sources = project.parent.parent
    build = sources / "build"
    for command in (
        ("cmake", "-S", str(sources), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"),
        ("cmake", "--build", str(build), "--parallel", str(max(1, int(usable_cpus())))),
    ):
        done = subprocess.run(  # noqa: S603 - what builds the checkout that the user named
            command, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace"
        )
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-_SHOWN_LINES:])
            raise MachineError(
                f"{' '.join(command)} ended with {done.returncode}:\n{said}", _BY_HAND
            )


def simulated(scenario: Scenario) -> Sample:
    """Simulate it here, without records, in this process, which was started for it."""
    in_ideal, _ = completions(scenario)
    seconds = time.process_time()
    ideal_us = ideal_ns(scenario) / NS_PER_US
    return Sample([taken * ideal_us for taken in in_ideal], seconds, peak_megabytes())


def command(scenario: Scenario) -> ProgramCost:
    """Run `testbed simulate` on it, with records, report and figures.

    Raises:
        RuntimeError: it failed.
    """
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        file = place / "permutation.yaml"
        file.write_text(scenario.model_dump_json(by_alias=True), encoding="utf-8")
        cost = cost_of(
            interpreter.python("-m", "testbed", "simulate", file, "--results", place / "results"),
            place,
        )
    if cost.status:
        raise RuntimeError(f"testbed simulate ended with {cost.status}: {cost.output[-300:]}")
    return cost


def run(program: Path, scenario: Scenario) -> Sample:
    """Run htsim on a scenario's fabric and pairs.

    Raises:
        RuntimeError: it failed, or not every flow finished.
    """
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        topology, matrix = place / "fabric.topo", place / "pairs.cm"
        ((_, text),) = exports.htsim(scenario.topology)
        topology.write_text(text, encoding="ascii")
        matrix.write_text(matrix_text(scenario), encoding="ascii")
        arguments: list[str | Path] = ["-topo", topology, "-tm", matrix]
        arguments += ["-sender_cc_only", "-sender_cc_algo", "nscc", "-end", "10000"]
        cost = cost_of([program, *arguments, "-o", place / "log"], place)
    done = sorted(float(us) for us in FINISHED.findall(cost.output))
    pairs = len(scenario.flows)
    if cost.status or len(done) != pairs:
        last = cost.output[-300:].strip()
        raise RuntimeError(
            f"htsim ended with {cost.status}, {len(done)} of {pairs} flows finished: {last}"
        )
    return Sample(done, cost.seconds, cost.megabytes)


def matrix_text(scenario: Scenario) -> str:
    """The pairs in htsim's format of connection matrices."""
    topology = scenario.topology
    pairs = [(src, dst) for src, dst, _ in scenario.flows]
    size = scenario.longest_bytes
    number = {host.name: i for i, host in enumerate(topology.hosts)}
    lines = [
        f"{number[src]}->{number[dst]} id {i} start 0 size {size}"
        for i, (src, dst) in enumerate(pairs, 1)
    ]
    return f"Nodes {len(number)}\nConnections {len(pairs)}\n" + "\n".join(lines) + "\n"


CASES = "validate*.txt"
TABLE = "htsim-validate.md"
AS_GOOD = 1.05
"""Target: our slowest flow, in htsim's."""

_PACKET_BYTES = 4150
_ACK_BYTES = 64
_FAILED_RATE = 0.25
"""htsim's: bytes of a packet and of an acknowledgement; what is left of a failed link's rate."""

_LEFT_OUT = {
    "-receiver_cc": "the receiver controls the rate",
    "-sleek": "SLEEK: recovery without trimming",
    "-conn_reuse": "messages share a connection",
}
"""Why cases are left out, by how a parameter begins."""


@dataclass(frozen=True, slots=True)
class Case:
    """A case of htsim's.

    Attributes:
        name: its file and its name there.
        program: the program of htsim that it is for.
        matrix: the connection matrix.
        parameters: the program's, by name; those without a value have "".
        bound_us: the slowest flow that it allows; 0 for none.
    """

    name: str
    program: str
    matrix: Path
    parameters: dict[str, str]
    bound_us: int

    @property
    def left_out(self) -> str:
        """Why it is not compared; empty if it is."""
        if self.program != PROGRAM:
            return f"another program: {self.program}"
        given = " ".join(self.parameters)
        return next((reason for begin, reason in _LEFT_OUT.items() if begin in given), "")

    def number(self, parameter: str, default: int) -> int:
        """The value of a parameter.

        Raises:
            InputError: it is no number.
        """
        value = self.parameters.get(parameter)
        return default if value is None else _whole(value, f"{self.name}: {parameter}")


Compared = tuple[Case, float, float]
"""A case, and its slowest flow in htsim and here, in us."""


def htsim_validate(setting: Setting) -> list[Measurement]:
    """Run both on all cases that can be compared: half an hour of a CPU. The table grows with each.

    Raises:
        InputError: there is no htsim where the user said, or it has no cases.
        MachineError: it is there, and cannot be built.
        RunFailedError: htsim failed.
    """
    program = find(setting.htsim)
    left_out: Counter[str] = Counter()
    compared: list[Compared] = []
    done: dict[str, float] = {}
    for case in cases(setting.htsim or Path()):
        reason = case.left_out
        try:
            scenario = None if reason else scenario_of(case)
        except InputError as error:
            reason = f"its matrix is not read: {error.problems[0].expected}"
        except ValidationError:
            reason = "a fabric or a length that the testbed does not have"
        if scenario is not None and not reason:
            setting.progress(case.name)
            theirs = run_case(program, case, scenario.topology)
            reason = "htsim does not finish it on this fabric" if theirs == math.inf else ""
        if scenario is None or reason:
            left_out[reason] += 1
            continue
        same = scenario.model_dump_json()  # of cases that differ in htsim's spraying only
        if same not in done:
            done[same] = in_new_process(slowest_us, scenario)
        compared.append((case, theirs, done[same]))
        setting.progress(f"  htsim {theirs:.1f} us, testbed {done[same]:.1f} us")
        (setting.pictures / TABLE).write_text(table(compared, left_out), encoding="utf-8")
    return [
        *figures(compared),
        *(no_target(f"left out: {r}", "", [n]) for r, n in left_out.items()),
    ]


def figures(compared: list[Compared]) -> Iterator[Measurement]:
    """The figures of every case; its bound is one for ours where the fabric is htsim's own."""
    for case, theirs, ours in compared:
        yield no_target(f"{case.name}: htsim", "us", [theirs])
        bound_us = (case.bound_us if "-topo" in case.parameters else 0) or None
        yield Measurement(f"{case.name}: testbed", "us", (ours,), at_most=bound_us)
        yield at_most(f"{case.name}: testbed in htsim's", "", [ours / theirs], AS_GOOD)


def table(compared: list[Compared], left_out: Counter[str]) -> str:
    """The comparison, and what is not in it so far, as Markdown."""
    rows = [
        f"| {case.name} | {theirs:,.1f} | {ours:,.1f} | {ours / theirs:.2f} | "
        f"{case.bound_us or ''} |"
        for case, theirs, ours in compared
    ]
    out = [f"| {reason} | {number} |" for reason, number in left_out.most_common()]
    head = "| case | htsim (us) | testbed (us) | ratio | htsim's bound (us) |"
    lines = [head, "| --- | ---: | ---: | ---: | ---: |", *rows, ""]
    return "\n".join([*lines, "| left out because | cases |", "| --- | ---: |", *out, ""])


# --- htsim's cases ------------------------------------------------------------------------------


def cases(checkout: Path) -> list[Case]:
    """All cases of a checkout, in the order of its files.

    Raises:
        InputError: it has none.
    """
    files = sorted(checkout.rglob(CASES))
    if not files:
        raise InputError.of("--htsim", str(checkout), f"a checkout of uet-htsim, with its {CASES}")
    return [case for file in files for case in _cases_of(file)]


def _cases_of(file: Path) -> Iterator[Case]:
    """The cases of a file: a line with a matrix, then lines `!WORD VALUE` (htsim's validate.py)."""
    blocks: list[tuple[str, dict[str, str], dict[str, str]]] = []
    for line in map(str.strip, text_lines(file, "cases of htsim")):
        word, _, value = line.partition(" ")
        if line.startswith("!") and blocks:
            _, words, parameters = blocks[-1]
            option, _, given = value.strip().partition(" ")
            if word == "!Param":
                parameters[option] = given
            else:
                words[word] = value.strip()
        elif line and not line.startswith(("#", "!")):
            blocks.append((line, {}, {}))
    for matrix, words, parameters in blocks:
        name = words.get("!Experiment", "").rstrip(".")
        bound = words.get("!tailFCT")
        differs = [f"{key} {parameters[key]}" for key in _SHOWN if key in parameters]
        label = f"{file.stem.removeprefix('validate_')}: {', '.join([name, *differs])}"
        yield Case(
            f"{label} ({Path(matrix).stem})",
            Path(words.get("!Binary", "htsim_eqds")).name,
            file.parent / matrix,
            parameters,
            0 if bound is None else _whole(bound, f"{file}: {name}: tailFCT"),
        )


def _whole(text: str, where: str) -> int:
    """A number of a case.

    Raises:
        InputError: it is none.
    """
    if not re.fullmatch(r"\d{1,9}", text.strip(), re.ASCII):
        raise InputError.of(where, text, "a whole number, 999,999,999 at most")
    return int(text)


_SHOWN = ("-load_balancing_algo", "-q", "-sack_threshold")
"""Parameters without which cases of one file have equal names."""


def scenario_of(case: Case) -> Scenario:
    """A case as a scenario.

    Raises:
        InputError: its matrix or its topology is not one that the testbed reads.
    """
    matrix = read_matrix(case.matrix)
    if matrix.triggers or matrix.cut:
        raise InputError.of(str(case.matrix), "", "no triggers and no failures")
    end_us, failed = case.number("-end", 1000), case.number("-failed", 0)
    topology = _fabric(case, matrix.nodes)
    if failed > topology.t1_per_plane:
        expected = f"{topology.t1_per_plane} at most, a link of each T1"
        raise InputError.of(f"{case.name}: -failed", str(failed), expected)
    whole = {"at": "0 s", "for": f"{end_us} us"}
    single = case.parameters.get("-paths") == "1"
    return Scenario(
        name="htsim-validate",
        topology=topology,
        duration=f"{end_us} us",
        workload=Connections(matrix=tuple(matrix.transfers)),
        transport=Mrc(nscc="uec", evs=1 if single else None),
        timeline=tuple(
            Degrade(target=f"p0_t1_{number}", factor=_FAILED_RATE, **whole)
            for number in range(failed)
        ),
    )


def _fabric(case: Case, nodes: int) -> Topology:
    """The case's own leaf-spine fabric, or one of as many hosts; queues as htsim sizes them."""
    own = case.parameters.get("-topo")
    if own is not None:
        fabric = load_topology(str(case.matrix.parents[1] / own))
    else:
        leaves = max(n for n in range(1, math.isqrt(nodes) + 1) if nodes % n == 0)
        hosts = nodes // leaves
        fabric = Topology(
            name=f"leaf-spine-{nodes}",
            planes=1,
            t0_per_plane=leaves,
            t1_per_plane=hosts,
            hosts_per_t0=hosts,
            delay=PropagationDelay(nic="1 us", switch="1 us"),
        )
    real = fabric.model_copy(update={"dilation": 1.0})
    rtt_s = real.propagation_rtt_ns / NS_PER_S
    rtt_s += 4 * 8 * (_PACKET_BYTES + _ACK_BYTES) / real.port_rate
    bdp = math.ceil(rtt_s * real.port_rate / 8 / _PACKET_BYTES)

    def packets(number: int) -> str:
        return f"{number * _PACKET_BYTES} B"

    trim = case.number("-q", bdp)
    ecn = Ecn(min=packets(math.ceil(0.2 * bdp)), max=packets(math.ceil(0.8 * bdp)))
    queue = {"limit": packets(4 * trim), "ecn": ecn, "trim": packets(trim)}
    queues = Queues(t0_up=Queue(**queue), t1_down=Queue(**queue), last_hop=LastHopQueue(**queue))
    return real.model_copy(update={"queue": queues})


# --- both simulators ----------------------------------------------------------------------------


def run_case(program: Path, case: Case, topology: Topology) -> float:
    """The slowest flow of a case in htsim on this fabric, in us; infinite if one did not finish.

    Raises:
        RunFailedError: htsim failed.
    """
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        ((name, text),) = exports.htsim(topology)
        (place / name).write_text(text, encoding="ascii")
        given = case.parameters | {"-topo": name}
        words = [word for key, value in given.items() for word in (key, *value.split())]
        cost = cost_of([program, "-tm", case.matrix.resolve(), *words, "-o", "log"], place)
    if cost.status:
        said = cost.output[-300:].strip()
        raise RunFailedError(f"{case.name}: htsim ended with {cost.status}: {said}")
    finished = [float(us) for us in FINISHED.findall(cost.output)]
    whole = len(finished) == len(read_matrix(case.matrix).transfers)
    return max(finished) if whole else math.inf


def slowest_us(scenario: Scenario) -> float:
    """The slowest flow of a scenario here, in us; infinite if it does not finish in time."""
    simulation = Simulation(scenario)
    senders = [each for host in simulation.hosts.values() for each in host.traffic.senders.values()]
    workloads = (each for each in (scenario.workload,) if isinstance(each, Connections))
    wanted = sum(transfer.size for each in workloads for transfer in each.matrix)
    wanted += PAYLOAD_MTU  # of the packet before them, which measures the base RTT
    ended_ns: list[int] = []

    def look(now_ns: int, _: object) -> None:
        if sum(sender.counts.bytes_completed for sender in senders) < wanted:
            simulation.engine.at(now_ns + SAMPLE_NS, look)
        else:
            ended_ns.append(now_ns)

    simulation.engine.at(0, look)
    outcome = simulation.run()
    taken_ns = ended_ns[0] - outcome.t0_ns if ended_ns else math.inf
    return taken_ns / NS_PER_US if taken_ns <= scenario.duration else math.inf
