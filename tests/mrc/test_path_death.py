"""The case MRC exists for: a path dies silently under full load.

The fabric of the default scenario in virtual time: four planes of 10 Mbit/s, 12 active EVs and 4
backups, 131 ms of base RTT.
"""

from itertools import pairwise

import pytest

from testbed.mrc import EvChanged, EvState, Lost, MessageDelivered, Spurious

from .harness import MS, RKEY, VA, Network, S, make_profile

BASE_RTT_NS = 131 * MS
DEATH_NS = 2 * S
MESSAGE = 1 << 15


def loaded_network(
    seed: int, cwnd_packets: int = 160, messages: int = 600, *, adaptive: bool = True
) -> Network:
    """A network whose side 0 writes for about five seconds."""
    network = Network(
        make_profile(adaptive=adaptive),
        seed=seed,
        port_bps=10e6,
        base_rtt_ns=BASE_RTT_NS,
        cwnd=cwnd_packets * 4096,
        memory_bytes=MESSAGE,
    )
    payload = memoryview(bytes(range(256)) * (MESSAGE // 256))
    for wr_id in range(messages):
        network.qps[0].post_write(wr_id, payload, VA, RKEY)
    return network


def finish(network: Network, messages: int = 600) -> None:
    network.run(60 * S, lambda: len(network.completions[0]) == messages)
    assert len(network.completions[0]) == messages


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ways", ["both", "forward"])
def test_one_path(seed: int, ways: str) -> None:
    """It is condemned within 1.5 RTT of the first loss, and all is in order within 3 RTT."""
    network = loaded_network(seed)
    dead = network.paths[1 | 1 << 3]
    dead.dead = [(DEATH_NS, 60 * S)]
    dead.dead_direction = 0 if ways == "forward" else None
    finish(network)
    sent = {s.datagram.seq: s for s in network.data_sent() if not s.datagram.retransmitted}
    lost = [event for event in network.events[0] if isinstance(event, Lost)]
    condemned = [
        event
        for event in network.events[0]
        if isinstance(event, EvChanged) and event.new is EvState.ASSUMED_BAD
    ]
    assert [event.ev for event in condemned] == [1 | 1 << 3]
    assert condemned[0].time_ns - min(event.sent_ns for event in lost) < 1.5 * BASE_RTT_NS
    assert {event.ev for event in lost} == {1 | 1 << 3}
    assert not any(isinstance(event, Spurious) for event in network.events[0])
    assert network.qps[0].counters.retransmitted == len(lost)
    assert network.qps[1].counters.duplicates == network.qps[0].counters.acks_missed
    missing = {event.seq for event in lost}  # others are repeated to be sent an ACK again
    repeated = [
        s for s in network.data_sent() if s.datagram.retransmitted and s.datagram.seq in missing
    ]
    assert all(s.datagram.ev != 1 | 1 << 3 for s in repeated)
    delivered = [e.time_ns for e in network.events[1] if isinstance(e, MessageDelivered)]
    stall = max(after - before for before, after in pairwise(delivered))
    assert stall < 2 * BASE_RTT_NS
    last_repeat = max(s.time_ns for s in repeated)
    assert last_repeat + 0.6 * BASE_RTT_NS - DEATH_NS < 3.2 * BASE_RTT_NS
    after = [s for s in sent.values() if s.time_ns > condemned[0].time_ns]
    planes = [sum(1 for s in after if s.datagram.ev & 7 == plane) for plane in range(4)]
    assert max(planes) - min(planes) < 0.05 * sum(planes)


@pytest.mark.parametrize("seed", range(4))
def test_a_blind_sprayer_loses_packets_again_on_the_path_that_lost_them(seed: int) -> None:
    """One in as many as there are paths: its repair takes the next EV, the dead one in its turn."""
    network = loaded_network(seed, adaptive=False)
    dead_ev = 1 | 1 << 3
    network.paths[dead_ev].dead = [(DEATH_NS, 60 * S)]
    finish(network)
    lost = [event for event in network.events[0] if isinstance(event, Lost)]
    assert {event.ev for event in lost} == {dead_ev}
    assert network.qps[1].counters.duplicates == 0
    twice = len(lost) - len({event.seq for event in lost})
    repeated = [s.datagram.ev for s in network.data_sent() if s.datagram.retransmitted]
    assert repeated.count(dead_ev) == twice
    assert 0.2 / 12 < twice / len(repeated) < 3 / 12
    assert not any(isinstance(event, EvChanged) for event in network.events[0])
    assert network.qps[0].counters.ev_probes == network.qps[1].counters.ev_probes == 0
