"""Programs in Python as clients of the NIC process, and how two of them meet."""

import builtins
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_void_p
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed import rdma
from testbed.device import rendezvous
from testbed.device.client import ClientQp, CompletionQueue, Device, open_device
from testbed.device.rendezvous import Rendezvous, meet
from testbed.model.errors import InputError, MachineError, RunFailedError
from testbed.model.fabric.nodes import Node, Tier
from testbed.mrc import CompletionStatus
from testbed.mrc.config import Capabilities
from testbed.mrc.qp import QpState, QpStateError
from testbed.mrc.verbs import Destination, QpAttributes, WcOpcode
from testbed.rdma import plain_errors
from tests.device.test_device import HERE, THERE, fabric, killed_at_random, nic_process
from tests.fabric.packets import in_node
from tests.sandbox import in_sandbox, run_in_sandbox
from tests.waiting import WATCHDOG_S

SIZE = 60_000


def opened(host: Node) -> Device:
    with in_node(host):
        return open_device()


@contextmanager
def connected(
    attributes: QpAttributes = QpAttributes(),  # noqa: B008 - frozen
    **options: Any,
) -> Iterator[SimpleNamespace]:
    """Two programs, `a` in one host and `b` in the other, with memory and a queue pair each."""
    with fabric(), opened(HERE) as a, opened(THERE) as b:
        cqs = a.create_cq(), b.create_cq()
        qa = a.create_qp(cqs[0], attributes=attributes, **options)
        qb = b.create_qp(cqs[1], attributes=attributes, **options)
        join(qa, qb)
        ma, mb = (device.reg_mr(bytearray(SIZE)) for device in (a, b))
        yield SimpleNamespace(a=a, b=b, qa=qa, qb=qb, cqa=cqs[0], cqb=cqs[1], ma=ma, mb=mb)


def join(qa: ClientQp, qb: ClientQp) -> None:
    qa.connect(qb.local)
    qb.connect(qa.local)


def ended(device: Device, cq: CompletionQueue, count: int = 1) -> list[tuple[int, str]]:
    """How so many work requests have ended."""
    found: list[Any] = []
    while len(found) < count:
        found += device.wait(cq, WATCHDOG_S)
    return [(done.wr_id, done.status.value) for done in found]


@pytest.mark.root
@in_sandbox
def test_two_programs_write_to_each_other() -> None:
    """From registered memory, from no memory of their own, with all bits of what is 64 long."""
    attributes = QpAttributes(capabilities=Capabilities(2, False, 3), mtu=1024)
    with connected(attributes) as c:
        assert (c.a.host, c.b.host) == (HERE, THERE)
        last = (1 << 64) - 1
        c.qb.post_recv(last)
        c.ma.buffer[:] = data = Random(1).randbytes(SIZE)
        c.qa.post_write(last, c.ma.buffer[100:], c.mb.va, c.mb.rkey)
        c.qa.post_write_imm(2, b"inline", c.mb.va + SIZE - 6, c.mb.rkey, 0xDEAD_BEEF)
        (received,) = c.b.wait(c.cqb)
        assert (received.wr_id, received.imm_data) == (last, 0xDEAD_BEEF)
        assert (received.opcode, received.byte_len) == (WcOpcode.RECV_RDMA_WITH_IMM, 6)
        assert received.qp_num == c.qb.qp_num
        assert bytes(c.mb.buffer) == data[100:] + bytes(94) + b"inline"
        assert ended(c.a, c.cqa, 2) == [(last, "success"), (2, "success")]
        c.qb.post_write(3, b"", c.ma.va, c.ma.rkey)
        assert ended(c.b, c.cqb) == [(3, "success")]
        late, arrived = c.a.lateness()
        assert 0 <= late <= arrived > 0


@pytest.mark.root
@in_sandbox
def test_two_programs_of_a_host_have_its_nic_in_common() -> None:
    """The end of one leaves the other."""
    with connected() as c:
        with opened(HERE) as other:
            cq = other.create_cq()
            qp, peer = other.create_qp(cq), c.b.create_qp(c.cqb)
            assert qp.qp_num != c.qa.qp_num
            join(qp, peer)
            for number, each in enumerate((qp, c.qa)):
                each.post_write(number, b"x", c.mb.va + number, c.mb.rkey)
            assert ended(other, cq) == [(0, "success")]
            assert ended(c.a, c.cqa) == [(1, "success")]
        c.qa.post_write(2, b"yy", c.mb.va, c.mb.rkey)
        assert ended(c.a, c.cqa) == [(2, "success")]
        assert bytes(c.mb.buffer[:2]) == b"yy"


