"""Processes that are started here: their results, errors, messages and ends."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.model.errors import (
    CrashError,
    ExitStatus,
    InputError,
    LateError,
    MachineError,
    Problem,
    RunFailedError,
    TestbedError,
)
from testbed.sandbox import processes
from testbed.sandbox.channel import Channel, decode, decode_error, encode, encode_error
from testbed.sandbox.processes import Child, ProcessCrashedError, ProcessFailedError, call, spawn
from tests.waiting import WATCHDOG_S, wait_until

VALUES = [
    None,
    True,
    -1.5,
    float("inf"),
    "tc \n \u2028",
    b"\x00\xff",
    (1, (2, [3])),
    {1, 2},
    frozenset({"h0"}),
    {("a", 1): {"b": b""}, "tuple": ()},
]

ERRORS = [
    MachineError("no IPv6", "boot without ipv6.disable=1"),
    InputError([Problem("x.yaml:1: name", "7", "a string"), Problem("y", "", "a key", "add it")]),
    RunFailedError("the controller ended"),
    LateError("the machine was late"),
]


def raise_(error: BaseException) -> None:
    raise error


def run_plain(function: Callable[[], object]) -> object:
    """Run a function in a forked process without namespaces."""
    return call(function, title="the work", isolated=False)


def namespaces_of(pid: int) -> list[str]:
    return [
        str(Path(f"/proc/{pid}/ns/{kind}").readlink())
        for kind in ("net", "mnt", "pid_for_children")
    ]


# --- results and errors ---------------------------------------------------------------------------


def test_results_come_back_as_they_are() -> None:
    assert run_plain(lambda: VALUES) == VALUES
    assert [type(value) for value in decode(encode(VALUES))] == [type(value) for value in VALUES]


def test_a_big_result_comes_back_whole() -> None:
    assert run_plain(lambda: ["x" * 1000] * 5_000) == ["x" * 1000] * 5_000


def test_what_is_no_plain_value_is_refused() -> None:
    with pytest.raises(ProcessFailedError, match="cannot send a PosixPath"):
        run_plain(lambda: [Path("/")])


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_raised_here_with_its_fields(error: TestbedError) -> None:
    with pytest.raises(type(error)) as raised:
        run_plain(lambda: raise_(error))
    assert type(raised.value) is type(error)
    assert str(raised.value) == str(error) != ""
    assert raised.value.exit_status == error.exit_status
    fields = {name: value for name, value in vars(raised.value).items() if name != "__notes__"}
    assert fields == vars(error)
    assert "in raise_\n" in raised.value.__notes__[0], "where it was raised"


def test_an_error_of_a_class_that_is_not_loaded_here_becomes_its_base() -> None:
    encoded = encode_error(LateError("late"))
    encoded["classes"].insert(0, "StrangeError")
    assert type(decode_error(encoded)) is LateError


def test_what_is_not_expected_is_reported_with_its_traceback() -> None:
    with pytest.raises(
        ProcessCrashedError, match="the work ended early: ZeroDivisionError: oops"
    ) as raised:
        run_plain(lambda: raise_(ZeroDivisionError("oops")))
    assert "in raise_\n" in raised.value.traceback
    assert raised.value.exit_status == ExitStatus.CRASHED


def test_a_killed_process_is_reported() -> None:
    with pytest.raises(
        ProcessFailedError, match=r"the work ended early: killed by signal 9$"
    ) as raised:
        run_plain(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert raised.value.exit_status == ExitStatus.UNTRUSTED
    with pytest.raises(ProcessCrashedError, match=r"the work ended early: killed by signal 31$"):
        run_plain(lambda: os.kill(os.getpid(), signal.SIGSYS))
    with pytest.raises(ProcessFailedError, match=r"ended early: exit status 3$"):
        run_plain(lambda: sys.exit(3))


def test_progress_is_followed() -> None:
    seen: list[tuple[str, float]] = []

    def work(channel: Channel) -> str:
        channel.report("half", 0.5)
        channel.report("whole", 1.0)
        return "done"

    child = spawn(work, title="the work", isolated=False)
    done = child.result(lambda step, share: seen.append((step, share)))
    assert done == "done"
    assert seen == [("half", 0.5), ("whole", 1.0)]


def test_what_fails_here_meanwhile_ends_the_process() -> None:
    """As a signal's handler does, which raises."""
    pids: list[float] = []

    def fail(_: str, pid: float) -> None:
        pids.append(pid)
        raise KeyboardInterrupt

    def work(channel: Channel) -> None:
        channel.report("working", os.getpid())
        time.sleep(WATCHDOG_S)

    child = spawn(work, title="the work", isolated=False)
    with pytest.raises(KeyboardInterrupt):
        child.result(fail)
    assert not Path(f"/proc/{pids[0]}").exists()


def test_output_and_tracebacks_go_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"

    def work(_: Channel) -> None:
        sys.stderr = sys.__stderr__  # pytest has put its own in place
        os.write(1, b"hello\n")
        raise_(ZeroDivisionError("oops"))

    child = spawn(work, title="the work", isolated=False, log=log)
    assert child.wait() == ExitStatus.CRASHED
    child.close()
    assert "hello\n" in log.read_text()
    assert "ZeroDivisionError: oops" in log.read_text()


# --- a process that goes on -----------------------------------------------------------------------


