"""Runs a user's class in a process of its own, which has no access to the run: for grading.

The class gets values and returns values over a pipe. Records, timeline and the other files stay out
of its reach; what could be taken from its process is in `confinement`. Calls that return nothing
are sent with the next one that does, so that a packet costs one turn of the pipe.
"""

import json
import select
import subprocess
import sys
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from testbed.model.errors import InputError
from testbed.model.own_code import OwnCode

WORKER = Path(__file__).with_name("own_worker.py")

PATIENCE_S = 20.0
"""How long one call may take."""

MAX_REPLY = 1 << 12

confinement: Final[dict[str, None]] = {}
"""What held for every process so far: a set that keeps its order."""


class OwnProcess:
    """An object of the user's class in another process. An error there is an `InputError`."""

    def __init__(self, code: OwnCode, method: str, *arguments: object) -> None:
        """Start the process, and make the object there."""
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
        )
        self._received = b""
        first = {
            "name": code.name,
            "file": code.file,
            "source": code.source,
            "method": method,
            "arguments": [_plain(argument) for argument in arguments],
        }
        self._send(first)
        held = json.loads(self._line(code.name))["held"]
        confinement.update(dict.fromkeys(held))
        if not self._reply(code.name):
            self.refuse(code.name, f"no {method}", f"a class with {method}")

    def call(self, method: str, *arguments: object, **named: object) -> Any:
        """Call a method: at once if it returns something, else before the next that does."""
        self._calls.append(("call", method, arguments, named))
        return None if method.startswith("on_") else self._flush(method)

    def read(self, name: str) -> Any:
        """Read an attribute or a property."""
        self._calls.append(("read", name, (), {}))
        return self._flush(name)

    def refuse(self, what: str, found: str, expected: str, line: int | None = None) -> NoReturn:
        """Raise the error of something in the user's code, and end its process."""
        self.close()
        place = self._code.file if line is None else f"{self._code.file}:{line}"
        name = what if what == self._code.name else f"{self._code.name}.{what}"
        raise InputError.of(f"{place}: {name}", found, expected)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __del__(self) -> None:
        """End the process with the object."""
        if self._process.poll() is None:
            self.close()

    def _flush(self, what: str) -> Any:
        calls, self._calls = self._calls, []
        self._send(calls)
        return self._reply(what)

    def _send(self, content: object) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it was asked for
        data = json.dumps(content).encode() + b"\n"
        try:
            while data:
                data = data[self._process.stdin.write(data) :]
        except BrokenPipeError:
            self._ended()

    def _reply(self, what: str) -> Any:
        reply = json.loads(self._line(what))
        if "error" in reply:
            self.refuse(what, reply["error"], "code that raises no error", reply["line"])
        value = reply["value"]
        if isinstance(value, dict):
            self.refuse(what, value["repr"], "a number or None")
        return value

    def _line(self, what: str) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        while b"\n" not in self._received:
            if not select.select([self._process.stdout], [], [], PATIENCE_S)[0]:
                self.refuse(what, f"no answer in {PATIENCE_S:g} s", "code that comes to its end")
            data = self._process.stdout.read(MAX_REPLY)
            if not data or len(self._received) > MAX_REPLY:
                self._ended(what)
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _ended(self, what: str = "") -> NoReturn:
        """Say that the process has ended, as one that is killed for its limits does."""
        status = self._process.wait(PATIENCE_S)
        found = f"its process ended ({status})"
        expected = "code that keeps the limits of CPU time and memory, and does not exit"
        self.refuse(what or self._code.name, found, expected)


def _plain(value: object) -> Any:
    """Dataclasses as mappings."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
