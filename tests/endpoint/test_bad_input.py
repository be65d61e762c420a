"""A live endpoint and real packets that no endpoint of ours sends: counted, and nothing else."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv6Address
from pathlib import Path as FilePath
from random import Random
from typing import Any

import pytest

from testbed.emulation.endpoint.nic import Carriers
from testbed.emulation.endpoint.process import Endpoint
from testbed.emulation.fabric.fabric import Fabric
from testbed.host.plan import plan_endpoints
from testbed.host.workloads.messages import REGION_VA, rkey_of
from testbed.model.fabric.addressing import nic_address
from testbed.model.fabric.topology import PAYLOAD_MTU, Topology
from testbed.model.scenario import Scenario
from testbed.model.transport import Mrc
from testbed.model.workload import WriteBw
from testbed.mrc import MemoryRegion
from testbed.mrc.wire.kinds import Write
from testbed.sandbox.channel import Channel
from tests.fabric.packets import in_node, raw_socket
from tests.mrc.bad_input import DSCP, FAILED_OPERATIONS, Bad, bad_packets, good_write
from tests.mrc.test_wire import write_bytes
from tests.sandbox import run_in_sandbox
from tests.waiting import wait_until

TOPOLOGY = Topology(
    name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=2, dilation=1000
)
SENDER, RECEIVER, STRANGER = TOPOLOGY.hosts[0], TOPOLOGY.hosts[2], TOPOLOGY.hosts[1]
OUTER_HOP_LIMIT = 7
NO_NIC = b"\xfd" + bytes(15)


def scenario() -> Scenario:
    return Scenario(
        name="bad-input",
        topology=TOPOLOGY,
        workload=WriteBw(pairs=((SENDER.name, RECEIVER.name),), bidirectional=False),
        transport=Mrc(),
    )


def on_the_wire(inner: bytes, dscp: int) -> tuple[bytes, str]:
    """The packet with the outer header that the sender's own would have, and its carrier."""
    peer = nic_address(TOPOLOGY, RECEIVER).packed
    carrier = Carriers(TOPOLOGY, SENDER).to(peer, 0, dscp)
    outer = carrier.outer_header(len(inner))
    return outer + inner, str(IPv6Address(outer[24:40]))


def in_sequence(good: Write, region_end: int, strangers: Sequence[bytes]) -> list[Bad]:
    """Bad packets of each kind; those that count as received have PSNs of their own."""
    bad: list[Bad] = []
    psn = good.psn
    for stranger in strangers:

        def kinds(psn: int, stranger: bytes = stranger) -> list[Bad]:
            write = good._replace(psn=psn)
            return [*bad_packets(write, region_end=region_end, mtu=PAYLOAD_MTU, stranger=stranger)]

        for kind in range(len(kinds(psn))):
            bad.append(kinds(psn)[kind])
            psn += bad[-1].reason in FAILED_OPERATIONS
    return bad


def throw(directory: FilePath) -> tuple[dict[str, Any], bytes, int]:
    """Have the receiver's endpoint run while all this arrives; what it reports, and its memory."""
    plan = next(
        plan for host, plan in plan_endpoints(scenario(), directory).items() if host == RECEIVER
    )
    here, there = Channel.pair()
    with Fabric(TOPOLOGY) as fabric:
        fabric.verify()
        with in_node(RECEIVER):
            endpoint = Endpoint(plan, there)
        (connection,) = endpoint._traffic.connections.values()
        assert connection.checker is not None
        region = connection.checker._region
        assert isinstance(region, MemoryRegion)
        memory = region.buffer
        good = good_write(
            nic_address(TOPOLOGY, SENDER).packed,
            nic_address(TOPOLOGY, RECEIVER).packed,
            qpn=connection.plan.qpn,
            psn=0,
            va=REGION_VA,
            rkey=rkey_of(0),
        )
        end = REGION_VA + len(memory)
        stranger = nic_address(TOPOLOGY, STRANGER).packed
        bad = in_sequence(good, end, (stranger, NO_NIC))
        good = good._replace(psn=sum(one.reason in FAILED_OPERATIONS for one in bad))
        thread = threading.Thread(target=endpoint.run)
        thread.start()
        with raw_socket(SENDER, socket.IPPROTO_RAW) as sender:
            expected = send(sender, bad)
            refused = endpoint._traffic.demux.refused
            wait_until(lambda: sum(refused().values()) >= expected.total(), "all refused")
            untouched = bytes(memory)
            for _ in range(2):
                data, to = on_the_wire(write_bytes(good), DSCP.trimmable)
                sender.sendto(data, (to, 0))
            time.sleep(0.2)
        here.send({"finish": True})
        report = next(here.messages())["finished"]
        thread.join()
        assert report["refused"] == expected | {"duplicates": 1}
        assert bytes(memory[: len(good.payload)]) == good.payload
        return report, untouched, connection.qp.counters.data_received  # type: ignore[attr-defined]


def send(sender: socket.socket, bad: list[Bad]) -> Counter[str]:
    """Send every bad packet, and what is no packet of MRC at all; returns what must be counted."""
    expected = Counter(one.reason for one in bad)
    for one in bad:
        data, to = on_the_wire(one.data, one.dscp)
        sender.sendto(data, (to, 0))
    rng = Random(1)
    for size in (0, 1, 39, 1400, 8900):
        garbage = bytes([0x45]) + rng.randbytes(size)  # no IPv6, whatever its length
        data, to = on_the_wire(garbage, rng.randrange(64))
        sender.sendto(data, (to, 0))
        expected["truncated" if size < 59 else "not_ipv6"] += 1
    for hop_limit in (255, 20, 4):  # of no path of this fabric
        data, to = on_the_wire(bad[0].data, bad[0].dscp)
        odd = bytearray(data)
        odd[OUTER_HOP_LIMIT] = hop_limit
        sender.sendto(bytes(odd), (to, 0))
        expected[bad[0].reason] += 1
    return expected


@pytest.mark.root
def test_a_live_endpoint_counts_what_it_must_not_act_on(tmp_path: FilePath) -> None:
    """By its reason each, memory untouched; and works on."""
    raw = tmp_path / "raw"
    raw.mkdir()
    report, untouched, received = run_in_sandbox(lambda: throw(raw))
    assert not any(untouched)
    assert report["send_errors"] == 0
    assert received > 2
