"""uet-htsim's own cases in both simulators: its `validate*.txt`, where the sender has control.

A case is a connection matrix, parameters and a bound of the slowest flow. Both get the matrix and
the same leaf-spine fabric, as htsim's `.topo`: the case's own, or, as htsim's default has three
tiers, one of as many hosts with links of 100 Gbit/s and no oversubscription. The fabric's queues
mark and trim where htsim's do. A flow is finished when its sender has the last acknowledgement.

Not carried over: htsim's ways of spraying (`-load_balancing_algo`), for which MRC has its own, the
first window (`-cwnd`), and how often is acknowledged (`-sack_threshold`). Links that `-failed`
slows down keep their thresholds here.
"""

import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from testbed import exports
from testbed.model.errors import InputError, RunFailedError
from testbed.model.fabric.queue import Ecn, LastHopQueue, Queue, Queues
from testbed.model.fabric.topology import PropagationDelay, Topology
from testbed.model.faults.kinds import Degrade
from testbed.model.files.matrices import read_matrix
from testbed.model.files.reading import text_lines
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.model.units import NS_PER_S
from testbed.model.workload import Connections
from testbed.sim import Simulation
from testbed.studies.bench.cost import cost_of, in_new_process
from testbed.studies.bench.htsim import FINISHED, NS_PER_US, PROGRAM, find
from testbed.studies.bench.measure import Measurement, Setting, at_most, no_target
from testbed.studies.bench.simulator import SAMPLE_NS

if TYPE_CHECKING:
    from testbed.host.workloads.messages import SentCounts

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
        reasons = [
            reason
            for begin, reason in _LEFT_OUT.items()
            if any(parameter.startswith(begin) for parameter in self.parameters)
        ]
        return reasons[0] if reasons else ""

    def number(self, parameter: str, default: int) -> int:
        """The value of a parameter.

        Raises:
            InputError: it is no number.
        """
        value = self.parameters.get(parameter)
        return default if value is None else _whole(value, f"{self.name}: {parameter}")


@dataclass(frozen=True, slots=True)
class Compared:
    """The slowest flow of a case, in both, in us."""

    case: Case
    htsim_us: float
    ours_us: float

    @property
    def ratio(self) -> float:
        """Ours in htsim's."""
        return self.ours_us / self.htsim_us


def htsim_validate(setting: Setting) -> list[Measurement]:
    """Run both on all cases that can be compared: more than half an hour.

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
        if scenario is None or reason:
            left_out[reason] += 1
            continue
        setting.progress(case.name)
        theirs = run(program, case, scenario.topology)
        if theirs == math.inf:
            left_out["htsim does not finish it on this fabric"] += 1
            continue
        same = scenario.model_dump_json()  # of cases that differ in htsim's spraying only
        if same not in done:
            done[same] = in_new_process(slowest_us, scenario)
        compared.append(Compared(case, theirs, done[same]))
        setting.progress(f"  htsim {theirs:.1f} us, testbed {done[same]:.1f} us")
    (setting.pictures / TABLE).write_text(table(compared, left_out), encoding="utf-8")
    return [
        *figures(compared),
        *(no_target(f"left out: {r}", "", [n]) for r, n in left_out.items()),
    ]


def figures(compared: list[Compared]) -> Iterator[Measurement]:
    """The figures of every case; its bound is one for ours where the fabric is htsim's own."""
    for one in compared:
        yield no_target(f"{one.case.name}: htsim", "us", [one.htsim_us])
        ours = f"{one.case.name}: testbed"
        is_theirs = one.case.bound_us and "-topo" in one.case.parameters
        yield (
            at_most(ours, "us", [one.ours_us], one.case.bound_us)
            if is_theirs
            else no_target(ours, "us", [one.ours_us])
        )
        yield at_most(f"{one.case.name}: testbed in htsim's", "", [one.ratio], AS_GOOD)


