"""Programs in C on the fabric, as ctypes: every call that they make, right and wrong."""

import ctypes
import errno
import mmap
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Self

import pytest

from testbed.device import nic
from testbed.device.client import open_device
from testbed.device.compiling import IBVERBS
from testbed.device.library import IN_HOSTS
from testbed.device.nic import NicProcess, devices
from testbed.device.protocol import (
    REPLY,
    REQUEST,
    SOCKET,
    VERSION,
    IbvEvent,
    IbvState,
    IbvStatus,
    Op,
    Reply,
    Request,
)
from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.link_model.link_control import LinkControl
from testbed.model.fabric.topology import Topology
from testbed.mrc import CompletionStatus
from testbed.mrc.verbs import Destination
from testbed.sandbox.processes import spawn
from tests.device.verbs import (
    INIT,
    INLINE,
    READ,
    RTR,
    SEND,
    WRITE_IMM,
    AsyncEvent,
    Cq,
    End,
    Library,
    VerbsError,
    content,
    fill,
)
from tests.fabric.packets import in_node
from tests.sandbox import in_sandbox, run_in_sandbox
from tests.waiting import WATCHDOG_S, wait_until

pytestmark = pytest.mark.root

TOPOLOGY = Topology(
    name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1, dilation=1000
)
HERE, THERE = TOPOLOGY.hosts
LIBC = ctypes.CDLL(None)


def library_file() -> Path:
    return IN_HOSTS / IBVERBS


@contextmanager
def fabric() -> Iterator[Fabric]:
    """A fabric with a device in each host."""
    said: list[str] = []
    with Fabric(TOPOLOGY) as built, devices(built, said.append):
        assert not said
        yield built


def end_in(host: Any, **options: Any) -> End:
    with in_node(host):
        return End(library_file(), **options)


@contextmanager
def connected(**options: Any) -> Iterator[SimpleNamespace]:
    """Two ends with a queue pair each, connected, `a` in one host and `b` in the other."""
    with fabric() as built:
        a, b = end_in(HERE, **options), end_in(THERE, **options)
        qa, qb = a.make_qp(), b.make_qp()
        join(a, qa, b, qb)
        remote = b.va, b.mr.contents.rkey
        yield SimpleNamespace(fabric=built, a=a, b=b, qa=qa, qb=qb, remote=remote)


def join(a: End, qa: Any, b: End, qb: Any, **options: Any) -> None:
    a.connect(qa, b.gid, qb.contents.qp_num, psn=5, peer_psn=0xFFFFF0, **options)
    b.connect(qb, a.gid, qa.contents.qp_num, psn=0xFFFFF0, peer_psn=5, **options)


def statuses(entries: list[Any]) -> list[tuple[int, int]]:
    return [(entry.wr_id, entry.status) for entry in entries]


@in_sandbox
def test_writes_arrive_whatever_they_are_made_of() -> None:
    """Several packets, pieces, inline, nothing at all; PSNs that wrap; both directions."""
    with connected() as c:
        data = Random(1).randbytes(30_000)
        fill(c.a, data)
        assert c.a.post(c.qa, 1, c.remote, 20_000) == 0
        pieces = [(25_000, 5_000), (0, 1), (100, 0), (10_000, 4_000)]
        at = (c.remote[0] + 20_000, c.remote[1])
        assert c.a.post(c.qa, 2, at, 0, pieces=pieces) == 0
        far = (c.remote[0] + 40_000, c.remote[1])
        assert c.a.post(c.qa, 3, far, 60, flags=INLINE | 2) == 0
        fill(c.a, b"changed")  # inline data was taken at once
        assert c.a.post(c.qa, 4, far, 0) == 0
        assert statuses(c.a.wait(4)) == [(1, 0), (2, 0), (3, 0), (4, 0)]
        assert content(c.b, 20_000)[7:] == data[7:20_000]
        joined = data[25_000:] + content(c.b, 1, 25_000) + data[10_000:14_000]
        assert content(c.b, 9_001, 20_000) == joined
        assert content(c.b, 60, 40_000) == data[:60]
        back = c.a.va + 50_000, c.a.mr.contents.rkey
        assert c.b.post(c.qb, 5, back, 100, offset=40_000) == 0
        assert statuses(c.b.wait()) == [(5, 0)]
        assert content(c.a, 60, 50_000) == data[:60]


