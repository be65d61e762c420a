"""The simulator beside uet-htsim: the same permutation on the same fabric, one after the other.

htsim is a program of its own: the user names a checkout, in which it is built if it is not. Both
get the same fabric (leaf-spine, links of 100 Gbit/s) and the same matrix (every host sends 2 MB to
another one), and congestion control by NSCC. htsim is run as its README does, without logs, with
its own way of spraying. A flow ends when its sender has the last acknowledgement.

All run on the same CPU. Times are CPU times, from the start of each program: on a core of its own a
program takes as long, and other work on the machine changes them little.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from testbed import exports, interpreter
from testbed.limits import usable_cpus
from testbed.model.errors import InputError, MachineError
from testbed.model.scenario import Scenario
from testbed.studies.bench.cost import (
    ProgramCost,
    cost_of,
    in_new_process,
    peak_megabytes,
)
from testbed.studies.bench.measure import Measurement, Setting, at_most, no_target
from testbed.studies.bench.simulator import completions, ideal_ns, permutation

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
