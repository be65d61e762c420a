"""Which part of the code the time of a simulation goes to: the core, the hosts' loop, the links.

cProfile counts it, which sees Python only: it is not measured where `make fast` has built the code.
Time in functions of C, such as a list's, counts for the function that called them.
"""

import cProfile
import pstats
from collections import defaultdict
from pathlib import Path

import testbed
from testbed import fast
from testbed.sim import Simulation
from testbed.studies.bench.measure import Measurement, Setting, no_target
from testbed.studies.bench.simulated.simulator import permutation

LEAVES, HOSTS_PER_LEAF = 4, 8

PARTS = {
    "mrc": "the protocol's core, both ends",
    "sim": "links, switches, events",
    "host": "the hosts' loop, ports and checks",
}
"""Of `testbed`, by directory."""

PACKAGE = Path(testbed.__file__).parent

_BUILT = "make slow: the profiler does not see what make fast has built"


def simulator_shares(setting: Setting) -> list[Measurement]:
    """Simulate a permutation of 32 hosts without records under the profiler."""
    names = [f"share of the time: {what}" for what in PARTS.values()]
    if fast.is_built():
        return [Measurement(name, "%", (), missing=_BUILT) for name in names]
    samples = setting.repeat("simulate 32 hosts, profiled", shares)
    return [
        no_target(name, "%", [100 * sample[part] for sample in samples])
        for name, part in zip(names, PARTS, strict=True)
    ] + [
        no_target("share of the time: the largest file", "%", [100 * s[""] for s in samples]),
    ]


def shares() -> dict[str, float]:
    """The share of each part, and of the largest file under the empty name."""
    simulation = Simulation(permutation(LEAVES, HOSTS_PER_LEAF, seed=1))
    profiler = cProfile.Profile()
    profiler.runcall(simulation.run)
    by_file = time_by_file(pstats.Stats(profiler))
    total = sum(by_file.values())
    by_part: defaultdict[str, float] = defaultdict(float)
    for file, seconds in by_file.items():
        if file.is_relative_to(PACKAGE):
            by_part[file.relative_to(PACKAGE).parts[0]] += seconds
    shares = {part: by_part[part] / total for part in PARTS}
    return {**shares, "": max(by_file.values()) / total}


def time_by_file(stats: pstats.Stats) -> dict[Path, float]:
    """Seconds by file of Python; what is no file of the package counts for its callers."""
    seconds: defaultdict[Path, float] = defaultdict(float)
    for (file, _, _), (_, _, own_s, _, callers) in stats.stats.items():  # type: ignore[attr-defined]
        if Path(file).is_relative_to(PACKAGE):
            seconds[Path(file)] += own_s
        else:
            for (caller, _, _), (_, _, called_s, _) in callers.items():
                seconds[Path(caller)] += called_s
    return dict(seconds)