class ForbiddenNic(NicProcess):
    """A NIC process without CAP_SYS_PTRACE, as in a container."""

    def __init__(self) -> None:
        header = struct.pack("=II", 0x20080522, 0)
        sets = ctypes.create_string_buffer(24)
        assert LIBC.capget(header, sets) == 0
        words = [*struct.unpack("=6I", sets.raw)]
        words[0] &= ~(1 << 19)
        assert LIBC.capset(header, struct.pack("=6I", *words)) == 0
        super().__init__()


@in_sandbox
def test_a_thread_moves_the_payload_where_the_nic_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a program that the kernel hides from the NIC; what is not mapped is an error as before."""
    monkeypatch.setattr(nic, "NicProcess", ForbiddenNic)
    before = _threads()
    LIBC.prctl(4, 0)  # PR_SET_DUMPABLE, as for a program of another user
    with connected() as c:
        assert _threads() == before + 2
        data = Random(1).randbytes(30_000)
        fill(c.a, data)
        pieces = [(25_000, 5_000), (0, 1), (100, 0), (10_000, 4_000)]
        at = (c.remote[0] + 20_000, c.remote[1])
        assert c.a.post(c.qa, 1, c.remote, 20_000) == 0
        assert c.a.post(c.qa, 2, at, 0, pieces=pieces) == 0
        assert c.a.post(c.qa, 3, (c.remote[0] + 40_000, c.remote[1]), 60, flags=INLINE | 2) == 0
        assert statuses(c.a.wait(3)) == [(1, 0), (2, 0), (3, 0)]
        assert content(c.b, 20_000) == data[:20_000]
        joined = data[25_000:] + data[:1] + data[10_000:14_000]
        assert content(c.b, 9_001, 20_000) == joined
        assert content(c.b, 60, 40_000) == data[:60]
        mr, offset = _unmapped(c.a)
        lkey = mr.contents.lkey
        assert c.a.post(c.qa, 4, c.remote, 100, lkey=lkey, offset=offset) == 0
        assert statuses(c.a.wait()) == [(4, IbvStatus.LOC_PROT_ERR)]
        qa, qb = c.a.make_qp(), c.b.make_qp()
        join(c.a, qa, c.b, qb)
        mr, offset = _unmapped(c.b)
        assert c.a.post(qa, 5, (c.b.va + offset, mr.contents.rkey), 100) == 0
        assert statuses(c.a.wait()) == [(5, IbvStatus.REM_ACCESS_ERR)]
        c.a.close()
        c.b.close()
        wait_until(lambda: _threads() == before, "the end of the threads")


def _threads() -> int:
    return len([*Path("/proc/self/task").iterdir()])


def _unmapped(end: End) -> tuple[Any, int]:
    """A region whose memory has gone since, and its offset from the end's buffer."""
    LIBC.mmap.restype = ctypes.c_void_p
    place = LIBC.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))
    mr = reg(end, place, 4096, 3)
    LIBC.munmap(ctypes.c_void_p(place), ctypes.c_size_t(4096))
    return mr, place - end.va


