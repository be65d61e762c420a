"""Captures: what left a port, unshifted, in order, both ways, and what was lost counted."""

import signal
import socket
from ipaddress import IPv6Address
from pathlib import Path as FilePath

import pytest

from testbed.emulation.fabric.capture import LinkCaptures, PortCapture
from testbed.emulation.fabric.fabric import Fabric
from testbed.model.errors import InputError, RunFailedError
from testbed.model.fabric.addressing import Path, address, carrier_usids
from testbed.model.fabric.topology import ETHERNET_HEADER, Topology
from tests.pcapng import read_capture
from tests.sandbox import in_sandbox, run_in_sandbox

from .packets import HEADER, arrives, encapsulated, raw_socket

pytestmark = [pytest.mark.root, pytest.mark.kernel]

OFFSET_NS = 1_764_000_000_123_456_789


def test_a_link_s_file_has_both_directions_in_order(tiny: Topology, tmp_path: FilePath) -> None:
    """With the address that the sending end put on it, each frame once, from the first on.

    The file tells the offset of its clock.
    """
    a, b = tiny.hosts
    path = Path(0, 1)
    link = tiny.fabric_link(0, 0, 1)
    idle = tiny.nic_link(b, 1)
    files = {link: tmp_path / "link.pcapng", idle: tmp_path / "idle.pcapng"}

    def act() -> dict[str, int]:
        with Fabric(tiny) as fabric:
            fabric.verify()
            captures = LinkCaptures(files, OFFSET_NS)
            for _ in range(10):
                assert arrives(tiny, a, b, path)
                assert arrives(tiny, b, a, path)
                assert arrives(tiny, a, b, Path(0, 0))
            return captures.stop()

    assert run_in_sandbox(act) == {link.name: 0, idle.name: 0}
    capture, silent = (read_capture(file.read_bytes()) for file in files.values())
    assert silent.frames == ()
    assert f"realtime_offset_ns = {OFFSET_NS}:" in capture.comment
    assert capture.interfaces == (link.lower.name, link.upper.name)
    assert [name for name, _, _ in capture.frames] == [*capture.interfaces] * 10
    times = [time_ns for _, time_ns, _ in capture.frames]
    assert times == sorted(times)
    found = [frame for _, _, frame in capture.frames]
    up, down = carrier_usids(tiny, a, b, path)[1:], carrier_usids(tiny, b, a, path)[2:]
    there = [HEADER.unpack_from(frame, ETHERNET_HEADER)[5] for frame in found]
    assert list(map(IPv6Address, there)) == [address(*up), address(*down)] * 10
    macs = [(frame[:6].hex(":"), frame[6:12].hex(":")) for frame in found[:2]]
    assert macs == [(link.upper.mac, link.lower.mac), (link.lower.mac, link.upper.mac)]


@in_sandbox
def test_what_a_full_ring_loses_is_counted(tiny: Topology) -> None:
    """And what it holds is whole, in order; there is room again once it was read."""
    src, dst = tiny.hosts
    path = Path(0, 0)
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
            then = [frame.data[-1:] for frame in capture.read()]
    assert first == [bytes([number]) for number in range(4)]
    assert (lost, again) == (6, 0)
    assert then == [b"x"]


def test_a_file_that_cannot_be_written_is_named(tiny: Topology, tmp_path: FilePath) -> None:
    link = tiny.nic_link(tiny.hosts[0], 0)
    with pytest.raises(InputError, match=f"--pcap: found {tmp_path}, expected a file to write"):
        LinkCaptures({link: tmp_path}, OFFSET_NS)


@in_sandbox
def test_a_capture_that_died_is_an_error_and_ctrl_c_does_not_kill_it(
    tiny: Topology, tmp_path: FilePath
) -> None:
    """Whoever asked for packets is told when they are not there."""
    import os  # noqa: PLC0415 - in the sandbox

    with Fabric(tiny):
        link = tiny.nic_link(tiny.hosts[0], 0)
        captures = LinkCaptures({link: tmp_path / "one.pcapng"}, OFFSET_NS)
        os.kill(captures._process.pid, signal.SIGINT)
        assert captures.stop() == {link.name: 0}
        captures = LinkCaptures({link: tmp_path / "two.pcapng"}, OFFSET_NS)
        os.kill(captures._process.pid, signal.SIGKILL)
        with pytest.raises(RunFailedError, match="ended early"):
            captures.stop()
