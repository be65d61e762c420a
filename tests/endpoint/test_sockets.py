"""Real packets through the loopback of a sandbox: what the outer header said comes with each."""

import struct
import time
from ipaddress import IPv6Address

import pytest

from testbed.emulation.endpoint.sockets import BATCH, MAX_PACKET, HostSockets, Received
from testbed.emulation.fabric import requests
from testbed.emulation.fabric.netlink import NodeNamespaces
from testbed.mrc import DecodeError, decode
from testbed.mrc.wire.kinds import DecodeReason
from testbed.sandbox.namespaces import enter_netns
from tests.mrc.bad_input import good_write
from tests.mrc.test_wire import write_bytes
from tests.sandbox import in_sandbox, run_in_sandbox

pytestmark = [pytest.mark.root, pytest.mark.kernel]

SELF = IPv6Address("::1")


def _outer(inner: bytes, traffic_class: int, hop_limit: int) -> bytes:
    word = 6 << 28 | traffic_class << 20 | 0x12345
    return struct.pack("!IHBB16s16s", word, len(inner), 41, hop_limit, SELF.packed, SELF.packed)


def _sockets() -> HostSockets:
    with NodeNamespaces() as namespaces:
        namespaces.create("here").netlink.send(
            [requests.set_link(requests.LOOPBACK, "lo", up=True)]
        )
    enter_netns("here")
    return HostSockets(SELF)


def _send(sockets: HostSockets, inner: bytes, traffic_class: int = 0, hop_limit: int = 64) -> None:
    half = len(inner) // 2
    outer = _outer(inner, traffic_class, hop_limit)
    sockets.send(outer, inner[:half], memoryview(inner)[half:-4], inner[-4:])
    sockets.flush()


def _receive(sockets: HostSockets, count: int, silence_s: float = 5) -> list[Received]:
    """So many packets, or fewer where none has come for a while."""
    received: list[Received] = []
    last = time.monotonic()
    while len(received) < count and time.monotonic() < last + silence_s:
        if batch := [*sockets.receive()]:
            received += batch
            last = time.monotonic()
    return received


@in_sandbox
def test_a_packet_arrives_whole_with_its_class_hop_limit_and_time() -> None:
    sockets = _sockets()
    inner = bytes(range(256)) * 16
    before = time.time_ns()
    _send(sockets, inner, traffic_class=0x4B, hop_limit=61)
    (received,) = _receive(sockets, 1)
    after = time.time_ns()
    assert received.packet == inner
    assert received.traffic_class == 0x4B
    assert received.hop_limit == 61
    assert before <= received.realtime_ns <= after


def test_more_than_a_batch_arrives_in_order_each_with_its_own_words() -> None:
    def exchange() -> list[tuple[int, int, int, int]]:
        sockets = _sockets()
        for number in range(2 * BATCH + 3):
            inner = number.to_bytes(4, "big") * (10 + number)
            _send(sockets, inner, traffic_class=number, hop_limit=255 - number)
        return [
            (len(datagram.packet), datagram.packet[3], datagram.traffic_class, datagram.hop_limit)
            for datagram in _receive(sockets, 2 * BATCH + 3)
        ]

    expected = [(4 * (10 + n), n, n, 255 - n) for n in range(2 * BATCH + 3)]
    assert run_in_sandbox(exchange) == expected


@in_sandbox
def test_a_packet_taken_out_is_not_changed_by_later_ones() -> None:
    sockets = _sockets()
    taken = []
    for letter in b"abc":
        _send(sockets, bytes([letter]) * 4200)
        taken += _receive(sockets, 1)
    assert [datagram.packet for datagram in taken] == [b"a" * 4200, b"b" * 4200, b"c" * 4200]


@in_sandbox
def test_a_packet_longer_than_any_of_ours_is_cut_and_so_refused() -> None:
    write = good_write(SELF.packed, SELF.packed, qpn=16, psn=0, va=0, rkey=1)
    endless = write_bytes(write._replace(payload=bytes(MAX_PACKET), dma_length=MAX_PACKET))
    sockets = _sockets()
    sockets._out.sendto(_outer(endless, 0, 64) + endless, (str(SELF), 0))
    _send(sockets, write_bytes(write))
    first, second = _receive(sockets, 2)
    assert first.packet == endless[:MAX_PACKET]
    with pytest.raises(DecodeError) as refused:
        decode(first.packet)
    assert refused.value.reason is DecodeReason.BAD_LENGTH
    assert decode(second.packet) == write


@in_sandbox
def test_what_the_socket_has_no_room_for_is_counted() -> None:
    sockets = _sockets()
    sent = 4000
    for _ in range(sent):
        _send(sockets, bytes(8000))
    received = len(_receive(sockets, sent - 1, silence_s=0.5))
    _send(sockets, bytes(8000))  # the count comes with the first packet after a gap
    received += len(_receive(sockets, 1))
    assert sockets.overflowed > 0
    assert received + sockets.overflowed == sent + 1


@in_sandbox
def test_what_cannot_be_sent_is_counted_and_does_not_hold_up_the_rest() -> None:
    sockets = _sockets()
    inner = bytes(100)
    elsewhere = bytearray(_outer(inner, 0, 64))
    elsewhere[24:40] = IPv6Address("2001:db8::1").packed
    for outer in (bytes(elsewhere), _outer(inner, 0, 64), bytes(elsewhere)):
        sockets.send(outer, inner, b"", b"")
    sockets.flush()
    assert (sockets.send_errors, len(_receive(sockets, 1))) == (2, 1)


def test_an_empty_socket_does_not_block() -> None:
    assert run_in_sandbox(lambda: list(_sockets().receive())) == []
