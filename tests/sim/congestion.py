"""An incast and a shared path in virtual time: the scenarios, and what is measured of them."""

from dataclasses import dataclass
from functools import cached_property

from testbed.host.traffic import SAMPLES_PER_RTT
from testbed.model.fabric.names import ends_at_host
from testbed.model.fabric.topology import LastHopQueue, Queue, Queues, Topology
from testbed.model.files.topologies import load_topology
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.model.units import NS_PER_S
from testbed.model.workload import WriteBw
from testbed.mrc import QueuePair
from testbed.results.analysis.flow_metrics import WARM_UP_RTTS
from testbed.results.analysis.metrics import jain
from testbed.sim import Simulation, SimulationOutcome, Timing

MANY = 200
"""Packets: more than probes and SACKs of a path, less than data."""

FAIR = 0.98
"""Jain's index of the flows' goodput."""

SHORT_BDP = 1.5
"""Backlog at which a last hop trims."""

SHARED_EVS = 2
SHARED_SEED = 2
"""The seed with which two flows have exactly one path in common."""

MOVED_APART = 0.95
"""Of attainable, for both flows that ECN moves off the path that they share."""

WITHOUT_TRIMMING = Queues(
    t0_up=Queue(trim=None), t1_down=Queue(trim=None), last_hop=LastHopQueue(trim=None)
)


# --- measuring --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of a simulation at a time.

    Attributes:
        at_ns: the time.
        placed: bytes in memory so far, by flow.
        backlogs: of each last hop, in BDPs of a port.
        active: the fewest active EVs of a sender.
    """

    at_ns: int
    placed: dict[int, int]
    backlogs: tuple[float, ...]
    active: int


@dataclass(frozen=True)
class Measured:
    """A run; `shares` are goodput by what is attainable, of each flow in the steady window."""

    outcome: SimulationOutcome
    shares: tuple[float, ...]
    steady: tuple[Sample, ...]
    samples: tuple[Sample, ...]

    @property
    def jain(self) -> float:
        """Jain's fairness index of the shares: 1 where all are alike."""
        return jain(self.shares)

    @cached_property
    def _backlogs(self) -> list[float]:
        return sorted(backlog for sample in self.steady for backlog in sample.backlogs)

    def backlog(self, quantile: float) -> float:
        """Of the last hops in the steady window, in BDPs."""
        return self._backlogs[int(len(self._backlogs) * quantile)]

    @property
    def dropped(self) -> int:
        """Packets that a full queue did not take, not even trimmed."""
        return sum(count.full + count.full_priority for count in self.outcome.counts.values())

    @property
    def evs_out(self) -> int:
        """How many EVs of a sender were out of its active set at the worst moment."""
        active = [sample.active for sample in self.samples]
        return max(active) - min(active)

    @property
    def evs_out_at_end(self) -> int:
        """How many EVs of a sender were out of its active set at the end."""
        return max(sample.active for sample in self.samples) - self.samples[-1].active

    @property
    def bytes_damaged(self) -> int:
        """Payload lost or corrupted."""
        return sum(flow.bytes_lost + flow.bytes_corrupted for flow in self.outcome.flows)


def measure(scenario: Scenario, timing: Timing = Timing.REAL) -> Measured:
    """Simulate a scenario and look at its flows, last hops and EVs 16 times a round trip."""
    simulation = Simulation(scenario, timing=timing)
    engine, topology = simulation.engine, scenario.topology
    rtt_ns, bdp = topology.propagation_rtt_ns, topology.bdp_bytes
    plans = [
        (connection.plan, connection.qp)
        for host in simulation.hosts.values()
        for connection in host.traffic.connections.values()
        if isinstance(connection.qp, QueuePair)
    ]
    samples: list[Sample] = []

    def sample(now_ns: int, _: object) -> None:
        samples.append(
            Sample(
                now_ns,
                {
                    plan.receives: qp.counters.bytes_placed
                    for plan, qp in plans
                    if plan.receives is not None
                },
                tuple(
                    direction.backlog_bytes(now_ns) / bdp
                    for _, direction in simulation.fabric
                    if ends_at_host(direction.name)
                ),
                min(len(qp.active_evs()) for plan, qp in plans if plan.sends is not None),
            )
        )
        engine.at(now_ns + rtt_ns // SAMPLES_PER_RTT, sample)

    engine.at(0, sample)
    outcome = simulation.run()
    begin_ns, end_ns = outcome.t0_ns + WARM_UP_RTTS * rtt_ns, outcome.t0_ns + outcome.duration_ns
    steady = tuple(sample for sample in samples if begin_ns <= sample.at_ns < end_ns)
    first, last = steady[0], steady[-1]
    seconds = (last.at_ns - first.at_ns) / NS_PER_S
    shares = tuple(
        (last.placed[flow.flow] - first.placed[flow.flow]) * 8 / seconds / flow.ports_bps
        for flow in outcome.flows
    )
    return Measured(outcome, shares, steady, tuple(samples))


# --- what is measured -------------------------------------------------------------------------


def incast_scenario(seed: int, queues: Queues) -> Scenario:
    """Three senders of the receiver's rack and four of the other one, all to h7."""
    topology = load_topology("clos-4plane")
    return Scenario(
        name="incast",
        topology=topology.model_copy(update={"queue": queues}),
        seed=seed,
        duration="12 s",
        workload=WriteBw(
            pairs=tuple((f"h{i}", "h7") for i in range(7)),
            bidirectional=False,
            message_size="1 MiB",
        ),
        transport=Mrc(congestion="nscc"),
    )


def shared_scenario(queue: Queue) -> Scenario:
    """Two flows of two paths, one in common, on links of three quarters of a port's rate.

    Sprayed evenly, half of each meets on the common path, which carries three quarters of that.
    (After figure 14 of the MRC paper, where two flows are forced onto one EV.)
    """
    topology = Topology(
        name="shared",
        planes=1,
        t0_per_plane=2,
        t1_per_plane=3,
        hosts_per_t0=2,
        fabric_rate="75 Gbit/s",
        queue=Queues(t0_up=queue, t1_down=queue),
    )
    return Scenario(
        name="shared",
        topology=topology,
        seed=SHARED_SEED,
        duration="6 s",
        workload=WriteBw(pairs=(("h0", "h2"), ("h1", "h3")), bidirectional=False),
        transport=Mrc(congestion="nscc", evs=SHARED_EVS),
    )


def paths_used(measured: Measured) -> int:
    """How many T1s the data of the shared path's two flows went over."""
    return sum(
        name.startswith("p0_t0_0>p0_t1") and counts.offered > MANY
        for name, counts in measured.outcome.counts.items()
    )