@in_sandbox
def test_an_immediate_consumes_a_receive_of_the_peer() -> None:
    """It arrives behind the data, with its 32 bits as they were; signals are only for who asks."""
    with connected() as c:
        for wr_id in (11, 12):
            assert c.b.post_recv(c.qb, wr_id) == 0
        fill(c.a, b"hello")
        assert c.a.post(c.qa, 1, c.remote, 5, flags=0) == 0
        assert c.a.post(c.qa, 2, c.remote, 5, opcode=WRITE_IMM, immediate=0xDEADBEEF) == 0
        (received,) = c.b.wait()
        assert (received.wr_id, received.opcode, received.byte_len) == (11, 129, 5)
        assert int.from_bytes(received.imm_data.to_bytes(4, "little"), "big") == 0xDEADBEEF
        assert received.wc_flags & 2
        assert received.qp_num == c.qb.contents.qp_num
        assert content(c.b, 5) == b"hello"
        assert statuses(c.a.wait()) == [(2, 0)]


@in_sandbox
def test_a_channel_wakes_who_has_asked_and_only_once() -> None:
    """And its descriptor can be waited for like any other."""
    with connected(channel=True) as c:
        cq, argument = ctypes.POINTER(Cq)(), ctypes.c_void_p()
        fd = c.a.channel.contents.fd
        assert c.a.post(c.qa, 1, c.remote, 1) == 0
        c.a.wait()
        assert not select.select([fd], [], [], 0)[0]  # nobody has asked
        c.a.ops.req_notify_cq(c.a.cq, 0)
        assert c.a.post(c.qa, 2, c.remote, 1) == 0
        assert select.select([fd], [], [], WATCHDOG_S)[0]
        c.a.library.call("get_cq_event", c.a.channel, ctypes.byref(cq), ctypes.byref(argument))
        assert ctypes.addressof(cq.contents) == ctypes.addressof(c.a.cq.contents)
        c.a.library._library.ibv_ack_cq_events(c.a.cq, 1)
        assert statuses(c.a.poll()) == [(2, 0)]
        assert not select.select([fd], [], [], 0.05)[0]


@in_sandbox
def test_who_waits_for_solicited_completions_is_woken_by_receives_and_errors_only() -> None:
    """MRC does not carry the solicited bit; who waits for any is not made to wait for less."""
    with connected(channel=True) as c:
        fd, end = c.a.channel.contents.fd, c.a
        end.ops.req_notify_cq(end.cq, 1)
        assert end.post(c.qa, 1, c.remote, 1) == 0
        assert statuses(end.wait()) == [(1, 0)]
        assert not select.select([fd], [], [], 0.1)[0]
        assert end.post_recv(c.qa, 2) == 0
        back = end.va, end.mr.contents.rkey
        assert c.b.post(c.qb, 3, back, 1, opcode=WRITE_IMM) == 0
        _take_event(end)
        assert statuses(end.poll()) == [(2, 0)]
        end.ops.req_notify_cq(end.cq, 0)
        end.ops.req_notify_cq(end.cq, 1)
        assert end.post(c.qa, 4, c.remote, 1) == 0
        _take_event(end)
        end.ops.req_notify_cq(end.cq, 1)
        assert end.post(c.qa, 5, (0, 1), 1) == 0
        _take_event(end)


def _take_event(end: End) -> None:
    cq, argument = ctypes.POINTER(Cq)(), ctypes.c_void_p()
    assert select.select([end.channel.contents.fd], [], [], WATCHDOG_S)[0]
    end.library.call("get_cq_event", end.channel, ctypes.byref(cq), ctypes.byref(argument))
    end.library._library.ibv_ack_cq_events(end.cq, 1)


