"""Runs a user's class in a process of its own, which has no access to the run: for grading.

The class gets values and returns values over a pipe. Records, timeline and the other files stay out
of its reach. Calls that return nothing are sent with the next one that returns something, so that a
packet costs one round trip of the pipe.
"""

import json
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from testbed import interpreter
from testbed.host.own_class import NO_ERROR, Code, Interface, Ports
from testbed.model.errors import MachineError
from testbed.model.own_code import OwnCode
from testbed.model.units import NS_PER_S
from testbed.mrc import LossReport, SackReport

WORKER = Path(__file__).with_name("own_worker.py")

CPU_S = 10
"""CPU time of the process in s; multiplied by `slowness`."""

MEMORY_BYTES = 1 << 30

ASLEEP_S = 10.0
"""How long the classes of a run may sleep in all, as by `time.sleep`; multiplied by `slowness`.

Time in which they use a CPU or wait for one does not count; nor does the start of their processes.
"""

PATIENCE_S = 120.0
"""How long all calls of a run may take where nobody tells who sleeps; multiplied by `slowness`.

Time in which the machine held up this process as well does not count.
"""

_ASKED_S = 0.2
"""After so much more waiting it is asked who sleeps."""

_SLICE_S = 0.1
"""A wait counts in parts of this length: of one that ends late, only this much."""

MAX_REPLY = 1 << 12
_ENDING_S = 2.0


class Patience:
    """How long all objects of a run are still waited for."""

    def __init__(self, slowness: float) -> None:
        """Begin a run.

        Args:
            slowness: how many times longer it may take than on the reference machine.
        """
        self._asleep_s: Final = ASLEEP_S * slowness
        self._patience_s: Final = PATIENCE_S * slowness
        self._waited_s = self._asked_s = 0.0
        self._own: Final = _Busy(Path("/proc/self"), counts_cpu=False)
        self._others: Final[list[_Busy]] = []

    def add(self, pid: int) -> None:
        """Wait from now on also for this process, or for the one that it has started."""
        process = Path("/proc") / str(pid)
        try:
            started = (
                (process / "task" / process.name / "children").read_text(encoding="ascii").split()
            )
        except OSError:
            started = []
        self._others.append(_Busy(process.with_name(started[0]) if started else process))

    def wait(self, time_s: float) -> None:
        self._waited_s += time_s

    def is_over(self) -> bool:
        """Whether nothing of the run is waited for any longer."""
        if self._waited_s < self._asked_s + _ASKED_S:
            return False
        self._asked_s = self._waited_s
        busy = [process.time_s() for process in (self._own, *self._others)]
        known = [time_s for time_s in busy if time_s is not None]
        if len(known) < len(busy) or not self._others:
            return self._waited_s > self._patience_s
        return self._waited_s - sum(known) > self._asleep_s

    def __str__(self) -> str:
        return f"{self._asleep_s:.3g} s of sleep ({self._patience_s:.3g} s of waiting)"


class _Busy:
    """How long a process has used a CPU or waited for one since now."""

    def __init__(self, process: Path, *, counts_cpu: bool = True) -> None:
        self._file: Final = process / "schedstat"
        self._counts_cpu: Final = counts_cpu
        self._last_s = self._first_s = self._read()

    def time_s(self) -> float | None:
        """The time in s; of a process that has ended until it was last asked; None: unknown."""
        self._last_s = now_s if (now_s := self._read()) is not None else self._last_s
        if self._last_s is None or self._first_s is None:
            return None
        return self._last_s - self._first_s

    def _read(self) -> float | None:
        try:
            cpu_ns, delayed_ns, _ = map(int, self._file.read_text(encoding="ascii").split())
        except (OSError, ValueError):  # another system
            return None
        return (cpu_ns * self._counts_cpu + delayed_ns) / NS_PER_S


