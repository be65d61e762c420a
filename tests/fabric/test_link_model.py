"""The link model in the kernel: what becomes of real packets, counted and compared."""

import re
import socket
import struct
import time
from collections import Counter
from pathlib import Path as FilePath
from typing import Any

import pytest

from testbed.emulation.experiment.machine import softnet_drops
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model import link_model
from testbed.emulation.fabric.link_model.link_control import LinkControl, read_queues
from testbed.emulation.fabric.link_model.link_model import direction_type
from testbed.emulation.fabric.netlink import NodeNamespaces
from testbed.model.errors import MachineError
from testbed.model.fabric.addressing import Path
from testbed.model.fabric.topology import Topology, shape_of
from testbed.model.faults.impairment import HEALTHY, Impairment
from testbed.mrc.constants import ECN_CE, DscpClasses
from testbed.mrc.wire.codec import decode
from testbed.mrc.wire.headers import TSETH
from testbed.mrc.wire.kinds import TRIMMED_BYTES, TrimmedWrite, Write
from tests.sandbox import in_sandbox, run_in_sandbox
from tests.waiting import WATCHDOG_S, wait_until

from .flood import Receiver, Stream, in_background, psn_of, send
from .packets import arrives, encapsulated, raw_socket, set_blackhole

DSCP = DscpClasses()
OUTER = 14 + 40


@pytest.fixture(autouse=True)
def _has_the_link_model(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("root") and (missing := link_model.missing()):
        pytest.skip(str(missing))


def dumbbell(dilation: float = 10_000, hosts: int = 2, **queue: Any) -> Topology:
    """Two racks joined by one T1: all that crosses shares one link each way."""
    return Topology.model_validate(
        {
            "name": "dumbbell",
            "planes": 1,
            "t0_per_plane": 2,
            "t1_per_plane": 1,
            "hosts_per_t0": hosts,
            "dilation": dilation,
            "queue": queue,
        }
    )


UPLINK = "p0_t0_0>p0_t1_0"


def test_the_layout_is_that_of_the_header() -> None:
    """Field by field, in order; every program works on the same memory."""
    source = (FilePath(link_model.SOURCES) / "linkmodel.h").read_text()
    body = re.search(r"struct direction \{(.*?)\n\};", source, re.DOTALL)
    assert body is not None
    code = re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)
    fields = re.findall(r"(?:__u64|struct epoch) (\w+)(?:\[\d+\])?;", code)
    assert fields == list(direction_type().names or ())
    assert direction_type().itemsize % 64 == 0


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_the_model_knows_every_direction(tiny: Topology) -> None:
    """By the names that the counters use, configured as the topology says."""
    with Fabric(tiny) as fabric:
        counters = fabric.counters()
        model = fabric.link_model
        assert model is not None
        assert fabric.link_model_missing is None
        assert set(model.names) == set(counters.directions())
        for link in tiny.links.values():
            for port in link.ports:
                record = model.records[model.index(port)]
                shape = shape_of(tiny, link, port)
                assert record["limit_bytes"] == shape.limit_bytes
                assert record["epochs"][0]["rate"] == shape.rate_bps // 8
                assert record["kept_bytes"] == TRIMMED_BYTES
        fabric.verify()
        fabric.sweep()