@in_sandbox
def test_cut_ports_are_events_and_the_last_one_is_the_devices() -> None:
    """Port 1 is up while any plane is; a further port of the query is that of one plane."""
    with connected() as c:
        control = LinkControl(TOPOLOGY, c.fabric.namespaces)
        cables = [TOPOLOGY.nic_link(HERE, plane).name for plane in range(TOPOLOGY.planes)]
        assert [_port(c.a, number) for number in (1, 2)] == [4, 4]
        control.cut(cables[1])
        assert _event(c.a) == (IbvEvent.PORT_ERR, 2)
        assert [_port(c.a, number) for number in (1, 2)] == [4, 1]
        control.cut(cables[0])
        assert _event(c.a) == (IbvEvent.PORT_ERR, 1)
        assert [_port(c.a, number) for number in (1, 2)] == [1, 1]
        later = end_in(HERE)  # what was cut before it came is no event
        assert _port(later, 1) == 1
        control.restore(cables[0])
        assert _event(c.a) == _event(later) == (IbvEvent.PORT_ACTIVE, 1)
        assert _port(c.a, 1) == 4
        with pytest.raises(VerbsError) as raised:
            _port(c.a, 3)
        assert raised.value.errno == errno.EINVAL
        control.restore(cables[1])
        assert c.a.post(c.qa, 1, c.remote, 1) == 0
        assert statuses(c.a.wait()) == [(1, 0)]


def _port(end: End, number: int) -> int:
    """The state of a port: enum ibv_port_state."""
    attr = (ctypes.c_int * 32)()
    end.library.call("query_port", end.context, ctypes.c_uint8(number), attr)
    return attr[0]


def _event(end: End) -> tuple[int, int]:
    """The next event of a port: its kind and the port."""
    got = AsyncEvent()
    end.library.call("get_async_event", end.context, ctypes.byref(got))
    end.library._library.ibv_ack_async_event(ctypes.byref(got))
    return got.event_type, got.element.port_num


@pytest.mark.parametrize(
    ("wrong", "status", "event"),
    [
        ("rkey", IbvStatus.REM_ACCESS_ERR, IbvEvent.QP_ACCESS_ERR),
        ("beyond", IbvStatus.REM_ACCESS_ERR, IbvEvent.QP_ACCESS_ERR),
        ("receive", IbvStatus.REM_OP_ERR, IbvEvent.QP_REQ_ERR),
        ("lkey", IbvStatus.LOC_PROT_ERR, None),
        ("unmapped", IbvStatus.LOC_PROT_ERR, None),
    ],
)
@in_sandbox
def test_what_is_wrong_ends_in_its_status(
    wrong: str, status: IbvStatus, event: IbvEvent | None
) -> None:
    """What is posted behind it is flushed; the peer hears of what was wrong with its memory."""
    with connected() as c:
        address, rkey = c.remote
        options: dict[str, Any] = {}
        if wrong == "rkey":
            rkey ^= 1
        elif wrong == "beyond":
            address += (1 << 16) - 10
        elif wrong == "receive":
            options["opcode"] = WRITE_IMM
        elif wrong == "lkey":
            options["lkey"] = c.a.mr.contents.lkey ^ 1
        else:
            mr, offset = _unmapped(c.a)
            options |= {"lkey": mr.contents.lkey, "offset": offset}
        assert c.a.post(c.qa, 1, (address, rkey), 100, **options) == 0
        assert c.a.post(c.qa, 2, c.remote, 100, flags=0) == 0
        assert statuses(c.a.wait(2)) == [(1, status), (2, IbvStatus.WR_FLUSH_ERR)]
        assert not content(c.b, 200).strip(b"\0")
        if event is not None:
            got = AsyncEvent()
            c.b.library.call("get_async_event", c.b.context, ctypes.byref(got))
            assert got.event_type == event
            qp = ctypes.addressof(got.element.qp.contents)
            assert qp == ctypes.addressof(c.qb.contents)
            c.b.library._library.ibv_ack_async_event(ctypes.byref(got))
        c.a.library.call("destroy_qp", c.qa)
        c.b.library.call("destroy_qp", c.qb)


