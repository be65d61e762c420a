"""What NSCC and the spray make of a full fabric, an incast and a shared path, in virtual time."""

from dataclasses import dataclass

import pytest

from testbed.bench.leaf_spine import completions
from testbed.bench.leaf_spine import permutation as permutation_of_all
from testbed.loading import load_scenario
from testbed.model.queue import LastHopQueue, Queue, Queues
from testbed.model.scenario import Scenario
from testbed.model.topology import Topology
from testbed.model.transport import Mrc
from testbed.model.workload import WriteBw
from testbed.mrc import QueuePair
from testbed.sim import Outcome, Simulation

S = 1_000_000_000
SETTLED_RTTS = 10
"""Where the steady window begins, as in results/."""

SAMPLES_PER_RTT = 16
MANY = 200
"""Packets: more than probes and SACKs, less than data."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was so at one time.

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


@dataclass(frozen=True, slots=True)
class Measured:
    """A run; `shares` are goodput by what is attainable, of each flow in the steady window."""

    outcome: Outcome
    shares: tuple[float, ...]
    steady: tuple[Sample, ...]
    samples: tuple[Sample, ...]

    @property
    def jain(self) -> float:
        total, squares = sum(self.shares), sum(share * share for share in self.shares)
        return total * total / len(self.shares) / squares

    def backlog(self, quantile: float) -> float:
        found = sorted(backlog for sample in self.steady for backlog in sample.backlogs)
        return found[int(len(found) * quantile)]


def measure(scenario: Scenario) -> Measured:
    simulation = Simulation(scenario)
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
                    if ">h" in direction.name
                ),
                min(len(qp.active_evs()) for plan, qp in plans if plan.sends is not None),
            )
        )
        engine.at(now_ns + rtt_ns // SAMPLES_PER_RTT, sample)

    engine.at(0, sample)
    outcome = simulation.run()
    begin_ns, end_ns = outcome.t0_ns + SETTLED_RTTS * rtt_ns, outcome.t0_ns + outcome.duration_ns
    steady = tuple(sample for sample in samples if begin_ns <= sample.at_ns < end_ns)
    first, last = steady[0], steady[-1]
    shares = tuple(
        (last.placed[flow.flow] - first.placed[flow.flow])
        * 8
        * S
        / (last.at_ns - first.at_ns)
        / flow.attainable_bps
        for flow in outcome.flows
    )
    for flow in outcome.flows:
        assert (flow.bytes_lost, flow.bytes_corrupted, flow.errors) == (0, 0, ())
    return Measured(outcome, shares, steady, tuple(samples))


def permutation(seed: int, **transport: object) -> Scenario:
    chosen = Mrc(congestion="nscc", **transport)
    changes = {"duration": 5 * S, "seed": seed, "transport": chosen}
    return load_scenario("permutation").model_copy(update=changes)


def incast(seed: int, queues: Queues) -> Scenario:
    """Three senders of the receiver's rack and four of the other one."""
    scenario = permutation(seed)
    workload = WriteBw(
        pairs=tuple((f"h{i}", "h7") for i in range(7)), bidirectional=False, message_size="1 MiB"
    )
    topology = scenario.topology.model_copy(update={"queue": queues})
    return scenario.model_copy(
        update={"duration": 12 * S, "workload": workload, "topology": topology}
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_a_permutation_uses_the_whole_fabric(seed: int) -> None:
    """The figure of the MRC paper's appendix is 97.5% of line rate for every flow."""
    measured = measure(permutation(seed))
    assert min(measured.shares) >= 0.97
    assert sum(flow.packets_lost for flow in measured.outcome.flows) == 0


def test_a_path_held_back_is_missed_by_all() -> None:
    """Why no EV stands by where a plane has no paths to spare."""
    measured = measure(permutation(1, backups=0.25))
    assert 0.8 < min(measured.shares) < 0.95


@pytest.mark.parametrize("seed", [1, 3])
def test_an_incast_is_shared_and_its_queue_is_short(seed: int) -> None:
    measured = measure(incast(seed, Queues()))
    flows = measured.outcome.flows
    assert measured.jain >= 0.98
    assert sum(measured.shares) / 7 >= 0.97
    assert measured.backlog(0.99) <= 1.5
    assert sum(counts.full for counts in measured.outcome.counts.values()) == 0
    assert sum(flow.packets_lost for flow in flows) == 0
    fewest, most = (edge(sample.active for sample in measured.samples) for edge in (min, max))
    assert fewest == most, "no EV is condemned"


def test_an_incast_without_trimming_loses_no_data_and_no_ev_for_good() -> None:
    queue = Queue(trim=None)
    queues = Queues(t0_up=queue, t1_down=queue, last_hop=LastHopQueue(trim=None))
    measured = measure(incast(1, queues))
    dropped = sum(counts.full for counts in measured.outcome.counts.values())
    assert dropped > 500
    assert sum(flow.packets_retransmitted for flow in measured.outcome.flows) < 2 * dropped
    assert min(sample.active for sample in measured.samples) >= 1
    assert measured.samples[-1].active == measured.samples[0].active
    assert sum(measured.shares) / 7 >= 0.9
    assert measured.jain >= 0.9


@pytest.mark.parametrize("marking", [True, False])
def test_marks_alone_move_flows_off_a_path_that_they_share(marking: bool) -> None:
    """Two flows of two paths, one in common, on links of three quarters of a port's rate.

    Sprayed evenly, half of each meets on the common path, which carries three quarters of that.
    (After figure 14 of the MRC paper, where two flows are forced onto one EV.)
    """
    queue = Queue() if marking else Queue(ecn=None)
    topology = Topology(
        name="shared",
        planes=1,
        t0_per_plane=2,
        t1_per_plane=3,
        hosts_per_t0=2,
        fabric_rate="75 Gbit/s",
        queue=Queues(t0_up=queue, t1_down=queue),
    )
    scenario = Scenario(
        name="shared",
        topology=topology,
        seed=2,
        duration="6 s",
        workload=WriteBw(pairs=(("h0", "h2"), ("h1", "h3")), bidirectional=False),
        transport=Mrc(congestion="nscc", evs=2),
    )
    measured = measure(scenario)
    used = [
        name
        for name, counts in measured.outcome.counts.items()
        if name.startswith("p0_t0_0>p0_t1") and counts.offered > MANY
    ]
    assert len(used) == 3, "with this seed they have one path in common"
    if marking:
        assert min(measured.shares) >= 0.95
    else:
        assert max(measured.shares) <= 0.9


def test_a_leaf_spine_at_full_speed_completes_near_the_ideal() -> None:
    """64 hosts, each sends 2 MB to another; dilation 1."""
    taken, _ = completions(permutation_of_all(8, 1))
    assert len(taken) == 64
    assert 0.95 <= taken[0] <= taken[-1] <= 1.1  # below 1: within a rack
