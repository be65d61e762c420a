"""The simulator beside uet-htsim: the same permutation on the same fabric, one after the other.

htsim is a program of its own: the user names a checkout, in which it is built if it is not. Both
get the same fabric (leaf-spine, links of 100 Gbit/s) and the same matrix (every host sends 2 MB to
another one), and congestion control by NSCC. htsim is run as its README does, without logs. Both
have one thread for the simulation. Times are CPU times, from the start of each program: on a core
of its own a program takes as long, and other work on the machine changes them little.
"""

import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from testbed.bench.measure import Figure, Setting, at_most, no_target
from testbed.bench.simulated.cost import MEGABYTE, in_new_process, recorded
from testbed.bench.simulated.simulator import completions, ideal_ns, permutation
from testbed.model.errors import InputError, MachineError
from testbed.model.scenario import Scenario

PROGRAM = "htsim_uec"
FABRICS = {128: (8, 16), 1024: (32, 32)}
"""Leaves, and hosts of a leaf, by the number of hosts."""

NS_PER_US = 1000

ALONE, WHOLE, MEMORY_MB = 2.0, 4.0, 1000.0
"""Targets: CPU time in that of htsim, without records and with records and report; megabytes."""

_PROJECT = "datacenter/CMakeLists.txt"
"""A file by which htsim's sources are known; they are in the directory above its own."""

_BY_HAND = "build it as its README says, then give the command again"
_SHOWN_LINES = 10
"""Of the output of a build that failed."""

_FINISHED = re.compile(r"^Flow .* finished at ([\d.]+) ", re.MULTILINE)
"""A line that htsim prints for each flow: its end in us."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one simulation came to: completions of its flows in us, ascending; CPU time, memory."""

    completions_us: Sequence[float]
    seconds: float
    megabytes: float


def htsim(setting: Setting) -> list[Figure]:
    """Run both on each fabric; with 1,024 hosts a minute or two for each repeat.

    Raises:
        InputError: there is no htsim where the user said.
        MachineError: it is there, and cannot be built.
    """
    program = find(setting.htsim)
    figures: list[Figure] = []
    for hosts, (leaves, per_leaf) in FABRICS.items():
        seeds = count(1)

        def measure() -> tuple[Sample, Sample, float]:
            scenario = permutation(leaves, per_leaf, next(seeds))  # noqa: B023 - called below
            theirs = run(program, scenario)
            ours = in_new_process(simulated, scenario)
            stages = in_new_process(recorded, scenario)
            return theirs, ours, sum(seconds for seconds, _ in stages.values())

        samples = setting.repeat(f"{hosts} hosts", measure)
        figures += compare(f"{hosts} hosts", samples)
    return figures


def compare(name: str, samples: Sequence[tuple[Sample, Sample, float]]) -> list[Figure]:
    """The figures of one fabric, from its repeats: htsim's, ours, and our time with records."""
    figures = []
    theirs, ours, _ = zip(*samples, strict=True)
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
    whole = [seconds / other.seconds for other, _, seconds in samples]
    memory = [sample.megabytes for sample in ours]
    return [
        *figures,
        at_most(f"{name}: time without records, in htsim's", "", alone, ALONE),
        at_most(f"{name}: time with records and report, in htsim's", "", whole, WHOLE),
        at_most(f"{name}: peak memory without records", "MB", memory, MEMORY_MB),
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
        ("cmake", "--build", str(build), "--parallel", str(os.cpu_count() or 1)),
    ):
        done = subprocess.run(  # noqa: S603 - what builds the checkout that the user named
            command, capture_output=True, text=True, check=False
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
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ideal_us = ideal_ns(scenario) / NS_PER_US
    return Sample([taken * ideal_us for taken in in_ideal], seconds, peak_kib * 1024 / MEGABYTE)


def run(program: Path, scenario: Scenario) -> Sample:
    """Run htsim on a scenario's fabric and pairs.

    Raises:
        RuntimeError: it failed, or not every flow finished.
    """
    with tempfile.TemporaryDirectory() as place:
        topology, matrix = Path(place, "fabric.topo"), Path(place, "pairs.cm")
        topology.write_text(topology_text(scenario), encoding="ascii")
        matrix.write_text(matrix_text(scenario), encoding="ascii")
        command: list[str | Path] = [program, "-topo", topology, "-tm", matrix]
        command += ["-sender_cc_only", "-sender_cc_algo", "nscc", "-end", "10000"]
        command += ["-o", Path(place, "log")]
        with Path(place, "output").open("w+", encoding="utf-8") as output:
            process = subprocess.Popen(  # noqa: S603 - the user named it
                command, cwd=place, stdout=output, stderr=subprocess.STDOUT
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            printed = output.read()
    done = sorted(float(us) for us in _FINISHED.findall(printed))
    pairs = len(scenario.workload.directions(scenario.topology))
    if process.returncode or len(done) != pairs:
        last = printed[-300:].strip()
        raise RuntimeError(
            f"htsim ended with {process.returncode}, {len(done)} of {pairs} flows finished: {last}"
        )
    return Sample(done, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / MEGABYTE)


def topology_text(scenario: Scenario) -> str:
    """The fabric in htsim's format: two tiers, every link with a quarter of the propagation delay.

    The delay is that from NIC to NIC over a T1, which crosses four links.
    """
    topology = scenario.topology
    down, up = topology.hosts_per_t0, topology.t1_per_plane
    link = (
        f"Downlink_speed_Gbps {topology.port_rate_bps * topology.dilation / 1e9:g}\n"
        f"Downlink_Latency_ns {topology.one_way_ns(3) // 4}\n"
        "Switch_Latency_ns 0\n"
    )
    return (
        f"Nodes {len(topology.hosts)}\nTiers 2\nPodsize {len(topology.hosts)}\n\n"
        f"Tier 0\nRadix_Down {down}\nRadix_Up {up}\n{link}\n"
        f"Tier 1\nRadix_Down {topology.t0_per_plane}\n{link}"
    )


def matrix_text(scenario: Scenario) -> str:
    """The pairs in htsim's format of connection matrices."""
    topology = scenario.topology
    pairs = scenario.workload.directions(topology)
    size = scenario.workload.longest_bytes(topology, 1)
    number = {host.name: i for i, host in enumerate(topology.hosts)}
    lines = [
        f"{number[src]}->{number[dst]} id {i} start 0 size {size}"
        for i, (src, dst) in enumerate(pairs, 1)
    ]
    return f"Nodes {len(number)}\nConnections {len(pairs)}\n" + "\n".join(lines) + "\n"
