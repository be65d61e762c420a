"""Memory of a program that its own thread moves: a thread that fails is no failure of the NIC."""

import socket
from collections.abc import Callable

import pytest

from testbed.device import process_memory
from testbed.device.process_memory import ThreadMemory
from testbed.device.protocol import COPY_BYTES
from testbed.mrc.message import BoundsError, PayloadError


def pair() -> tuple[ThreadMemory, socket.socket]:
    """The NIC's end and the thread's."""
    own, thread = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return ThreadMemory(own), thread


def test_a_thread_that_does_not_answer_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of a stopped program; the NIC has others."""
    monkeypatch.setattr(process_memory, "_THREAD_ANSWERS_S", 0.01)
    memory, thread = pair()
    with pytest.raises(PayloadError):
        memory.read([(1, 2)], 2)
    assert len(thread.recv(4096)) == COPY_BYTES
    with pytest.raises(BoundsError):
        memory.write(1, b"late")
    assert thread.recv(4096) == b""


@pytest.mark.parametrize("answer", [b"\1", b"\0", b"\0abc", b"\1ab", b"\0abcd" * 2000])
def test_an_answer_that_is_none_is_an_error_of_the_payload(answer: bytes) -> None:
    """An error, too few bytes, too many."""
    memory, thread = pair()
    thread.send(answer)
    with pytest.raises(PayloadError):
        memory.read([(1, 2)], 2)


@pytest.mark.parametrize(
    "call", [lambda memory: memory.read([(1, 2)], 2), lambda memory: memory.write(1, b"ab")]
)
def test_a_program_that_has_ended_is_an_error_of_the_payload(
    call: Callable[[ThreadMemory], object],
) -> None:
    memory, thread = pair()
    thread.close()
    with pytest.raises((PayloadError, BoundsError)):
        call(memory)
