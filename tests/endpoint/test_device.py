"""A device in a host: what a program notices of its ports, and how well it keeps up."""

import socket
import time
from collections.abc import Callable
from random import Random

import pytest

from testbed.emulation.endpoint.device import LATE_RTTS, Device, plain_errors
from testbed.emulation.endpoint.rendezvous import Rendezvous, meet
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.model.errors import InputError, MachineError, RunFailedError
from testbed.model.fabric.topology import PAYLOAD_MTU, Topology
from testbed.mrc import Arrival, CompletionStatus, Nscc
from testbed.mrc.verbs import (
    CompletionQueue,
    Context,
    PeerPaths,
    PortAttributes,
    VerbsQp,
    WorkCompletion,
)
from tests.fabric.packets import in_node
from tests.sandbox import run_in_sandbox
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


@pytest.mark.parametrize(
    ("error", "said", "status"),
    [
        (InputError.of("SERVER", "h99", "a host of tiny, such as h1"), "SERVER: found h99", 2),
        (MachineError("no", "other"), "no\n  remedy: other", 3),
        (ConnectionError("the peer's program has ended"), "the peer's program has ended", 1),
        (TimeoutError("nobody listens"), "nobody listens", 1),
        (MemoryError(), "there is not enough memory", 3),
    ],
)
def test_errors_of_programs_are_messages(
    error: Exception, said: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, plain_errors():
        raise error
    assert ended.value.code == status
    assert capsys.readouterr().err.startswith(f"error: {said}")


def test_a_server_whose_port_is_taken_or_none_says_so() -> None:
    """Such as one that is started twice in a host."""
    device = object.__new__(Device)
    with socket.create_server(("::", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"found {port}, expected one on which no other"):
            meet(device, port=port)
    for wrong in (0, -3, 70_000):
        with pytest.raises(InputError, match=rf"found {wrong}, expected a TCP port, 1 to 65535"):
            meet(device, port=wrong)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"GET / HTTP/1.1\n", "the peer is another program"),
        (b"[1, 2]\n", "the peer is another program"),
        (b'{"tool": "write_bw"}\n', "the peer is another program"),
        (b'{"address": "00", "qps": [], "memory": [0, 1, 2]}\n', "0 queue pairs, this program 1"),
        (b'{"address": "xy", "qps": [], "memory": [0, 1, 2]}\n', "queue pairs cannot be used"),
        (b'{"address": "00", "qps": [1], "memory": [0, 1, 2]}\n', "queue pairs cannot be used"),
    ],
)
def test_a_peer_that_is_another_program_is_told(answer: bytes, said: str) -> None:
    """Such as write_bw, which listens on the same port as the example."""
    device = object.__new__(Device)
    device.run = lambda until, **_: until()  # type: ignore[method-assign]
    port = PortAttributes(bytes(16), PAYLOAD_MTU, TOPOLOGY.propagation_rtt_ns, 10_000_000, 1e4)
    device.context = Context(port, lambda _: PeerPaths((), 1), Random(1))
    ours, theirs = socket.socketpair()
    context = device.context
    qp, memory = context.create_qp(context.create_cq()), context.reg_mr(bytearray(1))
    with ours, theirs:
        theirs.sendall(answer)
        with pytest.raises(RunFailedError, match=said):
            Rendezvous(device, ours, is_client=True).connect([qp], memory)


def test_errors_of_the_program_itself_stay_as_they_are() -> None:
    with pytest.raises(KeyError), plain_errors():
        raise KeyError("x")


def test_waiting_has_no_limit_unless_one_is_given() -> None:
    """A gibibyte takes almost four minutes at 40 Mbit/s."""
    device = object.__new__(Device)
    limits: list[float | None] = []

    def run(_until: Callable[[], bool], *, timeout_s: float | None = None) -> bool:
        limits.append(timeout_s)
        return timeout_s is None

    device.run = run  # type: ignore[method-assign, assignment]
    assert device.wait(CompletionQueue()) == []
    with pytest.raises(TimeoutError, match=r"within 0\.5 s"):
        device.wait(CompletionQueue(), timeout_s=0.5)
    assert limits == [None, 0.5]


@pytest.mark.root
def test_arrivals_that_are_seen_late_are_counted() -> None:
    def act() -> tuple[int, int]:
        with Fabric(TOPOLOGY):
            with in_node(HERE):
                device = Device(TOPOLOGY, HERE)
            bearable_ns = round(LATE_RTTS * TOPOLOGY.propagation_rtt_ns)
            late_ns = (0, bearable_ns, bearable_ns + 1, 10 * bearable_ns)
            late_arrivals = [(b"", Arrival(0, 0, 0), one) for one in late_ns]
            device._nic.arrivals = lambda *_: iter(late_arrivals)  # type: ignore[method-assign]
            device.poll()
            device.close()
            return device.arrived, device.late

    assert run_in_sandbox(act) == (4, 2)
