"""Arrivals find their queue pair, and what is for none is counted."""

import pytest

from testbed.host.roce import Demux
from testbed.host.roce.wire import Cnp, Opcode, Write, encode
from testbed.mrc import Arrival

from .network import ADDRESSES, Network

ARRIVAL = Arrival(2, 0, 1000)


def whole(packet: Cnp | Write) -> bytes:
    header, trailer = encode(packet, 0)
    return header + (bytes(packet.payload) if isinstance(packet, Write) else b"") + trailer


def demux() -> Demux:
    found = Demux()
    found.add(Network().qps[1])
    return found


def test_a_packet_goes_to_its_queue_pair() -> None:
    network, found = Network(), Demux()
    found.add(network.qps[1])
    found.receive(whole(Cnp(*ADDRESSES, 0, 17)), ARRIVAL)
    assert network.qps[1].counters.cnps_received == 1
    assert not any(found.refused().values())


def test_a_number_is_taken_once() -> None:
    network, found = Network(), Demux()
    found.add(network.qps[1])
    with pytest.raises(ValueError, match="17"):
        found.add(network.qps[1])


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (whole(Cnp(*ADDRESSES, 0, 99)), "unknown_qp"),
        (whole(Cnp(*ADDRESSES, 0, 17))[:-1], "bad_length"),
        (b"", "truncated"),
        (whole(Cnp(ADDRESSES[1], ADDRESSES[1], 0, 17)), "not_a_peer"),
        (whole(Cnp(ADDRESSES[0], ADDRESSES[0], 0, 17)), "misdirected"),
        (whole(Write(*ADDRESSES, 0, 17, 5, Opcode.WRITE_MIDDLE, False, b"")), "out_of_order"),
        (whole(Write(*ADDRESSES, 0, 17, 0, Opcode.WRITE_MIDDLE, False, b"")), "refused"),
    ],
)
def test_what_is_not_acted_on_is_counted_by_reason(packet: bytes, reason: str) -> None:
    found = demux()
    found.receive(packet, ARRIVAL)
    assert {name for name, count in found.refused().items() if count} == {reason}
