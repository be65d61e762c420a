"""What brings a condemned EV back: reliability probes like data, or EV probes."""

import pytest

from testbed.mrc import EndpointRequest, EvState, decode
from testbed.mrc.config import RecoveryProbe
from testbed.mrc.constants import EndpointOp
from testbed.mrc.wire.control import ReliabilityProbe

from .harness import MS, RKEY, VA, Network, S, make_profile
from .test_qp import RTT_NS

STRUCK = 0


def after_an_outage(**options: object) -> Network:
    """An EV died for a second while data was sent, and was probed since."""
    network = Network(make_profile(backups=0), port_bps=10e6, **options)  # type: ignore[arg-type]
    network.paths[STRUCK].dead = [(0, S)]
    for wr_id in range(300):
        network.qps[0].post_write(wr_id, memoryview(bytes(1 << 15)), VA, RKEY)
    network.run(900 * MS)
    assert network.qps[0].ev_states()[STRUCK] is EvState.ASSUMED_BAD
    network.sent.clear()
    return network


@pytest.mark.parametrize("kind", RecoveryProbe)
def test_an_ev_returns_by_either_probe(kind: RecoveryProbe) -> None:
    network = after_an_outage(recovery_probe=kind)
    network.run(S + 12 * RTT_NS, lambda: network.qps[0].ev_states()[STRUCK] is EvState.GOOD)
    assert network.qps[0].ev_states()[STRUCK] is EvState.GOOD
    own = [sent.datagram for sent in network.sent if sent.side == 0 and not sent.datagram.is_data]
    packets = [(decode(datagram.join()), datagram.dscp) for datagram in own]
    dscp = network.dscp
    probes = [(p, c) for p, c in packets if isinstance(p, ReliabilityProbe) and p.ev == STRUCK]
    asked = [p for p, _ in packets if isinstance(p, EndpointRequest) and p.ev == STRUCK]
    if kind is RecoveryProbe.RELIABILITY:
        assert {c for _, c in probes} == {dscp.trimmable}
        assert not asked
    else:
        assert not probes
        assert {p.op for p in asked} == {EndpointOp.EV_PROBE}


def test_a_mark_on_the_answer_makes_the_ev_be_skipped_once() -> None:
    network = after_an_outage()
    network.paths[STRUCK].mark = 1.0
    network.run(
        S + 12 * RTT_NS, lambda: network.qps[0].ev_states()[STRUCK] is not EvState.ASSUMED_BAD
    )
    assert network.qps[0].ev_states()[STRUCK] is EvState.SKIP
