"""How programs come and go: what the NIC keeps of them, and what they keep."""

import ctypes
import errno
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from testbed.device import client, compiling, library
from testbed.device.client import open_device
from testbed.device.compiling import IBVERBS, PRELOAD
from testbed.device.programs import Program
from testbed.device.protocol import SOCKET_VARIABLE, Call, Op
from testbed.model.errors import MachineError
from tests.commands import completed
from tests.device.one_nic import NAME, OneNic, serving
from tests.device.test_device import Client
from tests.device.verbs import AsyncEvent, End, VerbsError
from tests.waiting import WATCHDOG_S, wait_until

ROOT = Path(__file__).parents[2]
VERBS_H = Path("/usr/include/infiniband/verbs.h")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the library."""
    directory = tmp_path_factory.mktemp("library")
    try:
        library.put_into(directory)
    except MachineError as error:
        pytest.skip(f"needs the library of the device: {error}")
    return directory


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneNic]:
    monkeypatch.setenv(SOCKET_VARIABLE, NAME.lstrip("\0"))
    with serving() as nic:
        yield nic


def program(what: str, files: Path, **variables: str) -> subprocess.Popen[str]:
    """Start one of the programs, with variables of its environment."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.device.lives", what, str(files / IBVERBS)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(what: str, files: Path, **variables: str) -> str:
    """What one of them prints."""
    with program(what, files, **variables) as child:
        return child.communicate(timeout=WATCHDOG_S)[0].strip()


