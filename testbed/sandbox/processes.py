"""Start processes, in namespaces of their own or not, and get their results and errors.

This is the only place that forks. A function runs in the new process; its result, its error and its
progress come back over a channel, as JSON.
"""

import errno
import gc
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from testbed.model.closeable import Closeable
from testbed.model.errors import (
    SIGNALLED,
    CrashError,
    ExitStatus,
    RunFailedError,
    TestbedError,
    is_crash,
)
from testbed.model.progress import Progress
from testbed.sandbox.channel import Channel, decode, decode_error, encode, encode_error
from testbed.sandbox.namespaces import enter_new_namespaces, mount_private_filesystems
from testbed.sandbox.system_calls import OUTSIDE, die_with_parent, name_process, prefer_for_oom_kill

# --------------------------------------------------------------------------------------------------
# How a process has ended: in words, and as an error.


_COUNTERS = Path("/proc/vmstat")


@dataclass(eq=False)
class ProcessFailedError(RunFailedError):
    """A process ended without a result.

    Attributes:
        title: what the process is.
        reason: how it ended, or the exception that it did not expect.
        traceback: the exception's; empty if there was none.
    """

    title: str
    reason: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.title} ended early: {self.reason}\n{self.traceback}".rstrip()


class ProcessCrashedError(CrashError, ProcessFailedError):
    """A process ended by a mistake in its code."""


def describe_exit(exit_code: int, *, for_memory: bool = False) -> str:
    """How a process ended, in words.

    Args:
        exit_code: its exit status, or minus the signal that killed it.
        for_memory: whether the kernel has killed processes meanwhile because memory ran out.
    """
    number = -exit_code if exit_code < 0 else exit_code - SIGNALLED
    if number <= 0:
        return f"exit status {exit_code}"
    killed = f"killed by signal {number}"
    if for_memory and number == signal.SIGKILL:
        killed += f" ({os.strerror(errno.ENOMEM)}: the kernel kills processes when it runs out)"
    return killed


def oom_kills() -> int:
    """How many processes the kernel has killed since it booted because memory ran out.

    Those of a control group that reached its limit count, too.
    """
    for line in _COUNTERS.read_text(encoding="ascii").splitlines() if _COUNTERS.exists() else ():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


T = TypeVar("T")

ENDING_SIGNALS: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The signals that end a command; Windows, where labs and simulations run, has no SIGHUP."""

Handler = Callable[[int, FrameType | None], object]
"""Takes a signal: its number, and where it interrupts."""


@contextmanager
def signals_handled(numbers: Iterable[int], handler: Handler) -> Iterator[None]:
    """Have a function handle signals for the duration of a block."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