@in_sandbox
def test_calls_that_are_wrong_return_their_errno() -> None:
    """And leave everything as it was."""
    with connected() as c:
        a, qa, remote = c.a, c.qa, c.remote
        assert a.post(qa, 1, remote, 4, opcode=SEND) == errno.EINVAL
        assert a.post(qa, 1, remote, 4, opcode=READ) == errno.EINVAL
        assert a.post(qa, 1, remote, 0, pieces=[(0, 1)] * 17) == errno.EINVAL
        assert a.post(qa, 1, remote, 1000, flags=INLINE) == errno.EINVAL
        new = a.make_qp()
        assert a.post(new, 1, remote, 4) == errno.EINVAL
        assert a.post_recv(new, 1) == errno.EINVAL
        cases: list[tuple[int, Callable[[], Any]]] = [
            (errno.EOPNOTSUPP, lambda: a.make_qp(kind=4)),
            (errno.EINVAL, lambda: a.make_qp(depth=1 << 20)),
            (errno.EOPNOTSUPP, lambda: a.library.make("create_srq", a.pd, None)),
            (errno.EOPNOTSUPP, lambda: a.library.make("create_ah", a.pd, None)),
            (errno.EINVAL, lambda: a.make_cq(0)),
            (errno.EINVAL, lambda: a.make_cq(1 << 20)),
            (errno.EFAULT, lambda: reg(a, 4096, 4096, 3)),
            (errno.EINVAL, lambda: reg(a, a.va, 0, 3)),
            (errno.EINVAL, lambda: reg(a, a.va, 10, 2)),
            (errno.EINVAL, lambda: a.modify(new, IbvState.RTS, 1)),
            (errno.EINVAL, lambda: a.modify(new, IbvState.INIT, 1)),
            (errno.EHOSTUNREACH, lambda: a.connect(a.make_qp(), bytes(16), 1)),
            (errno.EBUSY, lambda: a.library.call("dealloc_pd", a.pd)),
            (errno.EBUSY, lambda: a.library.call("destroy_cq", a.cq)),
            (errno.EINVAL, lambda: a.library.call("resize_cq", a.cq, 0)),
        ]
        for number, case in cases:
            with pytest.raises(VerbsError) as raised:
                case()
            assert raised.value.errno == number, case
        assert a.post(qa, 1, remote, 4) == 0
        assert statuses(a.wait()) == [(1, 0)]


def reg(end: End, address: int, length: int, access: int) -> Any:
    return end.library.make(
        "reg_mr", end.pd, ctypes.c_void_p(address), ctypes.c_size_t(length), access
    )


@in_sandbox
def test_a_full_send_queue_refuses_and_a_full_completion_queue_fails() -> None:
    with connected() as c:
        posted = 0
        while not (error := c.a.post(c.qa, posted, c.remote, 4)):
            posted += 1
        assert error == errno.ENOMEM
        assert posted >= 64  # some may have completed meanwhile
        c.a.wait(posted)
        small = c.a.make_cq(2)
        qa, qb = c.a.make_qp(send_cq=small), c.b.make_qp()
        join(c.a, qa, c.b, qb)
        for number in range(4):
            assert c.a.post(qa, number, c.remote, 4) == 0
        got = [AsyncEvent(), AsyncEvent()]
        for event in got:
            c.a.library.call("get_async_event", c.a.context, ctypes.byref(event))
        kinds = {event.event_type for event in got}
        assert kinds == {IbvEvent.CQ_ERR, IbvEvent.QP_FATAL}
        assert statuses(c.a.poll(small)) == [(0, 0), (1, 0)]


@in_sandbox
def test_errors_and_resets_by_hand_flush_and_forget() -> None:
    with connected() as c:
        c.b.post_recv(c.qb, 1)
        c.b.modify(c.qb, IbvState.ERR, 1)
        assert statuses(c.b.wait()) == [(1, IbvStatus.WR_FLUSH_ERR)]
        assert c.b.post(c.qb, 2, c.remote, 4) == 0
        assert statuses(c.b.wait()) == [(2, IbvStatus.WR_FLUSH_ERR)]
        for end, qp in ((c.a, c.qa), (c.b, c.qb)):
            end.modify(qp, IbvState.RESET, 1)
        join(c.a, c.qa, c.b, c.qb)
        assert c.a.post(c.qa, 3, c.remote, 4) == 0
        assert statuses(c.a.wait()) == [(3, 0)]
        new = c.b.make_qp()
        c.b.modify(new, IbvState.INIT, 0b111001 & ~0b10000 | 0b10000, qp_access_flags=3)
        c.b.post_recv(new, 4)
        c.b.modify(new, IbvState.ERR, 1)
        assert statuses(c.b.wait()) == [(4, IbvStatus.WR_FLUSH_ERR)]


