"""Takes faults and an operator's commands by hand, on the socket in the run's directory.

A process of its own speaks HTTP, with a thread for each client, and passes on what clients ask: one
that is slow, or that probes for long, holds up no other, nor the fabric.
"""

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from queue import SimpleQueue
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from testbed.control_api import Answer
from testbed.emulation.controller.live import SOCKET, LiveControl
from testbed.model.errors import MachineError
from testbed.model.run_files.layout import LOGS
from testbed.sandbox.channel import Channel, decode_error
from testbed.sandbox.processes import Child, spawn
from testbed.sandbox.system_calls import new_socket_name

_PATIENCE_S: Final = 10.0
"""How long a client may be silent before it has sent its request. Ours."""


@contextmanager
def taking_commands(directory: Path) -> Iterator[Child]:
    """Listen while the block runs; yields the process.

    It sends `{"number": ..., "method": ..., "path": ..., "body": ...}`, and waits for `{"number":
    ..., "status": ..., "content": ...}`, in any order.
    """
    child = spawn(
        lambda channel: _serve(directory / SOCKET, channel),
        title="the process that takes commands",
        isolated=False,
        name="control",
        log=directory / LOGS / "control.log",
    )
    try:
        yield child
    finally:
        child.kill()
        child.close()
        (directory / SOCKET).unlink(missing_ok=True)


def requests_from(child: Child) -> list[dict[str, Any]]:
    """The requests that the process has sent.

    Raises:
        TestbedError: it has ended, with the reason.
    """
    messages = child.receive(0)
    for message in messages:
        if "error" in message:
            raise decode_error(message["error"])
    return messages


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_S

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError) as error:  # it has gone, or says nothing
            self.log_error("%s", error)


class _Server(ThreadingMixIn, WSGIServer):
    address_family = socket.AF_UNIX
    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__("", _Handler)  # type: ignore[arg-type] # a path in place of a port

    def server_bind(self) -> None:
        with new_socket_name(self._path) as name:
            self.socket.bind(name)
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, _ = self.socket.accept()
        return connection, ("", 0)


def _serve(path: Path, channel: Channel) -> None:
    """Serve until the run has ended.

    Raises:
        MachineError: no socket can be there.
    """
    numbers = itertools.count()
    waiting: dict[int, SimpleQueue[Answer]] = {}
    sending = threading.Lock()

    def ask(method: str, path: str, body: str) -> Answer:
        number = next(numbers)
        waiting[number] = SimpleQueue()
        with sending:
            channel.send({"number": number, "method": method, "path": path, "body": body})
        answer = waiting[number].get()
        del waiting[number]
        return answer

    try:
        listening = _Server(path)
    except OSError as error:
        what = f"no socket can be in {path.parent}: {error.strerror}"
        raise MachineError(what, "--results on another file system") from error
    with listening as server:
        server.set_app(LiveControl(ask))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for reply in channel.messages():
            waiting[reply["number"]].put((HTTPStatus(reply["status"]), reply["content"]))
