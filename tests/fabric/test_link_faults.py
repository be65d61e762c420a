"""Graded faults on the wire: which packets they hit, and that they hit no other."""

import os
import select
import socket
import time

import pytest

from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model import link_model
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.emulation.fabric.netlink import NodeNamespaces
from testbed.model.fabric.addressing import Path, ev_for_path, ev_of_halves, flow_label_of_ev
from testbed.model.fabric.topology import Topology
from testbed.model.faults.impairment import HEALTHY, PPM, Impairment
from testbed.mrc.constants import DscpClasses
from testbed.mrc.wire.codec import decode
from testbed.mrc.wire.kinds import DecodeError
from testbed.sandbox import namespaces
from tests.sandbox import in_sandbox, run_in_sandbox
from tests.waiting import wait_until

from .flood import Receiver, Stream, in_background, psn_of, send
from .packets import raw_socket, set_blackhole

pytestmark = [pytest.mark.root, pytest.mark.kernel, pytest.mark.usefixtures("has_link_model")]

DSCP = DscpClasses()
NIC_LINK = "h0--p0_t0_0"
NIC = "h0>p0_t0_0"
LINK = "p0_t0_0--p0_t1_1"
UP = "p0_t0_0>p0_t1_1"
NOT_COVERED = {0, 1, 2, 3, 7, 46, 47, 52}
"""Bytes of an inner packet that the iCRC does not cover: traffic class, flow label, hop limit, UDP
checksum and byte 4 of the BTH (and the version, which is the protocol's name)."""


def lost(topology: Topology, ppm: int, count: int, seed: int) -> tuple[set[int], int]:
    """Which of so many packets a lossy link loses, and how many it says that it lost."""
    src, dst = topology.hosts

    def act() -> tuple[set[int], int]:
        stream = Stream(topology, src, dst)
        with (
            Fabric(topology, seed=seed) as fabric,
            Receiver(dst) as receiver,
        ):
            control = LinkControl(topology, fabric.namespaces)
            control.impair(NIC, Impairment(loss=ppm / PPM))
            send(src, [stream.packet(psn, DSCP.trimmable, 64) for psn in range(count)])
            arrived = {psn_of(arrival.packet) for arrival in receiver.arrivals()}
            assert fabric.link_model is not None
            counts = fabric.link_model.counts(NIC)
            assert counts.offered == count
            assert counts.packets == len(arrived)
            return set(range(count)) - arrived, counts.lost

    return run_in_sandbox(act)


def test_random_loss_has_its_rate_and_repeats_with_the_seed(tiny: Topology) -> None:
    """Packet by packet; another seed loses others."""
    count, ppm = 4000, 50_000
    first, said = lost(tiny, ppm, count, seed=1)
    assert len(first) == said
    assert len(first) == pytest.approx(count * 0.05, abs=5 * (count * 0.05 * 0.95) ** 0.5)
    assert lost(tiny, ppm, count, seed=1)[0] == first
    assert lost(tiny, ppm, count, seed=2)[0] != first


@in_sandbox
def test_corruption_flips_one_bit_and_the_icrc_tells(tiny: Topology) -> None:
    """Behind the outer header, anywhere; a third of the packets, the others arrive intact."""
    src, dst = tiny.hosts
    stream, count = Stream(tiny, src, dst), 600
    sent = [stream.packet(psn, DSCP.trimmable, 400) for psn in range(count)]
    with Fabric(tiny) as fabric, Receiver(dst) as receiver:
        control = LinkControl(tiny, fabric.namespaces)
        control.impair(NIC, Impairment(corrupt=1 / 3))
        places = []
        with raw_socket(src, socket.IPPROTO_RAW) as sender:
            for data, to in sent:
                sender.sendto(data, to)
                arrival = next(receiver.arrivals())
                inner = data[40:]
                flipped = int.from_bytes(arrival.packet, "big") ^ int.from_bytes(inner, "big")
                if not flipped:
                    decode(arrival.packet)
                    continue
                assert flipped.bit_count() == 1
                place = len(inner) - 1 - (flipped.bit_length() - 1) // 8
                places.append(place)
                if place not in NOT_COVERED:
                    with pytest.raises(DecodeError):
                        decode(arrival.packet)
        assert fabric.link_model is not None
        counts = fabric.link_model.counts(NIC)
        assert counts.corrupted == len(places)
        assert len(places) == pytest.approx(count / 3, abs=5 * (count * 2 / 9) ** 0.5)
        assert min(places) < 100
        assert max(places) > 400


