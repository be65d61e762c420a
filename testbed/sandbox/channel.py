"""JSON objects, one per line, between a process and the one that started it."""

import json
import os
import socket
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple
from typing import Any, Self

from testbed.model.closeable import Closeable
from testbed.model.errors import Problem, TestbedError

CHUNK_BYTES = 1 << 16


class Channel(Closeable):
    """One end of a pair of connected stream sockets."""

    def __init__(self, descriptor: int) -> None:
        """Take over the descriptor, which `close` closes."""
        self._descriptor = descriptor
        self._partial = b""

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        """Open two connected ends."""
        here, there = socket.socketpair()
        return cls(here.detach()), cls(there.detach())

    def fileno(self) -> int:
        """The descriptor that becomes readable when `receive` need not wait."""
        return self._descriptor

    def close(self) -> None:
        """Close this end; it may be closed already."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one object.

        Raises:
            ConnectionError: nobody is at the other end.
        """
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]

    def report(self, step: str, done: float) -> None:
        """Send what is being done and how much of it is done: a `Progress`."""
        self.send({"progress": [step, done]})

    def receive(self) -> list[dict[str, Any]] | None:
        """Wait for data; return the objects that it completes, perhaps none.

        Returns None once the other end is closed.

        Raises:
            ValueError: what was received is not JSON.
        """
        try:
            data = os.read(self._descriptor, CHUNK_BYTES)
        except ConnectionResetError:  # it was closed before it had read all that was sent to it
            data = b""
        if not data:
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def messages(
        self, wait_readable: Callable[[int], None] = lambda _: None
    ) -> Iterator[dict[str, Any]]:
        """Yield every object until the other end closes.

        Args:
            wait_readable: called with the descriptor before each `receive`; it may wait until that
                need not.
        """
        while True:
            wait_readable(self._descriptor)
            received = self.receive()
            if received is None:
                return
            yield from received


# --------------------------------------------------------------------------------------------------
# Results and errors of a process as JSON: decoding them creates plain values, and runs no code.


_TAGGED: dict[str, tuple[type, Callable[[Any], Iterable[Any]], Callable[[list[Any]], Any]]] = {
    "tuple": (tuple, list, tuple),
    "set": (set, list, set),
    "frozenset": (frozenset, list, frozenset),
    "dict": (dict, lambda value: [list(item) for item in value.items()], dict),
    "bytes": (bytes, lambda value: [b64encode(value).decode()], lambda parts: b64decode(parts[0])),
    "problem": (Problem, astuple, lambda parts: Problem(*parts)),
}
"""What JSON lacks, by its tag: the type, what takes a value apart, what puts it together."""


def encode(value: object) -> Any:
    """Turn a value into what `json` can write.

    Args:
        value: None, a bool, number, string or bytes, or a list, tuple, set or dict of such values.

    Raises:
        TypeError: it is, or contains, something else.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [encode(item) for item in value]
    for tag, (kind, take_apart, _) in _TAGGED.items():
        if isinstance(value, kind):
            return {tag: [encode(part) for part in take_apart(value)]}
    raise TypeError(f"cannot send a {type(value).__name__} to another process")


def decode(encoded: Any) -> Any:
    """Turn back what `encode` has returned."""
    if isinstance(encoded, list):
        return [decode(item) for item in encoded]
    if isinstance(encoded, dict):
        ((tag, parts),) = encoded.items()
        return _TAGGED[tag][2]([decode(part) for part in parts])
    return encoded


def encode_error(error: TestbedError) -> dict[str, Any]:
    """Turn an error, with its attributes, into what `json` can write."""
    classes = [base.__name__ for base in type(error).__mro__ if issubclass(base, TestbedError)]
    return {
        "classes": classes,
        "arguments": encode(list(error.args)),
        "attributes": encode(vars(error)),
    }


def decode_error(encoded: dict[str, Any]) -> TestbedError:
    """Turn back what `encode_error` has returned.

    The error is of its own class where this process has loaded it, otherwise of the nearest base.
    """
    loaded = {kind.__name__: kind for kind in _classes(TestbedError)}
    kind = next(loaded[name] for name in encoded["classes"] if name in loaded)
    error = kind.__new__(kind, *decode(encoded["arguments"]))
    vars(error).update(decode(encoded["attributes"]))
    return error


def _classes(base: type[TestbedError]) -> Iterator[type[TestbedError]]:
    yield base
    for derived in base.__subclasses__():
        yield from _classes(derived)
