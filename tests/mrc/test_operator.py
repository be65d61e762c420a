"""What an operator does with the EVs and ports of a queue pair."""

import pytest

from testbed.mrc import EvEntry, EvState

from .harness import S, make_profile
from .test_ports import ALL, PLANE, finish, loaded, updates
from .test_qp import RTT_NS

EV = PLANE | 1 << 3
NEW = EvEntry(ev=PLANE | 7 << 3, plane=PLANE, path_key=(PLANE, 7), active=False)


def test_a_disabled_port_is_left_here_and_at_the_peer_until_it_is_enabled() -> None:
    network = loaded()
    network.qps[0].set_port_disabled(PLANE, disabled=True, now_ns=network.now_ns)
    network.run(network.now_ns + 2 * RTT_NS)
    for qp in network.qps:
        assert not any(ev & 7 == PLANE for ev in qp.active_evs())
    assert {update.port_mask for update in updates(network, 0)} == {ALL & ~(1 << PLANE)}
    network.qps[0].set_port_disabled(PLANE, disabled=False, now_ns=network.now_ns)
    network.run(network.now_ns + 4 * RTT_NS)
    assert sum(ev & 7 == PLANE for ev in network.qps[0].active_evs()) == 3
    finish(network)


def test_a_port_that_is_disabled_stays_so_when_its_carrier_returns() -> None:
    network = loaded()
    qp = network.qps[0]
    qp.set_port_disabled(PLANE, disabled=True, now_ns=network.now_ns)
    qp.port_changed(PLANE, up=False, now_ns=network.now_ns)
    qp.port_changed(PLANE, up=True, now_ns=network.now_ns)
    network.run(network.now_ns + 4 * RTT_NS)
    assert not any(ev & 7 == PLANE for ev in qp.active_evs())


def test_a_replaced_ev_is_denied_and_the_new_one_takes_its_slot_after_probes() -> None:
    network = loaded()
    qp = network.qps[0]
    network.add_path(NEW)
    qp.replace_ev(EV, NEW, network.now_ns)
    assert qp.ev_states()[EV] is EvState.DENIED
    assert qp.ev_states()[NEW.ev] is EvState.ASSUMED_BAD
    left_ns = network.now_ns
    network.run(network.now_ns + 6 * RTT_NS)
    assert NEW.ev in qp.active_evs()
    assert sum(ev & 7 == PLANE for ev in qp.active_evs()) == 3
    used = {sent.datagram.ev for sent in network.data_sent() if sent.time_ns > left_ns + RTT_NS}
    assert NEW.ev in used
    assert EV not in used
    finish(network)


@pytest.mark.parametrize("entry", [EvEntry(EV, PLANE, 0, True), EvEntry(1 << 20, 3, 0, True)])
def test_a_replacement_that_is_there_or_of_another_plane_is_refused(entry: EvEntry) -> None:
    network = loaded()
    before = network.qps[0].evs()
    with pytest.raises(ValueError, match=r"plane 3|already"):
        network.qps[0].replace_ev(EV, entry, network.now_ns)
    assert network.qps[0].evs() == before


def test_a_batch_of_probes_tells_which_evs_answer_in_time() -> None:
    network = loaded()
    qp = network.qps[0]
    dead = [ev for ev in network.paths if ev & 7 == PLANE]
    for ev in dead:
        network.paths[ev].dead = [(network.now_ns, 100 * S)]
    batch = qp.probe_evs(sorted(network.paths), 2 * RTT_NS, network.now_ns)
    network.run(network.now_ns + RTT_NS // 2)
    assert not batch.is_over(network.now_ns)
    network.run(network.now_ns + 2 * RTT_NS)
    assert batch.is_over(network.now_ns)
    assert set(network.paths) - set(batch.rtts_ns) == set(dead)
    assert all(RTT_NS <= rtt_ns <= 2 * RTT_NS for rtt_ns in batch.rtts_ns.values())


def test_an_answer_after_the_deadline_does_not_count() -> None:
    network = loaded()
    batch = network.qps[0].probe_evs([EV], RTT_NS // 2, network.now_ns)
    network.run(network.now_ns + 2 * RTT_NS)
    assert batch.rtts_ns == {}


def test_an_unknown_ev_is_refused() -> None:
    qp = loaded().qps[0]
    with pytest.raises(KeyError):
        qp.probe_evs([1 << 30], RTT_NS, 0)


def test_the_listing_has_counts_and_the_last_change() -> None:
    network = loaded()
    qp = network.qps[0]
    assert {ev.reason for ev in qp.evs()} == {"start"}
    assert [ev.ev for ev in qp.evs()] == [entry.ev for entry in make_profile().entries]
    now_ns = network.now_ns
    qp.deny_ev(EV, now_ns)
    (listed,) = (ev for ev in qp.evs() if ev.ev == EV)
    assert (listed.state, listed.active, listed.changed_ns, listed.reason) == (
        EvState.DENIED,
        False,
        now_ns,
        "denied",
    )
    qp.allow_ev(EV, now_ns)
    (listed,) = (ev for ev in qp.evs() if ev.ev == EV)
    assert (listed.state, listed.condemnations) == (EvState.ASSUMED_BAD, 0)