@in_sandbox
def test_loss_on_chosen_evs_hits_only_them(tiny: Topology) -> None:
    """All packets of one EV, of all that use the link; then of another; then some of them."""
    src, dst = tiny.hosts
    stream = Stream(tiny, src, dst)
    through, around = ev_for_path(Path(0, 1)), ev_for_path(Path(0, 0))
    through_bits = flow_label_of_ev(through)
    unused_bit = 1 << 12
    evs = [through, around, ev_of_halves(through_bits | unused_bit, 0), through | 5]

    def arrived(receiver: Receiver) -> list[int]:
        send(
            src,
            [stream.packet(psn, DSCP.trimmable, 64, evs[psn % 4]) for psn in range(80)],
        )
        return sorted(psn_of(arrival.packet) for arrival in receiver.arrivals())

    with Fabric(tiny) as fabric, Receiver(dst) as receiver:
        control = LinkControl(tiny, fabric.namespaces)
        control.impair(UP, Impairment(path_loss=1.0, path_bits=through_bits))
        # The fourth has the same path bits: more entropy is not in the flow label.
        assert arrived(receiver) == [psn for psn in range(80) if psn % 4 in (1, 2)]
        assert fabric.link_model is not None
        assert fabric.link_model.counts(UP).path_lost == 40
        control.impair(UP, Impairment(path_loss=1.0, path_bits=through_bits | unused_bit))
        assert arrived(receiver) == [psn for psn in range(80) if psn % 4 != 2]
        control.impair(UP, Impairment(path_loss=0.5, path_bits=through_bits))
        some = arrived(receiver)
        assert 40 < len(some) < 80
        assert {psn for psn in range(80) if psn % 4 in (1, 2)} <= set(some)
        control.impair(UP, HEALTHY)
        assert arrived(receiver) == list(range(80))


@in_sandbox
def test_a_change_from_another_process_takes_effect_within_a_millisecond(tiny: Topology) -> None:
    """Under traffic: a process that only entered the sandbox swallows, and lets pass again."""
    src, dst = tiny.hosts
    stream = Stream(tiny, src, dst)
    data = stream.packet(0, DSCP.trimmable, 64)
    go, went, stop = os.pipe(), os.pipe(), os.pipe()

    def keep_sending() -> None:
        with raw_socket(src, socket.IPPROTO_RAW) as sender:
            while not select.select([stop[0]], [], [], 0.0002)[0]:
                sender.sendto(*data)

    def fault_process() -> None:
        with NodeNamespaces() as namespaces:
            control = LinkControl(tiny, namespaces)
            control.open(NIC_LINK)
            for on in (True, False):
                os.read(go[0], 1)
                set_blackhole(control, NIC_LINK, on=on)
                os.write(went[1], b".")

    with Fabric(tiny) as fabric:
        model = fabric.link_model
        assert model is not None
        way = model.index(NIC)
        arrived = model.records["packets"]
        swallowed = model.records["blackholed_packets"]
        with in_background(keep_sending, fault_process):
            try:
                wait_until(lambda: bool(arrived[way] > 50))
                os.write(go[1], b".")
                os.read(went[0], 1)
                time.sleep(0.001)
                before, gone = int(arrived[way]), int(swallowed[way])
                time.sleep(0.2)
                assert arrived[way] == before
                assert swallowed[way] > gone
                os.write(go[1], b".")
                os.read(went[0], 1)
                time.sleep(0.001)
                gone = int(swallowed[way])
                time.sleep(0.2)
                assert swallowed[way] == gone
                assert arrived[way] > before
            finally:
                os.write(stop[1], b".")
        wait_until(
            lambda: bool(arrived[way] + swallowed[way] == model.records["offered_packets"][way])
        )


@in_sandbox
def test_a_cut_empties_the_queue_that_the_model_keeps(tiny: Topology) -> None:
    """After restoring, the port's backlog begins at nothing, as the kernel's queue does."""
    src, dst = tiny.hosts
    data = Stream(tiny, src, dst).packet(0, DSCP.trimmable, 4096)
    with Fabric(tiny) as fabric:
        control = LinkControl(tiny, fabric.namespaces)
        model = fabric.link_model
        assert model is not None
        nic = model.index(NIC)
        send(src, [data] * 100)
        assert model.backlog_bytes()[nic] > 50 * tiny.wire_bytes
        control.cut(NIC_LINK)
        control.restore(NIC_LINK)
        assert model.backlog_bytes()[nic] == 0
        assert model.records["packets"][nic] < 50


def test_only_the_sandbox_sees_its_model() -> None:
    """The memory's name is in a file system of the sandbox's own."""
    assert not link_model.PINNED.exists()
    assert namespaces.NETNS_DIR.parent == link_model.BPF_DIRECTORY.parent