@pytest.mark.root
@pytest.mark.parametrize("count", [50_000, pytest.param(10_000, marks=pytest.mark.kernel)])
def test_every_one_of_many_packets_is_accounted_for(count: int) -> None:
    """Two hosts overload an uplink: what is marked, trimmed and dropped is what is received."""
    topology = dumbbell(dilation=5_000, t0_up={"limit": "1 BDP"})
    size = 300
    pattern = [DSCP.trimmable] * 14 + [DSCP.no_trim] * 4 + [DSCP.trimmable_retx, DSCP.control]
    sources, sinks = topology.hosts[:2], topology.hosts[2:]

    def flood(number: int) -> None:
        stream = Stream(topology, sources[number], sinks[0])
        psns = range(number * count, (number + 1) * count)
        packets = (stream.packet(psn, pattern[psn % len(pattern)], size) for psn in psns)
        send(sources[number], packets)

    def act() -> bool:
        dropped_before = softnet_drops()
        with Fabric(topology) as fabric, Receiver(sinks[0]) as receiver:
            model = fabric.link_model
            assert model is not None
            with in_background(lambda: flood(0), lambda: flood(1)):
                got = _tally(receiver, pattern)
            if softnet_drops() != dropped_before or kernel_drops(topology):
                return False
            assert not model.backlog_bytes().any(), "nothing arrives, so nothing waits"
            found = model.all_counts()
            uplink = found[UPLINK]
            full = uplink.full + uplink.full_priority
            assert uplink.offered == 2 * count
            assert uplink.packets == got["all"] == 2 * count - full
            assert uplink.trimmed == got["trimmed"] == sum(one.trimmed for one in found.values())
            # A stumble of the machine lets the next queue see a burst, and mark a few as well.
            assert uplink.marked <= got["marked"] == sum(one.marked for one in found.values())
            whole = OUTER + TRIMMED_BYTES + 16 + size + 4
            assert uplink.trimmed_off_bytes == uplink.trimmed * (16 + size + 4)
            assert uplink.offered_bytes - uplink.bytes == uplink.trimmed_off_bytes + full * whole
            assert min(uplink.trimmed, uplink.marked, uplink.full) > 100
            assert uplink.peak_bytes >= topology.bdp_bytes - whole, "a queue was full"
            assert uplink.peak_bytes <= 2 * topology.bdp_bytes + 2 * whole  # both CPUs at once
        return True

    # A CPU that stands still for a tenth of a second lets the kernel's receive queue run over, and
    # one that does for a quarter the queue that is paced: the model's own, a fluid, drains on.
    kept = any(run_in_sandbox(act, timeout_s=WATCHDOG_S) for _ in range(3))
    assert kept, "the machine itself dropped packets, three times of three"


def _tally(receiver: Receiver, pattern: list[int]) -> Counter[str]:
    """Count what arrives, and check each packet: its class by its PSN, its length, only once."""
    got: Counter[str] = Counter()
    seen = set()
    for arrival in receiver.arrivals(silence_s=1.5):
        dscp, ecn = arrival.traffic_class >> 2, arrival.traffic_class & 3
        inner = int.from_bytes(arrival.packet[:2], "big") >> 4 & 0xFF
        assert inner == arrival.traffic_class
        psn = psn_of(arrival.packet)
        seen.add(psn)
        trimmed = dscp in (DSCP.trimmed, DSCP.trimmed_lasthop)
        got["trimmed"] += trimmed
        got["marked"] += ecn == ECN_CE
        got["all"] += 1
        if trimmed:
            assert len(arrival.packet) == TRIMMED_BYTES
            assert pattern[psn % len(pattern)] in (DSCP.trimmable, DSCP.trimmable_retx)
        else:
            assert dscp == pattern[psn % len(pattern)]
            assert isinstance(decode(arrival.packet), Write)
    assert len(seen) == got["all"], "no packet twice"
    return got


def kernel_drops(topology: Topology) -> int:
    """Packets that the queues behind the model have dropped."""
    total = 0
    with NodeNamespaces() as namespaces:
        for name in topology.nodes:
            queues = read_queues(namespaces[name].netlink)
            total += sum(dropped for _, dropped in queues.values())
    return total


@pytest.mark.root
@pytest.mark.kernel
@pytest.mark.parametrize("dscp", [DSCP.control, DSCP.trimmed, DSCP.trimmable_retx])
@in_sandbox
def test_priority_classes_overtake(dscp: int) -> None:
    """Of 60 data packets that wait, all but the first few are overtaken."""
    topology = dumbbell()
    one, other = topology.hosts[0], topology.hosts[-1]
    stream = Stream(topology, one, other)
    with Fabric(topology), Receiver(other) as receiver:
        data = [stream.packet(psn, DSCP.no_trim, 4096) for psn in range(60)]
        send(one, [*data, stream.packet(60, dscp, 64)])
        order = [psn_of(arrival.packet) for arrival in receiver.arrivals()]
    assert sorted(order) == list(range(61))
    assert order.index(60) < 20
    assert [psn for psn in order if psn != 60] == list(range(60)), "its own class stays in order"


