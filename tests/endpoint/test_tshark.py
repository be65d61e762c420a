"""An independent decoder on what two devices sent: tshark reads the opcode, PSN and QPN as sent."""

import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path as FilePath
from unittest.mock import patch

import pytest

from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.endpoint.device import Device
from testbed.emulation.endpoint.nic import Nic
from testbed.emulation.fabric.capture import LinkCaptures
from testbed.emulation.fabric.fabric import Fabric
from testbed.model.fabric.topology import PAYLOAD_MTU, Topology
from testbed.mrc import Datagram, DscpClasses
from testbed.mrc.constants import EndpointOp
from testbed.mrc.wire.codec import encode
from testbed.mrc.wire.control import Ack, EndpointRequest, ReliabilityProbe
from testbed.mrc.wire.kinds import Opcode
from tests.commands import completed
from tests.fabric.packets import in_node
from tests.judging import skip_without
from tests.mrc.bad_input import good_write
from tests.mrc.test_wire import write_bytes
from tests.sandbox import run_in_sandbox
from tests.waiting import WATCHDOG_S

TOPOLOGY = Topology(
    name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1, dilation=1000
)
A, B = TOPOLOGY.hosts
LINKS = tuple(TOPOLOGY.nic_link(A, plane) for plane in range(TOPOLOGY.planes))
FIELDS = ("infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.bth.destqp")

PacketCounts = Counter[tuple[int, int, int]]
"""How often a packet of this opcode, PSN and QPN was seen."""


def telling(sent: PacketCounts) -> AbstractContextManager[object]:
    """Have all NICs tell what they hand to the kernel."""
    send = Nic.send

    def told(nic: Nic, datagram: Datagram, peer: bytes, now: int) -> int:
        bth = datagram.header[48:60]
        sent[bth[0], int.from_bytes(bth[9:]), int.from_bytes(bth[5:8])] += 1
        return send(nic, datagram, peer, now)

    return patch.object(Nic, "send", told)


def converse(directory: FilePath) -> tuple[PacketCounts, int]:
    """Let two devices send packets of every opcode; what they sent, and what captures lost."""
    sent: PacketCounts = Counter()
    with Fabric(TOPOLOGY) as fabric, telling(sent):
        fabric.verify()
        devices = []
        for host in (A, B):
            with in_node(host):
                devices.append(Device(TOPOLOGY, host))
        captures = LinkCaptures({link: directory / f"{link.name}.pcapng" for link in LINKS}, 0)
        a, b = devices
        cqs = [device.context.create_cq() for device in devices]
        one, other = (d.context.create_qp(cq) for d, cq in zip(devices, cqs, strict=True))
        for wr_id in range(2):
            other.post_recv(wr_id)
        one.connect(other.local)
        other.connect(one.local)
        region = b.context.reg_mr(bytearray(4 * PAYLOAD_MTU))
        body = bytes(3 * PAYLOAD_MTU)
        one.post_write(0, body, region.va, region.rkey)
        one.post_write(1, body[:7], region.va, region.rkey)
        one.post_write_imm(2, body, region.va, region.rkey, 1)
        one.post_write_imm(3, body[:5], region.va, region.rkey, 2)
        ends = a.context.port.address, b.context.port.address, 0
        for packet in (
            Ack(*ends, other.qp_num, 0xABCDEF, 1),
            ReliabilityProbe(*ends, other.qp_num, 0x1234, 1, 2),
            EndpointRequest(*ends, EndpointOp.EV_PROBE, 77, 0, 0),
        ):
            header, trailer = encode(packet, DscpClasses().control)
            a._nic.send(Datagram(0, DscpClasses().control, header, b"", trailer), ends[1], now_ns())
        far = (one.local.psn + 100_000) & 0xFFFFFF
        beyond = good_write(*ends[:2], qpn=other.qp_num, psn=far, va=0, rkey=0)
        above = Datagram(0, DscpClasses().trimmable, write_bytes(beyond), b"", b"")
        a._nic.send(above, ends[1], now_ns())  # above the window: a NACK
        entries = 0
        began = time.monotonic()
        while entries < 4 + 2 or time.monotonic() < began + 1:
            a.poll()
            b.poll()
            entries += sum(len(cq.poll()) for cq in cqs)
            assert time.monotonic() < began + WATCHDOG_S
            if entries == 6:
                entries += 1
                one.post_write(4, body, region.va, region.rkey ^ 1)  # refused: a NAK
            time.sleep(0.001)
        return sent, sum(captures.stop().values())


@pytest.mark.root
@skip_without("tshark")
def test_tshark_reads_every_packet_as_it_was_sent(tmp_path: FilePath) -> None:
    sent, lost = run_in_sandbox(lambda: converse(tmp_path))
    assert lost == 0
    assert {opcode for opcode, _, _ in sent} == set(Opcode)
    read: PacketCounts = Counter()
    for link in LINKS:
        fields = [word for field in FIELDS for word in ("-e", field)]
        shown = completed(
            ["tshark", "-r", tmp_path / f"{link.name}.pcapng", "-T", "fields", *fields], check=True
        )
        for line in shown.stdout.splitlines():
            opcode, psn, qpn = (int(word, 0) for word in line.split("\t"))
            read[opcode, psn, qpn] += 1
    assert read == sent
