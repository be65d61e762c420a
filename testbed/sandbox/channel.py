"""JSON objects, one per line, between a process and the one that started it."""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from testbed.model.closeable import Closeable

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
