"""The parts of the bench, by name, in the order in which they are measured.

The largest fabrics come last: the kernel is busy for a while after them, taking them down.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from testbed.bench.core import core
from testbed.bench.dilation import dilation
from testbed.bench.fabric.accounts import accounts
from testbed.bench.fabric.bring_up import bring_up, scale
from testbed.bench.fabric.change import change
from testbed.bench.fabric.delay import delay
from testbed.bench.fabric.faults import faults
from testbed.bench.fabric.link_model import ceiling, link_model
from testbed.bench.fabric.rate import rate
from testbed.bench.failover import failover
from testbed.bench.figure import Figure
from testbed.bench.packet_rate import packet_rate
from testbed.bench.permutation import permutation
from testbed.bench.robustness import robustness
from testbed.bench.setting import Setting
from testbed.bench.simulated.agreement import agreement
from testbed.bench.simulated.congestion import incast, shared_path
from testbed.bench.simulated.leaf_spine import leaf_spine
from testbed.bench.simulated.localisation import localisation
from testbed.bench.simulated.simulator import simulator


@dataclass(frozen=True, slots=True)
class Part:
    """One part.

    Attributes:
        what: what it measures, in a line.
        measure: does it.
        most_repeats: what takes long and varies little is not repeated more often.
        root: whether it needs root.
    """

    what: str
    measure: Callable[[Setting], list[Figure]]
    most_repeats: int = 1000
    root: bool = True


PARTS: Mapping[str, Part] = {
    "bring-up": Part("the default fabric, against stock Mininet and iproute2", bring_up),
    "link-model": Part("CPU time of a packet on a link", link_model),
    "ceiling": Part("packet-hops/s that this machine carries", ceiling),
    "rate": Part("links against the rate that they were given", rate, 3),
    "accounts": Part("whether every packet is counted where it was", accounts, 1),
    "change": Part("how soon a change of a link holds", change, 5),
    "faults": Part("how soon the controller's faults hold, and heal", faults, 5),
    "packet-rate": Part("one queue pair beside a C program", packet_rate),
    "core": Part("CPU time of a packet in the transport core alone", core, 5, root=False),
    "delay": Part("packets against the propagation delay of their path", delay, 3),
    "permutation": Part("8 hosts at full rate: load, goodput, trust", permutation, 3),
    "failover": Part("silent link failures over seeds", failover),
    "dilation": Part("link failures at three dilations, in round trips; a picture", dilation, 3),
    "scale": Part("bring-up of five sizes, to 1024 links; a picture", scale, 3),
    "localisation": Part("whether probes name what is ill, simulated", localisation, 1, root=False),
    "incast": Part("7:1, with trimming and without, simulated", incast, 3, root=False),
    "shared-path": Part("two flows that meet on one T1, simulated", shared_path, 1, root=False),
    "robustness": Part("mutated packets and random schedules", robustness, 1, root=False),
    "simulator": Part("packet-hops/min of the simulator", simulator, 3, root=False),
    "agreement": Part("ten scenarios, emulated and simulated; a table", agreement, 3),
    "leaf-spine": Part("a permutation of 1024 hosts, simulated", leaf_spine, 1, root=False),
}