@pytest.mark.root
@pytest.mark.kernel
@pytest.mark.parametrize("last_hop", [True, False])
@pytest.mark.parametrize("timed", [True, False])
@in_sandbox
def test_trimmed_packets_are_well_formed(last_hop: bool, timed: bool) -> None:
    """Lengths and class of both headers; decodable, with the PSN; no mark on the last hop."""
    topology = dumbbell()
    near_and_far = (topology.hosts[0], topology.hosts[2])
    sources = near_and_far if last_hop else topology.hosts[:2]
    sink = topology.hosts[3]
    direction = "p0_t0_1>h3" if last_hop else UPLINK
    count = 120
    kept = TRIMMED_BYTES if timed else TRIMMED_BYTES - TSETH.size
    with Fabric(topology) as fabric, Receiver(sink) as receiver:
        for number, source in enumerate(sources):
            stream = Stream(topology, source, sink)
            psns = range(number * count, (number + 1) * count)
            packets = [stream.packet(psn, DSCP.trimmable, 4096, timed=timed) for psn in psns]
            send(source, packets)
        trimmed, whole = {}, {}
        for arrival in receiver.arrivals():
            dscp = arrival.traffic_class >> 2
            if dscp == DSCP.trimmable:
                whole[psn_of(arrival.packet)] = arrival
                continue
            assert dscp == (DSCP.trimmed_lasthop if last_hop else DSCP.trimmed)
            word, length = struct.unpack_from("!IH", arrival.packet)
            assert word >> 20 & 0xFF == arrival.traffic_class
            assert length == len(arrival.packet) - 40 == kept - 40
            assert struct.unpack_from("!HH", arrival.packet, 44) == (length, 0)
            hint = decode(arrival.packet, trimmed=True)
            assert isinstance(hint, TrimmedWrite)
            trimmed[hint.psn] = hint
        assert fabric.link_model is not None
        counts = fabric.link_model.counts(direction)
        assert trimmed.keys() | whole.keys() == set(range(2 * count))
        assert len(trimmed) == counts.trimmed > 10
        assert counts.trimmed_off_bytes == counts.trimmed * (4096 + 16 + 4)
        marked = sum(arrival.traffic_class & 3 == ECN_CE for arrival in whole.values())
        assert marked == counts.marked
        assert (marked == 0) is last_hop


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_ordinary_traffic_is_neither_exempt_nor_trimmed() -> None:
    """Whatever the protocol: it waits in the same queue and is dropped when that is full."""
    topology = dumbbell(last_hop={"limit": "1 BDP", "trim": "0.5 BDP"})
    sink = topology.hosts[1]
    count = 100
    with Fabric(topology) as fabric, Receiver(sink) as receiver:
        model = fabric.link_model
        assert model is not None
        out = model.index("p0_t0_0>h1")
        model.set_rate("p0_t0_0>h1", 80_000)
        stream = Stream(topology, topology.hosts[0], sink)
        send(
            topology.hosts[0],
            [stream.packet(psn, DSCP.no_trim, 4096) for psn in range(count)],
        )
        wait_until(lambda: bool(model.records["offered_packets"][out] == count))
        no_udp, to = encapsulated(topology, topology.hosts[0], sink, Path(0, None), bytes(4100))
        send(topology.hosts[0], [(no_udp, (to, 0))])
        wait_until(lambda: bool(model.records["offered_packets"][out] == count + 1))
        counts = model.counts("p0_t0_0>h1")
        assert counts.trimmed == 0
        fits = topology.bdp_bytes // topology.wire_bytes
        received = sum(1 for _ in receiver.arrivals())
        assert received == pytest.approx(fits, abs=2)
        assert counts.full == count + 1 - received


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_marks_follow_the_ramp() -> None:
    """The share of packets marked at a backlog held still, from below the ramp to above it."""
    topology = dumbbell()
    one, other = topology.hosts[0], topology.hosts[-1]
    low, high = 20_000, 80_000
    samples = 1000
    data, to = Stream(topology, one, other).packet(0, DSCP.no_trim, 64)
    found = {}
    with Fabric(topology) as fabric, raw_socket(one, socket.IPPROTO_RAW) as sender:
        model = fabric.link_model
        assert model is not None
        record = model.records[model.index("h0>p0_t0_0")]
        record["ecn_min_bytes"], record["ecn_max_bytes"] = low, high
        model.set_rate("h0>p0_t0_0", 8)  # 1 byte/s: the backlog is what is written there
        served = int(record["epochs"][int(record["epoch"])]["served_bytes"])
        for backlog in (0, low - 100, 35_000, 50_000, 65_000, high + 100):
            before = int(record["marked_packets"])
            for _ in range(samples):
                record["finish"] = served + backlog
                sender.sendto(data, to)
            found[backlog] = int(record["marked_packets"]) - before
    assert found[0] == found[low - 100] == 0
    assert found[high + 100] == samples
    for backlog in (35_000, 50_000, 65_000):
        share = (backlog - low) / (high - low)
        deviation = (samples * share * (1 - share)) ** 0.5
        assert found[backlog] == pytest.approx(samples * share, abs=5 * deviation)