@in_sandbox
def test_memory_is_only_what_its_domain_and_its_flags_allow() -> None:
    """Regions with addresses of their own, without remote writes, of another domain."""
    with connected() as c:
        iova = 1 << 40
        mr = c.b.library.make(
            "reg_mr_iova2",
            c.b.pd,
            ctypes.c_void_p(c.b.va),
            ctypes.c_size_t(100),
            ctypes.c_uint64(iova),
            3 | 1 << 20,
        )
        fill(c.a, b"there")
        assert c.a.post(c.qa, 1, (iova + 10, mr.contents.rkey), 5) == 0
        assert statuses(c.a.wait()) == [(1, 0)]
        assert content(c.b, 5, 10) == b"there"
        other = c.b.library.make("alloc_pd", c.b.context)
        for pd, access in ((other, 3), (c.b.pd, 1)):
            local = c.b.library.make(
                "reg_mr", pd, ctypes.c_void_p(c.b.va), ctypes.c_size_t(100), access
            )
            qa, qb = c.a.make_qp(), c.b.make_qp()
            join(c.a, qa, c.b, qb)
            assert c.a.post(qa, 2, (c.b.va, local.contents.rkey), 5) == 0
            assert statuses(c.a.wait()) == [(2, IbvStatus.REM_ACCESS_ERR)]


@in_sandbox
def test_objects_may_be_destroyed_in_any_order_even_after_the_device() -> None:
    with connected() as c:
        c.a.library.call("close_device", c.a.context)
        c.a.library.call("destroy_cq", c.a.cq)
        c.a.library.call("dereg_mr", c.a.mr)
        c.a.library.call("destroy_qp", c.qa)
        c.a.library.call("dealloc_pd", c.a.pd)
        again = end_in(HERE)
        again.close()


@in_sandbox
def test_a_cut_cable_is_survived() -> None:
    with connected() as c:
        control = LinkControl(TOPOLOGY, c.fabric.namespaces)
        fill(c.a, b"x" * 60_000)
        for number in range(32):
            assert c.a.post(c.qa, number, c.remote, 60_000) == 0
        c.a.wait(4)
        control.cut(TOPOLOGY.nic_link(HERE, 0).name)
        assert all(entry.status == 0 for entry in c.a.wait(28))
        assert content(c.b, 60_000) == b"x" * 60_000


@in_sandbox
def test_two_programs_of_a_host_share_it_and_ends_of_one_leave_the_other() -> None:
    with connected() as c:
        other = end_in(HERE)
        qa, qb = other.make_qp(), c.b.make_qp()
        assert qa.contents.qp_num != c.qa.contents.qp_num
        join(other, qa, c.b, qb)
        assert other.post(qa, 1, c.remote, 50_000) == 0
        assert c.a.post(c.qa, 1, c.remote, 50_000) == 0
        assert statuses(other.wait()) == statuses(c.a.wait()) == [(1, 0)]
        other.close()
        assert c.a.post(c.qa, 2, c.remote, 50_000) == 0
        assert statuses(c.a.wait()) == [(2, 0)]


@in_sandbox
def test_a_peer_that_vanishes_is_an_error_of_the_connection() -> None:
    with connected() as c:
        qa, qb = c.a.make_qp(), c.b.make_qp()
        join(c.a, qa, c.b, qb, retries=0)
        c.b.close()
        assert c.a.post(qa, 1, c.remote, 100) == 0
        assert statuses(c.a.wait()) == [(1, IbvStatus.RETRY_EXC_ERR)]


