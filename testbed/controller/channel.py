"""JSON objects, one a line, over a pair of pipes: between the experiment and the controller."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

CHUNK_BYTES = 1 << 16


class Channel:
    """One end of the pair."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        """Take over two descriptors, of which `close` closes both."""
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._partial = b""

    def fileno(self) -> int:
        """The descriptor that becomes readable when `receive` need not wait."""
        return self._read_fd

    def close(self) -> None:
        """Close both."""
        os.close(self._read_fd)
        os.close(self._write_fd)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one object.

        Raises:
            BrokenPipeError: nobody is at the other end.
        """
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._write_fd, data) :]

    def receive(self) -> list[dict[str, Any]] | None:
        """Wait for data; the objects that it completes, perhaps none. None: the other end closed.

        Raises:
            ValueError: what was received is not JSON.
        """
        data = os.read(self._read_fd, CHUNK_BYTES)
        if not data:
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def messages(self, wait_readable: Callable[[int], None]) -> Iterator[dict[str, Any]]:
        """Every object until the other end closes.

        Args:
            wait_readable: waits until the descriptor can be read, so that `receive` need not.
        """
        while True:
            wait_readable(self._read_fd)
            received = self.receive()
            if received is None:
                return
            yield from received