@pytest.mark.root
@pytest.mark.kernel
@pytest.mark.parametrize("rate_mbps", [10, 50, 200])
@in_sandbox
def test_a_link_is_no_faster_than_it_should_be(rate_mbps: int) -> None:
    """Of what arrives over a link that always has work, in the best of three windows.

    A machine that gives others its CPUs makes it slower; how exact a link is on this one is for
    `testbed bench rate`.
    """
    topology = dumbbell(dilation=100_000 / rate_mbps)
    one, other = topology.hosts[0], topology.hosts[-1]
    wire_bytes = topology.wire_bytes
    assert topology.port_rate_bps == rate_mbps * 10**6
    rates = []
    count = round(1.9 * topology.port_rate_bps / 8 / wire_bytes)
    packet = Stream(topology, one, other).packet(0, DSCP.no_trim, 4096)
    with Fabric(topology) as fabric:
        model = fabric.link_model
        assert model is not None
        way = model.index("h0>p0_t0_0")
        with in_background(lambda: send(one, [packet] * count)):
            time.sleep(0.1)
            for _ in range(3):
                start, before = time.monotonic_ns(), int(model.records["bytes"][way])
                time.sleep(0.5)
                end, after = time.monotonic_ns(), int(model.records["bytes"][way])
                rates.append((after - before) * 8e9 / (end - start))
        assert kernel_drops(topology) == 0
    # The count of packets in a window of 0.5 s is whole: 147 at 10 Mb/s, 0.7 % a packet.
    assert 0 < max(rates) / topology.port_rate_bps < 1.01


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_another_rate_keeps_what_waits(tiny: Topology) -> None:
    """Bytes stay bytes when the rate changes; they then leave at the new rate."""
    with Fabric(tiny) as fabric:
        control = LinkControl(tiny, fabric.namespaces)
        model = fabric.link_model
        assert model is not None
        nic = model.index("h0>p0_t0_0")
        data = Stream(tiny, *tiny.hosts).packet(0, DSCP.no_trim, 4096)
        send(tiny.hosts[0], [data] * 100)
        began, before = time.monotonic(), int(model.backlog_bytes()[nic])
        control.impair("h0>p0_t0_0", Impairment(rate=0.1))
        after, changed = int(model.backlog_bytes()[nic]), time.monotonic()
        assert 0 < before - after < 10e6 / 8 * (changed - began) + 2 * tiny.wire_bytes
        carried = int(model.records["bytes"][nic])
        time.sleep(1)
        carried, took = int(model.records["bytes"][nic]) - carried, time.monotonic() - changed
        left = after - int(model.backlog_bytes()[nic])
        assert left == pytest.approx(carried, abs=2 * tiny.wire_bytes)
        assert carried * 8 / took == pytest.approx(1_000_000, abs=2 * 8 * tiny.wire_bytes)
        control.impair("h0>p0_t0_0", HEALTHY)
        wait_until(lambda: bool(model.records["packets"][nic] == 100))
        wait_until(lambda: not model.backlog_bytes().any())


@pytest.mark.root
@pytest.mark.kernel
def test_without_the_model_a_fabric_has_rate_and_tail_drop(
    tiny: Topology, monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath
) -> None:
    """And says what is missing; cut and blackhole work all the same, graded faults say why not."""
    monkeypatch.setattr(link_model, "OBJECT", tmp_path / "none.bpf.o")
    one, other = tiny.hosts

    def act() -> None:
        with Fabric(tiny) as fabric:
            control = LinkControl(tiny, fabric.namespaces)
            assert fabric.link_model is None
            assert "not built" in str(fabric.link_model_missing)
            fabric.verify()
            fabric.sweep()
            set_blackhole(control, "h0--p0_t0_0", on=True)
            assert not arrives(tiny, one, other, Path(0, 0))
            tallies = [control.tally(one) for one in ("h0>p0_t0_0", "p0_t0_0>h0")]
            assert tallies == [{"dropped": 1}, {"dropped": 0}]
            set_blackhole(control, "h0--p0_t0_0", on=False)
            assert arrives(tiny, one, other, Path(0, 0))
            with pytest.raises(MachineError, match="without the link model"):
                control.impair("h0>p0_t0_0", Impairment(loss=0.5))

    run_in_sandbox(act)
    assert "not built" in str(link_model.missing())


def test_a_file_that_is_no_object_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath
) -> None:
    """With a message, not with libbpf's on stderr."""
    broken = tmp_path / "broken.bpf.o"
    broken.write_bytes(b"not an object")
    monkeypatch.setattr(link_model, "OBJECT", broken)
    assert "cannot be read" in str(link_model.missing())