@in_sandbox
def test_the_end_of_the_nic_process_is_an_error_and_no_hang() -> None:
    """Every call returns, and the descriptors of both kinds of events become readable."""
    with connected(channel=True) as c:
        nic = nic_process()
        assert c.a.post(c.qa, 1, c.remote, 100) == 0
        os.kill(nic, signal.SIGKILL)
        wait_until(lambda: _fails(c.a.poll), "an error of poll_cq")
        assert c.a.post(c.qa, 2, c.remote, 100) == errno.EIO
        assert _fails(c.a.make_qp)
        event = AsyncEvent()
        c.a.library.call("get_async_event", c.a.context, ctypes.byref(event))
        assert event.event_type == 8  # IBV_EVENT_DEVICE_FATAL
        cq, argument = ctypes.POINTER(Cq)(), ctypes.c_void_p()
        assert _fails(
            lambda: c.a.library.call(
                "get_cq_event", c.a.channel, ctypes.byref(cq), ctypes.byref(argument)
            )
        )
        c.a.library.call("destroy_qp", c.qa)
        c.a.library.call("destroy_cq", c.a.cq)
        c.a.close()


def nic_process() -> int:
    """The PID of the NIC process of the first host."""
    names = {path.parent: path.read_text().strip() for path in Path("/proc").glob("[0-9]*/comm")}
    (found,) = [process for process, name in names.items() if name == f"nic-{HERE.name}"]
    return int(found.name)


def _descriptors(process: int) -> int:
    return len([*Path(f"/proc/{process}/fd").iterdir()])


def _fails(call: Callable[[], Any]) -> bool:
    try:
        call()
    except VerbsError:
        return True
    return False


@in_sandbox
def test_outside_a_host_there_is_no_device() -> None:
    with fabric():
        assert Library(library_file()).names() == 0


def test_killed_programs_leave_nothing_and_the_others_go_on() -> None:
    """Programs that make, post and destroy at random are killed at any moment."""
    run_in_sandbox(lambda: killed_at_random(_busy, 200 if "TESTBED_SOAK" in os.environ else 20))


def killed_at_random(busy: Callable[[int, object], int], rounds: int) -> None:
    """Kill programs at any moment; the NIC keeps nothing of them, and another one goes on."""
    with connected() as c:
        nic = nic_process()
        before = -1
        for number in range(rounds):
            with spawn(partial(busy, number), isolated=False) as child:
                time.sleep(0.02 + Random(number).random() * 0.1)
                child.kill()
            assert c.a.post(c.qa, number, c.remote, 5_000) == 0
            assert statuses(c.a.wait()) == [(number, 0)]
            if number == 5:
                before = _descriptors(nic)
        wait_until(lambda: _descriptors(nic) <= before, "no descriptor left")
        maps = Path(f"/proc/{nic}/maps").read_text()
        assert maps.count("memfd:mrc") <= 4


def _busy(seed: int, _: object) -> int:
    """Make, connect, post and destroy at random, with an end in each host."""
    rng = Random(seed)
    a, b = end_in(HERE, channel=True), end_in(THERE)
    remote = b.va, b.mr.contents.rkey
    pairs: list[tuple[Any, Any]] = []
    while True:
        choice = rng.randrange(4)
        if choice == 0 or not pairs:
            qa, qb = a.make_qp(), b.make_qp()
            join(a, qa, b, qb)
            pairs.append((qa, qb))
        elif choice == 1:
            qa, qb = pairs.pop(rng.randrange(len(pairs)))
            a.library.call("destroy_qp", qa)
            b.library.call("destroy_qp", qb)
        else:
            a.post(rng.choice(pairs)[0], 1, remote, 20_000)
        a.poll()