class OwnProcess:
    """An object of the user's class in another process. An error there is an `InputError`."""

    def __init__(
        self,
        code: OwnCode,
        interface: Interface,
        *arguments: object,
        parameters: Mapping[str, object] = MappingProxyType({}),
        record: object = None,  # noqa: ARG002 - what the class records stays in its process
        restrictions: dict[str, None],
        patience: Patience,
        slowness: float = 1.0,
    ) -> None:
        """Start the process, and make the object there.

        Args:
            code: the class.
            interface: what it has to have.
            arguments: of its constructor.
            parameters: what its constructor is given by name.
            record: not used: what the class records stays in its process.
            restrictions: takes up the restrictions that are in force in the process.
            patience: what is left for the run that the object is of.
            slowness: how many times more CPU time it may take than on the reference machine.
        """
        self._code: Final = code
        self._calls: list[tuple[str, str, tuple[object, ...], dict[str, object]]] = []
        self._process = subprocess.Popen(  # noqa: S603 - Python, and a file of ours
            interpreter.python(WORKER, isolated=True),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=interpreter.NEUTRAL,
            env={},
            start_new_session=True,  # its process group has no other process
        )
        assert self._process.stdin is not None  # noqa: S101 - both were asked for
        assert self._process.stdout is not None  # noqa: S101
        self._requests: Final = self._process.stdin
        self._replies: Final = self._process.stdout
        os.set_blocking(self._requests.fileno(), False)
        self._received = b""
        self._lines: dict[str, int] = {}
        self._is_ready = False
        self._cpu_s: Final = math.ceil(CPU_S * slowness)
        self._patience = Patience(slowness)  # for the start
        first = {
            "code": Code(code.name, code.file, code.source, code.files),
            "interface": asdict(interface),
            "arguments": [_plain(argument) for argument in arguments],
            "parameters": dict(parameters),
            "cpu_s": self._cpu_s,
            "memory_bytes": MEMORY_BYTES,
        }
        self._send(code.name, first)
        restrictions.update(dict.fromkeys(self._next_reply(code.name)["held"]))
        self._is_ready, self._patience = True, patience
        patience.add(self._process.pid)
        reply = self._reply(code.name)
        self._lines = _lines_of(reply.get("lines"))
        takes = reply.get("takes")
        self.takes: Final = frozenset(map(str, takes if isinstance(takes, list) else ()))
        if isinstance(mistake := reply.get("mistake"), list):
            what, found, expected, remedy = map(str, [*mistake, "", "", "", ""][:4])
            self.refuse(what, found, expected, remedy)

    def call(self, method: str, *arguments: object, **named: object) -> Any:
        """Call a method: at once if it returns something, else before the next that does."""
        given = {name: _plain(value) for name, value in named.items()}
        self._calls.append(("call", method, tuple(map(_plain, arguments)), given))
        return None if method.startswith("on_") else self._flush(method)

    def read(self, name: str) -> Any:
        self._calls.append(("read", name, (), {}))
        return self._flush(name)

    def refuse(
        self, what: str, found: str, expected: str, remedy: str = "", line: int | None = None
    ) -> NoReturn:
        """Raise the error of something in the user's code, and end its process."""
        self.close()
        raise self._code.error(what, found, expected, line or self._lines.get(what), remedy)

    def close(self) -> None:
        self._process.terminate()  # which ends the process that runs the class, too
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:  # without namespaces it can ignore that
            self._process.kill()
            self._process.wait()
        self._requests.close()
        self._replies.close()

    def __del__(self) -> None:
        if self._process.poll() is None:
            self.close()

    def _flush(self, what: str) -> Any:
        calls, self._calls = self._calls, []
        self._send(what, calls)
        value = self._reply(what).get("value")
        return _Other(value) if isinstance(value, dict | list | str) else value

    def _send(self, what: str, content: object) -> None:
        data = json.dumps(content).encode() + b"\n"
        try:
            while data:
                self._wait(what, writing=True)
                data = data[self._requests.write(data) or 0 :]
        except BrokenPipeError:
            self._ended(what)

    def _reply(self, what: str) -> dict[str, Any]:
        reply = self._next_reply(what)
        if "error" in reply:
            line, remedy = reply.get("line"), str(reply.get("remedy", ""))
            found, line = str(reply["error"]), line if isinstance(line, int) else None
            if reply.get("late") is True:
                self._refuse_late(str(reply.get("what", what)), line)
            self.close()
            raise self._code.error(str(reply.get("what", what)), found, NO_ERROR, line, remedy)
        return reply

    def _next_reply(self, what: str) -> dict[str, Any]:
        """The next line of the process, which the user's code may have written itself."""
        try:
            reply = json.loads(self._line(what))
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            self.refuse(what, "no answer but other output", "code that writes to no file")
        return reply

    def _line(self, what: str) -> bytes:
        while b"\n" not in self._received:
            self._wait(what, writing=False)
            data = self._replies.read(MAX_REPLY)
            if not data or len(self._received) > MAX_REPLY:
                self._ended(what)
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _wait(self, what: str, *, writing: bool) -> None:
        """Wait until a pipe is ready; the time counts."""
        pipes: tuple[list[Any], list[Any]] = ([], [self._requests])
        read, write = pipes if writing else ([self._replies], [])
        ready = False
        while not ready:
            if self._patience.is_over():
                self._refuse_late(what)
            began = time.monotonic()
            ready = any(select.select(read, write, [], _SLICE_S))
            self._patience.wait(min(time.monotonic() - began, _SLICE_S))

    def _refuse_late(self, what: str, line: int | None = None) -> NoReturn:
        """Say that the user's code takes too long, whatever ended it: a signal, a kill, a clock."""
        found = f"no end within {self._cpu_s} s of CPU or {self._patience}"
        remedy = "look for a loop that never ends, or for a wait"
        self.refuse(what, found, "code that finishes", remedy, line)

    def _ended(self, what: str) -> NoReturn:
        """Say that the process has ended, as one that is killed for its limits does.

        Raises:
            InputError: the user's code has ended it.
            MachineError: it ended before it ran any of the user's code.
        """
        if not self._is_ready:
            self.close()
            text = "the process for code of your own ended before it ran any of it"
            raise MachineError(text, f"every user has to be able to read {sys.base_prefix}")
        before_s = _ended_cpu_s()
        try:
            found = f"its process ended ({self._process.wait(_ENDING_S)})"
            if _ended_cpu_s() - before_s >= self._cpu_s:
                self._refuse_late(what)
        except subprocess.TimeoutExpired:
            found = "its process answers no more"
        expected = "code that keeps the limits of CPU time and memory, and does not exit"
        self.refuse(what, found, expected)


class _Other:
    """What the class returned, if it is no number: its text."""

    def __init__(self, value: object) -> None:
        self._text = str(value.get("repr")) if isinstance(value, dict) else repr(value)

    def __repr__(self) -> str:
        return self._text


def _ended_cpu_s() -> float:
    """CPU time of all processes that this one has waited for."""
    times = os.times()
    return times.children_user + times.children_system


def _lines_of(lines: object) -> dict[str, int]:
    """The lines of methods, from an answer that the user's code may have written itself."""
    if not isinstance(lines, dict):
        return {}
    return {str(name): line for name, line in lines.items() if isinstance(line, int)}


def _plain(value: object) -> Any:
    """Dataclasses and named tuples as mappings, of which the process makes the same again."""
    name = type(value).__name__
    if is_dataclass(value) and not isinstance(value, type):
        return {"name": name, "kind": "dataclass", "fields": asdict(value)}
    if isinstance(value, LossReport | SackReport | Ports):
        return {"name": name, "kind": "named tuple", "fields": value._asdict()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
