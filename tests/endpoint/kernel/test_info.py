"""What the kernel tells of a real connection, here over the loopback."""

import socket

import pytest

from testbed.emulation.endpoint.kernel_tcp import sample

INITIAL_WINDOW = 10
"""Segments (RFC 6928), as Linux begins with."""


@pytest.mark.parametrize("protocol", [socket.IPPROTO_TCP, socket.IPPROTO_MPTCP])
def test_window_flight_and_rtt_of_a_connection(protocol: int) -> None:
    try:
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol)
    except OSError:
        pytest.skip("this kernel has no MPTCP")
    with listener, socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol) as caller:
        listener.bind(("::1", 0))
        listener.listen(1)
        caller.connect(listener.getsockname()[:2])
        called, _ = listener.accept()
        with called:
            caller.sendall(b"x" * 100_000)
            assert len(called.recv(1000)) == 1000
            state = sample(caller, protocol)
    segment = 65_483  # of the loopback, its MTU being 65,536
    assert state.window >= INITIAL_WINDOW * segment / 2
    assert state.window < 1000 * segment
    assert 0 <= state.flight <= 100_000 + segment
    assert state.smoothed_ns > 0
