"""A device in a host: what a program notices of its ports, and how well it keeps up."""

import time
from collections.abc import Callable

import pytest

from testbed.emulation.endpoint.device import LATE_RTTS, Device
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.model.fabric.topology import PAYLOAD_MTU, Topology
from testbed.mrc import Arrival, CompletionStatus, Nscc
from testbed.mrc.verbs import (
    VerbsQp,
    WorkCompletion,
)
from tests.fabric.packets import in_node
from tests.sandbox import in_sandbox, run_in_sandbox
from tests.waiting import WATCHDOG_S

TOPOLOGY = Topology(
    name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1, dilation=1000
)
HERE, THERE = TOPOLOGY.hosts
LOST = TOPOLOGY.nic_link(HERE, 1).name


def _planes(qp: VerbsQp) -> set[int]:
    assert qp.core is not None
    return {ev >> 16 & 7 for ev in qp.core.active_evs()}


def _lose_a_port_and_get_it_back() -> tuple[int, int]:
    with Fabric(TOPOLOGY) as fabric:
        control = LinkControl(TOPOLOGY, fabric.namespaces)
        fabric.verify()
        devices = []
        for host in (HERE, THERE):
            with in_node(host):
                devices.append(Device(TOPOLOGY, host))
        here, there = devices
        cqs = [device.context.create_cq() for device in devices]
        a, b = (d.context.create_qp(cq) for d, cq in zip(devices, cqs, strict=True))
        a.connect(b.local)
        b.connect(a.local)
        region = there.context.reg_mr(bytearray(PAYLOAD_MTU))

        def until(condition: Callable[[], bool]) -> None:
            """Have both devices work; `here` sleeps as `run` does, woken by its ports."""
            end = time.monotonic() + WATCHDOG_S
            while not condition():
                assert time.monotonic() < end
                there.poll()
                here.run(lambda: False, timeout_s=0.001)

        def write(number: int) -> None:
            a.post_write(number, bytes([number]) * PAYLOAD_MTU, region.va, region.rkey)
            ended: list[WorkCompletion] = []

            def has_ended() -> bool:
                ended.extend(cqs[0].poll())
                return bool(ended)

            until(has_ended)
            assert [(one.wr_id, one.status) for one in ended] == [
                (number, CompletionStatus.SUCCESS)
            ]
            assert region.buffer == bytes([number]) * PAYLOAD_MTU

        write(1)
        assert (_planes(a), _planes(b)) == ({0, 1}, {0, 1})
        control.cut(LOST)
        until(lambda: (_planes(a), _planes(b)) == ({0}, {0}))
        write(2)
        control.restore(LOST)
        until(lambda: (_planes(a), _planes(b)) == ({0, 1}, {0, 1}))
        write(3)
        assert a.core is not None
        assert isinstance(a.core.congestion.controller, Nscc)
        for device in devices:
            device.close()
        return here.arrived, here.late


@pytest.mark.root
def test_a_program_notices_that_a_port_is_lost_and_back_and_its_peer_is_told() -> None:
    arrived, late = run_in_sandbox(_lose_a_port_and_get_it_back)
    assert arrived > 10
    assert 0 <= late <= arrived


@pytest.mark.root
@in_sandbox
def test_arrivals_that_are_seen_late_are_counted() -> None:
    with Fabric(TOPOLOGY):
        with in_node(HERE):
            device = Device(TOPOLOGY, HERE)
        bearable_ns = round(LATE_RTTS * TOPOLOGY.propagation_rtt_ns)
        late_ns = (0, bearable_ns, bearable_ns + 1, 10 * bearable_ns)
        late_arrivals = [(b"", Arrival(0, 0, 0), one) for one in late_ns]
        device._nic.arrivals = lambda *_: iter(late_arrivals)  # type: ignore[method-assign]
        device.poll()
        device.close()
        assert (device.arrived, device.late) == (4, 2)
