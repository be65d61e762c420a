"""A sandbox with a terminal, in which Ctrl-C and Ctrl-D have their usual meaning.

The caller's terminal belongs to the caller's session, so it cannot control a sandbox. The sandbox
gets a pseudoterminal of its own, and the caller relays input and output byte by byte, as `script`
and `ssh` do.
"""

import fcntl
import os
import select
import signal
import struct
import sys
import termios
import tty
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from testbed.model.errors import SIGNALLED
from testbed.sandbox.processes import ENDING_SIGNALS, Child, signals_handled, spawn

_CHUNK = 1 << 14
_STDIN, _STDOUT, _STDERR = range(3)


def run_in_terminal(first_process: Callable[[], int]) -> int:
    """Run a function as the first process of a sandbox and return its exit status.

    If standard input and output are a terminal, the sandbox has one of its own; otherwise it
    inherits both as they are. SIGTERM and SIGHUP end the sandbox, and so does SIGINT if it has no
    terminal of its own.
    """
    with signals_handled(ENDING_SIGNALS, _end):
        if os.isatty(_STDIN) and os.isatty(_STDOUT):
            return _relayed(first_process)
        return _wait(spawn(lambda _: sys.exit(first_process())))


class _Ended(BaseException):
    """A signal ends the sandbox."""


def _end(number: int, _: FrameType | None) -> NoReturn:
    # `timeout`, or an impatient user, may send more signals while the sandbox is ending.
    for ending in ENDING_SIGNALS:
        signal.signal(ending, signal.SIG_IGN)
    raise _Ended(number)


def _wait(sandbox: Child) -> int:
    """Wait for a sandbox and return its status: that of the signal, if one ended it."""
    try:
        return sandbox.wait()
    except _Ended as ended:
        return SIGNALLED + int(ended.args[0])
    finally:
        sandbox.close()


def _relayed(first_process: Callable[[], int]) -> int:
    master, slave = os.openpty()
    _copy_size(master)
    resized = signal.signal(signal.SIGWINCH, lambda _number, _frame: _copy_size(master))
    mode = termios.tcgetattr(_STDIN)
    sandbox = spawn(lambda _: sys.exit(_with_terminal(master, slave, first_process)))
    os.close(slave)
    try:
        tty.setraw(_STDIN)
        _relay(master)
    except _Ended as ended:
        sandbox.close()
        return SIGNALLED + int(ended.args[0])
    finally:
        termios.tcsetattr(_STDIN, termios.TCSAFLUSH, mode)
        signal.signal(signal.SIGWINCH, resized)
        os.close(master)
    return _wait(sandbox)


def _with_terminal(master: int, slave: int, first_process: Callable[[], int]) -> int:
    """Make the pseudoterminal control this session; then run the first process's function."""
    os.close(master)
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for descriptor in (_STDIN, _STDOUT, _STDERR):
        os.dup2(slave, descriptor)
    os.close(slave)
    signal.signal(signal.SIGWINCH, signal.SIG_DFL)
    return first_process()


def _relay(master: int) -> None:
    """Relay bytes in both directions until the other side has closed the terminal."""
    sources = [_STDIN, master]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if master in ready:
            try:
                data = os.read(master, _CHUNK)
            except OSError:  # EIO: no process has it open any more
                return
            if not data:
                return
            _write_all(_STDOUT, data)
        if _STDIN in ready:
            data = os.read(_STDIN, _CHUNK)
            if data:
                _write_all(master, data)
            else:  # the caller's terminal hung up
                sources.remove(_STDIN)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _copy_size(master: int) -> None:
    """Give the pseudoterminal the size of the caller's terminal."""
    size = fcntl.ioctl(_STDIN, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    fcntl.ioctl(master, termios.TIOCSWINSZ, size)
