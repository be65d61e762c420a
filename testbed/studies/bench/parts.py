"""The parts of the bench, by name, in the order in which they are measured.

The largest fabrics come last: the kernel is busy for a while after them, taking them down.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from testbed.studies.bench.measure import Measurement, Setting


@dataclass(frozen=True, slots=True)
class BenchPart:
    """A part of the bench.

    Attributes:
        what: what it measures, in a line.
        module: the module of this package that measures it, in a function of its name.
        most_repeats: what takes long and varies little is not repeated more often.
        root: whether it needs root.
        only_if_named: whether it is measured only if it is named: it needs another program.
    """

    what: str
    module: str
    most_repeats: int = 1000
    root: bool = True
    only_if_named: bool = False


PARTS: Mapping[str, BenchPart] = {
    "bring-up": BenchPart("the default fabric, against stock Mininet and iproute2", "bring_up"),
    "link-model": BenchPart("CPU time of a packet on a link", "links"),
    "rate": BenchPart("links against the rate that they were given", "links", 3),
    "faults": BenchPart("how soon the controller's faults hold, and heal", "faults", 5),
    "packet-rate": BenchPart("one queue pair beside a C program", "packet_rate"),
    "device": BenchPart("perftest on the device beside write_bw and write_lat", "device"),
    "torch": BenchPart("PyTorch on 8 hosts: its start, all_reduce beside the workload", "torch", 3),
    "device-rate": BenchPart(
        "packets/s of perftest in 8 hosts, without root beside emulated", "programs", 3
    ),
    "delay": BenchPart("packets against the propagation delay of their path", "emulated", 3),
    "permutation": BenchPart("8 hosts at full rate: load, goodput, trust", "emulated", 3),
    "failover": BenchPart("silent link failures over seeds", "emulated"),
    "dilation": BenchPart(
        "link failures at three dilations, in round trips; a picture", "emulated", 3
    ),
    "scale": BenchPart("bring-up of five sizes, to 1024 links; a picture", "bring_up", 3),
    "simulator": BenchPart("packet-hops/min of the simulator", "simulator", 3, root=False),
    "simulator-cost": BenchPart(
        "time and memory of a simulated run, by stage, at 8 to 1024 hosts",
        "cost",
        5,
        root=False,
    ),
    "reading": BenchPart("large files of traffic: time and memory", "reading", 3, root=False),
    "htsim": BenchPart(
        "the simulator beside uet-htsim (--htsim)",
        "htsim",
        5,
        root=False,
        only_if_named=True,
    ),
    "htsim-validate": BenchPart(
        "uet-htsim's own cases, in both (--htsim); a table",
        "htsim_validate",
        1,
        root=False,
        only_if_named=True,
    ),
    "agreement": BenchPart(
        "ten scenarios and perftest, emulated and simulated; a table", "agreement", 3
    ),
    "leaf-spine": BenchPart("a permutation of 1024 hosts, simulated", "simulator", 3, root=False),
}


def load(name: str) -> Callable[[Setting], list[Measurement]]:
    """Import the function that measures a part.

    Not before it is called: some modules load Polars, which starts threads, and other parts fork.
    """
    module = import_module(f"testbed.studies.bench.{PARTS[name].module}")
    measure: Callable[[Setting], list[Measurement]] = getattr(module, name.replace("-", "_"))
    return measure
