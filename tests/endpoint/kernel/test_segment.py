"""Reading the kernel's TCP headers, and telling a retransmission from new data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.endpoint.kernel_tcp import SentSegments, marked, parse
from testbed.mrc.constants import ECN_CE
from tests.endpoint.kernel.packets import DST, SRC, tcp_packet


def test_headers_are_read() -> None:
    packet = tcp_packet(b"x" * 100, sequence=5, acknowledged=9, options=b"\x01" * 12, ecn=2)
    segment = parse(packet)
    assert segment is not None
    assert (segment.src, segment.dst) == (SRC, DST)
    assert (segment.src_port, segment.dst_port) == (40000, 20016)
    assert (segment.sequence, segment.acknowledged) == (5, 9)
    assert (segment.header_bytes, segment.payload_bytes) == (72, 100)
    assert segment.ecn == 2


@given(st.binary(max_size=100))
def test_whatever_else_comes_is_no_segment(data: bytes) -> None:
    assert parse(data) is None or data[6] == 6


@pytest.mark.parametrize("cut", [1, 30, 60])
def test_a_packet_cut_short_is_no_segment(cut: int) -> None:
    assert parse(tcp_packet(b"payload")[:-cut]) is None


@given(st.integers(0, 3))
def test_a_mark_touches_nothing_else(ecn: int) -> None:
    packet = tcp_packet(b"payload", ecn=ecn)
    parsed = parse(marked(packet))
    assert parsed is not None
    assert parsed.ecn == ECN_CE
    assert marked(packet) == tcp_packet(b"payload", ecn=ECN_CE)


def _sent(
    log: SentSegments, sequence: int, number: int, at: int, size: int = 100
) -> tuple[int, int | None]:
    segment = parse(tcp_packet(b"x" * size, sequence=sequence % (1 << 32)))
    assert segment is not None
    return log.sent(segment, number, at)


@given(st.integers(0, (1 << 32) - 1))
def test_retransmissions_are_told_from_new_data_wherever_numbers_begin(start: int) -> None:
    log = SentSegments()
    assert _sent(log, start, 0, 10) == (0, None)
    assert _sent(log, start + 100, 1, 20) == (1, None)
    assert _sent(log, start, 2, 30) == (0, 10)
    assert _sent(log, start, 2, 40) == (0, 30), "its second retransmission was last sent at 30"
    assert _sent(log, start + 150, 2, 50, size=50) == (1, 20), "a part of a segment"
    log.acknowledged((start + 100) % (1 << 32))
    assert _sent(log, start, 2, 60) == (2, 60), "acknowledged: nothing is known of it any more"
    assert _sent(log, start + 200, 2, 70) == (2, None)
