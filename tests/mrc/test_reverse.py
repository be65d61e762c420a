"""Reverse paths: which EV SACKs and NACKs travel on."""

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from testbed.mrc import Event, MessageDelivered, decode
from testbed.mrc.congestion.control import RttEstimator
from testbed.mrc.constants import NEVER
from testbed.mrc.ev.engine import EvEngine
from testbed.mrc.ev.reverse import ReversePaths
from testbed.mrc.wire.control import EndpointRequest, Sack

from .harness import Network, S, make_profile
from .test_qp import RTT_NS, check_success, write_all


class Bench:
    """Reverse paths over two planes, each with EVs 0 + plane, 8 + plane, ..."""

    def __init__(self, planes: int = 2, *, adaptive: bool = True) -> None:
        self.events: list[Event] = []
        rtt = RttEstimator(RTT_NS)
        profile = make_profile(planes, adaptive=adaptive)
        self.engine = EvEngine(profile, rtt, Random(1), self.events)
        self.paths = ReversePaths(self.engine, rtt, Random(1))

    def sacks(self, data_ev: int, now_ns: int) -> list[int]:
        return [self.paths.for_sack(data_ev, now_ns) for _ in range(4)]


def test_without_proof_everything_is_mirrored() -> None:
    bench = Bench()
    assert bench.sacks(9, 0) == [9, 9, 9, 9]
    assert bench.paths.for_nack(9, 0) == 9


def test_every_other_sack_takes_the_planes_reverse_ev() -> None:
    bench = Bench()
    bench.paths.record_proof(17, RTT_NS, 0)
    assert bench.paths.evs() == {1: 17}
    assert sorted(bench.sacks(9, 0)) == [9, 9, 17, 17]
    assert bench.paths.for_nack(9, 0) == 17
    assert bench.sacks(8, 0) == [8, 8, 8, 8]


def test_a_proof_grows_old() -> None:
    bench = Bench()
    bench.paths.record_proof(17, RTT_NS, 0)
    assert bench.paths.for_nack(9, 4 * RTT_NS) == 17
    assert bench.paths.for_nack(9, 4 * RTT_NS + 1) == 9


def _condemn(engine: EvEngine) -> None:
    assert engine.report_loss(17, "late", 0)


@pytest.mark.parametrize(
    "put_out_of_use",
    [
        _condemn,
        lambda engine: engine.deny(17, 0),
        lambda engine: engine.set_down(frozenset({1}), 0),
    ],
    ids=["condemned", "denied", "port down"],
)
def test_an_ev_out_of_use_is_no_reverse_ev(put_out_of_use: Callable[[EvEngine], None]) -> None:
    bench = Bench()
    bench.paths.record_proof(17, RTT_NS, 0)
    assert bench.paths.for_nack(9, 0) == 17
    put_out_of_use(bench.engine)
    assert bench.paths.for_nack(9, 0) == 9
    assert bench.sacks(9, 0) == [9, 9, 9, 9]


