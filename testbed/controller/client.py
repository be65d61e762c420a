"""The other end of the live control: what injects and heals faults from outside the sandbox.

A UNIX socket in the file system is reached from any network namespace; the sandbox's TCP ports are
not, so `forward` offers the socket on the host's loopback where a browser or a script wants TCP.
"""

import asyncio
import contextlib
import json
import os
import socket
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Self

from testbed.controller.live import SOCKET
from testbed.model.closeable import Closeable
from testbed.model.errors import InputError, Problem, RunFailedError

TIMEOUT_S = 10.0


def socket_of(run: Path) -> Path:
    """The socket of a run that is under way.

    Raises:
        InputError: nothing runs there.
    """
    path = run / SOCKET
    with contextlib.suppress(OSError), _connected(path):
        return path
    expected = "the directory of a run that is under way (testbed run, testbed shell)"
    raise InputError(
        [Problem("RUN", str(run), expected, "it is named as the run or the prompt begins")]
    )


def _connected(path: Path) -> socket.socket:
    """A connection; by the directory's descriptor, as a socket's path may have 107 bytes only."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    found = socket.socket(socket.AF_UNIX)
    try:
        found.settimeout(TIMEOUT_S)
        found.connect(f"/proc/self/fd/{directory}/{path.name}")
    except OSError:
        found.close()
        raise
    finally:
        os.close(directory)
    return found


class Client(Closeable):
    """Speaks to the controller of one run."""

    def __init__(self, path: Path) -> None:
        """Connect to a socket."""
        self._http = HTTPConnection("localhost", timeout=TIMEOUT_S)
        self._http.sock = _connected(path)

    @classmethod
    def of(cls, run: Path) -> Self:
        """Connect to a run that is under way.

        Raises:
            InputError: nothing runs there.
        """
        return cls(socket_of(run))

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def faults(self) -> list[dict[str, Any]]:
        """Every fault so far."""
        found: list[dict[str, Any]] = self._ask("GET", "/faults")
        return found

    def inject(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Inject a fault, given as an entry of a timeline; returns its record.

        Raises:
            InputError: it is wrong.
            RunFailedError: it did not take effect.
        """
        record: dict[str, Any] = self._ask("POST", "/faults", entry)
        return record

    def heal(self, index: int) -> dict[str, Any]:
        """Heal a fault; returns its record.

        Raises:
            InputError: there is none of that number in force.
            RunFailedError: it did not heal.
        """
        record: dict[str, Any] = self._ask("DELETE", f"/faults/{index}")
        return record

    def _ask(self, method: str, path: str, content: object = None) -> Any:
        body = None if content is None else json.dumps(content)
        try:
            self._http.request(method, path, body)
            response = self._http.getresponse()
            answer = json.loads(response.read())
        except (OSError, HTTPException) as error:
            raise RunFailedError(f"the controller of the run does not answer: {error}") from error
        if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise RunFailedError(str(answer.get("error", answer)))
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise InputError([Problem(**one) for one in answer["errors"]])
        return answer


# --- on the loopback --------------------------------------------------------------------------


def forward(path: Path, port: int) -> None:
    """Offer a socket on TCP port of the loopback, until interrupted.

    Raises:
        InputError: the port is taken.
    """
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(path, port))


async def _serve(path: Path, port: int) -> None:
    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(sock=_connected(path))
        except OSError:  # the run has ended
            writer.close()
            return
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    try:
        server = await asyncio.start_server(joined, "127.0.0.1", port)
    except OSError as error:
        problem = Problem("--port", str(port), f"a free TCP port ({error.strerror})")
        raise InputError([problem]) from error
    async with server:
        await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