@pytest.mark.root
@in_sandbox
def test_what_is_wrong_is_an_exception_with_words_or_a_status() -> None:
    """And what is right goes on behind each exception."""
    with connected(depth=2) as c:
        write = partial(c.qa.post_write, 1, b"x", c.mb.va, c.mb.rkey)
        cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
            (ValueError, "payload: found 300 bytes in no region", lambda: _big(c, b"")),
            (ValueError, "payload: found 300 bytes in no", lambda: _big(c, bytearray())),
            (ValueError, "rkey: found -1", lambda: c.qa.post_write(1, b"", 0, -1)),
            (ValueError, "immediate: found 4294967296", lambda: write(1 << 32)),
            (ValueError, "wr_id: found", lambda: c.qa.post_recv(1 << 64)),
            (ValueError, "writable buffer", lambda: c.a.reg_mr(b"read only")),
            (ValueError, "writable buffer", lambda: c.a.reg_mr(bytearray())),
            (ValueError, "a destination belongs", lambda: c.qa.modify(QpState.RTR)),
            (QpStateError, "in RTS .*cannot become INIT", lambda: c.qa.modify(QpState.INIT)),
            (QpStateError, "in INIT", lambda: c.a.create_qp(c.cqa).post_write(1, b"", 0, 0)),
            (
                QpStateError,
                r"profiles \(7, 0\) cannot",
                lambda: c.a.create_qp(c.cqa, ev_profile=7).connect(c.qb.local),
            ),
            (
                ValueError,
                "no NIC of the fabric has the address",
                lambda: c.a.create_qp(c.cqa).connect(Destination(bytes(16), 1, 1)),
            ),
            (
                ValueError,
                "mtu: found 1000",
                lambda: c.a.create_qp(c.cqa, attributes=QpAttributes(mtu=1000)).connect(c.qb.local),
            ),
            (ValueError, "another device's", lambda: c.a.create_qp(c.cqb)),
            (ValueError, "is not registered", lambda: c.a.dereg_mr(c.mb)),
            (BlockingIOError, "the send queue is full", lambda: [write() for _ in range(99)]),
            (
                BlockingIOError,
                "the recv queue is full",
                lambda: [c.qa.post_recv(1) for _ in range(99)],
            ),
            (TimeoutError, r"within 0\.01 s", lambda: c.b.wait(c.cqb, 0.01)),
        ]
        for kind, words, case in cases:
            with pytest.raises(kind, match=words):
                case()
        assert set(ended(c.a, c.cqa, 2)) == {(1, "success")}
        c.qa.post_write(5, b"x", c.mb.va, c.mb.rkey ^ 1)
        seen: list[tuple[int, str]] = []
        while 5 not in dict(seen):
            seen += ended(c.a, c.cqa)
        assert (5, "remote access error") in seen
        assert c.qa.state is QpState.ERROR
        c.b.dereg_mr(c.mb)
        c.qb.destroy()
        with pytest.raises(QpStateError, match="destroyed"):
            c.qb.post_recv(1)
    with pytest.raises(ConnectionError, match="has ended, or the device is closed"):
        c.a.wait(c.cqa)


def _big(c: SimpleNamespace, empty: bytes | bytearray) -> None:
    c.qa.post_write(1, empty + bytes(300), c.mb.va, c.mb.rkey)


@pytest.mark.root
@in_sandbox
def test_who_waits_without_a_limit_hears_of_the_end_of_the_nic() -> None:
    with connected() as c:
        threading.Timer(0.3, partial(os.kill, nic_process(), signal.SIGKILL)).start()
        with pytest.raises(ConnectionError, match="the NIC of this host has ended"):
            c.a.wait(c.cqa)
        for call in (lambda: c.qa.post_recv(1), c.a.create_cq, lambda: c.qa.state):
            with pytest.raises(ConnectionError, match="the NIC of this host has ended"):
                call()


@pytest.mark.root
def test_killed_programs_leave_nothing_and_those_in_c_go_on() -> None:
    run_in_sandbox(lambda: killed_at_random(_busy, 8))


def _busy(_seed: int, _: object) -> int:
    """Make, connect, post and destroy, with an end in each host."""
    a, b = opened(HERE), opened(THERE)
    cq, other = a.create_cq(), b.create_cq()
    memory, remote = a.reg_mr(bytearray(SIZE)), b.reg_mr(bytearray(SIZE))
    while True:
        qa, qb = a.create_qp(cq), b.create_qp(other)
        join(qa, qb)
        qa.post_write(1, memory.buffer, remote.va, remote.rkey)
        a.wait(cq)
        qa.destroy()
        qb.destroy()


