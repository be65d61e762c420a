"""Which plane brought which bytes, from the Data Sequence Signals of real and of odd segments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.endpoint.kernel_tcp import Origins, data_sequence, parse
from tests.endpoint.kernel.packets import dss, tcp_packet


@pytest.mark.parametrize("acknowledge", [False, True])
@pytest.mark.parametrize("long", [False, True])
def test_the_signal_is_read_in_all_its_forms(long: bool, acknowledge: bool) -> None:
    sequence = (9 << 32 if long else 0) + 1234
    options = dss(sequence, 100, long=long, acknowledge=acknowledge)
    packet = tcp_packet(b"x" * 100, options=options)
    segment = parse(packet)
    assert segment is not None
    assert data_sequence(packet, segment) == 1234


@pytest.mark.parametrize("options", [b"", b"\x01\x01\x08\x0a" + bytes(8), dss(5, 99, long=True)])
def test_a_segment_that_does_not_say(options: bytes) -> None:
    packet = tcp_packet(b"x" * 100, options=options)
    segment = parse(packet)
    assert segment is not None
    assert data_sequence(packet, segment) is None


@given(st.integers(0, (1 << 32) - 1), st.permutations(range(12)), st.integers(1, 300))
def test_every_byte_counts_for_the_plane_that_brought_it(
    start: int, order: list[int], piece: int
) -> None:
    """Segments of 100 bytes by four planes, in any order, some of them twice."""
    origins = Origins()
    for i in (*order, *order[:3]):
        origins.arrived((start + 100 * i) % (1 << 32), 100, i % 4)
    origins_read: list[int] = []
    while len(origins_read) < 1200:
        for size, plane in origins.read(min(piece, 1200 - len(origins_read)), otherwise=9):
            origins_read += [plane] * size
    assert origins_read == [i // 100 % 4 for i in range(1200)]


def test_what_nobody_announced_is_put_down_to_the_newest() -> None:
    assert list(Origins().read(50, otherwise=3)) == [(50, 3)]