def test_when_the_device_is_closed_the_nic_has_forgotten_the_program(
    nic: OneNic, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A WRITE that arrives later finds no memory that the program has freed meanwhile."""
    close, order = Program.close, list[str]()

    def slowly(program: Program) -> None:
        time.sleep(0.1)
        order.append("forgotten")  # Before: the library returns as soon as it is done.
        close(program)

    end = End(files / IBVERBS)
    monkeypatch.setattr(Program, "close", slowly)
    end.close()
    order.append("closed")
    assert order == ["forgotten", "closed"]
    assert nic.programs == 0


@pytest.mark.usefixtures("nic")
def test_who_waits_for_an_event_hears_that_the_device_is_closed(files: Path) -> None:
    """It is the end of the waiting, not a failure of the device."""
    end = End(files / IBVERBS)
    event, results = AsyncEvent(event_type=-1), list[int]()
    function = end.library._library.ibv_get_async_event
    waiting = threading.Thread(
        target=lambda: results.append(function(end.context, ctypes.byref(event)))
    )
    waiting.start()
    state = Path(f"/proc/self/task/{waiting.native_id}/stat")
    wait_until(lambda: " S " in state.read_text(), "a thread that sleeps")
    end.close()
    waiting.join()
    assert (results, event.event_type) == ([-1], -1)


@pytest.mark.usefixtures("nic")
def test_objects_of_two_opened_devices_do_not_mix(files: Path) -> None:
    """The NIC numbers those of each by themselves, so that it would take others in their place."""
    a, b = (End(files / IBVERBS, channel=True) for _ in range(2))
    calls: list[Callable[[], Any]] = [
        lambda: a.make_qp(send_cq=b.cq),
        lambda: a.library.make("create_cq", a.context, 4, None, b.channel, 0),
    ]
    for make in calls:
        with pytest.raises(VerbsError) as raised:
            make()
        assert raised.value.errno == errno.EINVAL
    function = a.library._library.ibv_rereg_mr
    assert function(a.mr, 2, b.pd, None, ctypes.c_size_t(0), 0) == -1


def test_a_program_without_its_descriptors_is_told_so(nic: OneNic, files: Path) -> None:
    """It does not poll for ever, or send to nobody."""
    assert said("closed", files) == f"{errno.EIO} {errno.EIO}"
    wait_until(lambda: nic.programs == 0, "no program")


def test_a_child_with_the_descriptors_of_a_dead_program_keeps_nothing(
    nic: OneNic, files: Path
) -> None:
    """Its PID may be another program's soon, whose memory is nobody's to write to."""
    child = int(said("left", files))
    try:
        wait_until(lambda: nic.programs == 0, "no program")
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_of_fork_has_no_device_and_takes_none_from_its_parent(
    nic: OneNic, files: Path
) -> None:
    """It may destroy what it inherits; the parent's is still there."""
    assert said("forked", files) == "0 [0, 1, 2, 3]"
    wait_until(lambda: nic.programs == 0, "no program")


def test_a_program_that_has_no_more_descriptors_is_told_so(nic: OneNic, files: Path) -> None:
    """Nothing is made by halves, here or in the NIC."""
    with program("short", files) as child:
        assert child.stdout is not None
        assert child.stdout.readline().split() == [str(errno.ENODEV), *[str(errno.EMFILE)] * 5]
        assert child.stdout.readline() == "0\n"
        assert nic.programs == 1
        assert nic.objects == 1 + 1 + 1 + 2 + 3  # PD, MR, channel, CQs, QPs
        child.communicate("\n", WATCHDOG_S)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.usefixtures("nic")
def test_who_is_refused_by_the_nic_keeps_its_own_descriptors(tmp_path: Path) -> None:
    """One that has no room hangs up before it is asked; variables begin as 0 here."""
    compiling.compile_into(tmp_path, "-ftrivial-auto-var-init=zero")
    text = "#include <errno.h>\nlong send() { errno = EPIPE; return -1; }\n"
    (tmp_path / "send.c").write_text(text)
    hung_up = str(tmp_path / "send.so")
    gcc("-shared", "-fPIC", "-o", hung_up, str(tmp_path / "send.c"))
    assert said("refused", tmp_path, LD_PRELOAD=hung_up) == f"{errno.EIO} True"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.skipif(not VERBS_H.exists(), reason="needs libibverbs-dev")
@pytest.mark.usefixtures("nic")
def test_a_thread_that_is_cancelled_in_a_call_keeps_no_lock(files: Path, tmp_path: Path) -> None:
    program, source = tmp_path / "cancelled", ROOT / "tests/device/c/cancelled.c"
    gcc("-pthread", "-o", str(program), str(source), "-libverbs")
    done = completed([program], env=os.environ | {"LD_PRELOAD": str(files / PRELOAD)})
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_another_preloaded_library_and_the_sanitizer_stand_beside_it(tmp_path: Path) -> None:
    """The library passes calls on to the next one; the sanitizer insists on no order."""
    program, beside = str(tmp_path / "behind"), str(tmp_path / "beside.so")
    source = str(ROOT / "tests/device/c/behind.c")
    gcc("-fsanitize=address", "-o", program, source)
    gcc("-DBESIDE", "-shared", "-fPIC", "-o", beside, source, "-ldl")
    own = library.put_into(tmp_path / "library").environment({"LD_PRELOAD": beside})
    done = completed([program], env=own)
    assert (done.stdout, done.returncode) == ("beside\nsocket\n", 0), done.stderr


def gcc(*arguments: str) -> None:
    subprocess.run(["gcc", "-Wall", *arguments], check=True)


def test_what_is_still_reported_of_a_dropped_program_is_not_the_next_ones() -> None:
    """A program hangs up and ends; the next one, which calls in between, gets its descriptors."""
    with closing(OneNic()) as nic, calling() as first, calling() as second:
        first.connect(NAME)
        nic.serve(0)
        (program,) = nic._programs.values()
        assert program.process is not None
        reported = program.fileno(), nic._listener.fileno(), program.process
        first.shutdown(socket.SHUT_RDWR)
        second.connect(NAME)
        epoll = nic._ready
        with pytest.MonkeyPatch.context() as patch:
            batch = Mock(wraps=epoll, poll=lambda _: [(each, 0) for each in reported])
            patch.setattr(nic, "_ready", batch)
            nic.serve(0)
        assert nic.programs == 1


def calling() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@pytest.mark.parametrize("wrong", ["twice", "later", "end"])
def test_a_hostile_program_does_not_end_the_nic(
    nic: OneNic, wrong: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It opens the device twice, also after it was refused; an address ends beyond all memory."""
    with Client(NAME) as other, Client(NAME) as hostile:
        if wrong == "end":
            for address in ((1 << 64) - 1, (1 << 64) - 4):
                asked = hostile.ask(
                    Op.CONTROL, handle=Call.QUERY_CONTROL, address=address, length=72
                )
                assert asked.error == errno.EFAULT
        else:
            if wrong == "later":
                hostile.connection.close()
                hostile.connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                hostile.connection.connect(NAME)
                assert hostile.ask(Op.OPEN, version=0).error == errno.EPROTO
            hostile.send(Op.OPEN, version=1)
            hostile.connection.settimeout(WATCHDOG_S)
            assert hostile.connection.recv(1) == b""
            assert "opens the device twice" in capfd.readouterr().err
        assert other.ask(Op.ALLOC_PD).error == 0
        assert nic.programs == 1 + (wrong == "end")


def test_devices_that_are_no_longer_used_take_no_descriptors_and_no_memory(
    nic: OneNic, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed or only forgotten, with queue pairs or without."""
    monkeypatch.setattr(client, "IN_HOSTS", files)

    def used(number: int) -> None:
        device = open_device()
        cq = device.create_cq()
        qp = device.create_qp(cq)
        device.reg_mr(bytearray(100))
        if number % 2:
            device.close()
            with pytest.raises(ConnectionError):
                device.wait(cq)
        if number % 3 == 0:
            qp.destroy()

    def taken() -> tuple[int, int]:
        wait_until(lambda: nic.device is None, "a NIC without programs")
        gc.collect()
        maps = Path("/proc/self/maps").read_text()
        return len([*Path("/proc/self/fd").iterdir()]), maps.count("memfd:mrc")

    used(0)
    before = taken()
    for number in range(1, 7):
        used(number)
    assert taken() == before