def test_a_slow_path_does_not_become_a_reverse_path() -> None:
    bench = Bench()
    bench.paths.record_proof(8, RTT_NS, 0)
    bench.paths.record_proof(17, RTT_NS + RTT_NS // 8 + 1, 0)
    assert bench.paths.evs() == {0: 8}
    bench.paths.record_proof(17, RTT_NS + RTT_NS // 8, 0)
    assert bench.paths.evs() == {0: 8, 1: 17}


def test_unknown_evs_are_mirrored_and_prove_nothing() -> None:
    bench = Bench()
    bench.paths.record_proof(99, RTT_NS, 0)
    assert bench.paths.evs() == {}
    assert bench.paths.for_nack(99, 0) == 99


def test_while_data_comes_in_and_none_goes_out_one_ev_is_probed_an_rtt() -> None:
    bench = Bench()
    assert bench.paths.deadline_ns == NEVER
    probes: list[tuple[int, int]] = []
    for now_ns in range(0, 20 * RTT_NS, RTT_NS // 10):
        if now_ns < 10 * RTT_NS:
            bench.paths.data_arrived(now_ns)
        probe = bench.paths.due_probe(now_ns, outbound=False)
        probes += [probe] if probe is not None else []
    assert 10 <= len(probes) <= 12
    assert len({ev for ev, _ in probes}) > 3
    assert len({probe_id for _, probe_id in probes}) == len(probes)
    assert bench.paths.deadline_ns == NEVER


def test_while_data_goes_out_nothing_is_probed() -> None:
    bench = Bench()
    for now_ns in range(0, 5 * RTT_NS, RTT_NS // 10):
        bench.paths.data_arrived(now_ns)
        assert bench.paths.due_probe(now_ns, outbound=True) is None


def test_a_blind_sprayer_mirrors_everything_and_probes_nothing() -> None:
    bench = Bench(adaptive=False)
    bench.paths.record_proof(17, RTT_NS, 0)
    assert bench.paths.evs() == {}
    assert bench.sacks(9, 0) == [9, 9, 9, 9]
    bench.paths.data_arrived(0)
    assert bench.paths.deadline_ns == NEVER
    assert bench.paths.due_probe(RTT_NS, outbound=False) is None


def test_an_answered_probe_makes_the_reverse_ev_and_only_once() -> None:
    bench = Bench()
    bench.paths.data_arrived(0)
    probe = bench.paths.due_probe(0, outbound=False)
    assert probe is not None
    ev, probe_id = probe
    bench.paths.probe_answered(ev, probe_id + 1, RTT_NS)
    assert bench.paths.evs() == {}
    bench.paths.probe_answered(ev, probe_id, RTT_NS)
    assert bench.paths.evs() == {ev & 7: ev}


def test_an_inbound_queue_pair_learns_its_reverse_evs() -> None:
    network = Network(make_profile(), port_bps=10e6)
    write_all(network, 600)
    check_success(network, 600)
    assert set(network.qps[1].reverse_evs()) == {0, 1, 2, 3}
    probes = [
        sent
        for sent in network.sent
        if sent.side == 1
        and not sent.datagram.is_data
        and isinstance(decode(sent.datagram.join()), EndpointRequest)
    ]
    rtts = network.now_ns / RTT_NS
    assert 0.6 * rtts < len(probes) < 1.2 * rtts + 2
    packets = [decode(sent.datagram.join()) for sent in network.sent if sent.side == 1]
    sacks = [packet for packet in packets if isinstance(packet, Sack)]
    data_ev = sum(sack.ev == sack.reflected_ev for sack in sacks)
    assert 0.5 <= data_ev / len(sacks) < 0.9


def test_both_ways_reverse_evs_are_learned_from_sacks() -> None:
    network = Network(make_profile(backups=0), port_bps=10e6)
    for qp in network.qps:
        for wr_id in range(200):
            qp.post_write(wr_id, memoryview(bytes(1 << 15)), 0x7000_0000_0000, 0x1234)
    network.run(1 * S)
    assert all(set(qp.reverse_evs()) == {0, 1, 2, 3} for qp in network.qps)
    assert all(qp.counters.ev_probes <= 2 for qp in network.qps)


@pytest.mark.parametrize("planes", [1, 4])
def test_a_reverse_path_that_dies_stops_nothing(planes: int) -> None:
    """Whichever path it is: it dies for what the receiver sends, and data goes on."""
    network = Network(
        make_profile(planes=planes), port_bps=10e6, cwnd=planes * 40 * 4096, seed=planes
    )
    for wr_id in range(150 * planes):
        network.qps[0].post_write(wr_id, memoryview(bytes(1 << 15)), 0x7000_0000_0000, 0x1234)
    network.run(2 * S)
    for ev in network.qps[1].reverse_evs().values():
        network.paths[ev].dead = [(2 * S, 100 * S)]
        network.paths[ev].dead_direction = 1
    network.run(60 * S, lambda: len(network.completions[0]) == 150 * planes)
    assert len(network.completions[0]) == 150 * planes
    delivered = [e.time_ns for e in network.events[1] if isinstance(e, MessageDelivered)]
    assert max(after - before for before, after in pairwise(delivered)) < RTT_NS
    assert network.qps[0].counters.lost == 0