@pytest.mark.root
@in_sandbox
def test_a_peer_that_vanishes_is_a_status() -> None:
    with connected(QpAttributes(linear_retries=0, exponential_retries=0)) as c:
        c.b.close()
        c.qa.post_write(1, b"x", c.mb.va, c.mb.rkey)
        assert ended(c.a, c.cqa) == [(1, CompletionStatus.RETRY_EXCEEDED.value)]


@pytest.mark.root
@in_sandbox
def test_outside_a_host_there_is_no_device() -> None:
    """With the library at hand, and without."""
    with pytest.raises(MachineError, match="does not run in a host of a fabric"):
        open_device()
    with fabric(), pytest.raises(MachineError, match="testbed device -- python PROGRAM"):
        open_device()


def test_waiting_has_no_limit_unless_one_is_given() -> None:
    """A gibibyte takes almost four minutes at 40 Mbit/s."""
    device = object.__new__(Device)
    limits: list[float | None] = []

    def run(_until: Callable[[], bool], *, timeout_s: float | None = None) -> bool:
        limits.append(timeout_s)
        return timeout_s is None

    device.run = run  # type: ignore[method-assign, assignment]
    cq = object.__new__(CompletionQueue)
    assert device.wait(cq) == []
    with pytest.raises(TimeoutError, match=r"within 0\.5 s"):
        device.wait(cq, timeout_s=0.5)
    assert limits == [None, 0.5]


def test_threads_that_poll_a_queue_at_once_take_different_completions() -> None:
    library: Any = SimpleNamespace()
    cq = CompletionQueue(library, c_void_p(1))
    inner: list[list[int]] = []

    def poll(_cq: object, _most: int, entries: Any) -> int:
        entries[0].wr_id = 1 + len(inner)
        if not inner:  # the other thread takes the second before this one has read the first
            inner.append([])
            inner[0] += [done.wr_id for done in cq.poll()]
        return 1

    library.poll = poll
    assert [done.wr_id for done in cq.poll()] == [1]
    assert inner == [[2]]


def test_threads_that_make_queues_at_once_get_their_own() -> None:
    class Racing(list[CompletionQueue]):
        def append(self, made: CompletionQueue) -> None:
            super().append(made)
            super().append(object.__new__(CompletionQueue))  # another thread's

    device, number = device_of(0), c_void_p(7)
    device._cqs, device._mrc, device._channel = Racing(), c_void_p(), c_void_p()
    device.library = cast("Any", SimpleNamespace(make=lambda *_: number, keep=lambda made, _: made))
    assert device.create_cq().handle is number


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"depth": (1 << 32) + 1}, "depth: found 4294967297, expected 1 to 16384"),
        ({"depth": 0}, "depth: found 0, expected 1"),
        ({"ev_profile": -1}, "ev_profile: found -1, expected 0"),
        ({"cc_profile": 1 << 64}, "cc_profile: found"),
        ({"attributes": QpAttributes(linear_retries=8)}, "linear_retries: found 8, .* 0 to 7"),
        ({"attributes": QpAttributes(exponential_retries=-1)}, "exponential_retries: found -1"),
        ({"attributes": QpAttributes(mtu=1000)}, "mtu: found 1000"),
    ],
)
def test_a_queue_pair_of_wrong_numbers_is_refused(options: dict[str, Any], said: str) -> None:
    """Not made with what is left of them in 32 bits."""
    device = device_of(0)
    cq = object.__new__(CompletionQueue)
    device._cqs = [cq]
    with pytest.raises(ValueError, match=said):
        device.create_qp(cq, **options)


@pytest.mark.parametrize("entries", [0, -1, (1 << 32) + 5])
def test_a_completion_queue_of_a_wrong_size_is_refused(entries: int) -> None:
    with pytest.raises(ValueError, match=rf"entries: found {entries}, expected 1 to 65536"):
        device_of(0).create_cq(entries)


@pytest.mark.parametrize(
    ("peer", "said"),
    [
        (Destination(bytes(17), 1, 1), "address: found 17 bytes, expected 16"),
        (Destination(bytes(16), 1 << 24, 1), "qpn: found 16777216"),
        (Destination(bytes(16), 1, -1), "psn: found -1"),
    ],
)
def test_a_peer_whose_numbers_do_not_fit_is_refused(peer: Destination, said: str) -> None:
    qp = object.__new__(ClientQp)
    qp.local = Destination(bytes(16), 1, 1)
    with pytest.raises(ValueError, match=said):
        qp.modify(QpState.RTR, peer)


def test_a_message_in_several_pieces_is_refused() -> None:
    with pytest.raises(ValueError, match="in one piece"):
        object.__new__(ClientQp).post_write(1, memoryview(bytes(10))[::2], 0, 0)


