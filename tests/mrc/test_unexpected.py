"""A NACK with UNEXP_EVENT ends the queue pair; it is not retried."""

from testbed.mrc import Arrival, CompletionStatus
from testbed.mrc.constants import NackReason
from testbed.mrc.wire.control import Nack

from .bad_input import control_bytes
from .harness import ADDRESSES, RKEY, VA, Network, make_profile


def test_an_unexpected_event_is_a_remote_operation_error() -> None:
    network = Network(make_profile(), mtu=256, cwnd=64 * 256)
    qp = network.qps[0]
    qp.post_write(1, memoryview(bytes(200)), VA, RKEY)
    qp.post_write(2, memoryview(bytes(200)), VA, RKEY)
    (first, _) = (datagram for datagram in qp.transmit(0, 8) if datagram.is_data)
    psn = int.from_bytes(first.join()[57:60], "big")
    ends = ADDRESSES[1], ADDRESSES[0], first.ev, qp.config.qpn
    nack = control_bytes(Nack(*ends, 0, NackReason.UNEXP_EVENT, first.ev, psn, 0))
    network.demuxes[0].receive(memoryview(nack), Arrival(2, network.dscp.control, 1000))
    assert qp.failed
    assert [(each.wr_id, each.status) for each in qp.poll_cq()] == [
        (1, CompletionStatus.REMOTE_OPERATION_ERROR),
        (2, CompletionStatus.FLUSHED),
    ]
    assert not [datagram for datagram in qp.transmit(1000, 8) if datagram.is_data]