def _echo(channel: Channel) -> str:
    for message in channel.messages():
        if "stop" in message:
            break
        channel.send(message | {"echo": True})
    return "stopped"


def test_a_process_is_spoken_with() -> None:
    with spawn(_echo, title="the echo", isolated=False, name="echo") as child:
        child.send({"a": 1})
        assert child.receive(WATCHDOG_S) == [{"a": 1, "echo": True}]
        assert child.receive(0) == []
        assert Path(f"/proc/{child.pid}/comm").read_text() == "echo\n"
        child.check()
        child.send({"stop": True})
        assert child.result() == "stopped"
        assert child.has_ended


def test_whoever_speaks_to_a_process_that_has_ended_learns_how_it_did() -> None:
    for number, failure in ((signal.SIGKILL, RunFailedError), (signal.SIGSYS, CrashError)):
        with spawn(_echo, title="the echo", isolated=False) as child:
            os.kill(child.pid, number)
            child.wait()
            ending = f"^the echo ended: killed by signal {number}$"
            for speak in (child.check, child.receive, lambda: child.send({})):
                with pytest.raises(failure, match=ending) as raised:
                    speak()
                assert type(raised.value) is failure


@pytest.mark.parametrize(
    ("error", "failure"), [(KeyError("h0"), CrashError), (MachineError("a", "b"), RunFailedError)]
)
def test_a_process_that_crashes_is_told_from_one_that_gives_up(
    error: Exception, failure: type[RunFailedError]
) -> None:
    """By its exit status alone: whoever waits for another message does not read its error."""
    with spawn(lambda _: raise_(error), title="the work", isolated=False) as child:
        child.wait()
        with pytest.raises(RunFailedError) as raised:
            child.check()
        assert type(raised.value) is failure


def test_ctrl_c_is_not_for_a_forked_process() -> None:
    with spawn(_echo, title="the echo", isolated=False) as child:
        child.send({"a": 1})
        child.receive()
        os.kill(child.pid, signal.SIGINT)
        child.send({"b": 1})
        assert child.receive() == [{"b": 1, "echo": True}]


def test_a_process_ends_with_its_parent() -> None:
    def parent(channel: Channel) -> None:
        child = spawn(_echo, title="the echo", isolated=False)
        channel.send({"child": child.pid})
        time.sleep(WATCHDOG_S)

    with spawn(parent, title="the parent", isolated=False) as child:
        (message,) = child.receive()
        child.kill()
    wait_until(lambda: not _runs(message["child"]))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- sandboxes ------------------------------------------------------------------------------------


@pytest.mark.root
def test_a_sandbox_has_namespaces_of_its_own() -> None:
    def look() -> tuple[int, list[str], list[str]]:
        return (
            os.getpid(),
            namespaces_of(os.getpid()),
            [path.name for path in Path("/run").iterdir()],
        )

    pid, inside, run = call(look)
    assert pid == 1
    assert not set(inside) & set(namespaces_of(os.getpid()))
    assert run == ["netns"]


@pytest.mark.root
def test_the_errors_of_a_sandbox_are_raised_here() -> None:
    with pytest.raises(MachineError, match="no IPv6"):
        call(lambda: raise_(ERRORS[0]))
    with pytest.raises(ProcessFailedError, match="killed by signal 9"):
        call(lambda: raise_(SystemExit(128 + 9)))
    with pytest.raises(ProcessFailedError, match="AssertionError"):
        call(lambda: raise_(AssertionError()), title="the sandbox")


def test_namespaces_that_are_refused_make_one_error_and_no_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in a container without privileges."""

    def refuse() -> None:
        raise PermissionError(1, "unshare: Operation not permitted")

    monkeypatch.setattr(processes, "enter_new_namespaces", refuse)
    with pytest.raises(ProcessFailedError, match="unshare: Operation not permitted"):
        call(lambda: None)
    assert capfd.readouterr() == ("", "")


@pytest.mark.root
def test_a_sandbox_that_takes_too_long_is_ended() -> None:
    with pytest.raises(TimeoutError):
        call(lambda: time.sleep(WATCHDOG_S), timeout_s=0.1)


def _with_a_process(channel: Channel) -> None:
    """Be a sandbox in which a process runs that nobody ends."""
    spawn(lambda _: time.sleep(WATCHDOG_S), title="the sleeper", isolated=False, name="sleeper")
    channel.send({"started": True})
    time.sleep(WATCHDOG_S)


def _started() -> tuple[Child, list[int]]:
    """Such a sandbox, and the PIDs, as seen from here, of the processes in it."""
    sandbox = spawn(_with_a_process)
    sandbox.receive()
    children = Path(f"/proc/{sandbox.pid}/task/{sandbox.pid}/children")
    (first,) = map(int, children.read_text().split())
    (second,) = map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())
    return sandbox, [first, second]


@pytest.mark.root
def test_sigterm_ends_a_sandbox_in_order() -> None:
    """With the process that waits for it all others are gone."""
    sandbox, inside = _started()
    sandbox.close()
    assert not any(map(_runs, inside))


@pytest.mark.root
def test_killing_the_process_that_waits_for_a_sandbox_ends_it() -> None:
    sandbox, inside = _started()
    sandbox.kill()
    wait_until(lambda: not any(map(_runs, inside)))
    sandbox.close()
    assert sandbox.wait() == -signal.SIGKILL