def test_what_the_document_names_is_there() -> None:
    """What programs import is in the interface, not only somewhere in the testbed."""
    text = (Path(__file__).parents[2] / "docs/rdma.md").read_text(encoding="utf-8")
    kinds = {"device": Device, "qp": ClientQp, "cq": CompletionQueue, "peer": Rendezvous}
    for kind, name in re.findall(r"\b(device|qp|cq|peer)\.([a-z_]+)\b(?!\))", text):
        of = kinds[kind]
        assert name == "md" or hasattr(of, name) or f"{name}:" in (of.__doc__ or ""), (kind, name)
    code = " ".join(re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)))
    names = set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*\b", code))
    assert {"QpAttributes", "Destination"} <= names
    assert names - set(dir(builtins)) <= set(rdma.__all__)
    assert all(hasattr(rdma, name) for name in rdma.__all__)


# --- errors as messages, and meeting ---


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


def test_errors_of_the_program_itself_stay_as_they_are() -> None:
    with pytest.raises(KeyError), plain_errors():
        raise KeyError("x")


def device_of(number: int) -> Device:
    device = object.__new__(Device)
    device.host = Node(Tier.HOST, 0, number)
    device.address = bytes(16)
    device.run = lambda until, **_: until()  # type: ignore[method-assign]
    return device


def test_a_server_whose_port_is_taken_or_none_says_so() -> None:
    """Such as one that is started twice in a host."""
    device = device_of(0)
    with socket.create_server(("::", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=rf"found {port}, expected one on which no other"):
            meet(device, port=port)
    for wrong in (0, -3, 70_000):
        with pytest.raises(InputError, match=rf"found {wrong}, expected a TCP port, 1 to 65535"):
            meet(device, port=wrong)


@pytest.mark.parametrize(
    ("server", "of", "kind", "said"),
    [
        ("no.such.invalid", 0, InputError, "SERVER: found no.such.invalid, .* such as h1"),
        ("no.such.invalid", 3, InputError, "such as h0"),
        ("", 0, InputError, "SERVER: expected the name of a host"),
        ("x" * 70, 0, InputError, "SERVER: found xxx"),
        ("255.255.255.255", 0, ConnectionError, "255.255.255.255 cannot be reached: "),
    ],
)
def test_a_server_that_is_none_is_named(
    server: str, of: int, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        meet(device_of(of), server)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"GET / HTTP/1.1\n", "the peer is another program"),
        (b"[1, 2]\n", "the peer is another program"),
        (b'{"tool": "write_bw"}\n', "the peer is another program"),
        (b'{"address": "00", "qps": [], "memory": [0, 1, 2]}\n', "0 queue pairs, this program 1"),
        (b'{"address": "xy", "qps": [], "memory": [0, 1, 2]}\n', "queue pairs cannot be used"),
        (b'{"address": "00", "qps": [1], "memory": [0, 1, 2]}\n', "queue pairs cannot be used"),
        (b'{"address": "00", "qps": [], "memory": ["0", 1, 2]}\n', "queue pairs cannot be used"),
        (
            json.dumps(
                {
                    "address": "00" * 16,
                    "qps": [["16", 1, Capabilities().message()]],
                    "memory": [0, 1, 2],
                }
            ).encode()
            + b"\n",
            "queue pairs cannot be used",
        ),
    ],
)
def test_a_peer_that_is_another_program_is_told(answer: bytes, said: str) -> None:
    """Such as write_bw, which listens on the same port as the example."""
    qp: Any = SimpleNamespace(local=Destination(bytes(16), 16, 1))
    memory: Any = SimpleNamespace(va=0, rkey=0, buffer=b"x")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(answer)
        with pytest.raises(RunFailedError, match=said):
            Rendezvous(device_of(0), ours, is_client=True).connect([qp], memory)


def test_a_peer_that_never_ends_its_message_is_another_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rendezvous, "_LONGEST", 3)
    ours, theirs = socket.socketpair()
    peer = Rendezvous(device_of(0), ours, is_client=True)
    with ours, theirs:
        theirs.sendall(b"abcd")
        with pytest.raises(RunFailedError, match="the peer is another program"):
            peer.exchange({})


def test_a_peer_that_ends_without_reading_has_ended() -> None:
    """Such as one that is killed: the connection is reset."""
    ours, theirs = socket.socketpair()
    ours.sendall(b"never read")
    theirs.close()
    with ours, pytest.raises(ConnectionError, match="the peer's program has ended"):
        Rendezvous(device_of(0), ours, is_client=True).exchange({})