@in_sandbox
def test_a_program_in_python_talks_to_one_in_c() -> None:
    """Both directions of one connection, with an immediate."""
    with fabric():
        a = end_in(HERE)
        qa = a.make_qp()
        with in_node(THERE):
            device = open_device()
        cq = device.create_cq()
        qp = device.create_qp(cq)
        region = device.reg_mr(bytearray(60_000))
        qp.post_recv(9)
        a.connect(qa, device.address, qp.qp_num, psn=3, peer_psn=qp.local.psn)
        qp.connect(Destination(a.gid, qa.contents.qp_num, 3))
        fill(a, b"c" * 60_000)
        remote = region.va, region.rkey
        assert a.post(qa, 1, remote, 60_000, opcode=WRITE_IMM, immediate=42) == 0
        (received,) = device.wait(cq)
        assert (received.wr_id, received.imm_data, received.byte_len) == (9, 42, 60_000)
        assert bytes(region.buffer) == b"c" * 60_000
        qp.post_write(2, b"python", a.va + 7, a.mr.contents.rkey)
        (sent,) = device.wait(cq)
        assert sent.status is CompletionStatus.SUCCESS
        assert content(a, 6, 7) == b"python"
        assert statuses(a.wait()) == [(1, 0)]
        device.close()


@pytest.mark.parametrize("wrong", ["size", "op", "mtu", "tail", "mapping", "many"])
@in_sandbox
def test_a_hostile_program_is_disconnected_and_the_others_go_on(wrong: str) -> None:
    """What no library sends or writes; it cannot shrink the memory under the NIC either."""
    with connected() as c, in_node(HERE), Client() as client:
        pd = client.ask(Op.ALLOC_PD).handle
        cq = client.ask(Op.CREATE_CQ, depth=4).handle
        made, (sends, _) = client.asked(
            Op.CREATE_QP, handle=pd, depth=4, recv_depth=4, send_cq=cq, recv_cq=cq
        )
        qp = made.handle
        if wrong == "size":
            client.connection.send(b"short")
        elif wrong == "op":
            client.send(99)
        elif wrong == "mtu":
            client.ask(Op.MODIFY_QP, handle=qp, mask=int(INIT), state=1)
            reply = client.ask(
                Op.MODIFY_QP, handle=qp, mask=int(RTR), state=2, mtu=65_535, peer=c.b.gid
            )
            assert reply.error == errno.EINVAL
        elif wrong == "tail":
            mmap.mmap(sends, 4096)[:4] = (1 << 20).to_bytes(4, "little")
        elif wrong == "mapping":
            with pytest.raises(PermissionError):
                os.ftruncate(sends, 0)
        else:
            others = [one for _ in range(600) if (one := _connection())]
            assert 100 < len(others) < 600
            for one in others:
                one.connection.close()
        assert c.a.post(c.qa, 1, c.remote, 5_000) == 0
        assert statuses(c.a.wait()) == [(1, 0)]
        if wrong in {"size", "op", "tail"}:
            client.connection.settimeout(WATCHDOG_S)
            assert client.connection.recv(1) == b""


def _connection() -> "Client | None":
    """One more connection, unless the NIC refuses it."""
    try:
        return Client()
    except (OSError, struct.error):
        return None


class Client:
    """A connection to the NIC of this host without the library."""

    def __init__(self, name: str = SOCKET) -> None:
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.connect(name)
        self.ask(Op.OPEN, version=VERSION)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def send(self, op: int, **fields: Any) -> None:
        nothing = Request._make([0] * (len(Request._fields) - 1) + [b""])
        request = nothing._replace(op=op, **fields)
        self.connection.send(REQUEST.pack(*request))

    def asked(self, op: int, **fields: Any) -> tuple[Reply, list[int]]:
        self.send(op, **fields)
        data, descriptors, _, _ = socket.recv_fds(self.connection, REPLY.size, 2)
        return Reply._make(REPLY.unpack(data)), descriptors

    def ask(self, op: int, **fields: Any) -> Reply:
        return self.asked(op, **fields)[0]