def table(compared: list[Compared], left_out: Counter[str]) -> str:
    """The comparison, and what is not in it, as Markdown."""
    rows = [
        f"| {one.case.name} | {one.htsim_us:.1f} | {one.ours_us:.1f} | {one.ratio:.2f} | "
        f"{one.case.bound_us or ''} |"
        for one in compared
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
    blocks: list[tuple[str, list[str]]] = []
    for line in map(str.rstrip, text_lines(file, "cases of htsim")):
        if line.startswith("!") and blocks:
            blocks[-1][1].append(line.removeprefix("!").strip())
        elif line.strip() and not line.startswith(("#", "!")):
            blocks.append((line.strip(), []))
    for matrix, lines in blocks:
        name, program, bound = "", "htsim_eqds", 0
        parameters: dict[str, str] = {}
        for line in lines:
            word, _, value = line.partition(" ")
            match word:
                case "Experiment":
                    name = value.strip().rstrip(".")
                case "Binary":
                    program = Path(value.strip()).name
                case "Param":
                    option, _, given = value.strip().partition(" ")
                    parameters[option] = given
                case "tailFCT":
                    bound = _whole(value, f"{file}: {name}: {word}")
        label = file.stem.removeprefix("validate_")
        differs = [f"{key} {parameters[key]}" for key in _SHOWN if key in parameters]
        full = f"{label}: {', '.join([name, *differs])} ({Path(matrix).stem})"
        yield Case(full, program, file.parent / matrix, parameters, bound)


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
    if not matrix.transfers:
        raise InputError.of(str(case.matrix), "", "a transfer")
    end_us, failed = case.number("-end", 1000), case.number("-failed", 0)
    nodes = max(int(name[1:]) for one in matrix.transfers for name in (one["src"], one["dst"])) + 1
    topology = _fabric(case, _nodes(case.matrix) or nodes)
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


def _nodes(matrix: Path) -> int:
    """The number of the line Nodes of a matrix; 0 if it has none."""
    with matrix.open(encoding="utf-8", errors="replace") as lines:
        words = next((line.split() for line in lines if line.startswith("Nodes")), [])
    return int(words[1]) if words else 0


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


def run(program: Path, case: Case, topology: Topology) -> float:
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


class _Ends:
    """Ends a simulation when all transfers have been acknowledged, and knows when."""

    step_ns = 50 * SAMPLE_NS

    def __init__(self, scenario: Scenario) -> None:
        self._duration_ns = scenario.duration
        self._t0_ns = 0
        self._wanted = _sent_bytes(scenario)
        self._counts: list[SentCounts] = []
        self.ended_us = math.inf

    def begins(self, simulation: Simulation, t0_ns: int, base_rtt_ns: int) -> None:  # noqa: ARG002
        """Count from here on: a packet has been sent to measure the base RTT."""
        senders = (host.traffic.senders for host in simulation.hosts.values())
        self._counts = [sender.counts for each in senders for sender in each.values()]
        self._wanted += self._completed()
        self._t0_ns = t0_ns

        def look(now_ns: int, _: object) -> None:
            if self._completed() >= self._wanted:
                self.ended_us = (now_ns - t0_ns) / NS_PER_US
            elif now_ns < t0_ns + self._duration_ns:
                simulation.engine.at(now_ns + SAMPLE_NS, look)

        simulation.engine.at(t0_ns, look)

    def goes_on(self, now_ns: int) -> bool:
        """Whether something is not acknowledged yet, and there is time left."""
        return self.ended_us == math.inf and now_ns - self._t0_ns < self._duration_ns

    def _completed(self) -> int:
        return sum(counts.bytes_completed for counts in self._counts)


def _sent_bytes(scenario: Scenario) -> int:
    matrices = (each for each in (scenario.workload,) if isinstance(each, Connections))
    return sum(transfer.size for each in matrices for transfer in each.matrix)


def slowest_us(scenario: Scenario) -> float:
    """The slowest flow of a scenario here, in us; infinite if it does not finish in time."""
    ends = _Ends(scenario)
    simulation = Simulation(scenario)
    simulation.run(observer=ends)
    simulation.close()
    return ends.ended_us
