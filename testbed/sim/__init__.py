"""The same MRC core on a fabric in virtual time: no root, no clock, one seed.

engine    a heap of events
packet    what crosses the fabric
link      one direction of a link: a port with its queues, and the wire behind it
fabric    the directions of a topology, and the routes over them
host      the rounds of one host's queue pairs
faults    the faults of the timeline, and their records
mapper    the Clustermapper's probes
run       a scenario from beginning to end, into a run directory
"""

from testbed.sim.engine import Engine
from testbed.sim.fabric import Fabric, Timing
from testbed.sim.link import LinkDirection
from testbed.sim.run import Simulation, SimulationOutcome, simulate

__all__ = [
    "Engine",
    "Fabric",
    "LinkDirection",
    "Simulation",
    "SimulationOutcome",
    "Timing",
    "simulate",
]
