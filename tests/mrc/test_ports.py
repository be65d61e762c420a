"""Port status: a plane leaves and returns with its port, at both ends."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from testbed.mrc import CompletionStatus, EvChanged, EvState, MessageDelivered
from testbed.mrc.constants import NEVER, EndpointOp
from testbed.mrc.endpoint import PortStatus
from testbed.mrc.wire.codec import decode
from testbed.mrc.wire.control import EndpointRequest

from .harness import MS, RKEY, VA, Network, PathModel, S, make_profile
from .test_ev import Bench, answers_needed, started
from .test_qp import RTT_NS

PLANE = 2
ALL = (1 << 32) - 1


def loaded(messages: int = 900) -> Network:
    network = Network(make_profile(), port_bps=10e6)
    for wr_id in range(messages):
        network.qps[0].post_write(wr_id, memoryview(bytes(1 << 15)), VA, RKEY)
    network.run(1 * S)
    return network


def unplug(network: Network, side: int, until_ns: int) -> None:
    """The cable of `side` in PLANE is pulled: nothing passes either way; the QP hears of it."""
    for ev, path in network.paths.items():
        if ev & 7 == PLANE:
            path.dead = [(network.now_ns, until_ns)]
    network.qps[side].port_changed(PLANE, up=False, now_ns=network.now_ns)


def finish(network: Network, messages: int = 900) -> None:
    network.run(60 * S, lambda: len(network.completions[0]) == messages)
    assert len(network.completions[0]) == messages


def updates(network: Network, side: int) -> list[EndpointRequest]:
    packets = [
        decode(sent.datagram.join())
        for sent in network.sent
        if sent.side == side and not sent.datagram.is_data
    ]
    return [
        packet
        for packet in packets
        if isinstance(packet, EndpointRequest) and packet.op is EndpointOp.PORT_STATUS_UPDATE
    ]


def test_the_own_ports_plane_carries_nothing_from_that_moment() -> None:
    network = loaded()
    down_ns = network.now_ns
    unplug(network, 0, 100 * S)
    finish(network)
    late = [s for s in network.data_sent() if s.time_ns > down_ns]
    assert {s.datagram.ev & 7 for s in late} == {0, 1, 3}
    assert not any(s.datagram.ev & 7 == PLANE for s in network.sent if s.time_ns > down_ns + RTT_NS)
    delivered = [e.time_ns for e in network.events[1] if isinstance(e, MessageDelivered)]
    assert max(after - before for before, after in pairwise(delivered)) < 2 * RTT_NS


@pytest.mark.parametrize("side", [0, 1])
def test_the_peer_is_told_and_leaves_the_plane_too(side: int) -> None:
    network = loaded()
    unplug(network, side, 100 * S)
    network.run(network.now_ns + 2 * RTT_NS)
    for qp in network.qps:
        assert all(ev & 7 != PLANE for ev in qp.active_evs())
    network.sent.clear()
    network.run(network.now_ns + 2 * RTT_NS)
    assert all(sent.datagram.ev & 7 != PLANE for sent in network.sent)
    finish(network)


def test_the_update_says_which_port_and_is_sent_once_if_answered() -> None:
    network = loaded()
    unplug(network, 0, 100 * S)
    finish(network)
    (update,) = updates(network, 0)
    assert update.port_mask == ALL & ~(1 << PLANE)
    assert update.ev & 7 != PLANE


def test_an_unanswered_update_is_repeated() -> None:
    network = loaded()
    for path in network.paths.values():
        path.dead = [(network.now_ns, network.now_ns + S)]
    network.qps[0].port_changed(PLANE, up=False, now_ns=network.now_ns)
    finish(network)
    assert 2 < len(updates(network, 0)) < 12
    assert all(ev & 7 != PLANE for ev in network.qps[1].active_evs())


@pytest.mark.parametrize("side", [0, 1])
def test_the_plane_returns_with_the_port(side: int) -> None:
    network = loaded()
    up_ns = network.now_ns + S
    unplug(network, side, up_ns)
    network.run(up_ns)
    network.qps[side].port_changed(PLANE, up=True, now_ns=up_ns)
    finish(network)
    back = min(
        s.time_ns for s in network.data_sent() if s.time_ns > up_ns and s.datagram.ev & 7 == PLANE
    )
    assert back - up_ns < 3 * RTT_NS
    assert len(network.qps[0].active_evs()) == 12
    assert [update.port_mask for update in updates(network, side)] == [ALL & ~(1 << PLANE), ALL]


def test_losing_and_returning_is_told_to_observers() -> None:
    bench = started(make_profile())
    bench.events.clear()
    bench.engine.set_down(frozenset({1}), bench.now_ns)
    changes = [event for event in bench.events if isinstance(event, EvChanged)]
    assert {(e.plane, e.new, e.reason, e.active) for e in changes} == {
        (1, EvState.ASSUMED_BAD, "port down", False)
    }
    assert len(changes) == 3
    bench.probed.clear()
    bench.live(5)
    assert all(ev & 7 != 1 for _, ev in bench.probed)
    bench.engine.set_down(frozenset(), bench.now_ns)
    bench.live(1)
    assert len(bench.engine.active()) == 12


def test_an_ev_that_was_bad_before_has_to_prove_itself() -> None:
    bench = started(make_profile(backups=0))
    bench.dead = {1}
    bench.blame(1)
    bench.live(2)
    bench.engine.set_down(frozenset({1}), bench.now_ns)
    bench.dead = set()
    bench.engine.set_down(frozenset(), bench.now_ns)
    bench.live(1)
    assert 1 not in bench.engine.active()
    bench.live(3)
    assert 1 in bench.engine.active()


def test_a_good_ev_returns_with_the_first_answer_even_if_a_probe_was_lost_before_it() -> None:
    bench = started(make_profile())
    own = {ev for ev in bench.engine.active() if ev & 7 == 1}
    bench.engine.set_down(frozenset({1}), bench.now_ns)
    bench.dead = set(own)
    bench.engine.set_down(frozenset(), bench.now_ns)
    bench.live(2)
    assert not own & set(bench.engine.active())
    bench.dead = set()
    bench.live(2)
    assert own <= set(bench.engine.active())


def test_an_ev_that_the_peer_asks_to_leave_has_to_prove_itself_after_its_port_was_down() -> None:
    bench = started(make_profile(backups=0))
    bench.engine.set_down(frozenset({1}), bench.now_ns)
    bench.left = {1}
    bench.engine.set_down(frozenset(), bench.now_ns)
    bench.live(0.5)
    bench.left, bench.dead = set(), {1}
    bench.live(2)
    bench.dead = set()
    assert answers_needed(bench, 1) >= 2, "one answer is not enough"


def test_with_every_port_down_nothing_is_picked() -> None:
    bench = Bench(make_profile(planes=2))
    bench.engine.set_down(frozenset({0, 1}), 0)
    assert bench.engine.pick(0) is None
    assert bench.engine.pick_for_probe(0) is not None


def test_old_updates_change_nothing() -> None:
    ports = PortStatus(RTT_NS)
    ports.set_peer(ALL & ~0b100, 0xFFFF, 0)
    assert ports.down == {2}
    ports.set_peer(ALL, 0, 1)
    ports.set_peer(ALL & ~0b100, 0xFFFF, 2)
    assert ports.down == frozenset()


@pytest.mark.parametrize(("timestamp", "at_ns"), [(None, 2), (0xFFFF, 9 * RTT_NS)])
def test_an_update_whose_age_is_not_known_is_taken_in(timestamp: int | None, at_ns: int) -> None:
    """It has no timestamp, or its timestamp has wrapped since the last update."""
    ports = PortStatus(RTT_NS)
    ports.set_peer(ALL, 0, 1)
    ports.set_peer(ALL & ~0b100, timestamp, at_ns)
    assert ports.down == {2}


def test_only_the_last_update_is_repeated_until_answered() -> None:
    ports = PortStatus(RTT_NS)
    assert ports.due_update(0, RTT_NS) is None
    ports.set_local(1, down=True, now_ns=0)
    ports.set_local(1, down=True, now_ns=0)
    assert ports.version == 1
    first, repeated = ports.due_update(0, RTT_NS) or (0, True)
    assert not repeated
    assert ports.due_update(0, RTT_NS) is None
    assert ports.due_update(RTT_NS, RTT_NS) == (first, True)
    ports.set_local(1, down=False, now_ns=1)
    ports.answered(first)
    second, repeated = ports.due_update(1, RTT_NS) or (first, True)
    assert (second > first, repeated) == (True, False)
    ports.answered(second)
    assert ports.deadline_ns == NEVER


def test_an_idle_end_tells_of_its_port_on_paths_that_it_does_not_use() -> None:
    """Nothing of it is in flight, so it does not notice that the paths it uses are dead.

    Found by a random schedule: the peer took the open port for a closed one for ever.
    """

    def path(delay_ms: int, dead_from_ms: int, **options: Any) -> PathModel:
        return PathModel(delay_ns=delay_ms * MS, dead=[(dead_from_ms * MS, NEVER)], **options)

    lossy: dict[str, Any] = {"loss": 0.3, "jitter_ns": 5 * MS}
    paths = {
        0: path(104, 312, loss=0.3),
        8: path(47, 466, corrupt=0.05, **lossy),
        16: path(89, 263, loss=0.3, jitter_ns=40 * MS, dead_direction=1),
        1: path(105, 523),
        9: PathModel(delay_ns=118 * MS, **lossy),
        17: PathModel(
            delay_ns=40 * MS, jitter_ns=5 * MS, dead=[(117 * MS, 417 * MS)], dead_direction=1
        ),
    }
    network = Network(
        make_profile(2, active=1, backups=2),
        seed=65536,
        paths={ev: paths[ev] for ev in sorted(paths)},
        cwnd=40 * 256,
        mtu=256,
        mpr=1,
        exponential_retries=12,
        timestamps=False,
    )
    rng = Random(65536)
    for side, sizes in enumerate(((0, 441), (2723, 0))):
        va = VA
        for wr_id, size in enumerate(sizes):
            network.qps[side].post_write(wr_id, memoryview(rng.randbytes(size)), va, RKEY)
            va += size + 7
    for up in (False, True):
        network.run((150 if up else 100) * MS)
        network.qps[0].port_changed(1, up=up, now_ns=network.now_ns)
    network.run(60 * S, lambda: len(network.completions[1]) == 2)
    assert [completion.wr_id for completion in network.completions[1]] == [0, 1]


@pytest.mark.parametrize("plane", [-1, 32])
def test_a_port_that_does_not_exist_is_refused(plane: int) -> None:
    with pytest.raises(ValueError, match="31"):
        Network(make_profile()).qps[0].port_changed(plane, up=False, now_ns=0)


def slow_network(delay_ns: int, **options: int) -> Network:
    """Two queue pairs that believe in 130 ms of round trip; every path takes `delay_ns` one way."""
    return Network(make_profile(planes=1, **options), default=lambda: PathModel(delay_ns=delay_ns))


@pytest.mark.parametrize("delay_ms", [100, 106, 300, 2000])
@pytest.mark.parametrize("down_ms", [0, 100, 250])
def test_the_only_port_flaps_where_the_path_is_slower_than_was_measured(
    delay_ms: int, down_ms: int
) -> None:
    """No probe is answered in the time that the old RTT gives it, and nothing else is under way."""
    network = slow_network(delay_ms * MS)
    network.run(down_ms * MS)
    network.qps[0].post_write(0, memoryview(bytes(1 << 20)), VA, RKEY)
    network.run((down_ms + 1) * MS)
    network.qps[0].port_changed(0, up=False, now_ns=network.now_ns)
    network.run((down_ms + 50) * MS)
    network.qps[0].port_changed(0, up=True, now_ns=network.now_ns)
    network.run(60 * S, lambda: len(network.completions[0]) == 1)
    assert len(network.completions[0]) == 1


@pytest.mark.parametrize("dead", [0, 8])
def test_the_floor_keeps_a_dead_ev_while_the_other_is_slower_than_was_measured(dead: int) -> None:
    """One carries data as the last that may not be condemned; if the other lives, it returns."""
    network = slow_network(106 * MS, active=2, backups=0)
    network.paths[dead].dead = [(0, NEVER)]
    network.paths[8 - dead].dead = [(0, 1 * S)]
    network.qps[0].post_write(0, memoryview(bytes(1 << 16)), VA, RKEY)
    network.run(600 * S, lambda: bool(network.completions[0]))
    assert [completion.status for completion in network.completions[0]] == [
        CompletionStatus.SUCCESS
    ]
