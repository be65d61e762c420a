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
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from testbed.host.own_class import NO_ERROR, Interface
from testbed.model.errors import MachineError
from testbed.model.own_code import OwnCode
from testbed.mrc import LossReport, SackReport

WORKER = Path(__file__).with_name("own_worker.py")

CPU_S = 10
"""CPU time of the process in s; multiplied by `slowness`."""

MEMORY_BYTES = 1 << 30

PATIENCE_S = 120.0
"""How long all calls of a run may take together, also to get a CPU; times `slowness`.

Time in which the machine held up this process as well does not count, nor the start of processes.
"""

ASLEEP_S = 10.0
"""How long the class may sleep in a run, where the system tells that it does; times `slowness`."""

_SLICE_S = 0.1
"""A wait counts in parts of this length: of one that ends late, only this much."""

MAX_REPLY = 1 << 12
_ENDING_S = 2.0


@dataclass
class Patience:
    """How long all objects of a run are still waited for.

    Attributes:
        left_s: what is left of `PATIENCE_S`, in s.
        asleep_s: what is left of `ASLEEP_S`, in s.
    """

    left_s: float
    asleep_s: float

    @classmethod
    def of_a_run(cls, slowness: float) -> "Patience":
        """At the beginning of a run."""
        return cls(PATIENCE_S * slowness, ASLEEP_S * slowness)


class OwnProcess:
    """An object of the user's class in another process. An error there is an `InputError`."""

    def __init__(
        self,
        code: OwnCode,
        interface: Interface,
        *arguments: object,
        restrictions: dict[str, None],
        patience: Patience,
        slowness: float = 1.0,
    ) -> None:
        """Start the process, and make the object there.

        Args:
            code: the class.
            interface: what it has to have.
            arguments: of its constructor.
            restrictions: takes up the restrictions that are in force in the process.
            patience: what is left for the run that the object is of.
            slowness: how many times more CPU time it may take than on the reference machine.
        """
        self._code: Final = code
        self._calls: list[tuple[str, str, tuple[object, ...], dict[str, object]]] = []
        self._process = subprocess.Popen(  # noqa: S603 - Python, and a file of ours
            [sys.executable, "-I", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
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
        self._patience = Patience.of_a_run(slowness)  # for the start
        self._slowness: Final = slowness
        first = {
            "name": code.name,
            "file": code.file,
            "source": code.source,
            "interface": asdict(interface),
            "arguments": [_plain(argument) for argument in arguments],
            "cpu_s": self._cpu_s,
            "memory_bytes": MEMORY_BYTES,
        }
        self._send(code.name, first)
        restrictions.update(dict.fromkeys(self._next_reply(code.name)["held"]))
        self._is_ready, self._patience = True, patience
        reply = self._reply(code.name)
        self._lines = _lines_of(reply.get("lines"))
        if isinstance(mistake := reply.get("mistake"), list):
            what, found, expected, remedy = map(str, [*mistake, "", "", "", ""][:4])
            self.refuse(what, found, expected, remedy)

    def call(self, method: str, *arguments: object, **named: object) -> Any:
        """Call a method: at once if it returns something, else before the next that does."""
        self._calls.append(("call", method, tuple(map(_plain, arguments)), named))
        return None if method.startswith("on_") else self._flush(method)

    def read(self, name: str) -> Any:
        """Read an attribute or a property."""
        self._calls.append(("read", name, (), {}))
        return self._flush(name)

    def refuse(
        self, what: str, found: str, expected: str, remedy: str = "", line: int | None = None
    ) -> NoReturn:
        """Raise the error of something in the user's code, and end its process."""
        self.close()
        raise self._code.error(what, found, expected, line or self._lines.get(what), remedy)

    def close(self) -> None:
        """End the process."""
        self._process.terminate()  # which ends the process that runs the class, too
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:  # without namespaces it can ignore that
            self._process.kill()
            self._process.wait()
        self._requests.close()
        self._replies.close()

    def __del__(self) -> None:
        """End the process with the object."""
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
        ready, left = False, self._patience
        while not ready:
            if min(left.left_s, left.asleep_s) <= 0:
                self._refuse_late(what)
            began = time.monotonic()
            ready = any(select.select(read, write, [], _SLICE_S))
            took_s = min(time.monotonic() - began, _SLICE_S)
            left.left_s -= took_s
            if self._is_ready and not ready and self._sleeps():
                left.asleep_s -= took_s

    def _sleeps(self) -> bool:
        """Whether the process of the class neither runs nor waits for a CPU; False if unknown."""
        process = Path("/proc") / str(self._process.pid)
        try:
            second = (process / "task" / process.name / "children").read_text().split()
            stat = (process.with_name(second[0]) if second else process) / "stat"
            return stat.read_text().rpartition(")")[2].split()[0] == "S"
        except (OSError, IndexError):  # another system, or it has ended
            return False

    def _refuse_late(self, what: str, line: int | None = None) -> NoReturn:
        """Say that the user's code takes too long, whatever ended it: a signal, a kill, a clock."""
        found = (
            f"no end within {self._cpu_s} s of CPU, {ASLEEP_S * self._slowness:.3g} s of sleep and "
            f"{PATIENCE_S * self._slowness:.3g} s of waiting"
        )
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
    if isinstance(value, LossReport | SackReport):
        return {"name": name, "kind": "named tuple", "fields": value._asdict()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
