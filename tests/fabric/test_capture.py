"""Captures: what left a port, unshifted, in order, both ways, and what was lost counted."""

import signal
import socket
import struct
from ipaddress import IPv6Address
from pathlib import Path as FilePath

import pytest

from testbed.fabric.capture import LinkCapture, PortCapture
from testbed.fabric.fabric import Fabric
from testbed.model.fabric.addressing import Path, address, carrier_usids
from testbed.model.fabric.topology import ETHERNET_HEADER, Topology
from tests.sandbox import run_in_sandbox

from .packets import HEADER, arrives, encapsulated, raw_socket

pytestmark = [pytest.mark.root, pytest.mark.kernel]


def records(data: bytes) -> list[tuple[int, bytes]]:
    """The (time in ns, frame) of every record of a pcap file."""
    magic, major, minor, _, _, snaplen, kind = struct.unpack_from("=IHHiIII", data)
    assert (magic, major, minor, kind) == (0xA1B23C4D, 2, 4, 1)
    found, at = [], 24
    while at < len(data):
        seconds, ns, kept, size = struct.unpack_from("=IIII", data, at)
        assert kept == size <= snaplen
        assert ns < 10**9
        found.append((seconds * 10**9 + ns, data[at + 16 : at + 16 + size]))
        at += 16 + size
    return found


def test_a_link_s_file_has_both_directions_in_order(tiny: Topology, tmp_path: FilePath) -> None:
    """With the address that the sending end put on it, each frame once, from the first on."""
    a, b = tiny.hosts
    path = Path(0, 1)
    link = tiny.fabric_link(0, 0, 1)
    file = tmp_path / "link.pcap"

    def act() -> int:
        with Fabric(tiny) as fabric:
            fabric.verify()
            capture = LinkCapture(link, file)
            other = LinkCapture(tiny.nic_link(b, 1), tmp_path / "other.pcap")
            for _ in range(10):
                assert arrives(tiny, a, b, path)
                assert arrives(tiny, b, a, path)
                assert arrives(tiny, a, b, Path(0, 0))
            return capture.stop() + other.stop()

    assert run_in_sandbox(act) == 0
    assert records((tmp_path / "other.pcap").read_bytes()) == []
    found = records(file.read_bytes())
    assert [time for time, _ in found] == sorted(time for time, _ in found)
    up, down = carrier_usids(tiny, a, b, path)[1:], carrier_usids(tiny, b, a, path)[2:]
    there = [HEADER.unpack_from(frame, ETHERNET_HEADER)[5] for _, frame in found]
    assert list(map(IPv6Address, there)) == [address(*up), address(*down)] * 10
    macs = [(frame[:6].hex(":"), frame[6:12].hex(":")) for _, frame in found[:2]]
    assert macs == [(link.upper.mac, link.lower.mac), (link.lower.mac, link.upper.mac)]


def test_what_a_full_ring_loses_is_counted(tiny: Topology) -> None:
    """And what it holds is whole, in order; there is room again once it was read."""
    src, dst = tiny.hosts
    path = Path(0, 0)

    def act() -> tuple[list[bytes], int, int, list[bytes]]:
        with Fabric(tiny) as fabric:
            fabric.verify()
            sender = raw_socket(src, socket.IPPROTO_RAW)
            with sender, PortCapture(tiny.port_of(src, 0), frames=4) as capture:
                for number in range(10):
                    data, to = encapsulated(tiny, src, dst, path, bytes([number]))
                    sender.sendto(data, (to, 0))
                first = [frame.data[-1:] for frame in capture.read()]
                lost, again = capture.lost(), capture.lost()
                data, to = encapsulated(tiny, src, dst, path, b"x")
                sender.sendto(data, (to, 0))
                return first, lost, again, [frame.data[-1:] for frame in capture.read()]

    first, lost, again, then = run_in_sandbox(act)
    assert first == [bytes([number]) for number in range(4)]
    assert (lost, again) == (6, 0)
    assert then == [b"x"]


def test_a_capture_that_died_is_an_error_and_ctrl_c_does_not_kill_it(
    tiny: Topology, tmp_path: FilePath
) -> None:
    """Whoever asked for packets is told when they are not there."""

    def act() -> None:
        import os  # noqa: PLC0415 - in the sandbox

        from testbed.model.errors import RunFailedError  # noqa: PLC0415 - in the sandbox

        with Fabric(tiny):
            link = tiny.nic_link(tiny.hosts[0], 0)
            capture = LinkCapture(link, tmp_path / "one.pcap")
            os.kill(capture._process.pid, signal.SIGINT)
            assert capture.stop() == 0
            capture = LinkCapture(link, tmp_path / "two.pcap")
            os.kill(capture._process.pid, signal.SIGKILL)
            with pytest.raises(RunFailedError, match="ended early"):
                capture.stop()

    run_in_sandbox(act)