class Child(Closeable):
    """A process that this one has started.

    It ends with this one, at the latest.

    Attributes:
        title: what it is, for messages.
        channel: this end of the channel to it.
        pid: its PID; of a sandbox, that of the process that waits for the sandbox's first process.
    """

    def __init__(self, title: str, pid: int, channel: Channel) -> None:
        """Take over a process that `spawn` has started."""
        self.title = title
        self.pid = pid
        self.channel = channel
        self._exit_code: int | None = None
        self._killed_for_memory = oom_kills()

    def fileno(self) -> int:
        """The descriptor that becomes readable when `receive` need not wait."""
        return self.channel.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send it a message.

        Raises:
            RunFailedError: it has ended.
        """
        try:
            self.channel.send(message)
        except ConnectionError as error:
            raise self._ending() from error

    def receive(self, timeout_s: float | None = None) -> list[dict[str, Any]]:
        """Return its next messages, after waiting at most this long; perhaps none.

        Raises:
            RunFailedError: it has ended.
        """
        if not select.select([self], [], [], timeout_s)[0]:
            return []
        messages = self.channel.receive()
        if messages is None:
            raise self._ending()
        return messages

    def result(self, progress: Progress | None = None, timeout_s: float | None = None) -> Any:
        """Wait for the end of its function and return the result; it has ended then.

        Whatever is raised here, by a signal's handler too, ends it.

        Args:
            progress: called with what the function reports.
            timeout_s: how long the function may take.

        Raises:
            TestbedError: the function has raised it.
            ProcessFailedError: the function raised something else, or the process was killed.
            TimeoutError: it took too long.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            last = self._last_message(progress, deadline)
        except BaseException:
            self.end()
            raise
        finally:
            self.wait()
            self.channel.close()
        if last is None:
            crashed = is_crash(self.wait())
            failure = ProcessCrashedError if crashed else ProcessFailedError
            raise failure(self.title, self._how_it_ended())
        if "error" in last:
            raise decode_error(last["error"])
        return decode(last["result"])

    def _last_message(
        self, progress: Progress | None, deadline: float | None
    ) -> dict[str, Any] | None:
        while True:
            left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
            if not select.select([self], [], [], left_s)[0]:
                raise TimeoutError(f"{self.title} did not end in time")
            messages = self.channel.receive()
            if messages is None:
                return None
            for message in messages:
                if "result" in message or "error" in message:
                    return message
                if progress is not None and "progress" in message:
                    progress(*message["progress"])

    @property
    def has_ended(self) -> bool:
        return self.ends_within(0)

    def ends_within(self, timeout_s: float) -> bool:
        """Wait until it has ended, at most this long; return whether it has."""
        if self._exit_code is not None:
            return True
        descriptor = os.pidfd_open(self.pid)
        try:
            return bool(select.select([descriptor], [], [], timeout_s)[0])
        finally:
            os.close(descriptor)

    def wait(self) -> int:
        """Wait until it has ended; return its exit status, minus the signal if one killed it."""
        if self._exit_code is None:
            _, status = os.waitpid(self.pid, 0)
            self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code

    def check(self) -> None:
        """Check that it is alive.

        Raises:
            RunFailedError: it has ended.
        """
        if self.has_ended:
            raise self._ending()

    def end(self) -> None:
        """Have it end in order, with everything in its sandbox, and wait for that."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, and wait for that."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if not self.has_ended:
            os.kill(self.pid, number)
            self.wait()

    def close(self) -> None:
        """End it, if it has not ended, and its channel."""
        self.end()
        self.channel.close()

    def _ending(self) -> RunFailedError:
        failure = CrashError if is_crash(self.wait()) else RunFailedError
        return failure(f"{self.title} ended: {self._how_it_ended()}")

    def _how_it_ended(self) -> str:
        return describe_exit(self.wait(), for_memory=oom_kills() > self._killed_for_memory)


def call(
    function: Callable[[], T],
    *,
    title: str = "the sandbox",
    isolated: bool = True,
    timeout_s: float | None = None,
) -> T:
    """Run a function in a process of its own and return its result.

    Args:
        function: what to run; its result must be one that `encode` takes.
        title: what the process is, for messages.
        isolated: whether it is the first process of a sandbox of new namespaces.
        timeout_s: how long it may take.

    Raises what `Child.result` raises.
    """
    task = _Task(lambda _: function(), title, isolated=isolated, prints_errors=False)
    result: T = task.start().result(timeout_s=timeout_s)
    return result


def spawn(
    work: Callable[[Channel], object],
    *,
    title: str = "the sandbox",
    isolated: bool = True,
    name: str | None = None,
    log: Path | None = None,
) -> Child:
    """Start a process and go on. Its errors are printed to its standard error, too.

    Args:
        work: what it does; given its end of the channel.
        title: what it is, for messages.
        isolated: whether it is the first process of a sandbox of new namespaces.
        name: its name for ps and top.
        log: the file to which its standard output and standard error go.

    Raises:
        OSError: there can be no more processes.
    """
    return _Task(work, title, isolated=isolated, name=name, log=log).start()


@dataclass(frozen=True, slots=True)
class _Task:
    """What a new process does; the attributes are the arguments of `spawn`.

    Attributes:
        prints_errors: whether errors go to its standard error as well as to this process.
    """

    work: Callable[[Channel], object]
    title: str
    isolated: bool = True
    name: str | None = None
    log: Path | None = None
    prints_errors: bool = True

    def start(self) -> Child:
        """Start the process, while the signals that end a command wait.

        What such a signal's handler raises in a function that Python calls around a fork (logging
        has some) is only printed: it would be lost, and logging's lock kept. So it waits until this
        process can end the child.
        """
        here, there = Channel.pair()
        parent = os.getpid()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)

        def begin() -> int:
            here.close()
            start = self._hold_sandbox if self.isolated else self._run
            self._set_signal_handlers()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return start(parent, there)

        try:
            child = Child(self.title, _fork(begin), here)
        except OSError:
            here.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise
        finally:
            there.close()
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        except BaseException:
            child.close()
            raise
        return child

    def _set_signal_handlers(self) -> None:
        if not self.isolated:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that forked
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def _hold_sandbox(self, parent: int, channel: Channel) -> int:
        """Start the first process of a sandbox and wait for it; return its exit status."""
        die_with_parent(parent)
        prefer_for_oom_kill()
        os.setsid()  # the terminal's Ctrl-C goes to the command, which ends the sandbox in order
        try:
            enter_new_namespaces()
        except OSError as error:
            return self._fail(error, channel)
        first = _fork(lambda: self._run(OUTSIDE, channel))
        signal.signal(signal.SIGTERM, lambda _number, _frame: os.kill(first, signal.SIGKILL))
        _, status = os.waitpid(first, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else SIGNALLED - code

    def _run(self, parent: int, channel: Channel) -> int:
        """Do the work and send the result or the error; return the exit status."""
        gc.freeze()  # a collection that walks the parent's objects would copy all their pages
        die_with_parent(parent)
        if self.isolated:
            mount_private_filesystems()
        if self.name is not None:
            name_process(self.name)
        if self.log is not None:
            _redirect(self.log)
        try:
            result = encode(self.work(channel))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, the parent learns of it
            return self._fail(error, channel)
        with suppress(ConnectionError):  # nobody waits for it
            channel.send({"result": result})
        return os.EX_OK

    def _fail(self, error: BaseException, channel: Channel) -> int:
        """Send an error; return the exit status."""
        with suppress(ConnectionError):  # nobody waits for it
            channel.send({"error": encode_error(self._report(error))})
        return 1 if isinstance(error, TestbedError) else ExitStatus.CRASHED

    def _report(self, error: BaseException) -> TestbedError:
        """Print an error, if it is to be; return the one that the parent raises."""
        text = traceback.format_exc()
        if self.prints_errors:
            sys.stderr.write(text)
        if not isinstance(error, TestbedError):
            return ProcessCrashedError(self.title, f"{type(error).__name__}: {error}", text)
        error.add_note(f"in {self.title}:\n{text}")
        return error


def _redirect(log: Path) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _fork(function: Callable[[], int]) -> int:
    """Run a function in a new process, which ends with its status; return the PID."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status: int = ExitStatus.CRASHED
    try:
        status = function()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        status = SIGNALLED + signal.SIGINT
    except BaseException:  # noqa: BLE001 - nobody above can report it
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
